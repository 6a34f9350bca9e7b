/* tests/bucket_rig.c - see bucket_rig.h. */
#include "tests/bucket_rig.h"
#include "base/rng.h"
#include "net/wire/tables.h"
#include "ps/store/chunk_update.h"
#include "tests/check.h"
#include "tests/store_rig.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct net_param param = {.name = "w", .shape = {1, {10}}};

static void take(struct rig *r, int member, uint64_t incarnation, uint64_t from,
                 const struct store_answer *a)
{
    struct rig_answer *got = &r->got[member][a->chunk];
    size_t elems =
        a->payload && a->rows ? a->rows * (size_t)r->chunks->tables[a->chunk == RIG_WORDS].dim : 0;
    assert_true(elems <= sizeof got->values / sizeof *got->values);
    if (got->lent) { /* the store has not changed what it has lent */
        float before[sizeof got->values / sizeof *got->values];
        size_t n = got->rows * (size_t)r->chunks->tables[a->chunk == RIG_WORDS].dim;
        dtype_decode(got->dtype, before, got->lent->data, n);
        assert_memory_equal(before, got->values, n * sizeof *before);
        buf_unref(got->lent);
    }
    got->lent = r->is_local && a->payload ? buf_ref(a->payload) : NULL;
    got->n++;
    got->kind = a->kind;
    got->step = (int64_t)a->step;
    got->rows = a->rows;
    got->dtype = a->dtype;
    got->incarnation = incarnation;
    got->from = from;
    got->replaced = a->replaced;
    snprintf(got->text, sizeof got->text, "%s",
             a->kind != PIECE_REFUSED ? ""
             : a->why                 ? a->why
                                      : a->text);
    if (a->payload && a->chunk >= RIG_DENSE)
        assert_int_equal(a->payload->bytes, dtype_bytes(a->dtype, elems));
    if (elems > 0)
        dtype_decode(a->dtype, got->values, a->payload->data, elems);
}

static void on_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                      const struct store_answer *a)
{
    take(ctx, (int)head->member, head->incarnation, from, a);
}

static void add_tables(struct rig *r, const struct rig_config *config)
{
    struct net_table tables[2] = {{.name = "ads",
                                   .dim = 3,
                                   .n_buckets = 2,
                                   .max_rows = 1000,
                                   .step_rows = 100,
                                   .init = ROW_INIT_UNIFORM,
                                   .init_scale = 0.5f},
                                  {.name = "words",
                                   .dim = RIG_MAX_DIM,
                                   .n_buckets = 1,
                                   .max_rows = config->max_rows ? config->max_rows : 1000,
                                   .step_rows = 100,
                                   .init = ROW_INIT_NORMAL,
                                   .init_scale = 0.25f,
                                   .admit_after = config->admit_after,
                                   .evict_after = config->evict_after,
                                   .when_full = config->when_full}};
    for (int i = 0; i < 2; i++)
        optim_rows_defaults(config->kind, &tables[i].optimizer);
    assert_int_equal(tables_add(r->chunks, tables, 2), ST_OK);
    assert_int_equal(r->chunks->n_chunks, RIG_DENSE + RIG_BUCKETS);
}

void bucket_rig_settings(const struct rig *r, int chunk, struct bucket_config *out)
{
    const struct net_table *t = &r->chunks->tables[chunk == RIG_WORDS];
    *out =
        (struct bucket_config){.dim = t->dim,
                               .optimizer = t->optimizer,
                               .init = {t->init, t->init_scale, row_init_key(r->job.seed, t->name)},
                               .number = chunk == 2,
                               .n_buckets = chunk == RIG_WORDS ? 1 : 2,
                               .keeps_previous = job_in_lockstep(&r->job),
                               .max_rows = (uint64_t)tables_share(t, t->max_rows),
                               .admit_after = (uint64_t)t->admit_after,
                               .evict_after = (uint64_t)t->evict_after,
                               .when_full = t->when_full};
    out->optimizer.common.total_steps = r->job.optim.total_steps;
}

static void choose_keys(struct rig *r)
{
    int n[RIG_DENSE + RIG_BUCKETS] = {0};
    for (uint64_t i = 0; n[1] < RIG_KEYS || n[2] < RIG_KEYS; i++) {
        int bucket = 1 + tables_bucket(&r->chunks->tables[0], i);
        if (n[bucket] < RIG_KEYS)
            r->keys[bucket][n[bucket]++] = i;
    }
    for (uint64_t i = 0; i < RIG_KEYS; i++)
        r->keys[RIG_WORDS][i] = i * 1000003;
    r->keys[RIG_WORDS][RIG_KEYS - 1] = UINT64_MAX;
}

