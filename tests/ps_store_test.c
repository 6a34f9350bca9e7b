/* tests/ps_store_test.c - the chunk store without a network: invariants I1, I2, I3, I4, I5, I9,
 * weights, async mode, and many concurrent threads. */
#include "base/digest.h"
#include "kernels/vector/vector.h"
#include "tests/check.h"
#include "tests/store_rig.h"
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_MEMBERS = 3,
    GENERATION = 7,
    N_ELEMS = 1024 + 300 + 5, /* elements of the model below */
    N_CHUNKS = 3,
    MAX_ANSWERS = 64,
};

static const struct net_param model[] = {
    {.name = "w", .shape = {2, {331, 4}}}, /* 1324 elements: chunks of 1024 and 300 */
    {.name = "mean", .shape = {1, {5}}, .rule = PARAM_AVERAGE, .keep = 0.9f},
};

struct seen {
    int member;
    uint64_t incarnation, from;
    enum piece_kind kind;
    uint32_t chunk;
    uint64_t step;
    uint32_t crc;
};

struct fixture {
    int unsummed; /* nonzero: answers carry no checksum */
    struct chunks *chunks;
    struct net_job job;
    int server[N_CHUNKS];
    struct store *store;
    uint64_t from;  /* stream from which the pieces arrive */
    int64_t now_ns; /* the store's time */
    pthread_mutex_t lock;
    struct seen seen[MAX_ANSWERS];
    int n_seen;
};

static void on_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                      const struct store_answer *a)
{
    struct fixture *f = ctx;
    pthread_mutex_lock(&f->lock);
    if (f->n_seen < MAX_ANSWERS)
        f->seen[f->n_seen++] = (struct seen){
            (int)head->member, head->incarnation, from, a->kind, a->chunk, a->step, a->crc32c};
    pthread_mutex_unlock(&f->lock);
    assert_non_null(a->payload);
    uint32_t crc = digest_crc32c(0, a->payload->data, a->payload->bytes);
    assert_int_equal(a->crc32c, f->unsummed ? 0 : crc);
}

static uint64_t incarnation_of(int member)
{
    return 1000 + (uint64_t)member;
}

static float weight_of(int member)
{
    static const float weights[] = {64, 30.5f, 7};
    return weights[member % 3];
}

static void open_store(struct fixture *f, int n_members)
{
    struct store_config cfg = {.chunks = f->chunks,
                               .job = &f->job,
                               .server = f->server,
                               .generation = GENERATION,
                               .answer = on_answer,
                               .ctx = f};
    f->store = store_rig_open(&cfg, n_members, incarnation_of(0));
}

static void setup(struct fixture *f, enum job_sync_mode mode, enum optim_kind optim, int n_members)
{
    *f = (struct fixture){.n_seen = 0};
    pthread_mutex_init(&f->lock, NULL);
    assert_int_equal(chunks_create(model, 2, 4096, &f->chunks), ST_OK);
    assert_int_equal(f->chunks->n_chunks, N_CHUNKS);
    f->job = (struct net_job){.n_workers = n_members, .sync_mode = mode, .train_steps = 100};
    optim_defaults(optim, &f->job.optim);
    open_store(f, n_members);
    store_sum(f->store);
}

static void teardown(struct fixture *f)
{
    store_destroy(f->store);
    chunks_destroy(f->chunks);
    pthread_mutex_destroy(&f->lock);
}

/* A piece, and its payload in two spans: the cut is inside a float, and the second span is
 * unaligned. */
struct sent {
    struct net_frame_head head;
    struct net_piece piece;
    uint8_t *bytes;
    struct net_span spans[2];
};

static void make_piece(struct fixture *f, struct sent *s, enum piece_kind kind, int member,
                       int chunk, int64_t step)
{
    const struct net_chunk *c = &f->chunks->chunks[chunk];
    size_t n = kind == PIECE_PULL ? 0 : (size_t)c->n_elems * sizeof(float);
    size_t cut = n > 9 ? 9 : n;
    *s = (struct sent){.head = {GENERATION, (uint32_t)member, incarnation_of(member)}};
    float *values = malloc(n + sizeof *values);
    s->bytes = malloc(n + 1);
    for (size_t i = 0; i < n / sizeof *values; i++)
        values[i] = store_rig_number(member, kind == PIECE_INIT ? -1 : step, c->first + (int64_t)i);
    memcpy(s->bytes + 1, values, n);
    free(values);
    s->spans[0] = (struct net_span){s->bytes + 1, cut};
    s->spans[1] = (struct net_span){s->bytes + 1 + cut, n - cut};
    s->piece = (struct net_piece){.kind = kind,
                                  .chunk = (uint32_t)chunk,
                                  .step = (uint64_t)step,
                                  .weight = kind == PIECE_PUSH ? weight_of(member) : 0,
                                  .crc32c = digest_crc32c(0, s->bytes + 1, n),
                                  .payload = {s->spans, 0, n}};
}

