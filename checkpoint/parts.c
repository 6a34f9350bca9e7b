/* checkpoint/parts.c - see parts.h. */
#include "checkpoint/parts.h"
#include "base/log.h"
#include "files/durable.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct found {
    struct checkpoint_part part;
    bool unread;    /* the file could not be read now, but may be good */
    bool whole;     /* size and header are as expected */
    bool mine;      /* no other server is known to have written the file */
    bool temporary; /* the file is unfinished */
    char name[NAME_MAX + 1];
};

struct finds {
    const char *folder, *address;
    const char *home; /* id of ps 0's folder; NULL: not compared */
    struct found *list;
    int n;
};

/* Returns true if entry i of a list with commas is this address. */
static bool names_at(const char *list, int i, const char *address)
{
    for (; i > 0 && list; i--) {
        list = strchr(list, ',');
        list += list != NULL;
    }
    size_t n = strlen(address);
    return list && strncmp(list, address, n) == 0 && (!list[n] || list[n] == ',');
}

bool checkpoint_part_is_from(const struct safetensors_file *f, int server, const char *address)
{
    const char *addresses = safetensors_metadata(f, "addresses");
    return addresses && names_at(addresses, server, address);
}

static bool is_number(const char *text, uint64_t want)
{
    char own[32];
    snprintf(own, sizeof own, "%" PRIu64, want);
    return text && strcmp(text, own) == 0;
}

/* Reads the file's metadata, and compares them with its name. */
static enum status look_into(const struct finds *all, struct found *f, char *why)
{
    char path[PATH_MAX];
    struct safetensors_file *file = NULL;
    struct checkpoint_part *p = &f->part;
    snprintf(why, SAFETENSORS_WHY_BYTES, "the path is too long");
    if ((size_t)snprintf(path, sizeof path, "%s/%s", all->folder, f->name) >= sizeof path)
        return ST_IO;
    enum status st = safetensors_open_any(path, &file, why);
    if (st != ST_OK)
        return st;
    const char *generation = safetensors_metadata(file, "generation");
    const char *addresses = safetensors_metadata(file, "addresses");
    const char *home = all->home ? safetensors_metadata(file, "folder") : NULL;
    f->mine = !all->address || !addresses || names_at(addresses, p->server, all->address) ||
              (home && strcmp(home, all->home) == 0);
    if (p->id.generation == 0 && generation)
        p->id.generation = strtoull(generation, NULL, 10);
    if (!is_number(generation, p->id.generation) || p->id.generation == 0 ||
        !is_number(safetensors_metadata(file, "step"), (uint64_t)p->id.step) ||
        !is_number(safetensors_metadata(file, "server"), (uint64_t)p->server) ||
        !is_number(safetensors_metadata(file, "servers"), (uint64_t)p->n_servers)) {
        snprintf(
            why, SAFETENSORS_WHY_BYTES,
            "names a checkpoint or server in its metadata that differs from the one in its file name");
        st = ST_CORRUPT;
    } else {
        st = safetensors_measure(file, &p->file, why);
    }
    safetensors_close(file);
    return st;
}

static int newest_first(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    int by_id = checkpoint_names_compare(y->part.id, x->part.id);
    return by_id ? by_id : x->part.server - y->part.server;
}

static enum status add_name(struct finds *all, const char *name)
{
    struct checkpoint_name is;
    checkpoint_name_parse(name, &is);
    if (is.server < 0 || (is.kind != CHECKPOINT_NAME_FILE && is.kind != CHECKPOINT_NAME_TEMPORARY))
        return ST_OK;
    if ((all->n & (all->n - 1)) == 0) {
        struct found *grown =
            realloc(all->list, (all->n ? 2 * (size_t)all->n : 1) * sizeof *all->list);
        if (!grown)
            return ST_NOMEM;
        all->list = grown;
    }
    struct found *f = &all->list[all->n++];
    *f = (struct found){.part = {is.id, is.server, is.n_servers, {0, 0}},
                        .mine = 1,
                        .temporary = is.kind == CHECKPOINT_NAME_TEMPORARY};
    snprintf(f->name, sizeof f->name, "%s", name);
    return ST_OK;
}

