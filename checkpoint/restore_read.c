/* checkpoint/restore_read.c - see restore.h: reads an open checkpoint. A tensor is compared with
 * its checksum when it is first read, unless all were compared when the checkpoint was opened. */
#include "base/digest.h"
#include "base/log.h"
#include "checkpoint/restore_impl.h"
#include "net/wire/lacking.h"
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns the index of the slot's first tensor that ends after `at`. */
static int find_tensor(const struct checkpoint_restore *r, int slot, int64_t at)
{
    int low = 0, high = r->n_tensors;
    while (low < high) {
        int mid = (low + high) / 2;
        const struct tensor *t = &r->tensors[mid];
        if (t->slot < slot || (t->slot == slot && t->first + t->n <= at))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Reads elements of a tensor, and compares it with its checksum if that is not done yet. */
static enum status read_tensor(const struct checkpoint_restore *r, struct tensor *t, int64_t skip,
                               int64_t n, float *dst)
{
    char why[MANIFEST_WHY_BYTES];
    const struct safetensors_entry *e = t->entry;
    bool checked = atomic_load_explicit(&t->checked, memory_order_relaxed), all = n == t->n;
    enum status st = ST_OK;
    if (!checked && !all)
        TRY(safetensors_check_entry(r->files[t->file], e, why));
    TRY(safetensors_read(r->files[t->file], e, skip, n, dst, why));
    if (!checked && all && digest_crc32c(0, dst, (size_t)n * sizeof *dst) != e->crc32c) {
        snprintf(why, sizeof why, "does not match its checksum");
        st = ST_CORRUPT;
    }
done:
    if (st == ST_OK)
        atomic_store_explicit(&t->checked, 1, memory_order_relaxed);
    else
        LOG_E("%s/%s: tensor '%s': %s", r->folder, r->name, e->name, why);
    return st;
}

/* Returns true if the slot's tensors have all of these elements. */
static bool has_slot(const struct checkpoint_restore *r, int slot, int64_t first, int64_t n)
{
    int64_t end = first + n;
    for (int i = find_tensor(r, slot, first); first < end; i++) {
        const struct tensor *t = &r->tensors[i];
        if (i >= r->n_tensors || t->slot != slot || t->first > first)
            return false;
        first = t->first + t->n;
    }
    return true;
}

bool checkpoint_restore_holds(const struct checkpoint_restore *r, int64_t first, int64_t n)
{
    const struct chunks *chunks = r->m->chunks;
    bool has = has_slot(r, -1, first, n);
    int param = 0;
    if (checkpoint_restore_next_owned(chunks, 0, &param, first) != first)
        return has; /* the elements are of an average, which has no slots */
    for (int slot = 0; slot < job_n_slots(&r->m->job) && has; slot++)
        has = has_slot(r, slot, first, n);
    return has;
}

static enum status read_slot(const struct checkpoint_restore *r, int slot, int64_t first, int64_t n,
                             float *dst, int64_t *version)
{
    for (int i = find_tensor(r, slot, first); n > 0; i++) {
        struct tensor *t = &r->tensors[i];
        if (i >= r->n_tensors || t->slot != slot || t->first > first) {
            LOG_E("%s/%s: elements %" PRId64 " and above of the parameters are missing", r->folder,
                  r->name, first);
            /* only a checkpoint that was opened from one server's parts may lack elements */
            return ST_NOT_FOUND;
        }
        int64_t skip = first - t->first, some = t->n - skip < n ? t->n - skip : n;
        enum status st = read_tensor(r, t, skip, some, dst);
        if (st != ST_OK)
            return st;
        if (*version < 0 || t->version < *version)
            *version = t->version;
        first += some;
        dst += some;
        n -= some;
    }
    return ST_OK;
}

enum status checkpoint_restore_read(const struct checkpoint_restore *r, int64_t first, int64_t n,
                                    float *value, float *slots, int64_t *version)
{
    *version = -1;
    enum status st = read_slot(r, -1, first, n, value, version);
    for (int k = 0; slots && k < job_n_slots(&r->m->job) && st == ST_OK; k++)
        st = read_slot(r, k, first, n, slots + k * n, version);
    return st;
}

enum status checkpoint_restore_read_average(const struct checkpoint_restore *r, int64_t first,
                                            int64_t n, float *out)
{
    int64_t version = -1;
    int param = 0;
    bool has = r->m->job.optim.ema_decay > 0 &&
               checkpoint_restore_next_owned(r->m->chunks, 0, &param, first) == first;
    return read_slot(r, has ? job_n_slots(&r->m->job) - 1 : -1, first, n, out, &version);
}

/* Returns the lowest number of idle updates of those elements, at most `most`. */
static uint64_t lowest_idle(const struct checkpoint_restore *r, int64_t first, int64_t end,
                            uint64_t most)
{
    uint64_t lowest = most;
    for (int i = find_tensor(r, -1, first); i < r->n_tensors; i++) {
        const struct tensor *t = &r->tensors[i];
        if (t->slot != -1 || t->first >= end)
            break;
        lowest = t->idle < lowest ? t->idle : lowest;
    }
    return lowest;
}

void checkpoint_restore_idle(const struct checkpoint_restore *r, const struct chunks *chunks,
                             int chunk, int64_t version, uint64_t *idle)
{
    const struct net_chunk *c = &chunks->chunks[chunk];
    for (int k = 0, n = lacking_n_params(chunks, chunk); k < n; k++) {
        const struct net_param *p = &chunks->params[c->param + k];
        int64_t first = p->first > c->first ? p->first : c->first;
        int64_t end = p->first + p->n_elems, end_of_chunk = c->first + c->n_elems;
        idle[k] = lowest_idle(r, first, end < end_of_chunk ? end : end_of_chunk, (uint64_t)version);
    }
}

static const char *samples_text(const struct checkpoint_restore *r)
{
    const char *text = NULL;
    for (int i = 0; !text && i < r->m->n_files; i++)
        if (r->files[i]) /* the file of the model's first chunk has the list */
            text = safetensors_metadata(r->files[i], "samples");
    return text;
}

/* Reads *n numbers with one space between them. Returns false if the text has another form, or too
 * many numbers. */
static bool parse_list(const char *text, uint64_t *list, size_t *n)
{
    char *end;
    for (*n = 0; *n < RESTORE_MAX_SAMPLES && *text >= '0' && *text <= '9';
         text = end + (*end == ' ')) {
        errno = 0;
        list[(*n)++] = strtoull(text, &end, 10);
        if (errno != 0)
            return false;
        if (!*end)
            return true;
    }
    return false;
}

enum status checkpoint_restore_samples(const struct checkpoint_restore *r, uint64_t **list,
                                       size_t *n)
{
    const char *text = samples_text(r);
    *list = NULL;
    *n = 0;
    if (!text)
        return ST_OK;
    *list = malloc(RESTORE_MAX_SAMPLES * sizeof **list);
    if (!*list) {
        LOG_E("%s/%s: out of memory for its list of samples", r->folder, r->name);
        return ST_NOMEM;
    }
    if (parse_list(text, *list, n))
        return ST_OK;
    LOG_E(
        "%s/%s: invalid sample list '%.40s'; remove this checkpoint to resume from the previous one",
        r->folder, r->name, text);
    free(*list);
    *list = NULL;
    *n = 0;
    return ST_CORRUPT;
}
