/* tests/ps_snapshot_test.c - snapshots: the versions that an order for a step holds, wherever the
 * chunks are, in each mode; held versions do not change (I1), and an order for a past step holds
 * nothing. */
#include "ps/store/handover.h"
#include "ps/store/snapshot.h"
#include "tests/check.h"
#include "tests/store_rig.h"
#include <math.h>
#include <string.h>

enum { N_CHUNKS = 3, MAX_ELEMS = 1024, TRAIN_STEPS = 15, INCARNATION = 9 };

static const struct net_param model[] = {
    {.name = "w", .shape = {2, {331, 4}}}, /* 1324 elements: chunks of 1024 and 300 */
    {.name = "mean", .shape = {1, {5}}, .rule = PARAM_AVERAGE, .keep = 0.9f}, /* has no slots */
};

static const struct net_job sync_job = {.n_workers = 1, .sync_mode = JOB_SYNC};
static const struct net_job free_jobs[] = {
    {.n_workers = 2, .sync_mode = JOB_SYNC, .aggregate = 1},
    {.n_workers = 1, .sync_mode = JOB_ASYNC},
    {.n_workers = 1, .sync_mode = JOB_SSP, .staleness = 2},
};
enum { N_FREE = 3 };

/* Values of each chunk's versions, copied when the versions were made. */
static struct {
    float value[MAX_ELEMS], slots[2 * MAX_ELEMS];
} history[N_CHUNKS][TRAIN_STEPS + 1];

struct rig {
    struct chunks *chunks;
    struct net_job job;
    struct store *store;
    struct snapshot *snapshot;
    int n_done;
};

static void on_done(void *ctx)
{
    ((struct rig *)ctx)->n_done++;
}

static void make_store(struct rig *r)
{
    static const int server[N_CHUNKS];
    struct store_config cfg = {
        .chunks = r->chunks, .job = &r->job, .server = server, .generation = 1};
    r->store = store_rig_open(&cfg, 1, INCARNATION);
    assert_int_equal(snapshot_create(r->store, on_done, r, &r->snapshot), ST_OK);
}

static void setup(struct rig *r, const struct net_job *job)
{
    *r = (struct rig){.job = *job};
    r->job.train_steps = TRAIN_STEPS;
    optim_defaults(OPTIM_ADAM, &r->job.optim);
    assert_int_equal(chunks_create(model, 2, 4096, &r->chunks), ST_OK);
    assert_int_equal(r->chunks->n_chunks, N_CHUNKS);
    make_store(r);
}

static void drop_store(struct rig *r)
{
    snapshot_destroy(r->snapshot);
    store_destroy(r->store);
}

static void teardown(struct rig *r)
{
    drop_store(r);
    chunks_destroy(r->chunks);
}

static enum piece_kind answer_of(struct rig *r, enum piece_kind kind, int chunk, int64_t step,
                                 int is_bad)
{
    float values[MAX_ELEMS];
    const struct net_chunk *c = &r->chunks->chunks[chunk];
    for (int64_t i = 0; i < c->n_elems; i++)
        values[i] = store_rig_number((int)kind, step, c->first + i);
    if (is_bad)
        values[c->n_elems - 1] = INFINITY;
    const struct net_frame_head head = {1, 0, INCARNATION};
    const struct net_piece piece = {.kind = kind,
                                    .chunk = (uint32_t)chunk,
                                    .step = (uint64_t)step,
                                    .weight = kind == PIECE_PUSH ? 1 : 0,
                                    .unsummed = 1,
                                    .payload.bytes = (size_t)c->n_elems * sizeof(float)};
    return store_rig_act(r->store, &head, piece, values, 0);
}

static void send(struct rig *r, enum piece_kind kind, int chunk, int64_t step)
{
    assert_int_not_equal(answer_of(r, kind, chunk, step, 0), PIECE_REFUSED);
}

static void remember(struct rig *r, int chunk)
{
    struct handover_chunk t;
    assert_int_equal(handover_take(r->store, chunk, -1, &t), ST_OK);
    memcpy(history[chunk][t.version].value, t.value->data, t.value->bytes);
    if (t.slots)
        memcpy(history[chunk][t.version].slots, t.slots->data, t.slots->bytes);
    handover_drop(&t);
}

static int64_t version_of(struct rig *r, int chunk)
{
    int64_t version = -1;
    buf_unref(store_read(r->store, chunk, &version));
    return version;
}

static void bring(struct rig *r, int chunk, int64_t version)
{
    for (int64_t at = version_of(r, chunk); at < version; at++) {
        send(r, at < 0 ? PIECE_INIT : PIECE_PUSH, chunk, at < 0 ? 0 : at);
        remember(r, chunk);
    }
    assert_int_equal(version_of(r, chunk), version);
}

static void bring_to(struct rig *r, int64_t a, int64_t b, int64_t c)
{
    bring(r, 0, a);
    bring(r, 1, b);
    bring(r, 2, c);
}