/* Lists all files in the folder, complete or not, newest first. */
static enum status find_all(struct finds *all)
{
    enum status st = ST_OK;
    char why[SAFETENSORS_WHY_BYTES];
    DIR *dir = opendir(all->folder);
    if (!dir && errno != ENOENT) {
        st = status_of_errno(errno);
        LOG_E("%s: cannot be read: %s", all->folder, strerror(errno));
        return st;
    }
    errno = 0;
    for (struct dirent *e; dir && st == ST_OK && (e = readdir(dir)); errno = 0)
        st = add_name(all, e->d_name);
    if (dir && st == ST_OK && errno) {
        st = status_of_errno(errno);
        LOG_E("%s: cannot be read to its end: %s", all->folder, strerror(errno));
    }
    if (dir)
        closedir(dir);
    for (int i = 0; i < all->n && st == ST_OK; i++) {
        if (all->list[i].temporary)
            continue;
        enum status one = look_into(all, &all->list[i], why);
        all->list[i].whole = one == ST_OK;
        all->list[i].unread = one == ST_IO;
        all->list[i].mine &= one != ST_IO; /* an unread file may be another server's */
        if (one == ST_NOMEM) {
            LOG_E("%s/%s: cannot be read now: %s", all->folder, all->list[i].name, why);
            return one;
        }
        if (one != ST_OK)
            LOG_W("%s/%s: skipped: %s", all->folder, all->list[i].name, why);
    }
    if (st == ST_NOMEM)
        LOG_E("%s: out of memory for its %d files", all->folder, all->n);
    if (st == ST_OK && all->n > 0)
        qsort(all->list, (size_t)all->n, sizeof *all->list, newest_first);
    return st;
}

enum status checkpoint_parts_list(const char *folder, const char *address,
                                  struct checkpoint_part **out, int *n, int *n_unread)
{
    struct finds all = {.folder = folder, .address = address};
    struct checkpoint_part *list = NULL;
    int n_list = 0, n_bad = 0;
    enum status st = ST_OK;
    TRY(find_all(&all));
    list = calloc((size_t)all.n + 1, sizeof *list);
    if (!list) {
        LOG_E("%s: out of memory for a list of its %d files", folder, all.n);
        TRY(ST_NOMEM);
    }
    for (int i = 0; i < all.n; i++) {
        n_bad += all.list[i].unread;
        if (all.list[i].whole && all.list[i].mine)
            list[n_list++] = all.list[i].part;
    }
    if (n_unread)
        *n_unread = n_bad;
    *out = list;
    *n = n_list;
done:
    free(all.list);
    return st;
}

bool checkpoint_parts_have_all_steps(const char *folder)
{
    struct checkpoint_part *list = NULL;
    struct safetensors_file *f = NULL;
    char name[MANIFEST_NAME_BYTES], path[PATH_MAX], why[SAFETENSORS_WHY_BYTES];
    int n = 0;
    bool all = false;
    if (checkpoint_parts_list(folder, NULL, &list, &n, NULL) != ST_OK || n == 0)
        goto done;
    checkpoint_manifest_file_name(list->id, list->server, list->n_servers, name);
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path &&
        safetensors_open_any(path, &f, why) == ST_OK) {
        const char *steps = safetensors_metadata(f, "train_steps");
        all = steps && strtoll(steps, NULL, 10) <= list->id.step;
    }
done:
    safetensors_close(f);
    free(list);
    return all;
}

/* Returns true if the part is of this checkpoint. In epoch 0 a damaged file's generation is
 * unknown, so only the step is compared. */
static bool is_same(struct checkpoint_id part, struct checkpoint_id id)
{
    return part.step == id.step && id.generation > 0 &&
           (part.generation == id.generation ||
            (part.generation == 0 && checkpoint_term_epoch(id.generation) == 0));
}

static bool is_kept(const struct found *f, const struct checkpoint_keep *keep)
{
    uint64_t epoch = checkpoint_term_epoch(f->part.id.generation),
             now = checkpoint_term_epoch(keep->generation);
    if (!f->mine || epoch > now || is_same(f->part.id, keep->writing) ||
        (f->temporary && is_same(f->part.id, keep->ordered)))
        return true;
    if (keep->older_stay && keep->n_kept > 0 && !f->temporary &&
        checkpoint_names_compare(f->part.id, keep->kept[keep->n_kept - 1]) < 0)
        return true;
    for (int i = 0; i < keep->n_kept && !f->temporary; i++)
        if (is_same(f->part.id, keep->kept[i]))
            return true;
    return epoch < now && keep->n_kept == 0 && !f->temporary;
}

enum status checkpoint_parts_clean(const char *folder, const char *address,
                                   const struct checkpoint_keep *keep)
{
    struct finds all = {.folder = folder, .address = address, .home = keep->home};
    char path[PATH_MAX];
    enum status st = ST_OK, failed = ST_OK;
    TRY(find_all(&all));
    for (int i = 0; i < all.n; i++) {
        if (is_kept(&all.list[i], keep) ||
            (keep->needs && keep->needs(keep->ctx, all.list[i].part.id)) ||
            (size_t)snprintf(path, sizeof path, "%s/%s", folder, all.list[i].name) >= sizeof path)
            continue;
        st = durable_remove(path);
        failed = st != ST_OK ? st : failed;
    }
    st = failed;
done:
    free(all.list);
    return st;
}
