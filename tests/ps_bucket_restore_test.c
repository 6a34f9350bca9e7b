/* tests/ps_bucket_restore_test.c - servers begin from a checkpoint with tables that any number of
 * servers has written: each bucket continues with the same rows, slots, steps and pending keys. A
 * bucket that does not fit the job ends the start with a sentence. */
#include "base/log.h"
#include "base/rng.h"
#include "checkpoint/restore.h"
#include "net/wire/tables.h"
#include "ps/checkpoint/snapshot_file.h"
#include "ps/service/run.h"
#include "ps/store/handover.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "tests/store_rig.h"
#include <string.h>

enum { STEP = 9, MAX_SERVERS = 3, MAX_ROWS = 80, FLOATS = MAX_ROWS * 8, DENSE = 64 };

static struct chunks *chunks;
static struct net_job job;
static char *addresses[MAX_SERVERS] = {(char *)(uintptr_t) "10.0.0.1:1",
                                       (char *)(uintptr_t) "10.0.0.2:1",
                                       (char *)(uintptr_t) "10.0.0.3:1"};

static void make_chunks(int64_t max_rows, struct chunks **out)
{
    const struct net_param param = {.name = "w", .shape = {1, {DENSE}}};
    struct net_table tables[] = {
        {.name = "ads", .dim = 3, .n_buckets = 8, .step_rows = 50, .admit_after = 3},
        {.name = "words", .dim = 2, .n_buckets = 2, .step_rows = 50},
    };
    optim_rows_defaults(OPTIM_ROWS_ADAM, &tables[0].optimizer);
    optim_rows_defaults(OPTIM_ROWS_ROWWISE_ADAGRAD, &tables[1].optimizer);
    tables[0].max_rows = tables[1].max_rows = max_rows;
    assert_int_equal(chunks_create(&param, 1, 4096, out), ST_OK);
    assert_int_equal(tables_add(*out, tables, 2), ST_OK);
}

static int set_up(void **state)
{
    job =
        (struct net_job){.n_workers = 1, .sync_mode = JOB_SYNC, .train_steps = 100, .aggregate = 1};
    optim_defaults(OPTIM_SGD, &job.optim);
    make_chunks(200, &chunks);
    return folder_rig_make(state);
}

static int tear_down(void **state)
{
    chunks_destroy(chunks);
    return folder_rig_remove(state);
}

/* Entries of a bucket; the chunk's number determines them. */
struct entries {
    uint64_t keys[MAX_ROWS], steps[MAX_ROWS];
    float values[FLOATS], slots[FLOATS];
    uint64_t pending[3][MAX_ROWS];
    struct handover_part part;
};

static void fill(int chunk, struct entries *e)
{
    const struct net_table *t = tables_of(chunks, chunk);
    size_t n = 0, n_pending = 0, n_slots = optim_rows_slots(t->optimizer.kind, (size_t)t->dim);
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t key = i * 5 + (i >= 50 ? UINT64_C(1) << 63 : 0);
        if (tables_bucket(t, key) != chunk - t->first_chunk)
            continue;
        if (t->admit_after > 1 && i % 3 == 0) {
            e->pending[0][n_pending] = key;
            e->pending[1][n_pending] = i % STEP;
            e->pending[2][n_pending++] = 1 + i % 2;
        } else {
            e->keys[n] = key;
            e->steps[n++] = 1 + i % STEP;
        }
    }
    assert_in_range(n, 2, MAX_ROWS);
    for (size_t i = 0; i < FLOATS; i++) {
        e->values[i] = (float)(chunk * 1000 + (int)i);
        e->slots[i] = (float)(chunk * 1000 + (int)i) / 2;
    }
    e->part = (struct handover_part){.version = STEP,
                                     .n_value = n * (size_t)t->dim,
                                     .n_slots = n * n_slots,
                                     .entries = {.n = n,
                                                 .keys = e->keys,
                                                 .steps = e->steps,
                                                 .values = e->values,
                                                 .slots = e->slots,
                                                 .n_pending = n_pending,
                                                 .pending_keys = e->pending[0],
                                                 .pending_steps = e->pending[1],
                                                 .pending_counts = e->pending[2]}};
}

static void on_done(void *ctx)
{
}

/* Writes the file of one server. */
static void write_file(int server, int n_servers, const int *shard, struct safetensors_written *out)
{
    const struct store_config cfg = {.chunks = chunks,
                                     .job = &job,
                                     .server = shard,
                                     .self = server,
                                     .n_members = 1,
                                     .generation = 1,
                                     .max_bytes = 1 << 24};
    static float dense[DENSE];
    const struct handover_copied copied = {.version = STEP, .value = dense, .n_value = DENSE};
    const struct checkpoint_shard_file file = {.folder = folder_rig,
                                               .step = STEP,
                                               .generation = 1,
                                               .server = server,
                                               .n_servers = n_servers,
                                               .job = &job,
                                               .chunks = chunks};
    struct store *s = store_rig_open(&cfg, 0, 0);
    struct snapshot *snapshot;
    for (int i = 0; i < chunks->n_chunks; i++) {
        static struct entries e;
        const char *why;
        if (shard[i] != server)
            continue;
        if (i >= chunks->n_dense)
            fill(i, &e);
        assert_int_equal(i < chunks->n_dense ? handover_copy(s, i, &copied)
                                             : handover_add(s, i, &e.part, &why),
                         ST_OK);
    }
    assert_int_equal(snapshot_create(s, on_done, NULL, &snapshot), ST_OK);
    assert_int_equal(snapshot_begin(snapshot, STEP), ST_OK);
    assert_int_equal(snapshot_file_write(&file, snapshot, out), ST_OK);
    snapshot_destroy(snapshot);
    store_destroy(s);
}

