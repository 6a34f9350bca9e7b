/* tests/ps_samples_test.c - the samples that members receive if chunks advance independently (I6):
 * the lists alone, and a store's answers in each mode, across restarts, after a late answer, and in
 * the next store. */
#include "ps/store/handover.h"
#include "ps/store/samples.h"
#include "ps/store/snapshot.h"
#include "tests/check.h"
#include "tests/store_rig.h"
#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 3, BATCH = 10, N_ELEMS = 8, N_CHUNKS = 2, GENERATION = 3 };

static const struct net_param model[] = {{.name = "w", .shape = {1, {N_ELEMS}}},
                                         {.name = "v", .shape = {1, {1 << 14}}}};

static void assert_list(const struct ps_samples *s, size_t n, const uint64_t *want)
{
    uint64_t list[16];
    assert_in_range(ps_samples_room(s), n, 16);
    assert_int_equal(ps_samples_list(s, list), n);
    assert_memory_equal(list, want, n * sizeof *want);
}

static void list_assigns_each_batch_once(void **state)
{
    struct ps_samples *s, *next;
    assert_int_equal(ps_samples_create(MEMBERS, BATCH, 40, &s), ST_OK);
    assert_list(s, 1, (uint64_t[]){40});
    assert_int_equal(ps_samples_in_hand(s, 2), 40);
    assert_int_equal(ps_samples_in_hand(s, 0), 50);
    assert_int_equal(ps_samples_in_hand(s, 2), 40); /* unchanged until the push has counted */
    ps_samples_counted(s, 2);
    assert_int_equal(ps_samples_in_hand(s, 2), 40); /* unchanged until the version is made */
    ps_samples_made(s);
    assert_list(s, 2, (uint64_t[]){60, 50});
    assert_int_equal(ps_samples_in_hand(s, 2), 60);
    assert_int_equal(ps_samples_in_hand(s, 1), 70);
    assert_list(s, 4, (uint64_t[]){80, 50, 60, 70});
    /* Two of three members continue. They begin with the lowest batch, and the third member's batch
     * is not lost. */
    uint64_t list[4];
    assert_int_equal(ps_samples_list(s, list), 4);
    assert_int_equal(ps_samples_create(2, BATCH, 0, &next), ST_OK);
    assert_int_equal(ps_samples_set(next, list, 4), ST_OK);
    assert_int_equal(ps_samples_in_hand(next, 1), 50);
    assert_int_equal(ps_samples_in_hand(next, 0), 60);
    assert_list(next, 4, (uint64_t[]){80, 50, 60, 70});
    ps_samples_counted(next, 1);
    ps_samples_made(next);
    assert_int_equal(ps_samples_in_hand(next, 1), 70);
    ps_samples_counted(next, 0);
    ps_samples_made(next);
    assert_int_equal(ps_samples_in_hand(next, 0), 80);
    assert_list(next, 3, (uint64_t[]){90, 70, 80});
    ps_samples_destroy(next);
    ps_samples_destroy(s);
    ps_samples_destroy(NULL);
}

/* An impossible list, from a network or a file, is refused and changes nothing. */
static void impossible_lists_are_refused(void **state)
{
    static uint64_t many[SAMPLES_MAX_LIST + 1];
    static const uint64_t bad[][3] = {
        {50, 40, 40}, {50, 40, 30}, {50, 40, 50}, {SAMPLES_MAX + 1, 1, 2}, {0, 0, 0}};
    struct ps_samples *s;
    assert_int_equal(ps_samples_create(1, BATCH, 7, &s), ST_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(ps_samples_set(s, bad[i], 3), ST_PROTOCOL);
    for (uint64_t i = 0; i <= SAMPLES_MAX_LIST; i++)
        many[i] = i > 0 ? i : SAMPLES_MAX;
    assert_int_equal(ps_samples_set(s, many, SAMPLES_MAX_LIST + 1), ST_PROTOCOL);
    assert_int_equal(ps_samples_set(s, many, 0), ST_PROTOCOL);
    assert_int_equal(ps_samples_in_hand(s, 0), 7);
    assert_int_equal(ps_samples_set(s, many, SAMPLES_MAX_LIST), ST_OK);
    ps_samples_destroy(s);
}

struct rig {
    struct chunks *chunks;
    struct store *store;
    uint64_t assigned[MEMBERS]; /* samples in the last answer that had a payload; 0: none */
    int life[MEMBERS];
};

static void on_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                      const struct store_answer *a)
{
    struct rig *r = ctx;
    if (a->chunk == 0 && a->payload)
        r->assigned[head->member] = a->samples;
    else
        assert_int_equal(a->samples, 0);
}

