/* checkpoint/folder.c - see folder.h: claims, checks of the owner, the folder's id. A lease's epoch
 * is in its name, which damage to its contents does not change; the contents only identify the
 * owner. */
#include "checkpoint/folder.h"
#include "base/log.h"
#include "files/durable.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT_BYTES = 4096, MOST_CLAIMS = 16 };
static const char id_name[] = "folder-id";

/* Highest epochs in the names of the folder's files. */
struct seen {
    uint64_t lease; /* highest epoch of a lease; 0: none */
    uint64_t any;   /* highest epoch of any file */
    bool mine;      /* the lease of the epoch that the caller asks for exists */
};

enum status checkpoint_folder_make(const char *path)
{
    struct stat s;
    if (mkdir(path, 0777) == 0) {
        enum status st = durable_sync_name(path);
        if (st != ST_OK)
            return st;
    } else if (errno != EEXIST) {
        enum status st = status_of_errno(errno);
        LOG_E("--checkpoint_dir: %s cannot be created: %s%s", path, strerror(errno),
              errno == ENOENT ? "; create its parent folder first" : "");
        return st;
    }
    if (stat(path, &s) != 0) { /* the folder disappeared after its creation, or its disk fails */
        enum status st = errno == ENOENT ? ST_IO : status_of_errno(errno);
        LOG_E("--checkpoint_dir: %s cannot be read: %s", path, strerror(errno));
        return st;
    }
    if (!S_ISDIR(s.st_mode)) {
        LOG_E("--checkpoint_dir: %s is not a folder", path);
        return ST_INVALID;
    }
    return ST_OK;
}

void checkpoint_folder_host(char host[LEASE_HOST_BYTES])
{
    host[LEASE_HOST_BYTES - 1] = 0; /* gethostname() does not terminate a name that it cuts */
    if (gethostname(host, LEASE_HOST_BYTES - 1) != 0)
        host[0] = 0;
}

static void lease_path(const char *folder, uint64_t epoch, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/lease-%" PRIu64, folder, epoch);
}

/* Returns the epoch in the name of a lease; 0: another name. */
static uint64_t lease_epoch(const char *name)
{
    static const char lease[] = "lease-";
    uint64_t epoch;
    if (strncmp(name, lease, strlen(lease)) != 0)
        return 0;
    const char *end = checkpoint_name_number(name + strlen(lease), 8, &epoch);
    return end && !*end && epoch <= TERM_MAX_EPOCH ? epoch : 0;
}

/* Calls `visit` for each name in the folder. A folder that does not exist counts as empty. */
static enum status each_name(const char *folder, void (*visit)(void *ctx, const char *name),
                             void *ctx)
{
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOENT)
        return ST_OK;
    errno = dir ? 0 : errno;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        visit(ctx, e->d_name);
        errno = 0;
    }
    enum status st = errno ? status_of_errno(errno) : ST_OK;
    if (st != ST_OK)
        LOG_E("%s: cannot be read: %s%s", folder, strerror(errno),
              st == ST_INVALID && errno == EACCES ? "; let the user of this program read it" : "");
    if (dir)
        closedir(dir);
    return st;
}

struct scan {
    struct seen *seen;
    uint64_t mine;
};

static void note_name(void *ctx, const char *name)
{
    struct scan *k = ctx;
    struct checkpoint_name is;
    uint64_t epoch = lease_epoch(name);
    if (epoch > k->seen->lease)
        k->seen->lease = epoch;
    k->seen->mine |= epoch > 0 && epoch == k->mine;
    checkpoint_name_parse(name, &is);
    if (is.kind != CHECKPOINT_NAME_OTHER && checkpoint_term_epoch(is.id.generation) > epoch)
        epoch = checkpoint_term_epoch(is.id.generation);
    if (epoch > k->seen->any)
        k->seen->any = epoch;
}

static enum status scan_names(const char *folder, uint64_t mine, struct seen *out)
{
    *out = (struct seen){0};
    return each_name(folder, note_name, &(struct scan){out, mine});
}

/* Reads the generation that an old version of Weir, without epochs, recorded in a file of its
 * own. */
