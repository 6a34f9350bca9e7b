/* checkpoint/restore.c - see restore.h: finds and opens checkpoints. A tensor's name contains its
 * parameter and range of elements. Sorted by position, the tensors of the values must cover all
 * parameters without gaps, and the tensors of each slot all trained parameters. The tensors of one
 * server's part may leave gaps. tables_file.c checks the tensors of buckets. */
#include "base/log.h"
#include "checkpoint/best.h"
#include "checkpoint/restore_impl.h"
#include "checkpoint/shard_file.h"
#include "net/wire/tables.h"
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status explain_corrupt(char why[MANIFEST_WHY_BYTES], const char *file, const char *text)
{
    char copy[SAFETENSORS_WHY_BYTES]; /* copy of `text`, which may be stored in `why` itself */
    snprintf(copy, sizeof copy, "%s", text);
    snprintf(why, MANIFEST_WHY_BYTES, "%s %s", file, copy);
    return ST_CORRUPT;
}

static int by_name(const void *a, const void *b)
{
    const struct net_param *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Returns the parameters sorted by name, malloc'd. */
static const struct net_param **index_params(const struct chunks *chunks)
{
    const struct net_param **index = malloc((size_t)chunks->n_params * sizeof *index);
    for (int i = 0; index && i < chunks->n_params; i++)
        index[i] = &chunks->params[i];
    if (index)
        qsort(index, (size_t)chunks->n_params, sizeof *index, by_name);
    return index;
}

/* Reads a tensor's name. Returns false if the name is not valid, or the tensor is not float32 or
 * does not have the length in its name. */
static bool place_tensor(const struct checkpoint_manifest *m, const struct net_param **index,
                         struct tensor *t)
{
    char name[CHUNKS_MAX_NAME + 1];
    const char *text = t->entry->name, *space = strchr(text, ' ');
    size_t length = space ? (size_t)(space - text) : strlen(text);
    if (length > CHUNKS_MAX_NAME)
        return false;
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    const struct net_param want = {.name = name}, *key = &want;
    const struct net_param **found =
        bsearch(&key, index, (size_t)m->chunks->n_params, sizeof *index, by_name);
    if (!found)
        return false;
    int64_t begin = 0, end = (*found)->n_elems;
    int used = 0;
    const char *rest = text + length;
    t->slot = -1;
    if (sscanf(rest, " slot %d%n", &t->slot, &used) == 1)
        rest += used;
    used = 0;
    if (*rest && (sscanf(rest, " [%" SCNd64 ":%" SCNd64 "]%n", &begin, &end, &used) != 2 || !used ||
                  rest[used]))
        return false;
    int n_slots = (*found)->rule == PARAM_AVERAGE ? 0 : job_n_slots(&m->job);
    if (t->slot < -1 || t->slot >= n_slots || begin < 0 || begin > end || end > (*found)->n_elems)
        return false;
    t->first = (*found)->first + begin;
    t->n = end - begin;
    return t->n == t->entry->n_elems && t->entry->dtype == SAFETENSORS_F32;
}

static int by_place(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

int64_t checkpoint_restore_next_owned(const struct chunks *chunks, int slot, int *param, int64_t at)
{
    for (; slot >= 0 && *param < chunks->n_params; (*param)++) {
        const struct net_param *p = &chunks->params[*param];
        if (at >= p->first + p->n_elems)
            continue;
        if (p->rule != PARAM_AVERAGE)
            break;
        at = p->first + p->n_elems;
    }
    return at;
}

/* Returns true if the tensors cover every element exactly once. */
static bool is_covered(const struct checkpoint_restore *r)
{
    const struct chunks *chunks = r->m->chunks;
    int i = 0;
    for (int slot = -1; slot < job_n_slots(&r->m->job); slot++) {
        int param = 0;
        int64_t at = checkpoint_restore_next_owned(chunks, slot, &param, 0);
        for (; i < r->n_tensors && r->tensors[i].slot == slot; i++) {
            if (r->tensors[i].first != at)
                return false;
            at = checkpoint_restore_next_owned(chunks, slot, &param, at + r->tensors[i].n);
        }
        if (at != chunks->n_elems)
            return false;
    }
    return i == r->n_tensors;
}

int64_t checkpoint_restore_number(const struct safetensors_file *f, const char *what,
                                  const char *name, int64_t other)
{
    char key[CHUNKS_MAX_NAME + 128];
    snprintf(key, sizeof key, "%s %.*s", what, CHUNKS_MAX_NAME + 80, name);
    const char *text = safetensors_metadata(f, key);
    char *end = NULL;
    int64_t number = text ? strtoll(text, &end, 10) : other;
    return text && (*end || number < 0) ? other : number;
}

/* Returns true if no two tensors have the same elements. */
static bool is_apart(const struct checkpoint_restore *r)
{
    for (int i = 1; i < r->n_tensors; i++) {
        const struct tensor *a = &r->tensors[i - 1], *b = &r->tensors[i];
        if (a->slot == b->slot && a->first + a->n > b->first)
            return false;
    }
    return true;
}

/* Records the tensors of one file. */
static enum status index_file(struct checkpoint_restore *r, int file,
                              const struct net_param **index, char why[MANIFEST_WHY_BYTES])
{
    int n = 0;
    const struct safetensors_file *f = r->files[file];
    const struct safetensors_entry *e = f ? safetensors_entries(f, &n) : NULL;
    for (int k = 0; k < n; k++) {
        if (checkpoint_tables_is_part(e[k].name)) {
            const char *fault = checkpoint_tables_place(r, file, &e[k]);
            if (fault)
                return explain_corrupt(why, e[k].name, fault);
            continue;
        }
        struct tensor *t = &r->tensors[r->n_tensors++];
        t->file = file;
        t->entry = &e[k];
        t->version = checkpoint_restore_number(f, "version", e[k].name, r->m->step);
        t->idle = (uint64_t)checkpoint_restore_number(f, "idle", e[k].name, 0);
        if (!place_tensor(r->m, index, t))
            return explain_corrupt(why, e[k].name, "is not a tensor of this job");
    }
    return ST_OK;
}

static enum status index_tensors(struct checkpoint_restore *r, bool is_part,
                                 char why[MANIFEST_WHY_BYTES])
{
    const struct chunks *chunks = r->m->chunks;
    size_t room = 1;
    int n, table;
    enum status st = ST_OK;
    for (int i = 0; i < r->m->n_files; i++) {
        n = 0;
        if (r->files[i])
            safetensors_entries(r->files[i], &n);
        room += (size_t)n;
    }
    const struct net_param **index = index_params(chunks);
    r->tensors = calloc(room, sizeof *r->tensors);
    r->buckets = calloc((size_t)(chunks->n_chunks - chunks->n_dense) + 1, sizeof *r->buckets);
    TRY(index && r->tensors && r->buckets ? ST_OK : ST_NOMEM);
    for (int i = 0; i < r->m->n_files; i++)
        TRY(index_file(r, i, index, why));
    qsort(r->tensors, (size_t)r->n_tensors, sizeof *r->tensors, by_place);
    if (is_part ? !is_apart(r) : !is_covered(r))
        TRY(explain_corrupt(why, "a part of the parameters or of their slots",
                            "is missing or duplicated"));
    const char *fault = checkpoint_tables_check(r, is_part, &table);
    if (fault)
        TRY(explain_corrupt(why, chunks->tables[table].name, fault));
done:
    free(index);
    return st;
}

/* Returns true for an error that does not depend on the file's contents. */
static bool is_unread(enum status st)
{
    return st == ST_IO || st == ST_NOMEM;
}

/* Opens a file and checks that it is the expected one; whole: also checks its data. ST_NOT_FOUND,
 * ST_CORRUPT, or the error because of which the file could not be read now. */
static enum status open_file(struct checkpoint_restore *r, int i, const char *name, bool whole,
                             char why[MANIFEST_WHY_BYTES])
{
    char path[PATH_MAX + MANIFEST_NAME_BYTES];
    snprintf(path, sizeof path, "%s/%s", r->folder, name);
    enum status st = checkpoint_shard_file_open(path, &r->m->files[i], whole, &r->files[i], why);
    if (st != ST_OK)
        explain_corrupt(why, name, why);
    return st == ST_OK || st == ST_NOT_FOUND || is_unread(st) ? st : ST_CORRUPT;
}

static enum status new_restore(const char *folder, const char *name,
                               struct checkpoint_restore **out)
{
    struct checkpoint_restore *r = calloc(1, sizeof *r);
    if (!r)
        return ST_NOMEM;
    snprintf(r->folder, sizeof r->folder, "%s", folder);
    snprintf(r->name, sizeof r->name, "%s", name);
    *out = r;
    return ST_OK;
}

/* Reads the manifest with this name or, if the manifest is about to be removed, with the name
 * old-... */
static enum status read_manifest(struct checkpoint_restore *r, char why[MANIFEST_WHY_BYTES])
{
    char path[2 * PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/%s", r->folder, r->name);
    enum status st = checkpoint_manifest_read(path, &r->m, why);
    if (st != ST_NOT_FOUND)
        return st;
    snprintf(path, sizeof path, "%s/" MANIFEST_OLD_PREFIX "%s", r->folder, r->name);
    return checkpoint_manifest_read(path, &r->m, why);
}

/* Returns true if this user may not read the file. A retry does not help. */
static bool is_barred(const char *folder, const char *name)
{
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, R_OK) != 0 && errno == EACCES;
}

/* Opens the files. A file that belongs to its server's own folder may have been copied to this
 * folder. */
static enum status open_files(struct checkpoint_restore *r,
                              const struct checkpoint_restore_query *q, int *n_elsewhere,
                              char why[MANIFEST_WHY_BYTES])
{
    char file[MANIFEST_NAME_BYTES], unread[MANIFEST_WHY_BYTES] = "";
    const struct checkpoint_manifest *m = r->m;
    enum status st = ST_OK, busy = ST_OK;
    bool barred = false;
    *n_elsewhere = 0;
    for (int i = 0; i < m->n_files; i++) {
        checkpoint_manifest_file_name((struct checkpoint_id){m->generation, m->step}, i, m->n_files,
                                      file);
        st = open_file(r, i, file, q->whole, why);
        if (st == ST_NOT_FOUND && (!m->folder || !m->folder[i][0]))
            return ST_CORRUPT;
        if (st == ST_IO) { /* check the next file, which may be damaged permanently, or missing */
            snprintf(unread, sizeof unread, "%s", why);
            barred = q->exports && is_barred(r->folder, file);
            continue;
        }
        if (st != ST_NOT_FOUND) {
            TRY(st);
            continue;
        }
        ++*n_elsewhere;
        st = q->elsewhere ? q->elsewhere->has(q->elsewhere->ctx, m, i, why) : ST_OK;
        if (st == ST_BUSY)
            busy = st; /* check the next file, too */
        else if (st != ST_OK)
            return ST_CORRUPT;
    }
    st = barred ? ST_INVALID : unread[0] ? ST_IO : busy;
    if (unread[0])
        snprintf(why, MANIFEST_WHY_BYTES, "%s", unread);
done:
    return st;
}

static enum status open_manifest(const struct checkpoint_restore_query *q, const char *name,
                                 struct checkpoint_restore **out, char why[MANIFEST_WHY_BYTES])
{
    enum status st = ST_OK;
    struct checkpoint_restore *r = NULL;
    int n_elsewhere;
    snprintf(why, MANIFEST_WHY_BYTES, "%s", status_text(ST_NOMEM));
    TRY(new_restore(q->folder, name, &r));
    TRY(read_manifest(r, why));
    r->files = calloc((size_t)r->m->n_files, sizeof *r->files);
    TRY(r->files ? ST_OK : ST_NOMEM);
    TRY(open_files(r, q, &n_elsewhere, why));
    TRY(index_tensors(r, n_elsewhere > 0, why));
    for (int i = 0; q->whole && i < r->n_tensors; i++)
        atomic_init(&r->tensors[i].checked, 1);
    *out = r;
    r = NULL;
done:
    checkpoint_restore_close(r);
    return st;
}

static void log_abandoned(const struct checkpoint_restore_query *q, const char *name)
{
    if (q->exports)
        LOG_W(
            "%s/%s: not exported: after this checkpoint the job resumed from an earlier one, and continued from there",
            q->folder, name);
    else
        LOG_W(
            "%s/%s: not restored: after this checkpoint the job resumed from an earlier one, and continued from there",
            q->folder, name);
}

static void log_skipped(const struct checkpoint_restore_query *q, const char *name, const char *it,
                        const char *why)
{
    if (q->exports)
        LOG_W("%s/%s: not exported: %s%s; trying the previous checkpoint", q->folder, name, it,
              why);
    else
        LOG_W("%s/%s: not restored: %s%s; trying the previous checkpoint", q->folder, name, it,
              why);
}

static void log_unread(const struct checkpoint_restore_query *q, const char *name, enum status st,
                       const char *why)
{
    if (st == ST_INVALID)
        LOG_E("%s/%s: not exported: %s; let the user of this program read it", q->folder, name,
              why);
    else if (q->exports)
        LOG_E(
            "%s/%s: cannot be exported now: %s; no older checkpoint is exported instead%s",
            q->folder, name, why,
            st == ST_NOMEM
                ? ""
                : ": fix the disk or the mount; or, if the file is lost for good, move it away to export the previous checkpoint");
    else
        LOG_E(
            "%s/%s: cannot be read now: %s; the job does not resume from an older checkpoint instead%s",
            q->folder, name, why,
            st == ST_NOMEM
                ? ""
                : ": fix the disk or the mount; or, if the file is lost for good, move it away to resume from the previous checkpoint");
}

static void log_none(const struct checkpoint_restore_query *q)
{
    if (q->exports)
        LOG_E("%s: none of its checkpoints can be exported, for the reasons above", q->folder);
    else
        LOG_E(
            "%s: none of its checkpoints is complete, for the reasons above; restore the missing files, or start the job with another --checkpoint_dir, at its first step",
            q->folder);
}

/* Opens one checkpoint of the folder's list. */
static enum status open_place(const struct checkpoint_restore_query *q,
                              const struct checkpoint_manifest_place *place, const char *name,
                              struct checkpoint_restore **out, char why[MANIFEST_WHY_BYTES])
{
    if (place->readable)
        return open_manifest(q, name, out, why);
    snprintf(why, MANIFEST_WHY_BYTES, "%s", place->why);
    return !place->unread                             ? ST_CORRUPT
           : q->exports && is_barred(q->folder, name) ? ST_INVALID
                                                      : ST_IO;
}

static enum status find_in_folder(const struct checkpoint_restore_query *q,
                                  struct checkpoint_restore **out)
{
    struct checkpoint_manifest_place *list = NULL;
    char why[MANIFEST_WHY_BYTES], name[MANIFEST_NAME_BYTES];
    int n = 0;
    enum status st = checkpoint_retention_list(q->folder, &list, &n);
    if (st != ST_OK)
        return st;
    st = ST_NOT_FOUND;
    const struct checkpoint_history history =
        q->history.since ? q->history : checkpoint_history_read(q->folder);
    for (int i = 0; i < n; i++) {
        if (q->before.generation > 0 && checkpoint_names_compare(list[i].id, q->before) >= 0)
            continue;
        checkpoint_manifest_name(list[i].id, name);
        if (checkpoint_history_lacks(&history, list[i].id)) {
            log_abandoned(q, name);
            continue;
        }
        st = open_place(q, &list[i], name, out, why);
        if (st == ST_OK || st == ST_BUSY)
            break;
        /* no older checkpoint may replace one that is only unreadable at present */
        if (is_unread(st) || st == ST_INVALID) {
            log_unread(q, name, st, why);
            break;
        }
        log_skipped(q, name, list[i].readable ? "" : "it ", why);
        st = ST_CORRUPT;
    }
    free(list);
    if (st == ST_CORRUPT)
        log_none(q);
    return st;
}

enum status checkpoint_restore_open(const struct checkpoint_restore_query *q,
                                    struct checkpoint_restore **out)
{
    char why[MANIFEST_WHY_BYTES];
    if (!q->name)
        return find_in_folder(q, out);
    enum status st = open_manifest(q, q->name, out, why);
    if (st == ST_IO && q->exports && is_barred(q->folder, q->name))
        st = ST_INVALID;
    if (st == ST_INVALID && q->exports)
        log_unread(q, q->name, st, why);
    else if (st != ST_OK && st != ST_NOT_FOUND && st != ST_BUSY && q->exports)
        LOG_E("%s/%s: not exported: %s", q->folder, q->name, why);
    else if (st != ST_OK && st != ST_NOT_FOUND && st != ST_BUSY)
        LOG_E("%s/%s: not restored: %s", q->folder, q->name, why);
    return st;
}

enum status checkpoint_restore_find(const char *path, struct checkpoint_restore **out)
{
    return checkpoint_restore_find_with(path, NULL, out);
}

enum status checkpoint_restore_find_with(const char *path,
                                         const struct checkpoint_elsewhere *elsewhere,
                                         struct checkpoint_restore **out)
{
    struct checkpoint_restore_query q = {.folder = path, .whole = 1, .elsewhere = elsewhere};
    struct stat s;
    struct checkpoint_name is;
    char folder[PATH_MAX], of_best[MANIFEST_NAME_BYTES];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool found = stat(path, &s) == 0, best = checkpoint_best_is(path);
    checkpoint_name_parse(name, &is);
    if (found ? S_ISDIR(s.st_mode) : is.kind != CHECKPOINT_NAME_MANIFEST)
        return checkpoint_restore_open(&q, out);
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (slash && slash == path)
        snprintf(folder, sizeof folder, "/");
    q.folder = folder;
    q.name = name;
    if (best) {
        struct checkpoint_best b;
        enum status st = checkpoint_best_read(folder, &b);
        if (st != ST_OK)
            return st;
        checkpoint_manifest_name(b.id, of_best);
        q.name = of_best;
    }
    return checkpoint_restore_open(&q, out);
}

/* Creates the manifest that a checkpoint of only these parts would have. */
static enum status make_manifest(const struct checkpoint_restore_parts *parts,
                                 struct checkpoint_manifest **out)
{
    enum status st = ST_NOMEM;
    const struct chunks *chunks = parts->chunks;
    struct checkpoint_manifest *m = calloc(1, sizeof *m);
    if (!m)
        return ST_NOMEM;
    m->generation = parts->part->id.generation;
    m->step = parts->part->id.step;
    m->job = *parts->job;
    m->n_files = parts->n_parts;
    m->files = calloc((size_t)m->n_files, sizeof *m->files);
    if (!m->files)
        goto done;
    for (int i = 0; i < m->n_files; i++)
        m->files[i] = parts->part[i].file;
    TRY(chunks_copy(chunks, &m->chunks));
    *out = m;
    m = NULL;
done:
    checkpoint_manifest_free(m);
    return st;
}

enum status checkpoint_restore_open_parts(const char *folder,
                                          const struct checkpoint_restore_parts *parts,
                                          struct checkpoint_restore **out)
{
    enum status st = ST_OK;
    struct checkpoint_restore *r = NULL;
    char name[MANIFEST_NAME_BYTES], digest[65], why[MANIFEST_WHY_BYTES] = "";
    checkpoint_manifest_file_name(parts->part->id, parts->part->server, parts->part->n_servers,
                                  name);
    snprintf(why, sizeof why, "%s", status_text(ST_NOMEM));
    TRY(checkpoint_manifest_digest(parts->job, parts->chunks, digest));
    TRY(new_restore(folder, name, &r));
    TRY(make_manifest(parts, &r->m));
    r->files = calloc((size_t)parts->n_parts, sizeof *r->files);
    TRY(r->files ? ST_OK : ST_NOMEM);
    for (int i = 0; i < parts->n_parts; i++) {
        const struct checkpoint_part *p = &parts->part[i];
        checkpoint_manifest_file_name(p->id, p->server, p->n_servers, name);
        st = open_file(r, i, name, false, why);
        TRY(st == ST_NOT_FOUND ? ST_CORRUPT : st);
        const char *of = safetensors_metadata(r->files[i], "job");
        if (!of || strcmp(of, digest) != 0)
            TRY(explain_corrupt(why, name,
                                "is of another job (other parameters, optimizer, seed or mode)"));
    }
    TRY(index_tensors(r, true, why));
    *out = r;
    r = NULL;
done:
    if (st != ST_OK)
        LOG_E("%s/%s: not restored: %s", folder, name, why);
    checkpoint_restore_close(r);
    return st;
}

enum status checkpoint_restore_open_own(const char *folder, struct checkpoint_id id,
                                        const struct net_job *job, const struct chunks *chunks,
                                        struct checkpoint_restore **out)
{
    struct checkpoint_restore_parts own = {.job = job, .chunks = chunks};
    struct checkpoint_part *list = NULL;
    int n = 0, n_unread = 0, first = 0;
    enum status st = checkpoint_parts_list(folder, NULL, &list, &n, &n_unread);
    while (first < n && checkpoint_names_compare(list[first].id, id) > 0)
        first++;
    while (first + own.n_parts < n && !checkpoint_names_compare(list[first + own.n_parts].id, id))
        own.n_parts++;
    own.part = list + first;
    if (st == ST_OK)
        st = own.n_parts > 0 ? checkpoint_restore_open_parts(folder, &own, out)
             : n_unread > 0  ? ST_IO
                             : ST_NOT_FOUND;
    free(list);
    return st;
}

bool checkpoint_restore_has_file(const struct checkpoint_restore *r, int file)
{
    return r->files[file] != NULL;
}

void checkpoint_restore_close(struct checkpoint_restore *r)
{
    if (!r)
        return;
    for (int i = 0; r->files && i < r->m->n_files; i++)
        safetensors_close(r->files[i]);
    free(r->files);
    free(r->tensors);
    free(r->buckets);
    checkpoint_manifest_free(r->m);
    free(r);
}

bool checkpoint_restore_has_all_steps(const struct checkpoint_restore *r)
{
    return r && r->m->step >= r->m->job.train_steps;
}

const struct checkpoint_manifest *checkpoint_restore_manifest(const struct checkpoint_restore *r)
{
    return r->m;
}

void checkpoint_restore_note_home(struct checkpoint_restore *r, const char *folder)
{
    struct stat its, other;
    r->is_home = folder && stat(r->folder, &its) == 0 && stat(folder, &other) == 0 &&
                 its.st_dev == other.st_dev && its.st_ino == other.st_ino;
}

bool checkpoint_restore_is_home(const struct checkpoint_restore *r)
{
    return r->is_home;
}
