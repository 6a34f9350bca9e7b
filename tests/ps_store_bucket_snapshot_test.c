/* tests/ps_store_bucket_snapshot_test.c - checkpoints of stores with buckets: a file has the rows
 * of exactly one step (I7), whatever versions are made before it is written, and a copy that is
 * made while members train has the rows of one version (I1). */
#include "checkpoint/tables_file.h"
#include "ps/checkpoint/snapshot_file.h"
#include "ps/rows/bucket_copy.h"
#include "ps/store/handover.h"
#include "ps/store/snapshot.h"
#include "tests/bucket_rig.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMS = 10, THREADS = 2, PUSHES = 40 };

static struct rig r;
static struct rig_push pushes[RIG_MEMBERS], reads[RIG_MEMBERS];
static const struct rig_push *const of_all[RIG_MEMBERS] = {&pushes[0], &pushes[1], &pushes[2]};
static const float weights[RIG_MEMBERS] = {0.25f, 0.375f, 0.5f};

static void send_dense(enum piece_kind kind, int member, int64_t step)
{
    static const float values[ELEMS] = {1, 2, 3};
    const struct net_piece piece = {.kind = kind,
                                    .step = (uint64_t)step,
                                    .weight = kind == PIECE_PUSH ? 1 : 0,
                                    .payload.bytes = sizeof values};
    assert_int_not_equal(bucket_rig_send(&r, member, piece, values), PIECE_REFUSED);
}

static void train_step(int64_t step)
{
    for (int chunk = RIG_DENSE; chunk < RIG_DENSE + RIG_BUCKETS; chunk++) {
        for (int m = 0; m < RIG_MEMBERS; m++) {
            bucket_rig_fill(&r, chunk, m, step, 30, &pushes[m]);
            bucket_rig_fill_reads(&r, chunk, 10, 20, &reads[m]);
        }
        bucket_rig_expect(&r, chunk, of_all, weights, RIG_MEMBERS);
        for (int m = 0; m < RIG_MEMBERS; m++)
            assert_int_equal(bucket_rig_push(&r, chunk, m, step, &pushes[m], &reads[m]),
                             PIECE_NONE);
    }
    for (int m = 0; m < RIG_MEMBERS; m++)
        send_dense(PIECE_PUSH, m, step);
}

static void on_done(void *ctx)
{
    ++*(int *)ctx;
}

static void write_checkpoint(struct snapshot *s, int64_t step)
{
    struct safetensors_written file;
    const struct checkpoint_shard_file f = {.folder = folder_rig,
                                            .step = step,
                                            .generation = 1,
                                            .n_servers = 1,
                                            .job = &r.job,
                                            .chunks = r.chunks};
    const struct checkpoint_manifest m = {.step = step,
                                          .generation = 1,
                                          .job = r.job,
                                          .chunks = r.chunks,
                                          .n_files = 1,
                                          .files = &file};
    assert_int_equal(snapshot_file_write(&f, s, &file), ST_OK);
    assert_int_equal(checkpoint_manifest_write(folder_rig, &m), ST_OK);
}

/* Checks that a bucket of a checkpoint has the rows of a held version of the expected bucket. */
static void check_bucket(const struct checkpoint_restore *from, int chunk, int64_t version)
{
    const struct bucket *b = r.expected[chunk];
    struct checkpoint_bucket got;
    uint64_t *keys;
    size_t n, dim = (size_t)b->config.dim;
    int table = chunk == RIG_WORDS;
    assert_int_equal(checkpoint_restore_bucket(from, table, chunk == 2, (int)b->n_slots, &got),
                     ST_OK);
    assert_int_equal(bucket_list_keys(b, (uint64_t)version, &keys, &n), ST_OK);
    assert_int_equal(got.version, version);
    assert_int_equal(got.n, n);
    assert_true(n > 20);
    assert_memory_equal(got.keys, keys, n * sizeof *keys);
    for (size_t i = 0; i < n; i++) {
        struct row *row;
        assert_int_equal(bucket_find(b, (uint64_t)version, &keys[i], 1, &row), ST_OK);
        assert_int_equal(got.steps[i], row->step);
        assert_memory_equal(got.values + i * dim, row->data, dim * sizeof(float));
        assert_memory_equal(got.slots + i * dim, row->data + dim, dim * sizeof(float));
        assert_memory_equal(got.slots + (n + i) * dim, row->data + 2 * dim, dim * sizeof(float));
    }
    for (int64_t i = 0; i < got.n_pending; i++) {
        uint64_t count;
        assert_int_equal(bucket_find_pending(b, (uint64_t)version, &got.pending_keys[i], 1, &count),
                         ST_OK);
        assert_int_equal(count, got.pending_counts[i]);
    }
    assert_int_equal(got.n_pending > 0, table == 1);
    checkpoint_bucket_free(&got);
    free(keys);
}