static void open_store(struct rig *r, struct net_job job, int n_members, uint64_t position)
{
    static const int server[N_CHUNKS] = {0, 0};
    job.n_workers = MEMBERS;
    job.train_steps = 100;
    job.batch = BATCH;
    optim_defaults(OPTIM_SGD, &job.optim);
    struct store_config cfg = {.chunks = r->chunks,
                               .job = &job,
                               .server = server,
                               .n_members = n_members,
                               .generation = GENERATION,
                               .position = position,
                               .max_bytes = 1 << 20,
                               .answer = on_answer,
                               .ctx = r};
    assert_int_equal(store_create(&cfg, &r->store), ST_OK);
    for (int m = 0; m < n_members; m++)
        store_admit(r->store, m, 1);
    memset(r->life, 0, sizeof r->life);
}

/* Sends the piece. Returns the direct answer's kind. */
static enum piece_kind act(struct rig *r, enum piece_kind kind, int member, int chunk, int64_t step)
{
    static float data[1 << 14];
    size_t bytes = kind == PIECE_PULL ? 0 : (size_t)r->chunks->chunks[chunk].n_elems * sizeof *data;
    const struct net_frame_head head = {GENERATION, (uint32_t)member,
                                        1 + (uint64_t)r->life[member]};
    const struct net_piece piece = {.kind = kind,
                                    .chunk = (uint32_t)chunk,
                                    .step = (uint64_t)step,
                                    .weight = kind == PIECE_PUSH ? 1 : 0,
                                    .payload.bytes = bytes};
    struct store_answer a = store_rig_send(r->store, &head, piece, data, 0);
    if (a.kind != PIECE_NONE)
        on_answer(r, &head, 1, &a);
    buf_unref(a.payload);
    return a.kind;
}

static void set_up(struct rig *r, struct net_job job, uint64_t position)
{
    *r = (struct rig){.store = NULL};
    assert_int_equal(chunks_create(model, 2, 4096 * 16, &r->chunks), ST_OK);
    assert_int_equal(r->chunks->n_chunks, N_CHUNKS);
    open_store(r, job, MEMBERS, position);
    for (int c = 0; c < N_CHUNKS; c++)
        assert_int_equal(act(r, PIECE_INIT, 0, c, 0), PIECE_VERSION);
    for (int m = 1; m < MEMBERS; m++)
        assert_int_equal(act(r, PIECE_PULL, m, 0, 0), PIECE_VERSION);
    for (uint64_t m = 0; m < MEMBERS; m++)
        assert_int_equal(r->assigned[m], 1 + position + m * BATCH);
}

static void tear_down(struct rig *r)
{
    store_destroy(r->store);
    chunks_destroy(r->chunks);
}

static void restart(struct rig *r, int member)
{
    r->life[member]++;
    store_admit(r->store, member, 1 + (uint64_t)r->life[member]);
    r->assigned[member] = 0;
    act(r, PIECE_PULL, member, 0, 0);
}

/* Each contribution to the first chunk assigns the next batch. Answers of other chunks assign no
 * batch, and a repeat or a restart gets the same batch. */
