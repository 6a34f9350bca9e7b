/* tests/ps_ending_test.c - a store stops, and the next store starts from its chunks: the answers to
 * pieces that wait or arrive later, and the bits of the next store, which are those of a store that
 * was never stopped. */
#include "capture.h"
#include "ps/store/handover.h"
#include "skip.h"
#include "tests/check.h"
#include "tests/store_rig.h"
#include <string.h>

enum { N_CHUNKS = 3, MAX_ELEMS = 1024, MAX_SEEN = 64, N_STEPS = 9 };

static const struct net_param model[] = {
    {.name = "w", .shape = {2, {331, 4}}}, /* 1324 elements: chunks of 1024 and 300 */
    {.name = "mean", .shape = {1, {5}}, .rule = PARAM_AVERAGE, .keep = 0.9f},
};

struct seen {
    uint64_t generation;
    int member;
    enum piece_kind kind;
    int64_t step;
};

struct rig {
    struct chunks *chunks;
    struct net_job job;
    int shard[N_CHUNKS], n_members;
    uint64_t generation;
    struct store *store;
    struct seen seen[N_CHUNKS][MAX_SEEN];
    int n_seen[N_CHUNKS], n_stopped;
    int64_t answered; /* step of the last direct answer */
    int64_t now_ns;   /* the store's time */
};

static void on_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                      const struct store_answer *a)
{
    struct rig *r = ctx;
    assert_true(r->n_seen[a->chunk] < MAX_SEEN);
    assert_int_equal(a->payload != NULL, a->kind != PIECE_REBASE);
    r->seen[a->chunk][r->n_seen[a->chunk]++] =
        (struct seen){head->generation, (int)head->member, a->kind, (int64_t)a->step};
}

static void on_stopped(void *ctx)
{
    struct rig *r = ctx;
    r->n_stopped++;
}

/* Makes a store of the rig's job for n_members, in place of the present one. */
static void make_store(struct rig *r, int n_members, const int *member, int shared)
{
    struct store_config cfg = {.chunks = r->chunks,
                               .job = &r->job,
                               .server = r->shard,
                               .n_members = n_members,
                               .member = member,
                               .generation = ++r->generation,
                               .shared_memory = shared,
                               .straggler_ms = 20,
                               .answer = on_answer,
                               .stopped = on_stopped,
                               .ctx = r};
    r->store = store_rig_open(&cfg, n_members, 100);
    r->n_members = n_members;
}

static void setup(struct rig *r, struct net_job job, int n_members)
{
    *r = (struct rig){.job = job};
    r->job.n_workers = n_members;
    r->job.train_steps = r->job.train_steps ? r->job.train_steps : 100;
    assert_int_equal(chunks_create(model, 2, 4096, &r->chunks), ST_OK);
    assert_int_equal(r->chunks->n_chunks, N_CHUNKS);
    optim_defaults(OPTIM_ADAM, &r->job.optim);
    make_store(r, n_members, NULL, 0);
}

static void teardown(struct rig *r)
{
    store_destroy(r->store);
    chunks_destroy(r->chunks);
}

static enum piece_kind act_as(struct rig *r, uint64_t generation, enum piece_kind kind, int member,
                              int chunk, int64_t step)
{
    float values[MAX_ELEMS];
    const struct net_chunk *c = &r->chunks->chunks[chunk];
    size_t bytes = kind == PIECE_PULL ? 0 : (size_t)c->n_elems * sizeof(float);
    for (int64_t i = 0; i < c->n_elems; i++)
        values[i] = store_rig_number(member, kind == PIECE_INIT ? -1 : step, c->first + i);
    const struct net_frame_head head = {generation, (uint32_t)member, 100 + (uint64_t)member};
    const struct net_piece piece = {.kind = kind,
                                    .chunk = (uint32_t)chunk,
                                    .step = (uint64_t)step,
                                    .weight = kind == PIECE_PUSH ? 1 + (float)member : 0,
                                    .unsummed = 1,
                                    .ask_taken = 1,
                                    .payload.bytes = bytes};
    struct store_answer a = store_rig_send(r->store, &head, piece, values, r->now_ns);
    r->answered = (int64_t)a.step;
    buf_unref(a.payload);
    return a.kind;
}