/* Sends the piece. Returns the kind of the direct answer, with its step in *step. */
static enum piece_kind send_piece(struct fixture *f, struct sent *s, uint64_t *step)
{
    struct store_answer a;
    s->piece.payload.span = s->spans;
    store_piece(f->store, &s->head, &s->piece, f->from, f->now_ns, &a);
    if (step)
        *step = a.step;
    if (a.payload)
        assert_int_equal(digest_crc32c(0, a.payload->data, a.payload->bytes), a.crc32c);
    assert_true(a.kind != PIECE_REFUSED || (a.why && *a.why));
    buf_unref(a.payload);
    return a.kind;
}

static enum piece_kind act(struct fixture *f, enum piece_kind kind, int member, int chunk,
                           int64_t step, uint64_t *answered)
{
    struct sent s;
    make_piece(f, &s, kind, member, chunk, step);
    enum piece_kind got = send_piece(f, &s, answered);
    free(s.bytes);
    return got;
}

static void init_all(struct fixture *f)
{
    assert_int_equal(store_step(f->store), -1);
    for (int c = 0; c < N_CHUNKS; c++) {
        uint64_t step = 99;
        assert_int_equal(act(f, PIECE_INIT, 0, c, 0, &step), PIECE_VERSION);
        assert_int_equal(step, 0);
    }
    assert_int_equal(store_step(f->store), 0);
}

/* Trains the same steps without a store, member after member. */
static void reference(struct fixture *f, int n_members, int n_steps, float *p)
{
    enum { TRAINED = 1324 };
    static float sum[N_ELEMS], slots[2 * N_ELEMS];
    const struct net_chunk *chunk = f->chunks->chunks;
    memset(slots, 0, sizeof slots);
    for (int64_t i = 0; i < N_ELEMS; i++)
        p[i] = store_rig_number(0, -1, i);
    for (int64_t step = 0; step < n_steps; step++) {
        double total = 0;
        for (int m = 0; m < n_members; m++) {
            total += (double)weight_of(m);
            for (int64_t i = 0; i < N_ELEMS; i++) {
                volatile float product = weight_of(m) * store_rig_number(m, step, i);
                sum[i] = m == 0 ? product : sum[i] + product;
            }
        }
        float scale = (float)(1 / total);
        for (int c = 0; c < 2; c++)
            optim_apply(&f->job.optim, (uint64_t)step + 1, (size_t)chunk[c].n_elems,
                        sum + chunk[c].first, scale, p + chunk[c].first, slots + 2 * chunk[c].first,
                        p + chunk[c].first);
        optim_average(0.9f, 5, sum + TRAINED, scale, p + TRAINED, p + TRAINED);
    }
}

static void order_of_arrival_does_not_change_the_bits(void **state)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    enum { STEPS = 6 };
    static float expect[N_ELEMS], got[N_ELEMS];
    for (int first = 0; first < 6; first++) {
        struct fixture f;
        setup(&f, JOB_SYNC, OPTIM_ADAM, N_MEMBERS);
        reference(&f, N_MEMBERS, STEPS, expect);
        init_all(&f);
        for (int step = 0; step < STEPS; step++) {
            for (int c = 0; c < N_CHUNKS; c++) {
                f.n_seen = 0;
                for (int k = 0; k < 3; k++) {
                    assert_int_equal(f.n_seen, 0);
                    int m = orders[(first + step * (c + 1)) % 6][k];
                    assert_int_equal(act(&f, PIECE_PUSH, m, c, step, NULL), PIECE_NONE);
                }
                assert_int_equal(f.n_seen, 3); /* each member has the same version */
                for (int m = 0; m < 3; m++) {
                    assert_int_equal(f.seen[m].member, m);
                    assert_int_equal(f.seen[m].incarnation, incarnation_of(m));
                    assert_int_equal(f.seen[m].kind, PIECE_APPLIED);
                    assert_int_equal(f.seen[m].chunk, c);
                    assert_int_equal(f.seen[m].step, step + 1);
                    assert_int_equal(f.seen[m].crc, f.seen[0].crc);
                }
            }
        }
        assert_int_equal(store_step(f.store), STEPS);
        store_rig_read_all(f.store, f.chunks, STEPS, got);
        assert_memory_equal(got, expect, sizeof got);
        teardown(&f);
    }
}

