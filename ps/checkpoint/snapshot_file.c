/* ps/checkpoint/snapshot_file.c - see snapshot_file.h. */
#include "ps/checkpoint/snapshot_file.h"
#include "base/log.h"
#include "checkpoint/restore.h"
#include "checkpoint/tables_file.h"
#include "ps/rows/bucket_copy.h"
#include "ps/store/samples.h"
#include <inttypes.h>
#include <stdlib.h>

_Static_assert((int)SAMPLES_MAX_LIST == (int)RESTORE_MAX_SAMPLES, "what is written is read again");

/* Arrays for the chunks of a snapshot. */
struct content {
    struct snapshot *from;
    const struct checkpoint_shard_file *cp;
    const struct snapshot_chunk *held;
    struct checkpoint_shard_chunk *list; /* dense chunks */
    int n_dense;
    struct checkpoint_tables tables;
    int *bucket, *place; /* chunk of each bucket, and place of the bucket in `held` */
    int64_t *version;
    int *slot_floats;
    struct bucket_part copy; /* the bucket that is being written */
    double old_bytes;        /* memory of the undo logs when each bucket had been copied */
};

static enum status make_content(struct content *c, int n)
{
    size_t room = (size_t)n + 1;
    c->list = calloc(room, sizeof *c->list);
    c->bucket = calloc(room, sizeof *c->bucket);
    c->place = calloc(room, sizeof *c->place);
    c->version = calloc(room, sizeof *c->version);
    c->slot_floats = calloc((size_t)c->cp->chunks->n_tables + 1, sizeof *c->slot_floats);
    return c->list && c->bucket && c->place && c->version && c->slot_floats ? ST_OK : ST_NOMEM;
}

static void free_content(struct content *c)
{
    bucket_part_free(&c->copy);
    free(c->list);
    free(c->bucket);
    free(c->place);
    free(c->version);
    free(c->slot_floats);
}

static void fill_content(struct content *c, int n)
{
    const struct snapshot_chunk *held = c->held;
    const struct chunks *chunks = c->cp->chunks;
    int n_buckets = 0;
    for (int i = 0; i < n; i++) {
        if (held[i].chunk >= chunks->n_dense) {
            c->bucket[n_buckets] = held[i].chunk;
            c->place[n_buckets] = i;
            c->version[n_buckets++] = held[i].version;
            continue;
        }
        c->list[c->n_dense++] = (struct checkpoint_shard_chunk){
            .chunk = held[i].chunk,
            .version = held[i].version,
            .value = held[i].value->data,
            .slots = held[i].slots ? held[i].slots->data : NULL,
            .samples = held[i].samples,
            .n_samples = held[i].n_samples,
            .idle = held[i].idle ? held[i].idle->data : NULL,
        };
    }
    for (int t = 0; t < chunks->n_tables; t++)
        c->slot_floats[t] =
            (int)optim_rows_slots(chunks->tables[t].optimizer.kind, (size_t)chunks->tables[t].dim);
    c->tables.n_buckets = n_buckets;
}

static enum status copy_bucket(void *ctx, int i, struct checkpoint_rows *out)
{
    struct content *c = ctx;
    const struct snapshot_chunk *held = &c->held[c->place[i]];
    bucket_part_free(&c->copy);
    c->copy = (struct bucket_part){.keys = NULL};
    enum status st = bucket_copy(held->bucket, (uint64_t)held->version, NULL, SIZE_MAX, &c->copy);
    if (st != ST_OK) {
        LOG_E("checkpoint at step %" PRId64 ": bucket %d of the tables cannot be copied: %s",
              c->cp->step, held->chunk - c->cp->chunks->n_dense, status_text(st));
        return st;
    }
    pthread_mutex_lock(&held->bucket->lock);
    const struct bucket *b = held->bucket->bucket;
    c->old_bytes += (double)(undo_bytes(&b->undo) + undo_bytes(&b->undo_pending));
    pthread_mutex_unlock(&held->bucket->lock);
    snapshot_release_bucket(c->from, c->place[i]);
    const struct bucket_entries *e = &c->copy.entries;
    *out = (struct checkpoint_rows){.n = (int64_t)e->n,
                                    .keys = e->keys,
                                    .steps = e->steps,
                                    .values = e->values,
                                    .slots = e->slots,
                                    .n_pending = (int64_t)e->n_pending,
                                    .pending_keys = e->pending_keys,
                                    .pending_steps = e->pending_steps,
                                    .pending_counts = e->pending_counts};
    return ST_OK;
}

enum status snapshot_file_write(const struct checkpoint_shard_file *cp, struct snapshot *from,
                                struct safetensors_written *out)
{
    int n;
    struct content c = {.from = from, .cp = cp, .held = snapshot_chunks(from, &n)};
    struct checkpoint_shard_file file = *cp;
    enum status st = make_content(&c, n);
    if (st != ST_OK) {
        LOG_E("checkpoint at step %" PRId64 ": out of memory for a list of %d chunks", cp->step, n);
        free_content(&c);
        return st;
    }
    fill_content(&c, n);
    c.tables.bucket = c.bucket;
    c.tables.version = c.version;
    c.tables.slot_floats = c.slot_floats;
    c.tables.copy = copy_bucket;
    c.tables.ctx = &c;
    file.tables = c.tables.n_buckets > 0 ? &c.tables : NULL;
    st = checkpoint_shard_file_write(&file, c.list, c.n_dense, out);
    if (st == ST_OK && file.tables)
        LOG_D("checkpoint at step %" PRId64
              ": %d buckets; older contents of their rows needed %.1f MB during the copy",
              cp->step, c.tables.n_buckets, c.old_bytes * 1e-6);
    free_content(&c);
    return st;
}