/* Checks that the snapshot is complete, with these versions unchanged since they were made. */
static void check(struct rig *r, int n_done, int64_t a, int64_t b, int64_t c)
{
    const int64_t want[N_CHUNKS] = {a, b, c};
    int n;
    assert_int_equal(r->n_done, n_done);
    const struct snapshot_chunk *list = snapshot_chunks(r->snapshot, &n);
    assert_int_equal(n, N_CHUNKS);
    for (int i = 0; i < n; i++) {
        size_t bytes = (size_t)r->chunks->chunks[i].n_elems * sizeof(float);
        assert_int_equal(list[i].chunk, i);
        assert_int_equal(list[i].version, want[i]);
        assert_int_equal(list[i].value->bytes, bytes);
        assert_memory_equal(list[i].value->data, history[i][want[i]].value, bytes);
        assert_int_equal(list[i].slots != NULL, i != 2);
        if (list[i].slots)
            assert_memory_equal(list[i].slots->data, history[i][want[i]].slots, 2 * bytes);
    }
}

/* Checks that nothing is held, and that only the store refers to the chunks' present values. */
static void check_empty(struct rig *r)
{
    int n;
    const struct snapshot_chunk *list = snapshot_chunks(r->snapshot, &n);
    for (int i = 0; i < n; i++) {
        struct handover_chunk t;
        assert_null(list[i].value);
        assert_null(list[i].slots);
        assert_int_equal(handover_take(r->store, i, -1, &t), ST_OK);
        assert_int_equal(atomic_load(&t.value->refs), 1 + 2); /* value and wire are one buffer */
        assert_true(!t.slots || atomic_load(&t.slots->refs) == 1 + 1);
        handover_drop(&t);
    }
}

static void begin(struct rig *r, int64_t step, enum status want)
{
    int n_done = r->n_done;
    assert_int_equal(snapshot_begin(r->snapshot, step), want);
    if (want != ST_OK) {
        assert_int_equal(r->n_done, n_done);
        check_empty(r);
    }
}

static void lockstep_holds_present_and_previous_versions(void **state)
{
    for (int ahead = 0; ahead <= 1; ahead++) {
        struct rig r;
        setup(&r, &sync_job);
        bring_to(&r, 4 + ahead, 4 + ahead, 4 + ahead);
        begin(&r, 4, ST_OK);
        check(&r, 1, 4, 4, 4);
        for (int64_t v = 5; v < 10; v++) { /* held versions do not change */
            bring_to(&r, v, v, v);
            check(&r, 1, 4, 4, 4);
        }
        snapshot_end(r.snapshot);
        bring_to(&r, 11, 11, 11);
        check_empty(&r);
        assert_int_equal(r.n_done, 1);
        teardown(&r);
    }
}

/* One order meets chunks that are past its step, at it, and before it. */
static void lockstep_order_meets_chunks_at_different_steps(void **state)
{
    struct rig r;
    setup(&r, &sync_job);
    bring_to(&r, 5, 4, 2);
    begin(&r, 4, ST_OK);
    bring_to(&r, 7, 6, 3);
    assert_int_equal(r.n_done, 0);
    bring_to(&r, 8, 7, 4);
    check(&r, 1, 4, 4, 4);
    bring_to(&r, 8, 8, 8);
    check(&r, 1, 4, 4, 4);
    snapshot_end(r.snapshot);
    begin(&r, 10, ST_OK); /* again, with all chunks before the step */
    bring_to(&r, 11, 10, 9);
    assert_int_equal(r.n_done, 1);
    bring_to(&r, 11, 11, 10);
    check(&r, 2, 10, 10, 10);
    teardown(&r);
}

/* The last contribution of a step is refused while the next version is computed. The slots of the
 * next version may already have overwritten those of the previous version. Then no snapshot can
 * hold the previous version any more. */
static void refused_contribution_may_end_the_previous_version(void **state)
{
    struct rig r;
    setup(&r, &sync_job);
    bring_to(&r, 6, 6, 6);
    assert_int_equal(answer_of(&r, PIECE_PUSH, 0, 6, 1), PIECE_REFUSED);
    begin(&r, 5, ST_RANGE);
    check_empty(&r);
    begin(&r, 6, ST_OK);
    check(&r, 1, 6, 6, 6);
    bring_to(&r, 7, 7, 7);
    check(&r, 1, 6, 6, 6);
    teardown(&r);
}

static void past_step_holds_nothing(void **state)
{
    struct rig r;
    setup(&r, &sync_job);
    bring_to(&r, 4, 5, 6);
    begin(&r, 4, ST_RANGE); /* only the last chunk is past this step */
    begin(&r, 3, ST_RANGE);
    begin(&r, 0, ST_RANGE);
    begin(&r, -1, ST_RANGE);
    bring_to(&r, 6, 6, 6);
    assert_int_equal(r.n_done, 0);
    check_empty(&r);
    begin(&r, 5, ST_OK);
    check(&r, 1, 5, 5, 5);
    teardown(&r);
}