static uint64_t recorded_generation(const char *folder)
{
    char path[PATH_MAX];
    uint64_t generation = 0;
    FILE *f = NULL;
    if ((size_t)snprintf(path, sizeof path, "%s/generation", folder) < sizeof path)
        f = fopen(path, "re");
    if (!f || fscanf(f, "%18" SCNu64, &generation) != 1)
        generation = 0;
    if (f)
        fclose(f);
    return generation;
}

/* Reads the file's text, at most TEXT_BYTES - 1 of it. ST_NOT_FOUND: not logged. */
static enum status read_text(const char *path, char text[TEXT_BYTES])
{
    FILE *f = fopen(path, "re");
    if (!f && errno == ENOENT)
        return ST_NOT_FOUND;
    size_t n = f ? fread(text, 1, TEXT_BYTES - 1, f) : 0;
    enum status st = f && !ferror(f) ? ST_OK : errno == EACCES ? ST_INVALID : ST_IO;
    if (st != ST_OK)
        LOG_E("%s: cannot be read: %s%s", path, strerror(errno),
              st == ST_INVALID ? "; " FOLDER_USERS : "");
    text[n] = 0;
    if (f)
        fclose(f);
    return st;
}

/* Reads the lease of the epoch; it has no address if it is damaged. */
static enum status read_lease(const char *folder, uint64_t epoch, struct checkpoint_lease *out)
{
    char path[PATH_MAX], text[TEXT_BYTES];
    *out = (struct checkpoint_lease){.epoch = epoch};
    lease_path(folder, epoch, path);
    enum status st = read_text(path, text);
    if (st != ST_OK)
        return st;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *incarnation = json_string_value(json_object_get(root, "incarnation"));
    const char *address = json_string_value(json_object_get(root, "address"));
    const char *host = json_string_value(json_object_get(root, "host"));
    if (incarnation && address && strlen(incarnation) == 16 &&
        strlen(address) < sizeof out->address) {
        out->incarnation = strtoull(incarnation, NULL, 16);
        memcpy(out->address, address, strlen(address) + 1);
        snprintf(out->host, sizeof out->host, "%s", host ? host : "");
    }
    json_decref(root);
    return ST_OK;
}

static const char *owner_name(const struct checkpoint_lease *l)
{
    return l->address[0] ? l->address : "an unknown process";
}

/* Creates a lease. ST_BUSY: the epoch already has one (not logged). */
static enum status record_lease(const char *folder, const struct checkpoint_lease *l)
{
    char path[PATH_MAX], incarnation[20];
    lease_path(folder, l->epoch, path);
    snprintf(incarnation, sizeof incarnation, "%016" PRIx64, l->incarnation);
    json_t *root = json_pack("{s:I, s:s, s:s, s:s}", "epoch", (json_int_t)l->epoch, "incarnation",
                             incarnation, "address", l->address, "host", l->host);
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    enum status st = text ? durable_put_new(path, text, strlen(text)) : ST_NOMEM;
    if (!text)
        LOG_E("%s: out of memory, or the address '%s' is not UTF-8", path, l->address);
    free(text);
    json_decref(root);
    return st;
}

struct cleanup {
    const char *folder;
    uint64_t epoch;
    enum status st;
};

/* Renames back a manifest that the previous owner was about to remove, because training may
 * resume from it. */
static void rename_back(void *ctx, const char *name)
{
    struct cleanup *t = ctx;
    struct checkpoint_name is;
    char from[PATH_MAX], to[PATH_MAX], plain[MANIFEST_NAME_BYTES];
    checkpoint_name_parse(name, &is);
    if (is.kind != CHECKPOINT_NAME_MANIFEST || !is.old)
        return;
    checkpoint_manifest_name(is.id, plain);
    if ((size_t)snprintf(from, sizeof from, "%s/%s", t->folder, name) >= sizeof from ||
        (size_t)snprintf(to, sizeof to, "%s/%s", t->folder, plain) >= sizeof to)
        return;
    enum status st = durable_rename(from, to);
    if (st != ST_OK && st != ST_NOT_FOUND)
        t->st = st;
}