static enum piece_kind act(struct rig *r, enum piece_kind kind, int member, int chunk, int64_t step)
{
    return act_as(r, r->generation, kind, member, chunk, step);
}

static void init_all(struct rig *r)
{
    for (int c = 0; c < N_CHUNKS; c++)
        assert_int_equal(act(r, PIECE_INIT, 0, c, 0), PIECE_VERSION);
}

/* Makes the versions up to `to` in the first n chunks. */
static void train(struct rig *r, int n, int64_t from, int64_t to)
{
    for (int64_t step = from; step < to; step++)
        for (int c = 0; c < n; c++)
            for (int m = 0; m < r->n_members; m++)
                act(r, PIECE_PUSH, m, c, step);
    memset(r->n_seen, 0, sizeof r->n_seen);
}

static void same(const struct buf *a, const struct buf *b)
{
    assert_int_equal(a != NULL, b != NULL);
    if (!a)
        return;
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->data, b->data, a->bytes);
}

/* Compares values and slots of both stores at `step`. */
static void compare(struct rig *a, struct rig *b, int64_t step)
{
    for (int c = 0; c < N_CHUNKS; c++) {
        struct handover_chunk x, y;
        assert_int_equal(handover_take(a->store, c, step, &x), ST_OK);
        assert_int_equal(handover_take(b->store, c, step, &y), ST_OK);
        assert_int_equal(x.version, step);
        assert_int_equal(y.version, step);
        same(x.value, y.value);
        same(x.slots, y.slots);
        assert_int_equal(x.slots != NULL, c < 2); /* averages have no slots */
        handover_drop(&x);
        handover_drop(&y);
    }
}

static void check_seen(const struct rig *r, int chunk, int n, enum piece_kind kind, int64_t step)
{
    assert_int_equal(r->n_seen[chunk], n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(r->seen[chunk][i].kind, kind);
        assert_int_equal(r->seen[chunk][i].step, step);
    }
}

/* Checks that every piece that waits, and every later piece, is answered REBASE, and that no
 * version is made. */
static void check_stopped(struct rig *r, int64_t step)
{
    handover_stop(r->store);
    handover_stop(r->store);
    assert_true(handover_is_stopped(r->store));
    assert_int_equal(r->n_stopped, 1);
    for (int c = 0; c < N_CHUNKS; c++) {
        check_seen(r, c, 2, PIECE_REBASE, 0);
        for (int m = 0; m < 2; m++)
            assert_int_equal(act(r, PIECE_PUSH, m, c, step < 0 ? 0 : step), PIECE_REBASE);
        assert_int_equal(act(r, PIECE_PULL, 0, c, 0), PIECE_REBASE);
        assert_int_equal(act(r, PIECE_INIT, 0, c, 0), PIECE_REBASE);
    }
    assert_int_equal(store_step(r->store), step);
    assert_int_equal(store_highest(r->store), step);
    assert_int_equal(r->n_stopped, 1);
}

static void stopped_store_answers_rebase(void **state)
{
    struct rig r, plain;
    setup(&r, (struct net_job){.sync_mode = JOB_SYNC}, 2);
    setup(&plain, (struct net_job){.sync_mode = JOB_SYNC}, 2);
    init_all(&r);
    init_all(&plain);
    train(&plain, N_CHUNKS, 0, 5);
    train(&r, N_CHUNKS, 0, 5);
    for (int c = 0; c < N_CHUNKS; c++) { /* both pieces wait for a version that is never made */
        assert_int_equal(act(&r, PIECE_PUSH, 0, c, 5), PIECE_TAKEN);
        assert_int_equal(act(&r, PIECE_PULL, 1, c, 6 + 1), PIECE_NONE);
    }
    assert_false(handover_is_stopped(r.store));
    assert_int_equal(r.n_stopped, 0);
    check_stopped(&r, 5);
    compare(&r, &plain, 5);
    teardown(&r);
    teardown(&plain);
}

static void store_stopped_before_its_values_answers_rebase(void **state)
{
    struct rig r;
    setup(&r, (struct net_job){.sync_mode = JOB_SYNC}, 2);
    for (int c = 0; c < N_CHUNKS; c++)
        for (int m = 0; m < 2; m++)
            assert_int_equal(act(&r, PIECE_PULL, m, c, 0), PIECE_NONE);
    check_stopped(&r, -1);
    teardown(&r);
}