void bucket_rig_open(struct rig *r, const struct rig_config *config)
{
    static const int server[RIG_DENSE + RIG_BUCKETS];
    *r = (struct rig){.job = config->job};
    r->job.n_workers = RIG_MEMBERS;
    r->job.train_steps = config->job.train_steps ? config->job.train_steps : 20;
    r->job.seed = 31;
    optim_defaults(OPTIM_SGD, &r->job.optim);
    r->job.optim.total_steps = (uint64_t)r->job.train_steps;
    assert_int_equal(chunks_create(&param, 1, 4096, &r->chunks), ST_OK);
    add_tables(r, config);
    choose_keys(r);
    if (config->has_threads)
        assert_int_equal(thread_pool_create(3, &r->threads), ST_OK);
    const struct store_config cfg = {.chunks = r->chunks,
                                     .job = &r->job,
                                     .server = server,
                                     .generation = RIG_GENERATION,
                                     .max_bytes = 1 << 30,
                                     .hold_last = config->hold_last,
                                     .shared_memory = config->shared_memory,
                                     .threads = r->threads,
                                     .long_bytes = 1,
                                     .answer = on_answer,
                                     .ctx = r};
    r->store = store_rig_open(&cfg, RIG_MEMBERS, RIG_INCARNATION);
    for (int chunk = RIG_DENSE; chunk < RIG_DENSE + RIG_BUCKETS; chunk++) {
        struct bucket_config c;
        bucket_rig_settings(r, chunk, &c);
        assert_int_equal(bucket_create(&c, &r->expected[chunk]), ST_OK);
        assert_int_equal(merge_create(RIG_MEMBERS, c.dim, &r->merge[chunk]), ST_OK);
    }
}

void bucket_rig_close(struct rig *r)
{
    store_destroy(r->store);
    thread_pool_destroy(r->threads);
    for (int m = 0; m < RIG_MEMBERS; m++)
        for (int chunk = 0; chunk < RIG_DENSE + RIG_BUCKETS; chunk++)
            buf_unref(r->got[m][chunk].lent); /* it may outlive the store */
    for (int chunk = RIG_DENSE; chunk < RIG_DENSE + RIG_BUCKETS; chunk++) {
        bucket_destroy(r->expected[chunk]);
        merge_destroy(r->merge[chunk]);
    }
    chunks_destroy(r->chunks);
}

void bucket_rig_settle(struct rig *r)
{
    chunk_update_await_all(r->store);
}

static size_t dim_of(const struct rig *r, int chunk)
{
    return (size_t)r->chunks->tables[chunk == RIG_WORDS].dim;
}

void bucket_rig_fill(const struct rig *r, int chunk, int member, int64_t step, int part,
                     struct rig_push *out)
{
    uint64_t stream = rng_key((uint64_t)(step * 100 + member * 10 + chunk), RNG_TEST, 1);
    size_t dim = dim_of(r, chunk);
    out->n = 0;
    for (size_t i = 0; i < RIG_KEYS; i++) {
        if (rng_below(stream, i, 100) >= (uint64_t)part)
            continue;
        out->keys[out->n] = r->keys[chunk][i];
        for (size_t k = 0; k < dim; k++) { /* the order of a sum changes its bits */
            uint64_t at = 1000 + 2 * (i * dim + k);
            float u = rng_uniform(stream, at) * 2 - 1;
            out->gradients[out->n * dim + k] = u * (float)(1u << rng_below(stream, at + 1, 12));
        }
        out->n++;
    }
    /* the expected bucket receives what the wire carries */
    uint8_t encoded[RIG_KEYS * RIG_MAX_DIM * 4];
    dtype_encode(r->job.push_dtype, encoded, out->gradients, out->n * dim);
    dtype_decode(r->job.push_dtype, out->gradients, encoded, out->n * dim);
}

void bucket_rig_fill_reads(const struct rig *r, int chunk, size_t first, size_t n,
                           struct rig_push *out)
{
    out->n = n;
    memcpy(out->keys, r->keys[chunk] + first, n * sizeof *out->keys);
}

size_t bucket_rig_encode(const struct rig *r, int chunk, const struct rig_push *push,
                         const struct rig_push *reads, uint8_t *out)
{
    size_t at = 0, n = push ? push->n : 0, elems = n * dim_of(r, chunk);
    if (n > 0)
        memcpy(out, push->keys, n * sizeof *push->keys);
    at += n * sizeof(uint64_t);
    if (reads && reads->n > 0)
        memcpy(out + at, reads->keys, reads->n * sizeof *reads->keys);
    at += (reads ? reads->n : 0) * sizeof(uint64_t);
    if (n > 0)
        dtype_encode(r->job.push_dtype, out + at, push->gradients, elems);
    return at + dtype_bytes(r->job.push_dtype, elems);
}