static void step_all(struct fixture *f, int64_t step)
{
    for (int c = 0; c < N_CHUNKS; c++)
        for (int m = 0; m < f->job.n_workers; m++)
            act(f, PIECE_PUSH, m, c, step, NULL);
}

static void versions_are_immutable(void **state)
{
    struct fixture f;
    setup(&f, JOB_SYNC, OPTIM_MOMENTUM, N_MEMBERS);
    init_all(&f);
    enum { HELD = 24 }; /* more than the pool keeps when they return */
    struct buf *held[HELD];
    uint32_t crc[HELD];
    for (int64_t step = 0; step < HELD; step++) {
        int64_t v;
        held[step] = store_read(f.store, 0, &v);
        assert_int_equal(v, step);
        crc[step] = digest_crc32c(0, held[step]->data, held[step]->bytes);
        step_all(&f, step);
    }
    for (int64_t step = HELD; step < HELD + 10; step++)
        step_all(&f, step);
    for (int i = 0; i < HELD; i++) {
        assert_int_equal(digest_crc32c(0, held[i]->data, held[i]->bytes), crc[i]);
        for (int k = 0; k < i; k++)
            assert_ptr_not_equal(held[i]->data, held[k]->data);
    }
    for (int i = 0; i < HELD - 1; i++)
        buf_unref(held[i]);
    teardown(&f); /* a slow stream still holds a version */
    assert_int_equal(digest_crc32c(0, held[HELD - 1]->data, held[HELD - 1]->bytes), crc[HELD - 1]);
    buf_unref(held[HELD - 1]);
}

static void contribution_counts_once(void **state)
{
    static float expect[N_ELEMS], got[N_ELEMS];
    struct fixture f;
    uint64_t step;
    setup(&f, JOB_SYNC, OPTIM_SGD, N_MEMBERS);
    reference(&f, N_MEMBERS, 3, expect);
    init_all(&f);
    for (int64_t s = 0; s < 3; s++) {
        for (int c = 0; c < N_CHUNKS; c++) {
            f.n_seen = 0;
            for (int k = 0; k < 3; k++) { /* repeated, in order and ahead of its turn */
                act(&f, PIECE_PUSH, 2, c, s, NULL);
                assert_int_equal(act(&f, PIECE_PUSH, 0, c, s, NULL), PIECE_NONE);
            }
            assert_int_equal(f.n_seen, 0);
            act(&f, PIECE_PUSH, 1, c, s, NULL);
            assert_int_equal(f.n_seen, 3);
            assert_int_equal(act(&f, PIECE_PUSH, 1, c, s, &step), PIECE_DUPLICATE);
            assert_int_equal(step, s + 1);
        }
    }
    assert_int_equal(act(&f, PIECE_PUSH, 0, 0, 1, &step), PIECE_STALE);
    assert_int_equal(step, 3);
    assert_int_equal(act(&f, PIECE_PUSH, 0, 0, 4, NULL), PIECE_REFUSED);
    store_rig_read_all(f.store, f.chunks, 3, got);
    assert_memory_equal(got, expect, sizeof got);
    teardown(&f);
}