/* Passes all chunks at `step` to a new store. */
static void go_on(struct rig *r, int64_t step, int n_members, int shared, int destroy_first)
{
    struct handover_chunk t[N_CHUNKS];
    struct store *old = r->store;
    for (int c = 0; c < N_CHUNKS; c++)
        assert_int_equal(handover_take(old, c, step, &t[c]), ST_OK);
    if (destroy_first)
        store_destroy(old);
    make_store(r, n_members, NULL, shared);
    for (int c = 0; c < N_CHUNKS; c++) {
        assert_int_equal(handover_give(r->store, c, &t[c]), ST_OK);
        handover_drop(&t[c]);
    }
    if (!destroy_first)
        store_destroy(old);
}

/* Chunk 0 has made the present step, and chunk 1 has one of two contributions to it. Both have made
 * the step before, at which the store stops. */
static void stop_in_the_middle(enum dtype version_dtype, int shared, int destroy_first)
{
    struct rig r, plain;
    struct net_job job = {.sync_mode = JOB_SYNC, .version_dtype = version_dtype};
    setup(&r, job, 2);
    setup(&plain, job, 2);
    if (shared) {
        store_destroy(r.store);
        make_store(&r, 2, NULL, 1);
    }
    init_all(&r);
    init_all(&plain);
    train(&plain, N_CHUNKS, 0, 4);
    train(&r, N_CHUNKS, 0, 4);
    train(&r, 1, 4, 5);
    assert_int_equal(act(&r, PIECE_PUSH, 1, 1, 4), PIECE_TAKEN);
    handover_stop(r.store);
    assert_true(handover_is_stopped(r.store));
    check_seen(&r, 1, 1, PIECE_REBASE, 0);
    check_seen(&r, 2, 0, PIECE_NONE, 0);
    assert_int_equal(store_step(r.store), 4);
    assert_int_equal(store_highest(r.store), 5);
    compare(&r, &plain, 4);
    go_on(&r, 4, 2, shared, destroy_first);
    compare(&r, &plain, 4);
    assert_int_equal(act_as(&r, r.generation - 1, PIECE_PUSH, 0, 0, 4), PIECE_REBASE);
    train(&plain, N_CHUNKS, 4, N_STEPS);
    train(&r, N_CHUNKS, 4, N_STEPS);
    compare(&r, &plain, N_STEPS);
    compare(&r, &plain, N_STEPS - 1);
    teardown(&r);
    teardown(&plain);
}

static void stop_in_a_step_keeps_the_complete_version(void **state)
{
    stop_in_the_middle(DTYPE_F32, 0, 0);
    stop_in_the_middle(DTYPE_F32, 0, 1);
    stop_in_the_middle(DTYPE_F32, 1, 0);
    stop_in_the_middle(DTYPE_F32, 1, 1);
    stop_in_the_middle(DTYPE_BF16, 0, 1);
    stop_in_the_middle(DTYPE_BF16, 1, 0);
}

/* If a store has a single member, it keeps the previous version's slots in memory of their own. A
 * step in progress could otherwise overwrite them. */
static void version_of_a_lone_member_keeps_its_slots(void **state)
{
    struct rig r;
    struct handover_chunk before, now;
    setup(&r, (struct net_job){.sync_mode = JOB_SYNC}, 1);
    init_all(&r);
    train(&r, N_CHUNKS, 0, 1);
    train(&r, N_CHUNKS, 1, 4);
    assert_int_equal(handover_take(r.store, 0, 3, &before), ST_OK);
    assert_int_equal(handover_take(r.store, 0, 4, &now), ST_OK);
    assert_ptr_not_equal(before.slots, now.slots);
    assert_memory_not_equal(before.slots->data, now.slots->data, now.slots->bytes);
    assert_ptr_not_equal(before.value, now.value);
    handover_drop(&before);
    handover_drop(&now);
    teardown(&r);
}