static void async_contribution_assigns_the_next_batch(void **state)
{
    struct rig r;
    set_up(&r, (struct net_job){.sync_mode = JOB_ASYNC}, 60);
    assert_int_equal(act(&r, PIECE_PUSH, 0, 1, 0), PIECE_APPLIED);
    for (uint64_t k = 0; k < 4; k++) {
        assert_int_equal(act(&r, PIECE_PUSH, 0, 0, (int64_t)k), PIECE_APPLIED);
        assert_int_equal(r.assigned[0], 1 + 90 + k * BATCH);
    }
    assert_int_equal(act(&r, PIECE_PUSH, 0, 0, 3), PIECE_DUPLICATE);
    assert_int_equal(r.assigned[0], 1 + 120);
    restart(&r, 0);
    assert_int_equal(r.assigned[0], 1 + 120);
    restart(&r, 1);
    assert_int_equal(r.assigned[1], 1 + 70);
    assert_int_equal(act(&r, PIECE_PUSH, 1, 0, 4), PIECE_APPLIED);
    assert_int_equal(r.assigned[1], 1 + 130);
    tear_down(&r);
}

/* A late answer has a version of another member, but assigns the receiver's own batch. */
static void late_answer_assigns_the_own_batch(void **state)
{
    struct rig r;
    set_up(&r, (struct net_job){.sync_mode = JOB_SSP}, 0);
    assert_int_equal(act(&r, PIECE_PUSH, 0, 0, 0), PIECE_NONE);
    assert_int_equal(act(&r, PIECE_PUSH, 2, 0, 0), PIECE_NONE);
    assert_int_equal(r.assigned[0], 1 + 0);
    assert_int_equal(act(&r, PIECE_PUSH, 1, 0, 0), PIECE_NONE);
    assert_int_equal(r.assigned[0] + r.assigned[1] + r.assigned[2], 3 + 30 + 40 + 50);
    assert_int_not_equal(r.assigned[0], r.assigned[1]);
    assert_int_not_equal(r.assigned[1], r.assigned[2]);
    tear_down(&r);
}

/* A member whose contribution is too late reads the same batch again. A batch in an unfinished sum
 * has not counted. */
static void batch_of_a_late_contribution_is_read_again(void **state)
{
    struct rig r;
    struct handover_chunk t;
    const struct net_job job = {.sync_mode = JOB_SYNC, .aggregate = 2};
    set_up(&r, job, 0);
    assert_int_equal(act(&r, PIECE_PUSH, 1, 0, 0), PIECE_NONE);
    assert_int_equal(r.assigned[1], 1 + 10);
    assert_int_equal(act(&r, PIECE_PUSH, 2, 0, 0), PIECE_NONE);
    assert_int_equal(r.assigned[1] + r.assigned[2], 2 + 30 + 40);
    assert_int_equal(act(&r, PIECE_PUSH, 0, 0, 0), PIECE_STALE);
    assert_int_equal(r.assigned[0], 1 + 0);
    assert_int_equal(act(&r, PIECE_PUSH, 0, 0, 1), PIECE_NONE);
    handover_stop(r.store);
    assert_int_equal(handover_take(r.store, 0, -1, &t), ST_OK);
    assert_int_equal(t.n_samples, 4);
    assert_memory_equal(t.samples, ((uint64_t[]){50, 0, 30, 40}), 4 * sizeof *t.samples);
    handover_drop(&t);
    tear_down(&r);
}

/* Chunks move by reference and as copies. The next store first assigns the batches that were in
 * hand. */