/* A snapshot of step 3 is ordered at step `ordered`, and written at step 7. */
static void check_snapshot_at(int64_t ordered)
{
    enum { STEP = 3, LAST = 7 };
    struct snapshot *s;
    struct checkpoint_restore *from;
    int n_done = 0, n;
    bucket_rig_open(&r, &(struct rig_config){.kind = OPTIM_ROWS_ADAM, .admit_after = 2});
    assert_int_equal(snapshot_create(r.store, on_done, &n_done, &s), ST_OK);
    send_dense(PIECE_INIT, 0, 0);
    for (int64_t step = 0; step < LAST; step++) {
        if (step == ordered)
            assert_int_equal(snapshot_begin(s, STEP), ST_OK);
        for (int chunk = RIG_DENSE; chunk < RIG_DENSE + RIG_BUCKETS && step == STEP; chunk++)
            assert_int_equal(bucket_hold(r.expected[chunk], STEP), ST_OK);
        train_step(step);
    }
    assert_int_equal(n_done, 1);
    write_checkpoint(s, STEP);
    /* the holds of buckets have ended */
    const struct snapshot_chunk *held = snapshot_chunks(s, &n);
    for (int i = 0; i < n; i++)
        assert_null(held[i].bucket);
    assert_int_equal(checkpoint_restore_find(folder_rig, &from), ST_OK);
    for (int chunk = RIG_DENSE; chunk < RIG_DENSE + RIG_BUCKETS; chunk++) {
        check_bucket(from, chunk, STEP);
        bucket_rig_check_all(&r, chunk, LAST);
    }
    checkpoint_restore_close(from);
    snapshot_destroy(s);
    bucket_rig_close(&r);
    folder_rig_empty(folder_rig);
}

static void test_file_has_the_rows_of_its_step(void **state)
{
    for (int64_t ordered = 0; ordered <= 4;
         ordered++) /* at step 4, version 3 is the previous one */
        check_snapshot_at(ordered);
}

static void test_past_steps_have_no_snapshot(void **state)
{
    struct snapshot *s;
    int n_done = 0, n;
    bucket_rig_open(&r, &(struct rig_config){.kind = OPTIM_ROWS_SGD});
    assert_int_equal(snapshot_create(r.store, on_done, &n_done, &s), ST_OK);
    send_dense(PIECE_INIT, 0, 0);
    for (int64_t step = 0; step < 4; step++)
        train_step(step);
    assert_int_equal(snapshot_begin(s, 2), ST_RANGE);
    const struct snapshot_chunk *held = snapshot_chunks(s, &n);
    assert_int_equal(n, RIG_DENSE + RIG_BUCKETS);
    for (int i = 0; i < n; i++)
        assert_null(held[i].bucket);
    assert_int_equal(snapshot_begin(s, 5), ST_OK);
    snapshot_end(s); /* not complete */
    train_step(4);
    assert_int_equal(n_done, 0);
    snapshot_destroy(s);
    bucket_rig_close(&r);
}

static void test_emptied_store_has_no_snapshot(void **state)
{
    struct snapshot *s;
    int n_done = 0;
    bucket_rig_open(&r, &(struct rig_config){.kind = OPTIM_ROWS_SGD});
    assert_int_equal(snapshot_create(r.store, on_done, &n_done, &s), ST_OK);
    handover_stop(r.store);
    handover_empty(r.store);
    assert_int_equal(snapshot_begin(s, 0), ST_RANGE);
    snapshot_destroy(s);
    bucket_rig_close(&r);
}

/* Rows of each version if all contributions are equal. */
static float at_version[THREADS * PUSHES + 1][RIG_KEYS * RIG_MAX_DIM];
static _Atomic int n_trained;