/* A buffer in a segment must not be sent as if it were in the next store's segment. */
static void buffers_of_an_old_segment_are_copied(void **state)
{
    struct rig r;
    struct handover_chunk t;
    setup(&r, (struct net_job){.sync_mode = JOB_SYNC}, 1);
    store_destroy(r.store);
    make_store(&r, 1, NULL, 1);
    init_all(&r);
    assert_int_equal(handover_take(r.store, 0, 0, &t), ST_OK);
    if (!t.value->shared) {
        handover_drop(&t);
        teardown(&r);
        skip_because("no shared memory on this machine");
    }
    struct store *old = r.store;
    make_store(&r, 1, NULL, 0);
    assert_int_equal(handover_give(r.store, 0, &t), ST_OK);
    int64_t version;
    struct buf *b = store_read(r.store, 0, &version);
    assert_int_equal(b->shared, 0);
    same(b, t.value);
    buf_unref(b);
    handover_drop(&t);
    store_destroy(old);
    teardown(&r);
}

/* Neither value nor slots are copied, and neither is overwritten while it is shared. */
static void chunks_move_by_reference(void **state)
{
    struct rig r;
    struct handover_chunk before, after;
    setup(&r, (struct net_job){.sync_mode = JOB_SYNC}, 2);
    init_all(&r);
    train(&r, N_CHUNKS, 0, 4);
    handover_stop(r.store);
    assert_int_equal(handover_take(r.store, 0, 4, &before), ST_OK);
    go_on(&r, 4, 3, 0, 1);
    assert_int_equal(handover_take(r.store, 0, 4, &after), ST_OK);
    assert_ptr_equal(before.value, after.value);
    assert_ptr_equal(before.slots, after.slots);
    handover_drop(&after);
    float kept[2 * MAX_ELEMS];
    memcpy(kept, before.slots->data, before.slots->bytes);
    train(&r, N_CHUNKS, 4, 8);
    assert_memory_equal(kept, before.slots->data, before.slots->bytes);
    handover_drop(&before);
    assert_int_equal(handover_take(r.store, 0, 6, &before), ST_RANGE); /* two versions are kept */
    assert_int_equal(handover_take(r.store, N_CHUNKS, 8, &before), ST_NOT_FOUND);
    teardown(&r);
}

/* If chunks advance independently, their newest versions move to the next store. */
static void async_chunks_move_their_newest_version(void **state)
{
    struct rig r;
    struct handover_chunk t;
    setup(&r, (struct net_job){.sync_mode = JOB_ASYNC}, 2);
    init_all(&r);
    for (int64_t step = 0; step < 3; step++)
        assert_int_equal(act(&r, PIECE_PUSH, 0, 0, step), PIECE_APPLIED);
    handover_stop(r.store);
    assert_true(handover_is_stopped(r.store));
    assert_int_equal(act(&r, PIECE_PUSH, 1, 0, 3), PIECE_REBASE);
    assert_int_equal(handover_take(r.store, 0, 1, &t), ST_OK);
    assert_int_equal(t.version, 3);
    handover_drop(&t);
    go_on(&r, 1, 2, 0, 1);
    assert_int_equal(store_step(r.store), 0);
    assert_int_equal(store_highest(r.store), 3);
    assert_int_equal(act(&r, PIECE_PUSH, 1, 0, 3), PIECE_APPLIED);
    assert_int_equal(store_highest(r.store), 4);
    teardown(&r);
}

/* Three contributions of four members made a step. Two members remain, and now two contributions
 * make a step. The job is not in lockstep: a member that is late for a step does not wait. */
static void fewer_members_make_the_step_with_backup_workers(void **state)
{
    struct rig r;
    setup(&r, (struct net_job){.sync_mode = JOB_SYNC, .aggregate = 3}, 4);
    init_all(&r);
    for (int m = 0; m < 3; m++)
        act(&r, PIECE_PUSH, m, 0, 0);
    assert_int_equal(store_highest(r.store), 1);
    handover_stop(r.store);
    go_on(&r, -1, 2, 0, 1);
    memset(r.n_seen, 0, sizeof r.n_seen);
    assert_int_equal(act(&r, PIECE_PUSH, 0, 0, 1), PIECE_TAKEN);
    assert_int_equal(store_highest(r.store), 1);
    assert_int_equal(act(&r, PIECE_PUSH, 1, 0, 1), PIECE_NONE);
    assert_int_equal(store_highest(r.store), 2);
    handover_stop(r.store);
    assert_int_equal(act(&r, PIECE_PUSH, 0, 0, 2), PIECE_REBASE);
    teardown(&r);
}