static void next_store_assigns_the_batches_in_hand_first(void **state)
{
    for (int copied = 0; copied < 2; copied++) {
        struct rig r;
        struct handover_chunk t;
        const struct net_job job = {.sync_mode = JOB_ASYNC};
        set_up(&r, job, 0);
        for (int64_t step = 0; step < 5; step++)
            assert_int_equal(act(&r, PIECE_PUSH, 0, 0, step), PIECE_APPLIED);
        struct store *before = r.store;
        handover_stop(before);
        assert_int_equal(act(&r, PIECE_PUSH, 1, 0, 5), PIECE_REBASE);
        open_store(&r, job, 2, 12345);
        assert_int_equal(handover_take(before, 0, -1, &t), ST_OK);
        const struct handover_copied c = {.version = t.version,
                                          .value = t.value->data,
                                          .n_value = N_ELEMS,
                                          .samples = t.samples,
                                          .n_samples = t.n_samples};
        assert_int_equal(copied ? handover_copy(r.store, 0, &c) : handover_give(r.store, 0, &t),
                         ST_OK);
        t.samples[0] = 0; /* a foreign server may send it */
        const struct handover_copied wrong = {.version = t.version,
                                              .value = t.value->data,
                                              .n_value = N_ELEMS,
                                              .samples = t.samples,
                                              .n_samples = t.n_samples};
        assert_int_equal(handover_copy(r.store, 0, &wrong), ST_PROTOCOL);
        handover_drop(&t);
        store_destroy(before);
        assert_int_equal(act(&r, PIECE_PULL, 1, 0, 0), PIECE_VERSION);
        assert_int_equal(r.assigned[1], 1 + 10);
        assert_int_equal(act(&r, PIECE_PULL, 0, 0, 0), PIECE_VERSION);
        assert_int_equal(r.assigned[0], 1 + 20);
        assert_int_equal(act(&r, PIECE_PUSH, 0, 0, 5), PIECE_APPLIED);
        assert_int_equal(r.assigned[0], 1 + 70);
        assert_int_equal(act(&r, PIECE_PUSH, 0, 0, 6), PIECE_APPLIED);
        assert_int_equal(r.assigned[0], 1 + 80);
        tear_down(&r);
    }
}

static void on_done(void *ctx)
{
    ++*(int *)ctx;
}

/* A snapshot has the list of samples that belongs to its version: the version's own batch has
 * counted. */
static void snapshot_has_the_list_of_its_version(void **state)
{
    struct rig r;
    struct snapshot *s;
    int n, n_done = 0;
    set_up(&r, (struct net_job){.sync_mode = JOB_ASYNC}, 0);
    assert_int_equal(snapshot_create(r.store, on_done, &n_done, &s), ST_OK);
    assert_int_equal(snapshot_begin(s, 1), ST_OK);
    assert_int_equal(act(&r, PIECE_PUSH, 1, 0, 0), PIECE_APPLIED);
    assert_int_equal(act(&r, PIECE_PUSH, 1, 0, 1), PIECE_APPLIED);
    assert_int_equal(act(&r, PIECE_PUSH, 1, 1, 0), PIECE_APPLIED);
    assert_int_equal(n_done, 1);
    const struct snapshot_chunk *c = snapshot_chunks(s, &n);
    assert_int_equal(n, N_CHUNKS);
    assert_int_equal(c[0].n_samples, 3);
    assert_memory_equal(c[0].samples, ((uint64_t[]){30, 0, 20}), 3 * sizeof *c[0].samples);
    assert_int_equal(c[1].n_samples, 0);
    snapshot_destroy(s);
    tear_down(&r);
}

/* In lockstep, and without a batch size, the store assigns no samples. */
static void lockstep_assigns_no_samples(void **state)
{
    static const int server[N_CHUNKS] = {0, 0};
    for (int i = 0; i < 2; i++) {
        struct rig r = {.store = NULL};
        struct net_job job = {.n_workers = 1,
                              .sync_mode = i == 0 ? JOB_SYNC : JOB_ASYNC,
                              .train_steps = 10,
                              .batch = i == 0 ? BATCH : 0};
        optim_defaults(OPTIM_SGD, &job.optim);
        assert_int_equal(chunks_create(model, 2, 4096 * 16, &r.chunks), ST_OK);
        struct store_config cfg = {.chunks = r.chunks,
                                   .job = &job,
                                   .server = server,
                                   .generation = GENERATION,
                                   .answer = on_answer,
                                   .ctx = &r};
        r.store = store_rig_open(&cfg, 1, 1);
        r.assigned[0] = 99;
        assert_int_equal(act(&r, PIECE_INIT, 0, 0, 0), PIECE_VERSION);
        assert_int_equal(r.assigned[0], 0);
        tear_down(&r);
    }
}

int main(void)
{
    return RUN_TESTS(list_assigns_each_batch_once, impossible_lists_are_refused,
                     async_contribution_assigns_the_next_batch, late_answer_assigns_the_own_batch,
                     batch_of_a_late_contribution_is_read_again,
                     next_store_assigns_the_batches_in_hand_first,
                     snapshot_has_the_list_of_its_version, lockstep_assigns_no_samples);
}