static void restarted_member_redoes_its_step(void **state)
{
    static float expect[N_ELEMS], got[N_ELEMS];
    struct fixture f;
    struct sent s;
    uint64_t step;
    setup(&f, JOB_SYNC, OPTIM_SGD, N_MEMBERS);
    reference(&f, N_MEMBERS, 2, expect);
    init_all(&f);
    step_all(&f, 0);
    /* member 1 has pushed chunk 0 of step 1 and pulled ahead, then returns as another process */
    act(&f, PIECE_PUSH, 1, 0, 1, NULL);
    act(&f, PIECE_PULL, 1, 0, 3, NULL);
    store_admit(f.store, 1, 77);
    assert_int_equal(act(&f, PIECE_PUSH, 1, 0, 1, NULL),
                     PIECE_REFUSED); /* the earlier process may not send */
    make_piece(&f, &s, PIECE_PUSH, 1, 0, 1);
    s.head.incarnation = 77;
    assert_int_equal(send_piece(&f, &s, NULL), PIECE_NONE); /* the repeat does not count again */
    free(s.bytes);
    f.n_seen = 0;
    act(&f, PIECE_PUSH, 2, 0, 1, NULL);
    act(&f, PIECE_PUSH, 0, 0, 1, NULL);
    int n_new = 0;
    for (int i = 0; i < f.n_seen; i++)
        n_new += f.seen[i].member == 1 && f.seen[i].incarnation == 77;
    assert_int_equal(n_new, 1);
    /* Chunk 0 is a step ahead, and still has the version of the step to redo (I4). */
    make_piece(&f, &s, PIECE_PULL, 1, 0, 2);
    s.head.incarnation = 77;
    assert_int_equal(send_piece(&f, &s, &step), PIECE_VERSION);
    assert_int_equal(step, 1);
    free(s.bytes);
    for (int c = 1; c < N_CHUNKS; c++) {
        act(&f, PIECE_PUSH, 0, c, 1, NULL);
        act(&f, PIECE_PUSH, 2, c, 1, NULL);
        make_piece(&f, &s, PIECE_PUSH, 1, c, 1);
        s.head.incarnation = 77;
        send_piece(&f, &s, NULL);
        free(s.bytes);
    }
    store_rig_read_all(f.store, f.chunks, 2, got);
    assert_memory_equal(got, expect, sizeof got);
    teardown(&f);
}

static void pulls_wait_for_their_version(void **state)
{
    struct fixture f;
    uint64_t step;
    setup(&f, JOB_SYNC, OPTIM_SGD, N_MEMBERS);
    assert_int_equal(act(&f, PIECE_PULL, 2, 0, 0, NULL), PIECE_NONE); /* waits for INIT */
    assert_int_equal(act(&f, PIECE_PUSH, 2, 0, 0, NULL), PIECE_REFUSED);
    init_all(&f);
    assert_int_equal(f.n_seen, 1);
    assert_int_equal(f.seen[0].member, 2);
    assert_int_equal(f.seen[0].kind, PIECE_VERSION);
    assert_int_equal(f.seen[0].step, 0);
    step_all(&f, 0);
    assert_int_equal(act(&f, PIECE_INIT, 0, 0, 0, &step), PIECE_VERSION); /* changes nothing */
    assert_int_equal(step, 1);
    for (int64_t ask = 0; ask < 3; ask++) { /* 0: the newest; k: version k - 1 */
        assert_int_equal(act(&f, PIECE_PULL, 0, 0, ask, &step), PIECE_VERSION);
        assert_int_equal(step, ask == 1 ? 0 : 1);
    }
    f.n_seen = 0;
    f.from = 1;
    assert_int_equal(act(&f, PIECE_PULL, 0, 0, 3, NULL), PIECE_NONE);
    f.from = 2;
    assert_int_equal(act(&f, PIECE_PULL, 0, 0, 3, NULL), PIECE_NONE); /* a single request waits */
    f.from = 3;
    assert_int_equal(act(&f, PIECE_PUSH, 0, 0, 1, NULL), PIECE_NONE);
    f.from = 4;
    assert_int_equal(act(&f, PIECE_PUSH, 0, 0, 1, NULL), PIECE_NONE); /* a repeat */
    f.from = 5;
    act(&f, PIECE_PUSH, 1, 0, 1, NULL);
    act(&f, PIECE_PUSH, 2, 0, 1, NULL);
    int n_versions = 0;
    for (int i = 0; i < f.n_seen; i++) {
        n_versions += f.seen[i].kind == PIECE_VERSION;
        if (f.seen[i].member == 0) /* answered on the last of the streams that asked */
            assert_int_equal(f.seen[i].from, f.seen[i].kind == PIECE_VERSION ? 2 : 4);
    }
    assert_int_equal(f.n_seen, 4);
    assert_int_equal(n_versions, 1);
    teardown(&f);
}

static enum piece_kind push_asking(struct fixture *f, int member, int64_t step, uint64_t *answered)
{
    struct sent s;
    make_piece(f, &s, PIECE_PUSH, member, 0, step);
    s.piece.ask_taken = 1;
    enum piece_kind got = send_piece(f, &s, answered);
    free(s.bytes);
    return got;
}