float bucket_rig_weight(int member)
{
    return 0.25f + (float)member / 8;
}

enum piece_kind bucket_rig_send(struct rig *r, int member, struct net_piece piece,
                                const void *payload)
{
    const struct net_frame_head head = {RIG_GENERATION, (uint32_t)member,
                                        RIG_INCARNATION + (uint64_t)member +
                                            (r->shifted ? 100 : 0)};
    piece.shared = r->is_local;
    struct store_answer a = store_rig_send(r->store, &head, piece, payload, 0);
    if (a.kind != PIECE_NONE && piece.chunk < RIG_DENSE + RIG_BUCKETS)
        take(r, member, head.incarnation, 1 + (uint64_t)member, &a);
    buf_unref(a.payload);
    return a.kind;
}

enum piece_kind bucket_rig_push(struct rig *r, int chunk, int member, int64_t step,
                                const struct rig_push *push, const struct rig_push *reads)
{
    static uint8_t payload[RIG_PAYLOAD_BYTES];
    size_t bytes = bucket_rig_encode(r, chunk, push, reads, payload);
    const struct net_piece piece = {.kind = PIECE_PUSH,
                                    .chunk = (uint32_t)chunk,
                                    .step = (uint64_t)step,
                                    .weight = push ? bucket_rig_weight(member) : 0,
                                    .dtype = r->job.push_dtype,
                                    .rows = push ? (uint32_t)push->n : 0,
                                    .reads = reads ? (uint32_t)reads->n : 0,
                                    .payload.bytes = bytes};
    enum piece_kind kind = bucket_rig_send(r, member, piece, payload);
    memset(payload, 0xff, sizeof payload); /* the store reads a piece only during the call */
    return kind;
}

enum piece_kind bucket_rig_pull(struct rig *r, int chunk, int member, int64_t version,
                                const struct rig_push *reads)
{
    static uint8_t payload[RIG_PAYLOAD_BYTES];
    const struct net_piece piece = {.kind = PIECE_PULL,
                                    .chunk = (uint32_t)chunk,
                                    .step = (uint64_t)(version + 1),
                                    .dtype = r->job.version_dtype,
                                    .reads = reads ? (uint32_t)reads->n : 0,
                                    .payload.bytes =
                                        bucket_rig_encode(r, chunk, NULL, reads, payload)};
    return bucket_rig_send(r, member, piece, payload);
}

void bucket_rig_expect(struct rig *r, int chunk, const struct rig_push *const *push,
                       const float *weights, int n)
{
    double total = 0;
    struct merge_input in = {0};
    for (int m = 0; m < n; m++) {
        total += (double)weights[m];
        in = (struct merge_input){push[m] ? push[m]->n : 0, weights[m],
                                  push[m] ? push[m]->keys : NULL,
                                  push[m] ? push[m]->gradients : NULL};
        if (m + 1 < n)
            assert_int_equal(merge_keep(r->merge[chunk], m, &in), ST_OK);
    }
    assert_int_equal(
        merge_run(r->merge[chunk], r->expected[chunk], n - 1, &in, (float)(1 / total), 1), ST_OK);
}

void bucket_rig_check(struct rig *r, int chunk, int member, int64_t version,
                      const struct rig_push *reads)
{
    const struct rig_answer *got = &r->got[member][chunk];
    static float rows[RIG_KEYS * RIG_MAX_DIM];
    static uint8_t encoded[sizeof rows];
    size_t elems = reads->n * dim_of(r, chunk);
    assert_int_equal(got->step, version);
    assert_int_equal(got->rows, reads->n);
    assert_int_equal(
        bucket_read(r->expected[chunk], (uint64_t)version, reads->keys, reads->n, rows), ST_OK);
    dtype_encode(r->job.version_dtype, encoded, rows, elems);
    dtype_decode(r->job.version_dtype, rows, encoded, elems);
    assert_memory_equal(got->values, rows, elems * sizeof *rows);
}

void bucket_rig_check_all_as(struct rig *r, int chunk, int member, int64_t version)
{
    static struct rig_push all;
    bucket_rig_fill_reads(r, chunk, 0, RIG_KEYS, &all);
    assert_int_equal(bucket_rig_pull(r, chunk, member, version, &all), PIECE_VERSION);
    bucket_rig_check(r, chunk, member, version, &all);
}

void bucket_rig_check_all(struct rig *r, int chunk, int64_t version)
{
    bucket_rig_check_all_as(r, chunk, 0, version);
}