static void remove_lower(void *ctx, const char *name)
{
    struct cleanup *t = ctx;
    char path[PATH_MAX];
    uint64_t epoch = lease_epoch(name);
    if (epoch == 0 || epoch >= t->epoch)
        return;
    lease_path(t->folder, epoch, path);
    durable_remove(path); /* a failed removal does no harm, since the highest epoch counts */
}

static enum status refuse_simultaneous(const char *folder, const struct checkpoint_lease *other)
{
    LOG_E("%s: %s claimed this folder at the same moment (term %" PRIu64
          "); only one job may have this --checkpoint_dir",
          folder, owner_name(other), other->epoch);
    return ST_BUSY;
}

/* Records an epoch that no lease has yet. looked_at: see checkpoint_folder_claim(). */
static enum status record_epoch(const char *folder, uint64_t above,
                                const struct checkpoint_lease *looked_at,
                                struct checkpoint_lease *l, struct checkpoint_lease *before)
{
    struct seen seen;
    enum status st = ST_BUSY;
    for (int i = 0; i < MOST_CLAIMS && st == ST_BUSY; i++) {
        TRY(scan_names(folder, 0, &seen));
        *before = (struct checkpoint_lease){0};
        if (seen.lease > 0)
            read_lease(folder, seen.lease, before);
        if (looked_at && seen.lease > looked_at->epoch && before->incarnation != l->incarnation)
            return refuse_simultaneous(folder, before);
        uint64_t highest = seen.any > above ? seen.any : above;
        uint64_t old = checkpoint_term_epoch(recorded_generation(folder));
        l->epoch = (old > highest ? old : highest) + 1;
        if (l->epoch > TERM_MAX_EPOCH) {
            LOG_E(
                "%s: %" PRIu64
                " is the last possible term; start with another --checkpoint_dir and --restore=%s",
                folder, highest, folder);
            return ST_RANGE;
        }
        st = record_lease(folder, l);
    }
    if (st == ST_BUSY)
        LOG_E(
            "%s: other programs claim this folder repeatedly; only one ps 0, or one worker without servers, may use this --checkpoint_dir: stop all but one",
            folder);
done:
    return st;
}

enum status checkpoint_folder_claim(const char *folder, uint64_t incarnation, const char *address,
                                    uint64_t above, const struct checkpoint_lease *looked_at,
                                    struct checkpoint_lease *out)
{
    struct checkpoint_lease l = {.incarnation = incarnation}, before, other;
    struct cleanup t = {.folder = folder, .st = ST_OK};
    struct seen seen;
    enum status st = ST_OK;
    snprintf(l.address, sizeof l.address, "%s", address);
    checkpoint_folder_host(l.host);
    TRY(record_epoch(folder, above, looked_at, &l, &before));
    TRY(scan_names(folder, l.epoch, &seen));
    if (seen.lease > l.epoch) {
        read_lease(folder, seen.lease, &other);
        return refuse_simultaneous(folder, &other);
    }
    TRY(each_name(folder, rename_back, &t));
    TRY(t.st);
    t.epoch = l.epoch;
    TRY(each_name(folder, remove_lower, &t));
    if (before.epoch > 0 && before.incarnation != incarnation)
        LOG_I("%s: claimed from %s (term %" PRIu64
              "): that process ends if it still runs; this process has term %" PRIu64,
              folder, owner_name(&before), before.epoch, l.epoch);
    *out = l;
done:
    return st;
}

enum status checkpoint_folder_lease(const char *folder, struct checkpoint_lease *out)
{
    struct seen seen;
    struct checkpoint_lease l = {0};
    enum status st = scan_names(folder, 0, &seen);
    if (st == ST_OK && seen.lease > 0)
        st = read_lease(folder, seen.lease, &l);
    if (st == ST_OK || st == ST_NOT_FOUND)
        *out = l;
    return st == ST_NOT_FOUND ? ST_OK : st;
}

static enum status refuse_replaced(const char *folder, uint64_t epoch,
                                   const struct checkpoint_lease *mine)
{
    struct checkpoint_lease other = {0};
    read_lease(folder, epoch, &other);
    LOG_E("%s: %s has since claimed this folder (term %" PRIu64 ", this process has %" PRIu64
          "): this process was replaced, and ends without removing files",
          folder, owner_name(&other), epoch, mine->epoch);
    return ST_REFUSED;
}