/* If a sender requests TAKEN, and the answer to its push must wait, it first gets TAKEN, and then
 * the answer. */
static void requested_notice_precedes_the_answer(void **state)
{
    struct fixture f;
    uint64_t step = 99;
    setup(&f, JOB_SYNC, OPTIM_SGD, 3);
    init_all(&f);
    for (int64_t s = 0; s < 2; s++) {
        f.n_seen = 0;
        assert_int_equal(push_asking(&f, 2, s, &step), PIECE_TAKEN); /* ahead of its turn */
        assert_int_equal(step, s);
        assert_int_equal(push_asking(&f, 2, s, &step), PIECE_TAKEN); /* a repeat */
        assert_int_equal(act(&f, PIECE_PUSH, 0, 0, s, NULL), PIECE_NONE);
        assert_int_equal(f.n_seen, 0);
        assert_int_equal(push_asking(&f, 1, s, NULL), PIECE_NONE); /* the answer is in flight */
        assert_int_equal(f.n_seen, 3);
        for (int i = 0; i < 3; i++)
            assert_true(f.seen[i].kind == PIECE_APPLIED && f.seen[i].step == (uint64_t)s + 1);
        assert_int_equal(push_asking(&f, 1, s, &step), PIECE_DUPLICATE);
    }
    teardown(&f);
    setup(&f, JOB_ASYNC, OPTIM_SGD, 2);
    init_all(&f);
    assert_int_equal(push_asking(&f, 1, 0, NULL), PIECE_APPLIED);
    teardown(&f);
}

static void async_applies_each_contribution(void **state)
{
    struct fixture f;
    uint64_t step;
    static float before[N_ELEMS], after[N_ELEMS];
    setup(&f, JOB_ASYNC, OPTIM_SGD, 2);
    init_all(&f);
    store_rig_read_all(f.store, f.chunks, 0, before);
    for (int c = 0; c < N_CHUNKS; c++) {
        assert_int_equal(act(&f, PIECE_PUSH, 1, c, 0, &step), PIECE_APPLIED);
        assert_int_equal(step, 1);
    }
    store_rig_read_all(f.store, f.chunks, 1, after);
    for (int64_t i = 0; i < 1324; i++) /* the weight, 30.5, has no effect */
        assert_true(fabsf(after[i] - (before[i] - 0.01f * store_rig_number(1, 0, i))) < 1e-6f);
    assert_int_equal(act(&f, PIECE_PUSH, 1, 0, 0, &step), PIECE_DUPLICATE);
    assert_int_equal(step, 1);
    assert_int_equal(act(&f, PIECE_PUSH, 0, 0, 0, &step), PIECE_APPLIED); /* stale, but it counts */
    assert_int_equal(step, 2);
    assert_int_equal(act(&f, PIECE_PUSH, 1, 0, 1, &step), PIECE_APPLIED);
    assert_int_equal(step, 3);
    assert_int_equal(act(&f, PIECE_PUSH, 1, 0, 0, &step), PIECE_STALE);
    assert_int_equal(act(&f, PIECE_PUSH, 1, 0, 4, NULL), PIECE_REFUSED);
    store_admit(f.store, 1, 55); /* a new process: its step is another contribution */
    struct sent s;
    make_piece(&f, &s, PIECE_PUSH, 1, 0, 1);
    s.head.incarnation = 55;
    assert_int_equal(send_piece(&f, &s, &step), PIECE_APPLIED);
    assert_int_equal(step, 4);
    assert_int_equal(send_piece(&f, &s, &step), PIECE_DUPLICATE);
    free(s.bytes);
    assert_int_equal(f.n_seen, 0);
    teardown(&f);
}

/* Sends a piece that has one fault. */
#define BAD(expect, change)                                                                        \
    do {                                                                                           \
        struct sent s;                                                                             \
        make_piece(&f, &s, PIECE_PUSH, 0, 0, 0);                                                   \
        change;                                                                                    \
        assert_int_equal(send_piece(&f, &s, NULL), expect);                                        \
        free(s.bytes);                                                                             \
    } while (0)