/* An order for a version beyond the job's end fails at once. */
static void order_beyond_the_job_fails(void **state)
{
    for (int j = -1; j < N_FREE; j++) {
        struct rig r;
        setup(&r, j < 0 ? &sync_job : &free_jobs[j]);
        bring_to(&r, 2, 2, 2);
        begin(&r, TRAIN_STEPS + 1, ST_RANGE);
        begin(&r, TRAIN_STEPS, ST_OK);
        bring_to(&r, TRAIN_STEPS, TRAIN_STEPS, TRAIN_STEPS);
        check(&r, 1, TRAIN_STEPS, TRAIN_STEPS, TRAIN_STEPS);
        teardown(&r);
    }
}

/* A store that continues from another store's versions has no earlier versions. */
static void restored_store_has_no_earlier_version(void **state)
{
    struct rig r;
    struct handover_chunk t[N_CHUNKS];
    setup(&r, &sync_job);
    bring_to(&r, 5, 5, 5);
    for (int c = 0; c < N_CHUNKS; c++)
        assert_int_equal(handover_take(r.store, c, 5, &t[c]), ST_OK);
    drop_store(&r);
    make_store(&r);
    for (int c = 0; c < N_CHUNKS; c++) {
        assert_int_equal(handover_give(r.store, c, &t[c]), ST_OK);
        handover_drop(&t[c]);
    }
    begin(&r, 4, ST_RANGE);
    begin(&r, 5, ST_OK);
    check(&r, 1, 5, 5, 5);
    snapshot_end(r.snapshot);
    bring_to(&r, 6, 6, 6);
    begin(&r, 5, ST_OK);
    check(&r, 2, 5, 5, 5);
    teardown(&r);
}

static void first_values_can_be_held(void **state)
{
    for (int j = -1; j < N_FREE; j++) {
        struct rig r;
        setup(&r, j < 0 ? &sync_job : &free_jobs[j]);
        assert_int_equal(snapshot_begin(r.snapshot, -1), ST_RANGE); /* -1 is no version */
        begin(&r, 0, ST_OK);
        bring(&r, 0, 0);
        bring(&r, 1, 0);
        assert_int_equal(r.n_done, 0);
        bring(&r, 2, 0);
        check(&r, 1, 0, 0, 0);
        bring_to(&r, 3, 3, 3);
        check(&r, 1, 0, 0, 0);
        teardown(&r);
    }
}

static void stopped_store_holds_its_versions(void **state)
{
    struct rig r;
    setup(&r, &sync_job);
    bring_to(&r, 5, 4, 5);
    handover_stop(r.store);
    begin(&r, 3, ST_RANGE);
    begin(&r, 5, ST_RANGE); /* chunk 1 never reaches this step */
    begin(&r, 4, ST_OK);
    check(&r, 1, 4, 4, 4);
    teardown(&r);
}

/* A stop may precede the version that a snapshot waits for. */
static void stop_before_the_version_leaves_the_snapshot_incomplete(void **state)
{
    struct rig r;
    setup(&r, &sync_job);
    bring_to(&r, 3, 3, 2);
    begin(&r, 3, ST_OK);
    handover_stop(r.store);
    assert_int_equal(r.n_done, 0);
    snapshot_end(r.snapshot);
    check_empty(&r);
    begin(&r, 2, ST_OK);
    check(&r, 1, 2, 2, 2);
    teardown(&r);
}

static void independent_chunks_hold_later_versions(void **state)
{
    for (int j = 0; j < N_FREE; j++) {
        struct rig r;
        setup(&r, &free_jobs[j]);
        bring_to(&r, 6, 2, 4);
        begin(&r, 4, ST_OK);
        bring_to(&r, 7, 3, 5);
        assert_int_equal(r.n_done, 0);
        bring_to(&r, 8, 5, 5);
        check(&r, 1, 6, 4, 4);
        snapshot_end(r.snapshot);
        begin(&r, 1, ST_OK); /* the step is long past: holds each chunk's present version */
        check(&r, 2, 8, 5, 5);
        bring_to(&r, 9, 9, 9);
        check(&r, 2, 8, 5, 5);
        snapshot_end(r.snapshot);
        check_empty(&r);
        teardown(&r);
    }
}

static void stopped_independent_chunks_hold_their_versions(void **state)
{
    for (int j = 0; j < N_FREE; j++) {
        struct rig r;
        setup(&r, &free_jobs[j]);
        bring_to(&r, 6, 2, 4);
        handover_stop(r.store);
        begin(&r, 3, ST_RANGE);
        begin(&r, 2, ST_OK);
        check(&r, 1, 6, 2, 4);
        teardown(&r);
    }
}

int main(void)
{
    return RUN_TESTS(
        lockstep_holds_present_and_previous_versions,
        lockstep_order_meets_chunks_at_different_steps,
        refused_contribution_may_end_the_previous_version, past_step_holds_nothing,
        order_beyond_the_job_fails, restored_store_has_no_earlier_version, first_values_can_be_held,
        stopped_store_holds_its_versions, stop_before_the_version_leaves_the_snapshot_incomplete,
        independent_chunks_hold_later_versions, stopped_independent_chunks_hold_their_versions);
}
