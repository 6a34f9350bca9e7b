/* checkpoint/shard_file.c - see shard_file.h. */
#include "checkpoint/shard_file.h"
#include "base/log.h"
#include "checkpoint/tables_file.h"
#include "kernels/vector/finite.h"
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = TABLES_FILE_NAME_BYTES, N_FIXED = 17, VALUE_BYTES = 72 };

struct table {
    struct safetensors_tensor *tensors;
    char (*names)[NAME_BYTES];
    char (*keys)[NAME_BYTES + 8]; /* keys of the versions, then those of the idle updates */
    char (*values)[VALUE_BYTES];
    const char *(*metadata)[2];
    char *lists; /* texts of members and addresses, each ends with a 0 */
    char *samples;
    int n_tensors, n_metadata, n_keys;
};

/* The elements of one parameter that belong to a chunk. */
struct part {
    const struct net_param *param;
    int64_t begin, end; /* range of the parameter's elements */
    size_t at;          /* offset in the chunk */
};

/* Finds the elements of parameter `param` in the chunk. Returns false if the chunk has none. */
static bool part_of(const struct chunks *chunks, const struct net_chunk *c, int param,
                    struct part *out)
{
    if (param >= chunks->n_params || chunks->params[param].first >= c->first + c->n_elems)
        return false;
    const struct net_param *p = &chunks->params[param];
    int64_t begin = c->first > p->first ? c->first - p->first : 0;
    int64_t end = c->first + c->n_elems - p->first;
    *out = (struct part){p, begin, end < p->n_elems ? end : p->n_elems,
                         (size_t)(p->first + begin - c->first)};
    return true;
}

static void name_part(char name[NAME_BYTES], const struct part *p, int slot)
{
    int n = snprintf(name, NAME_BYTES, "%s", p->param->name);
    if (slot >= 0)
        n += snprintf(name + n, NAME_BYTES - (size_t)n, " slot %d", slot);
    if (p->begin > 0 || p->end < p->param->n_elems)
        snprintf(name + n, NAME_BYTES - (size_t)n, " [%" PRId64 ":%" PRId64 "]", p->begin, p->end);
}

static void add_text(struct table *t, const char *key, const char *text)
{
    t->metadata[t->n_metadata][0] = key;
    t->metadata[t->n_metadata][1] = text;
    t->n_metadata++;
}