static void invalid_pieces_are_refused(void **state)
{
    static float before[N_ELEMS], after[N_ELEMS];
    struct fixture f;
    setup(&f, JOB_SYNC, OPTIM_SGD, 1); /* a single member: any accepted push has an effect */
    init_all(&f);
    store_rig_read_all(f.store, f.chunks, 0, before);
    BAD(PIECE_REBASE, s.head.generation = 8);
    BAD(PIECE_REFUSED, s.head.member = 1);
    BAD(PIECE_REFUSED, s.head.member = UINT32_MAX);
    BAD(PIECE_REFUSED, s.head.incarnation = 0);
    BAD(PIECE_REFUSED, s.head.incarnation++);
    BAD(PIECE_REFUSED, s.piece.chunk = N_CHUNKS);
    BAD(PIECE_REFUSED, s.piece.chunk = UINT32_MAX);
    BAD(PIECE_REFUSED, s.piece.kind = PIECE_NONE);
    BAD(PIECE_REFUSED, s.piece.kind = PIECE_APPLIED);
    BAD(PIECE_REFUSED, s.piece.kind = (enum piece_kind)12345);
    BAD(PIECE_REFUSED, s.piece.kind = PIECE_PULL); /* a pull has no payload */
    BAD(PIECE_REFUSED, s.piece.payload.bytes -= 4);
    BAD(PIECE_REFUSED, s.piece.payload.bytes = 0);
    BAD(PIECE_REFUSED, s.piece.rows = 1); /* a chunk of parameters has no keys */
    BAD(PIECE_REFUSED, s.piece.reads = 1);
    BAD(PIECE_REFUSED, s.piece.chunk = 1); /* another chunk's length */
    BAD(PIECE_REFUSED, s.piece.weight = 0);
    BAD(PIECE_REFUSED, s.piece.weight = -1);
    BAD(PIECE_REFUSED, s.piece.weight = NAN);
    BAD(PIECE_REFUSED, s.piece.weight = INFINITY);
    BAD(PIECE_REFUSED, s.piece.crc32c ^= 1);
    BAD(PIECE_REFUSED, s.bytes[100] ^= 1);
    BAD(PIECE_REFUSED, s.piece.step = 1);
    BAD(PIECE_REFUSED, s.piece.step = UINT64_MAX);
    BAD(PIECE_REFUSED, (s.piece.kind = PIECE_INIT, s.piece.crc32c ^= 1));
    assert_int_equal(f.n_seen, 0);
    store_rig_read_all(f.store, f.chunks, 0, after);
    assert_memory_equal(before, after, sizeof before);
    BAD(PIECE_NONE, (void)0); /* the piece without a fault counts */
    assert_int_equal(f.n_seen, 1);
    teardown(&f);
}

static void store_has_its_shard_and_keeps_its_limit(void **state)
{
    struct fixture f;
    setup(&f, JOB_SYNC, OPTIM_SGD, 1);
    store_destroy(f.store);
    f.store = NULL;
    f.server[1] = 1;
    struct store_config cfg = {.chunks = f.chunks,
                               .job = &f.job,
                               .server = f.server,
                               .generation = GENERATION,
                               .max_bytes = (N_ELEMS - 300) * 4,
                               .answer = on_answer,
                               .ctx = &f};
    f.store = store_rig_open(&cfg, 1, incarnation_of(0));
    store_sum(f.store);
    assert_int_equal(act(&f, PIECE_INIT, 0, 0, 0, NULL), PIECE_VERSION);
    assert_int_equal(act(&f, PIECE_INIT, 0, 1, 0, NULL), PIECE_WRONG_SHARD);
    assert_int_equal(act(&f, PIECE_INIT, 0, 2, 0, NULL), PIECE_VERSION);
    assert_int_equal(store_step(f.store), 0);
    struct store *other = NULL;
    cfg.max_bytes--;
    assert_int_equal(store_create(&cfg, &other), ST_RANGE);
    assert_null(other);
    cfg.self = 2; /* owns no chunk */
    assert_int_equal(store_create(&cfg, &other), ST_OK);
    assert_int_equal(store_step(other), f.job.train_steps);
    store_destroy(other);
    teardown(&f);
}

