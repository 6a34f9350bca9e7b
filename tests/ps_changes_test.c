/* tests/ps_changes_test.c - a job that sends versions as changes, in int8 or int4. A receiver that
 * adds the changes to its values has the same bits as the server. A receiver that lacks the
 * previous version gets a whole version. The rest that rounding cuts off is part of later changes,
 * even if the chunks move to another store. */
#include "base/digest.h"
#include "ps/store/handover.h"
#include "tests/check.h"
#include "tests/store_rig.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_MEMBERS = 2, GENERATION = 4, N_W = 900, N_ELEMS = N_W + 2 + 5, N_CHUNKS = 3, STEPS = 40 };

static const struct net_param model[] = {
    {.name = "w", .shape = {1, {N_W}}},
    {.name = "mean", .shape = {1, {5}}, .rule = PARAM_AVERAGE, .keep = 0.9f},
    {.name = "b", .shape = {1, {2}}}, /* too short to profit from rounding */
};

struct fixture {
    struct chunks *chunks;
    struct net_job job;
    int server[N_CHUNKS];
    struct store *store;
    float params[N_MEMBERS][N_ELEMS]; /* values of each member */
    int n_changes, n_whole;
    int steady; /* nonzero: each step has the same contributions */
};

static void take(struct fixture *f, uint32_t member, const struct store_answer *a)
{
    const struct net_chunk *c = &f->chunks->chunks[a->chunk];
    float *value = f->params[member] + c->first;
    size_t n = (size_t)c->n_elems;
    assert_int_equal(a->payload->bytes, dtype_bytes(a->dtype, n));
    assert_int_equal(digest_crc32c(0, a->payload->data, a->payload->bytes), a->crc32c);
    if (a->dtype == DTYPE_F32)
        memcpy(value, a->payload->data, n * sizeof *value);
    else
        dtype_add(a->dtype, value, a->payload->data, n);
    f->n_changes += a->dtype != DTYPE_F32;
    f->n_whole += a->dtype == DTYPE_F32;
}

static void on_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                      const struct store_answer *a)
{
    struct fixture *f = ctx;
    assert_int_equal(a->kind, PIECE_APPLIED);
    take(f, head->member, a);
}

static void open_store(struct fixture *f)
{
    struct store_config cfg = {.chunks = f->chunks,
                               .job = &f->job,
                               .server = f->server,
                               .generation = GENERATION,
                               .answer = on_answer,
                               .ctx = f};
    f->store = store_rig_open(&cfg, N_MEMBERS, 100);
    store_sum(f->store);
}

static float number(int member, int64_t step, int64_t elem)
{
    float u = store_rig_number(member, step, elem);
    return elem % 10 ? u * 0.01f : u;
}

struct sent {
    enum piece_kind kind;
    int64_t step;
    enum dtype dtype;
    float weight;
};

static struct store_answer send_piece(struct fixture *f, int member, int chunk, struct sent sent)
{
    const struct net_chunk *c = &f->chunks->chunks[chunk];
    size_t n = (size_t)c->n_elems;
    size_t bytes = sent.kind == PIECE_PULL || (sent.kind == PIECE_PUSH && sent.weight == 0)
                       ? 0
                       : n * sizeof(float);
    float values[N_ELEMS];
    const int64_t at = sent.kind == PIECE_INIT ? -1 : f->steady ? 0 : sent.step;
    for (size_t i = 0; i < n; i++)
        values[i] = number(member, at, c->first + (int64_t)i);
    struct net_frame_head head = {GENERATION, (uint32_t)member, 100 + (uint64_t)member};
    struct net_piece piece = {.kind = sent.kind,
                              .chunk = (uint32_t)chunk,
                              .step = (uint64_t)sent.step,
                              .weight = sent.weight,
                              .dtype = sent.dtype,
                              .payload.bytes = bytes};
    return store_rig_send(f->store, &head, piece, values, 0);
}