static void *train(void *arg)
{
    static const float gradients[RIG_KEYS * RIG_MAX_DIM] = {[0] = 1, [7] = -2, [44] = 0.3f};
    struct rig_push *push = calloc(1, sizeof *push);
    uint8_t payload[RIG_PAYLOAD_BYTES];
    int member = *(const int *)arg;
    bucket_rig_fill_reads(&r, RIG_WORDS, 0, RIG_KEYS, push);
    memcpy(push->gradients, gradients, sizeof gradients);
    size_t bytes = bucket_rig_encode(&r, RIG_WORDS, push, push, payload);
    for (int64_t step = 0; step < PUSHES; step++) {
        const struct net_piece piece = {.kind = PIECE_PUSH,
                                        .chunk = RIG_WORDS,
                                        .step = (uint64_t)step,
                                        .weight = 1,
                                        .rows = RIG_KEYS,
                                        .reads = RIG_KEYS,
                                        .payload.bytes = bytes};
        assert_int_equal(bucket_rig_send(&r, member, piece, payload), PIECE_APPLIED);
        const struct rig_answer *got = &r.got[member][RIG_WORDS];
        assert_true(got->step > step);
        assert_memory_equal(got->values, at_version[got->step], sizeof at_version[0]);
    }
    atomic_fetch_add(&n_trained, 1);
    free(push);
    return NULL;
}

static void expect_versions(void)
{
    static const float alone = 1;
    struct rig_push *push = &pushes[0];
    const struct rig_push *one[1] = {push};
    bucket_rig_fill_reads(&r, RIG_WORDS, 0, RIG_KEYS, push);
    memset(push->gradients, 0, sizeof push->gradients);
    push->gradients[0] = 1;
    push->gradients[7] = -2;
    push->gradients[44] = 0.3f;
    for (uint64_t v = 0; v <= THREADS * PUSHES; v++) {
        assert_int_equal(bucket_read(r.expected[RIG_WORDS], v, push->keys, RIG_KEYS, at_version[v]),
                         ST_OK);
        bucket_rig_expect(&r, RIG_WORDS, one, &alone, 1);
    }
}

/* In async two members push, while versions are held and copied. */
static void test_copies_beside_training_have_one_version(void **state)
{
    static const int members[THREADS] = {0, 1};
    pthread_t threads[THREADS];
    struct snapshot *s;
    int n_done = 0, n = 0, n_copies = 0;
    bool last = false;
    bucket_rig_open(
        &r, &(struct rig_config){.kind = OPTIM_ROWS_ADAGRAD,
                                 .job = {.sync_mode = JOB_ASYNC, .train_steps = THREADS * PUSHES}});
    expect_versions();
    send_dense(PIECE_INIT, 0, 0);
    assert_int_equal(snapshot_create(r.store, on_done, &n_done, &s), ST_OK);
    atomic_store(&n_trained, 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, train, (void *)&members[i]), 0);
    while (!last) {
        struct bucket_part p;
        last = atomic_load(&n_trained) == THREADS; /* then one more copy follows */
        assert_int_equal(snapshot_begin(s, 0), ST_OK);
        const struct snapshot_chunk *held = &snapshot_chunks(s, &n)[RIG_WORDS];
        assert_int_equal(bucket_copy(held->bucket, (uint64_t)held->version, NULL, SIZE_MAX, &p),
                         ST_OK);
        assert_int_equal(p.entries.n, held->version > 0 ? RIG_KEYS : 0);
        for (size_t i = 0; i < p.entries.n; i++)
            assert_int_equal(p.entries.steps[i], held->version);
        assert_memory_equal(p.entries.values, at_version[held->version],
                            p.entries.n * RIG_MAX_DIM * sizeof(float));
        bucket_part_free(&p);
        snapshot_end(s);
        n_copies++;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(n_done, n_copies);
    assert_int_equal(store_highest(r.store), THREADS * PUSHES);
    snapshot_destroy(s);
    bucket_rig_close(&r);
}

int main(void)
{
    return RUN_GROUP(folder_rig_make, folder_rig_remove, test_file_has_the_rows_of_its_step,
                     test_past_steps_have_no_snapshot, test_emptied_store_has_no_snapshot,
                     test_copies_beside_training_have_one_version);
}