static void add_metadata(struct table *t, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void add_metadata(struct table *t, const char *key, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(t->values[t->n_metadata], VALUE_BYTES, fmt, ap);
    va_end(ap);
    add_text(t, key, t->values[t->n_metadata]);
}

/* Adds a number that belongs to a tensor. */
static void add_number(struct table *t, const char *what, const char *name, uint64_t number)
{
    char *key = t->keys[t->n_keys++];
    snprintf(key, sizeof t->keys[0], "%s %s", what, name);
    add_metadata(t, key, "%" PRIu64, number);
}

static void add_tensor(struct table *t, const struct part *p, int slot, const float *data,
                       int64_t version, uint64_t idle)
{
    int i = t->n_tensors++;
    name_part(t->names[i], p, slot);
    t->tensors[i] = (struct safetensors_tensor){
        .name = t->names[i], .shape = {1, {p->end - p->begin}}, .data = data + p->at};
    if (p->end - p->begin == p->param->n_elems)
        t->tensors[i].shape = p->param->shape;
    if (version >= 0)
        add_number(t, "version", t->names[i], (uint64_t)version);
    if (idle > 0)
        add_number(t, "idle", t->names[i], idle);
}

static enum status make_table(struct table *t, size_t n)
{
    *t = (struct table){
        .tensors = calloc(n, sizeof *t->tensors),
        .names = calloc(n, sizeof *t->names),
        .keys = calloc(2 * n, sizeof *t->keys),
        .values = calloc(2 * n + N_FIXED, sizeof *t->values),
        .metadata = calloc(2 * n + N_FIXED, sizeof *t->metadata),
    };
    return t->tensors && t->names && t->keys && t->values && t->metadata ? ST_OK : ST_NOMEM;
}

static void free_table(struct table *t)
{
    free(t->tensors);
    free(t->names);
    free(t->keys);
    free(t->values);
    free(t->metadata);
    free(t->lists);
    free(t->samples);
}

static void fill_tensors(struct table *t, const struct checkpoint_shard_file *cp,
                         const struct checkpoint_shard_chunk *list, int n)
{
    int n_slots = job_n_slots(cp->job);
    struct part p;
    for (int slot = -1; slot < n_slots; slot++) {
        for (int i = 0; i < n; i++) {
            const struct net_chunk *c = &cp->chunks->chunks[list[i].chunk];
            const float *data = list[i].value;
            if (slot >= 0 && !list[i].slots)
                continue;
            if (slot >= 0)
                data = list[i].slots + slot * c->n_elems;
            int64_t version = list[i].version == cp->step ? -1 : list[i].version;
            for (int k = c->param; part_of(cp->chunks, c, k, &p); k++)
                add_tensor(t, &p, slot, data, version,
                           slot < 0 && list[i].idle ? list[i].idle[k - c->param] : 0);
        }
    }
}

/* Returns the number of tensors of the server's buckets. */
static size_t count_bucket_tensors(const struct checkpoint_shard_file *cp)
{
    size_t n = 0;
    for (int i = 0; cp->tables && i < cp->tables->n_buckets; i++) {
        int table = cp->chunks->chunks[cp->tables->bucket[i]].table;
        n += (size_t)checkpoint_tables_n_parts(&cp->chunks->tables[table],
                                               cp->tables->slot_floats[table]);
    }
    return n;
}

static void fill_bucket_tensors(struct table *t, const struct checkpoint_shard_file *cp)
{
    for (int i = 0; cp->tables && i < cp->tables->n_buckets; i++) {
        const struct checkpoint_tables *from = cp->tables;
        int table = cp->chunks->chunks[from->bucket[i]].table, slots = from->slot_floats[table];
        int n_parts = checkpoint_tables_n_parts(&cp->chunks->tables[table], slots);
        if (from->version[i] != cp->step) {
            checkpoint_tables_describe(cp->chunks, from->bucket[i], slots, 0,
                                       t->names[t->n_tensors], &t->tensors[t->n_tensors]);
            add_number(t, "version", t->names[t->n_tensors], (uint64_t)from->version[i]);
        }
        for (int part = 0; part < n_parts; part++) {
            int at = t->n_tensors++;
            checkpoint_tables_describe(cp->chunks, from->bucket[i], slots, part, t->names[at],
                                       &t->tensors[at]);
        }
    }
}

/* Writes the file, whose content is complete except for the rows of buckets. */
static enum status write_tensors(const char *path, const struct checkpoint_shard_file *cp,
                                 const struct table *t, int n_dense,
                                 struct safetensors_written *out)
{
    struct safetensors_writer *w;
    const struct safetensors_content content = {
        t->tensors, t->n_tensors, (const char *const(*)[2])t->metadata, t->n_metadata};
    enum status st = safetensors_begin(path, &content, &w);
    if (st != ST_OK)
        return st;
    for (int i = 0; i < n_dense; i++)
        TRY(safetensors_add(w, &t->tensors[i].shape, t->tensors[i].data));
    if (cp->tables)
        TRY(checkpoint_tables_write(w, cp->chunks, cp->tables, cp->step));
    TRY(safetensors_commit(w, out));
done:
    safetensors_end(w);
    return st;
}

static enum status fill_progress(struct table *t, const struct checkpoint_progress *p)
{
    size_t bytes = 0;
    FILE *f = open_memstream(&t->lists, &bytes);
    if (!f)
        return ST_NOMEM;
    for (int i = 0; i < p->n_members; i++)
        fprintf(f, "%s%d", i ? "," : "", p->member[i]);
    fputc(0, f);
    long addresses = ftell(f);
    for (int i = 0; i < p->servers.n; i++)
        fprintf(f, "%s%s", i ? "," : "", p->servers.addr[i]);
    if (fclose(f) != 0 || addresses < 0)
        return ST_NOMEM;
    add_metadata(t, "position", "%" PRIu64, p->position);
    add_text(t, "members", t->lists);
    add_text(t, "addresses", t->lists + addresses);
    return ST_OK;
}

/* Adds the list of samples, which at most one of the chunks has. */
static enum status fill_samples(struct table *t, const struct checkpoint_shard_chunk *list, int n)
{
    size_t bytes = 0;
    int i = 0;
    while (i < n && list[i].n_samples == 0)
        i++;
    if (i == n)
        return ST_OK;
    FILE *f = open_memstream(&t->samples, &bytes);
    if (!f)
        return ST_NOMEM;
    for (size_t k = 0; k < list[i].n_samples; k++)
        fprintf(f, "%s%" PRIu64, k > 0 ? " " : "", list[i].samples[k]);
    if (fclose(f) != 0)
        return ST_NOMEM;
    add_text(t, "samples", t->samples);
    return ST_OK;
}

static void fill_metadata(struct table *t, const struct checkpoint_shard_file *cp,
                          const char *digest)
{
    add_metadata(t, "format", "weir checkpoint");
    add_metadata(t, "version", "1");
    add_metadata(t, "step", "%" PRId64, cp->step);
    add_metadata(t, "generation", "%" PRIu64, cp->generation);
    add_metadata(t, "server", "%d", cp->server);
    add_metadata(t, "servers", "%d", cp->n_servers);
    add_metadata(t, "seed", "%" PRIu64, cp->job->seed);
    add_metadata(t, "sync_mode", "%s", job_sync_mode_name(cp->job->sync_mode));
    add_metadata(t, "optimizer", "%s", optim_name(cp->job->optim.kind));
    add_metadata(t, "chunk_bytes", "%" PRId64, cp->chunks->chunk_bytes);
    add_metadata(t, "train_steps", "%" PRId64, cp->job->train_steps);
    add_metadata(t, "job", "%s", digest);
    if (cp->home[0])
        add_metadata(t, "folder", "%s", cp->home);
}

/* Returns the name of the first parameter of the chunk with a number that is not finite, or NULL.
 * numbers: n_kinds arrays of c->n_elems each, one after the other; NULL: the chunk has none. */
static const char *first_not_finite(const struct chunks *chunks, const struct net_chunk *c,
                                    const float *numbers, int n_kinds)
{
    struct part p;
    size_t n = (size_t)c->n_elems;
    for (int i = 0; numbers && i < n_kinds; i++) {
        size_t bad = finite_first_bad(DTYPE_F32, numbers + (size_t)i * n, n);
        for (int k = c->param; bad < n && part_of(chunks, c, k, &p); k++)
            if (bad < p.at + (size_t)(p.end - p.begin))
                return p.param->name;
    }
    return NULL;
}

/* Checks that all values and slots are finite. Training cannot resume from values that are not
 * finite, and this file would be newer than a file from which training can resume. ST_INVALID:
 * logged, with the parameter. */
static enum status check_finite(const struct checkpoint_shard_file *cp,
                                const struct checkpoint_shard_chunk *list, int n)
{
    for (int i = 0; i < n; i++) {
        const struct net_chunk *c = &cp->chunks->chunks[list[i].chunk];
        const char *value = first_not_finite(cp->chunks, c, list[i].value, 1);
        const char *slot = first_not_finite(cp->chunks, c, list[i].slots, job_n_slots(cp->job));
        if (!value && !slot)
            continue;
        LOG_E("no checkpoint at step %" PRId64
              ": %sparameter '%s' is not finite, training has diverged; earlier checkpoints stay",
              cp->step, value ? "" : "the optimizer's state of ", value ? value : slot);
        return ST_INVALID;
    }
    return ST_OK;
}

enum status checkpoint_shard_file_write(const struct checkpoint_shard_file *cp,
                                        const struct checkpoint_shard_chunk *list, int n,
                                        struct safetensors_written *out)
{
    enum status st = ST_OK;
    char path[PATH_MAX], name[MANIFEST_NAME_BYTES], digest[65];
    struct table t = {0};
    struct part p;
    size_t n_parts = 0;
    checkpoint_manifest_file_name((struct checkpoint_id){cp->generation, cp->step}, cp->server,
                                  cp->n_servers, name);
    if ((size_t)snprintf(path, sizeof path, "%s/%s", cp->folder, name) >= sizeof path) {
        LOG_E("%s/%s: the path is too long", cp->folder, name);
        return ST_IO;
    }
    TRY(check_finite(cp, list, n));
    for (int i = 0; i < n; i++) {
        const struct net_chunk *c = &cp->chunks->chunks[list[i].chunk];
        for (int k = c->param; part_of(cp->chunks, c, k, &p); k++)
            n_parts++;
    }
    TRY(checkpoint_manifest_digest(cp->job, cp->chunks, digest));
    st =
        make_table(&t, n_parts * (size_t)(1 + job_n_slots(cp->job)) + count_bucket_tensors(cp) + 1);
    if (st == ST_OK && cp->progress.known)
        st = fill_progress(&t, &cp->progress);
    if (st == ST_OK)
        st = fill_samples(&t, list, n);
    if (st != ST_OK) {
        LOG_E("%s: out of memory for the names of its tensors", path);
        goto done;
    }
    fill_metadata(&t, cp, digest);
    fill_tensors(&t, cp, list, n);
    int n_dense = t.n_tensors;
    fill_bucket_tensors(&t, cp);
    st = write_tensors(path, cp, &t, n_dense, out);
done:
    free_table(&t);
    return st;
}

enum status checkpoint_shard_file_open(const char *path, const struct safetensors_written *is,
                                       bool whole, struct safetensors_file **out,
                                       char why[SAFETENSORS_WHY_BYTES])
{
    struct safetensors_file *f = NULL;
    enum status st = ST_IO;
    for (int i = 0; i < CHECKPOINT_TRIES && st == ST_IO; i++) {
        safetensors_close(f);
        f = NULL;
        st = safetensors_open_any(path, &f, why);
        if (st == ST_OK)
            st = safetensors_check_header(f, is, why);
        if (st == ST_OK && whole)
            st = safetensors_check(f, NULL, why);
    }
    if (st == ST_OK)
        *out = f;
    else
        safetensors_close(f);
    return st;
}