static void lines_name_members_by_index(void **state)
{
    struct rig r;
    static const int member[] = {3, 17};
    setup(&r, (struct net_job){.sync_mode = JOB_SYNC}, 2);
    store_destroy(r.store);
    make_store(&r, 2, member, 0);
    init_all(&r);
    capture_begin();
    for (int c = 0; c < N_CHUNKS; c++) {
        act(&r, PIECE_PUSH, 0, c, 0);
        r.now_ns += 40 * 1000000;
        act(&r, PIECE_PUSH, 1, c, 0);
    }
    capture_end();
    assert_non_null(strstr(capture_text, "step 0 waited 40 ms for worker 17\n"));
    teardown(&r);
}

/* The last version exists, but pushes are answered with it only after its release. */
static void last_version_is_held_back(void **state)
{
    struct rig r;
    setup(&r, (struct net_job){.sync_mode = JOB_SYNC, .train_steps = 3}, 2);
    init_all(&r);
    handover_hold_last(r.store, 1);
    train(&r, N_CHUNKS, 0, 2);
    assert_int_equal(act(&r, PIECE_PUSH, 0, 0, 2), PIECE_TAKEN);
    assert_int_equal(act(&r, PIECE_PUSH, 1, 0, 2), PIECE_TAKEN);
    assert_int_equal(act(&r, PIECE_PUSH, 1, 0, 2), PIECE_TAKEN); /* a repeat on a new stream */
    assert_int_equal(store_highest(r.store), 3);
    check_seen(&r, 0, 0, PIECE_NONE, 0);
    handover_hold_last(r.store, 0);
    assert_int_equal(r.n_seen[0], 2);
    assert_int_equal(r.seen[0][0].kind, PIECE_APPLIED);
    assert_int_equal(r.seen[0][1].kind, PIECE_DUPLICATE);
    assert_int_equal(r.seen[0][1].step, 3);
    assert_int_equal(act(&r, PIECE_PUSH, 1, 1, 2), PIECE_TAKEN);
    assert_int_equal(act(&r, PIECE_PUSH, 0, 1, 2), PIECE_NONE);
    check_seen(&r, 1, 2, PIECE_APPLIED, 3);
    teardown(&r);
}

/* Every chunk reaches its end while the last version is held, and a pull of the last version is
 * answered after the release. */
static void independent_chunks_end_while_the_last_version_is_held(void **state)
{
    struct rig r;
    setup(&r, (struct net_job){.sync_mode = JOB_ASYNC, .train_steps = 3}, 2);
    init_all(&r);
    handover_hold_last(r.store, 1);
    for (int step = 0; step < 3; step++)
        assert_int_equal(act(&r, PIECE_PUSH, 0, 0, step), PIECE_APPLIED);
    assert_int_equal(act(&r, PIECE_PUSH, 1, 0, 0), PIECE_STALE);
    assert_int_equal(act(&r, PIECE_PULL, 1, 0, 0), PIECE_VERSION); /* the newest */
    assert_int_equal(act(&r, PIECE_PULL, 1, 0, 3 + 1), PIECE_NONE);
    handover_hold_last(r.store, 0);
    check_seen(&r, 0, 1, PIECE_VERSION, 3);
    assert_int_equal(act(&r, PIECE_PULL, 0, 0, 3 + 1), PIECE_VERSION);
    teardown(&r);
}

int main(void)
{
    return RUN_TESTS(stopped_store_answers_rebase, store_stopped_before_its_values_answers_rebase,
                     stop_in_a_step_keeps_the_complete_version,
                     buffers_of_an_old_segment_are_copied, chunks_move_by_reference,
                     async_chunks_move_their_newest_version,
                     fewer_members_make_the_step_with_backup_workers, lines_name_members_by_index,
                     version_of_a_lone_member_keeps_its_slots, last_version_is_held_back,
                     independent_chunks_end_while_the_last_version_is_held);
}