static void receive(struct fixture *f, int member, int chunk, struct sent sent,
                    enum piece_kind want, enum dtype in)
{
    struct store_answer a = send_piece(f, member, chunk, sent);
    assert_int_equal(a.kind, want);
    assert_int_equal(a.dtype, in);
    a.chunk = (uint32_t)chunk;
    take(f, (uint32_t)member, &a);
    buf_unref(a.payload);
}

static void setup(struct fixture *f, enum dtype version, enum optim_kind kind)
{
    *f = (struct fixture){
        .job = {.n_workers = N_MEMBERS, .train_steps = 1000, .version_dtype = version}};
    assert_int_equal(chunks_create(model, 3, 4096, &f->chunks), ST_OK);
    assert_int_equal(f->chunks->n_chunks, N_CHUNKS);
    optim_defaults(kind, &f->job.optim);
    f->job.optim.learning_rate = 0.05f;
    open_store(f);
    for (int c = 0; c < N_CHUNKS; c++)
        for (int m = 0; m < N_MEMBERS; m++)
            receive(f, m, c, (struct sent){.kind = PIECE_INIT}, PIECE_VERSION, DTYPE_F32);
}

static void teardown(struct fixture *f)
{
    store_destroy(f->store);
    chunks_destroy(f->chunks);
}

static void wait_push(struct fixture *f, int member, int chunk, int64_t step, float weight)
{
    struct store_answer a =
        send_piece(f, member, chunk, (struct sent){PIECE_PUSH, step, DTYPE_F32, weight});
    assert_int_equal(a.kind, PIECE_NONE);
    assert_null(a.payload);
}

/* Checks that each member has the server's values at this version. */
static void check_same(struct fixture *f, int64_t version)
{
    for (int c = 0; c < N_CHUNKS; c++) {
        int64_t v;
        struct buf *b = store_read(f->store, c, &v);
        assert_int_equal(v, version);
        for (int m = 0; m < N_MEMBERS; m++)
            assert_memory_equal(f->params[m] + f->chunks->chunks[c].first, b->data, b->bytes);
        buf_unref(b);
    }
}

static void step_all(struct fixture *f, int64_t step, float weight)
{
    for (int c = 0; c < N_CHUNKS; c++)
        for (int m = 0; m < N_MEMBERS; m++)
            wait_push(f, m, c, step, weight);
    check_same(f, step + 1);
}

static void receivers_have_the_bits_of_the_server(void **state)
{
    for (int d = DTYPE_INT8; d <= DTYPE_TOPK; d++)
        for (int kind = 0; kind < OPTIM_N_KINDS; kind++) {
            struct fixture f;
            setup(&f, (enum dtype)d, (enum optim_kind)kind);
            f.n_whole = 0;
            for (int64_t step = 0; step < STEPS; step++)
                step_all(&f, step, step % 7 == 3 ? 0 : 2); /* 0: all members skip */
            assert_int_equal(f.n_changes, STEPS * N_MEMBERS);
            assert_int_equal(f.n_whole, 2 * STEPS * N_MEMBERS); /* "mean" and "b" are sent whole */
            teardown(&f);
        }
}

/* A step without contributions changes nothing, and the rounding rest stays. */
static void step_without_contributions_changes_nothing(void **state)
{
    struct fixture f;
    float before[N_ELEMS];
    setup(&f, DTYPE_INT4, OPTIM_ADAM);
    for (int64_t step = 0; step < 3; step++)
        step_all(&f, step, 1);
    memcpy(before, f.params[0], sizeof before);
    step_all(&f, 3, 0);
    assert_memory_equal(f.params[0], before, sizeof before);
    teardown(&f);
}

/* After many equal steps the rounded job differs from the exact job by at most one step's rounding.
 * The difference would be large if the rest of earlier steps were lost. */