bool checkpoint_folder_owner_ended(const char *folder, const struct checkpoint_lease *owner,
                                   struct timespec *since)
{
    struct stat file;
    char path[PATH_MAX];
    bool fits = (size_t)snprintf(path, sizeof path, "%s/up-%s", folder, owner->address) <
                sizeof path; /* ps 0 removes this file at its end (ps/node.h) */
    bool ended = fits && owner->epoch > 0 && access(path, F_OK) != 0 && errno == ENOENT;
    if (ended) {
        snprintf(path, sizeof path, "%s/lease-%" PRIu64, folder, owner->epoch);
        ended = stat(path, &file) == 0;
    }
    if (ended && since)
        *since = file.st_mtim;
    return ended;
}

enum status checkpoint_folder_still_owner(const char *folder, const struct checkpoint_lease *mine)
{
    struct seen seen;
    struct checkpoint_lease there;
    enum status st = ST_OK;
    TRY(scan_names(folder, mine->epoch, &seen));
    if (seen.lease == 0 && seen.any <= mine->epoch) {
        st = record_lease(folder, mine);
        if (st == ST_OK)
            LOG_W("%s: this folder was emptied; term %" PRIu64 " is recorded again", folder,
                  mine->epoch);
        if (st != ST_BUSY)
            return st;
        TRY(scan_names(folder, mine->epoch, &seen));
    }
    if (seen.lease < mine->epoch)
        return refuse_replaced(folder, seen.lease, mine);
    TRY(read_lease(folder, seen.lease, &there));
    /* The highest lease may also belong to a later claim of this process, whose clean-up failed. */
    bool is_mine = there.address[0] && there.incarnation == mine->incarnation;
    bool is_damaged = !there.address[0] && seen.mine && seen.lease == mine->epoch;
    if (!is_mine && !is_damaged)
        return refuse_replaced(folder, seen.lease, mine);
done:
    return st == ST_NOT_FOUND ? ST_IO : st; /* the lease was removed after the scan */
}

static enum status read_id(const char *path, char id[FOLDER_ID_BYTES])
{
    char text[TEXT_BYTES];
    enum status st = read_text(path, text);
    if (st != ST_OK)
        return st;
    if (strspn(text, "0123456789abcdef") != FOLDER_ID_BYTES - 1) {
        LOG_E("%s: this file contains no folder id; remove the file, and a new one is created",
              path);
        return ST_INVALID;
    }
    snprintf(id, FOLDER_ID_BYTES, "%.*s", FOLDER_ID_BYTES - 1, text);
    return ST_OK;
}

enum status checkpoint_folder_is(const char *folder, const char *id)
{
    char path[PATH_MAX], there[FOLDER_ID_BYTES];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, id_name) >= sizeof path)
        return ST_INVALID;
    enum status st = read_id(path, there);
    if (st == ST_NOT_FOUND || (st == ST_OK && strcmp(there, id) != 0)) {
        LOG_FEW(
            "%s: is not the same folder as before (emptied, or not mounted?): servers keep their files of the checkpoints that this folder lacks",
            folder);
        st = ST_NOT_FOUND;
    }
    return st;
}

enum status checkpoint_folder_id(const char *folder, char id[FOLDER_ID_BYTES])
{
    char path[PATH_MAX], text[FOLDER_ID_BYTES];
    uint64_t random[2];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, id_name) >= sizeof path) {
        LOG_E("%s/%s: the path is too long", folder, id_name);
        return ST_INVALID;
    }
    enum status st = read_id(path, id);
    if (st != ST_NOT_FOUND)
        return st;
    if (getrandom(random, sizeof random, 0) != sizeof random) {
        LOG_E("%s: cannot get a random number: %s", path, strerror(errno));
        return ST_IO;
    }
    snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    st = durable_put_new(path, text, strlen(text));
    if (st != ST_OK && st != ST_BUSY)
        return st;
    st = read_id(path, id); /* another process may have created it first */
    return st == ST_NOT_FOUND ? ST_IO : st;
}