static void missing_members_are_counted(void **state)
{
    struct fixture f;
    int missing[N_MEMBERS] = {0};
    int64_t step = -1;
    setup(&f, JOB_SYNC, OPTIM_SGD, N_MEMBERS);
    init_all(&f);
    assert_int_equal(store_missing(f.store, INT64_MAX, missing, &step), 0);
    f.now_ns = 1000;
    act(&f, PIECE_PUSH, 2, 0, 0, NULL);
    f.now_ns = 2000;
    act(&f, PIECE_PUSH, 0, 1, 0, NULL);
    assert_int_equal(store_missing(f.store, 1000, missing, &step),
                     0); /* none waits since before 1000 */
    assert_int_equal(store_missing(f.store, 2001, missing, &step), 2);
    assert_int_equal(step, 0);
    assert_int_equal(missing[0], 1);
    assert_int_equal(missing[1], 2);
    assert_int_equal(missing[2], 1);
    memset(missing, 0, sizeof missing);
    f.now_ns = 5000;
    act(&f, PIECE_PUSH, 0, 0, 0, NULL); /* the wait began with the chunk's first push */
    assert_int_equal(store_missing(f.store, 2000, missing, &step), 1);
    assert_true(missing[0] == 0 && missing[1] == 1 && missing[2] == 0);
    teardown(&f);
}

/* Each member pushes its steps in its own thread, and continues when it receives the new version.
 * The result is still that of the reference. */
struct racer {
    struct fixture *f;
    int member;
    int n_steps;
};

static void *race_main(void *arg)
{
    struct racer *r = arg;
    for (int64_t step = 0; step < r->n_steps; step++) {
        for (int i = 0; i < N_CHUNKS; i++)
            act(r->f, PIECE_PUSH, r->member, (i + r->member) % N_CHUNKS, step, NULL);
        while (store_step(r->f->store) <= step)
            sched_yield();
    }
    return NULL;
}

static void racing_members_get_the_reference(void **state)
{
    enum { STEPS = 40 };
    static float expect[N_ELEMS], got[N_ELEMS];
    struct fixture f;
    pthread_t thread[N_MEMBERS];
    struct racer racer[N_MEMBERS];
    setup(&f, JOB_SYNC, OPTIM_NESTEROV, N_MEMBERS);
    reference(&f, N_MEMBERS, STEPS, expect);
    init_all(&f);
    for (int m = 0; m < N_MEMBERS; m++) {
        racer[m] = (struct racer){&f, m, STEPS};
        assert_int_equal(pthread_create(&thread[m], NULL, race_main, &racer[m]), 0);
    }
    for (int m = 0; m < N_MEMBERS; m++)
        pthread_join(thread[m], NULL);
    store_rig_read_all(f.store, f.chunks, STEPS, got);
    assert_memory_equal(got, expect, sizeof got);
    teardown(&f);
}

/* Answers to members on this host have no checksums until a member needs one. Then all held
 * versions get theirs, even the previous version. */
static void checksums_are_added_when_needed(void **state)
{
    struct fixture f;
    setup(&f, JOB_SYNC, OPTIM_SGD, 1);
    struct store *summing = f.store;
    open_store(&f, 1);
    f.unsummed = 1;
    struct sent s;
    struct store_answer a;
    const struct {
        enum piece_kind kind;
        int64_t step;
    } pieces[] = {{PIECE_INIT, 0}, {PIECE_PUSH, 0}, {PIECE_PUSH, 1}, {PIECE_PULL, 2}};
    for (int sum = 0; sum < 2; sum++) {
        for (int i = sum ? 3 : 0; i < 4; i++) {
            make_piece(&f, &s, pieces[i].kind, 0, 0, pieces[i].step);
            s.piece.payload.span = s.spans;
            store_piece(f.store, &s.head, &s.piece, f.from, f.now_ns, &a);
            free(s.bytes);
            if (i == 1 || i == 2) /* answered through on_answer, which checks sums */
                continue;
            assert_non_null(a.payload);
            uint32_t crc = digest_crc32c(0, a.payload->data, a.payload->bytes);
            assert_int_equal(a.crc32c, sum ? crc : 0);
            buf_unref(a.payload);
        }
        store_sum(f.store);
    }
    store_destroy(f.store);
    f.store = summing;
    teardown(&f);
}

int main(void)
{
    return RUN_TESTS(checksums_are_added_when_needed, order_of_arrival_does_not_change_the_bits,
                     versions_are_immutable, contribution_counts_once,
                     restarted_member_redoes_its_step, pulls_wait_for_their_version,
                     requested_notice_precedes_the_answer, async_applies_each_contribution,
                     invalid_pieces_are_refused, store_has_its_shard_and_keeps_its_limit,
                     missing_members_are_counted, racing_members_get_the_reference);
}