static struct checkpoint_restore *write_checkpoint(int n)
{
    struct safetensors_written files[MAX_SERVERS];
    struct checkpoint_restore *r;
    int shard[32];
    assert_int_equal(chunks_shard(chunks, n, shard), ST_OK);
    for (int i = 0; i < n; i++)
        write_file(i, n, shard, &files[i]);
    const struct checkpoint_manifest m = {.step = STEP,
                                          .generation = 1,
                                          .job = job,
                                          .chunks = chunks,
                                          .n_files = n,
                                          .files = files,
                                          .shard = shard};
    assert_int_equal(checkpoint_manifest_write(folder_rig, &m), ST_OK);
    assert_int_equal(
        checkpoint_restore_open(&(struct checkpoint_restore_query){.folder = folder_rig}, &r),
        ST_OK);
    return r;
}

/* Begins a generation of n servers from the checkpoint, at the server `self`. */
static enum status begin(const struct checkpoint_restore *from, const struct chunks *now, int n,
                         int self, struct run **out)
{
    int shard[32], member = 0;
    const struct net_plan plan = {.generation = 2,
                                  .step = STEP,
                                  .job = job,
                                  .chunks = (struct chunks *)(uintptr_t)now,
                                  .n_members = 1,
                                  .member = &member,
                                  .servers = {n, addresses},
                                  .shard = shard,
                                  .source = PLAN_CHECKPOINT};
    const struct run_config cfg = {.plan = &plan,
                                   .address = addresses[self],
                                   .store = {.max_bytes = 1 << 24},
                                   .restore = from};
    assert_int_equal(chunks_shard(now, n, shard), ST_OK);
    return run_create(&cfg, out);
}

/* Checks a bucket of a run. */
static void check_bucket(const struct run *r, int chunk)
{
    static struct entries e;
    struct handover_chunk t;
    struct bucket_part p;
    fill(chunk, &e);
    assert_int_equal(handover_take(r->store, chunk, STEP, &t), ST_OK);
    assert_int_equal(bucket_copy(t.bucket, STEP, NULL, SIZE_MAX, &p), ST_OK);
    const struct bucket_entries *is = &p.entries, *was = &e.part.entries;
    assert_int_equal(is->n, was->n);
    assert_int_equal(is->n_pending, was->n_pending);
    assert_memory_equal(is->keys, was->keys, is->n * sizeof *is->keys);
    assert_memory_equal(is->steps, was->steps, is->n * sizeof *is->steps);
    assert_memory_equal(is->values, was->values, e.part.n_value * sizeof(float));
    assert_memory_equal(is->slots, was->slots, e.part.n_slots * sizeof(float));
    for (int i = 0; i < 3 && is->n_pending > 0; i++)
        assert_memory_equal(is->pending_keys + (size_t)i * is->n_pending, e.pending[i],
                            is->n_pending * sizeof(uint64_t));
    bucket_part_free(&p);
    handover_drop(&t);
}

static void any_number_of_servers_restores_the_buckets(void **state)
{
    static const int numbers[][2] = {{1, 1}, {1, 3}, {3, 1}, {2, 3}, {3, 2}};
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        struct checkpoint_restore *from = write_checkpoint(numbers[k][0]);
        int n_buckets = 0;
        for (int self = 0; self < numbers[k][1]; self++) {
            struct run *r;
            assert_int_equal(begin(from, chunks, numbers[k][1], self, &r), ST_OK);
            for (int i = chunks->n_dense; i < chunks->n_chunks; i++) {
                if (r->plan->shard[i] != self)
                    continue;
                check_bucket(r, i);
                n_buckets++;
            }
            assert_int_equal(store_step(r->store), STEP);
            assert_int_equal(store_highest(r->store), STEP);
            run_unref(r);
        }
        assert_int_equal(n_buckets, chunks->n_chunks - chunks->n_dense);
        checkpoint_restore_close(from);
        folder_rig_empty(folder_rig);
    }
}

static void bucket_above_the_bound_of_the_job_is_refused(void **state)
{
    struct checkpoint_restore *from = write_checkpoint(1);
    struct chunks *fewer;
    struct run *r;
    make_chunks(1, &fewer);
    assert_int_equal(CAPTURE(begin(from, fewer, 1, 0, &r)), ST_PROTOCOL);
    if (!strstr(capture_text,
                "cannot begin: bucket 7 of table 'ads': the bucket has more rows than "
                "max_rows allows"))
        fail_msg("%s", capture_text);
    chunks_destroy(fewer);
    checkpoint_restore_close(from);
    folder_rig_empty(folder_rig);
}

int main(void)
{
    log_init("test", -1, LOG_LEVEL_WARN);
    return RUN_GROUP(set_up, tear_down, any_number_of_servers_restores_the_buckets,
                     bucket_above_the_bound_of_the_job_is_refused);
}