static void rounding_rest_reaches_later_versions(void **state)
{
    for (int d = DTYPE_INT8; d <= DTYPE_TOPK; d++) {
        struct fixture f, exact;
        float moved = 0, off = 0;
        setup(&f, (enum dtype)d, OPTIM_SGD);
        setup(&exact, DTYPE_F32, OPTIM_SGD);
        f.steady = exact.steady = 1;
        for (int64_t step = 0; step < 200; step++) {
            step_all(&f, step, 1);
            step_all(&exact, step, 1);
        }
        for (int i = 0; i < N_W; i++) {
            moved = fmaxf(moved, fabsf(exact.params[0][i] - number(0, -1, i)));
            off = fmaxf(off, fabsf(exact.params[0][i] - f.params[0][i]));
        }
        /* The limit is a rounding step of the largest change. Topk sends each of the 26 large
         * elements in 3 of 16 steps, so its limit is the change of 16 steps. */
        float one = 0.05f * 0.5f * 2 / (d == DTYPE_INT8 ? 127 : 7);
        if (d == DTYPE_TOPK)
            one = 0.05f * 0.5f * 16;
        assert_true(off <= one);
        assert_true(moved > 3);
        teardown(&f);
        teardown(&exact);
    }
}

/* A repeated push is answered with the change again, since its sender has the previous version. A
 * restarted worker gets the whole version. */
static void repeat_gets_change_and_restart_gets_whole_version(void **state)
{
    struct fixture f;
    setup(&f, DTYPE_INT8, OPTIM_MOMENTUM);
    step_all(&f, 0, 1);
    wait_push(&f, 0, 0, 1, 1);
    float before[N_W];
    memcpy(before, f.params[1], sizeof before);
    wait_push(&f, 1, 0, 1, 1);
    memcpy(f.params[1], before, sizeof before); /* the answer was lost */
    receive(&f, 1, 0, (struct sent){PIECE_PUSH, 1, DTYPE_F32, 1}, PIECE_DUPLICATE, DTYPE_INT8);
    assert_memory_equal(f.params[1], f.params[0], sizeof before);
    memset(f.params[1], 0, sizeof before);
    struct sent pull = {.kind = PIECE_PULL}; /* pulls the newest version */
    receive(&f, 1, 0, pull, PIECE_VERSION, DTYPE_F32);
    assert_memory_equal(f.params[1], f.params[0], sizeof before);
    pull.step = 2; /* version 1 */
    receive(&f, 1, 0, pull, PIECE_VERSION, DTYPE_F32);
    assert_memory_equal(f.params[1], before, sizeof before);
    pull.dtype = DTYPE_INT8;
    struct store_answer a = send_piece(&f, 1, 0, pull);
    assert_int_equal(a.kind, PIECE_REFUSED); /* a change is not a version */
    teardown(&f);
}

/* Chunks that move to another store after some steps continue with the same bits. */
static void moved_chunks_continue_with_the_same_bits(void **state)
{
    struct fixture moved, stayed;
    setup(&moved, DTYPE_INT4, OPTIM_ADAM);
    setup(&stayed, DTYPE_INT4, OPTIM_ADAM);
    for (int64_t step = 0; step < 20; step++) {
        step_all(&stayed, step, 1);
        if (step == 8) {
            struct store *before = moved.store;
            open_store(&moved);
            for (int c = 0; c < N_CHUNKS; c++) {
                struct handover_chunk t;
                assert_int_equal(handover_take(before, c, step, &t), ST_OK);
                assert_int_equal(handover_give(moved.store, c, &t), ST_OK);
                handover_drop(&t);
            }
            store_destroy(before);
        }
        step_all(&moved, step, 1);
        assert_memory_equal(moved.params[0], stayed.params[0], sizeof moved.params[0]);
    }
    teardown(&moved);
    teardown(&stayed);
}

int main(void)
{
    return RUN_TESTS(
        receivers_have_the_bits_of_the_server, step_without_contributions_changes_nothing,
        rounding_rest_reaches_later_versions, repeat_gets_change_and_restart_gets_whole_version,
        moved_chunks_continue_with_the_same_bits);
}
