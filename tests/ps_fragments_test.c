/* tests/ps_fragments_test.c - a store whose chunks have turns (--fragments). A chunk without a turn
 * stays unchanged, with its slots and rounding rest, and its answers are empty. A chunk with a turn
 * is updated as if there were no steps between its turns. */
#include "base/rng.h"
#include "net/wire/fragments.h"
#include "ps/store/handover.h"
#include "tests/check.h"
#include "tests/store_rig.h"
#include <stdlib.h>

enum { N = 700, N_CHUNKS = 3, N_MEMBERS = 2, N_FRAGMENTS = 3, STEPS = 11, GENERATION = 7 };

static const struct net_param model[] = {{.name = "a", .shape = {1, {N}}},
                                         {.name = "b", .shape = {1, {N}}},
                                         {.name = "c", .shape = {1, {N}}}};

/* Answer that a member received later, not directly. */
struct late_answer {
    int n;
    enum piece_kind kind;
    enum dtype dtype;
    size_t bytes;
    int64_t step;
};

struct rig {
    struct net_job job;
    struct chunks *chunks;
    int *fragment;
    struct store *store, *plain; /* plain: without fragments, each chunk makes only its turns */
    int64_t n_turns[N_CHUNKS];
    struct late_answer late_answer[N_MEMBERS];
};

static void note(struct late_answer *c, const struct store_answer *a)
{
    *c = (struct late_answer){c->n + 1, a->kind, a->dtype,
                              a->payload ? a->payload->bytes : SIZE_MAX, (int64_t)a->step};
}

static void on_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                      const struct store_answer *a)
{
    if (ctx)
        note(&((struct rig *)ctx)->late_answer[head->member], a);
}

static struct store *make_store(struct rig *r, int fragments)
{
    static const int server[N_CHUNKS] = {0};
    struct net_job job = r->job;
    job.fragments = fragments;
    const struct store_config cfg = {.chunks = r->chunks,
                                     .job = &job,
                                     .server = server,
                                     .generation = GENERATION,
                                     .answer = on_answer,
                                     .ctx = fragments ? r : NULL};
    return store_rig_open(&cfg, N_MEMBERS, 1000);
}

/* Sends a piece. Returns the kind of the direct answer, and the answer in *now unless this is
 * NULL. */
static enum piece_kind send_piece(struct store *s, const struct net_piece *of, int member,
                                  uint64_t key, struct late_answer *now)
{
    float values[N];
    struct net_piece piece = *of;
    key = rng_key(key, RNG_TEST, of->chunk);
    for (int i = 0; i < N; i++)
        values[i] = rng_uniform(key, (uint64_t)i) - 0.5f;
    int empty = piece.kind == PIECE_PULL || (piece.kind == PIECE_PUSH && piece.weight == 0);
    const struct net_frame_head head = {GENERATION, (uint32_t)member, 1000 + (uint64_t)member};
    piece.payload.bytes = empty ? 0 : sizeof values;
    struct store_answer a = store_rig_send(s, &head, piece, values, 0);
    if (now)
        note(now, &a);
    buf_unref(a.payload);
    return a.kind;
}

static void setup(struct rig *r, enum dtype version_dtype)
{
    *r = (struct rig){.job = {.n_workers = N_MEMBERS,
                              .sync_mode = JOB_SYNC,
                              .train_steps = STEPS,
                              .fragments = N_FRAGMENTS,
                              .version_dtype = version_dtype}};
    optim_defaults(OPTIM_NESTEROV, &r->job.optim);
    assert_int_equal(chunks_create(model, N_CHUNKS, 4096, &r->chunks), ST_OK);
    assert_int_equal(r->chunks->n_chunks, N_CHUNKS);
    assert_int_equal(fragments_create(&r->job, r->chunks, &r->fragment), ST_OK);
    r->store = make_store(r, N_FRAGMENTS);
    r->plain = make_store(r, 0);
    for (uint32_t i = 0; i < N_CHUNKS; i++) {
        const struct net_piece first = {.kind = PIECE_INIT, .chunk = i};
        assert_int_equal(send_piece(r->store, &first, 0, 99, NULL), PIECE_VERSION);
        assert_int_equal(send_piece(r->plain, &first, 0, 99, NULL), PIECE_VERSION);
    }
}

static void teardown(struct rig *r)
{
    store_destroy(r->store);
    store_destroy(r->plain);
    chunks_destroy(r->chunks);
    free(r->fragment);
}

static void compare(struct rig *r, int chunk, int64_t version)
{
    struct handover_chunk a, b;
    assert_int_equal(handover_take(r->store, chunk, version, &a), ST_OK);
    assert_int_equal(handover_take(r->plain, chunk, r->n_turns[chunk], &b), ST_OK);
    assert_memory_equal(a.value->data, b.value->data, a.value->bytes);
    assert_int_equal(a.slots->bytes, b.slots->bytes);
    assert_memory_equal(a.slots->data, b.slots->data, a.slots->bytes);
    handover_drop(&a);
    handover_drop(&b);
}

/* Pushes both members' contributions to the chunk's step, and checks the size of the answers. */
static void push(struct rig *r, uint32_t chunk, int64_t step, int turn)
{
    enum dtype dtype = r->job.version_dtype;
    size_t bytes = turn ? dtype_bytes(dtype, N) : 0;
    for (int m = 0; m < N_MEMBERS; m++) {
        struct net_piece p = {.kind = PIECE_PUSH,
                              .chunk = chunk,
                              .step = (uint64_t)step,
                              .weight = turn ? 10 + (float)m : 0};
        uint64_t key = (uint64_t)(step * N_MEMBERS + m);
        assert_int_equal(send_piece(r->store, &p, m, key, NULL), PIECE_NONE);
        if (turn) {
            p.step = (uint64_t)r->n_turns[chunk];
            assert_int_equal(send_piece(r->plain, &p, m, key, NULL), PIECE_NONE);
        }
    }
    r->n_turns[chunk] += turn;
    for (int m = 0; m < N_MEMBERS; m++) {
        const struct late_answer *c = &r->late_answer[m];
        assert_int_equal(c->kind, PIECE_APPLIED);
        assert_int_equal(c->step, step + 1);
        assert_int_equal(c->bytes, bytes);
        assert_int_equal(c->dtype, turn ? dtype : DTYPE_F32);
    }
}

/* A repeated request gets the same answer. A member without the previous version gets the whole
 * version. */
static void ask_again(struct rig *r, uint32_t chunk, int64_t step, int turn)
{
    struct late_answer now = {0};
    const struct net_piece again = {.kind = PIECE_PUSH, .chunk = chunk, .step = (uint64_t)step};
    assert_int_equal(send_piece(r->store, &again, 0, 1, &now), PIECE_DUPLICATE);
    assert_int_equal(now.bytes, turn ? dtype_bytes(r->job.version_dtype, N) : 0);
    const struct net_piece pull = {
        .kind = PIECE_PULL, .chunk = chunk, .step = (uint64_t)step + 2, .dtype = DTYPE_F32};
    assert_int_equal(send_piece(r->store, &pull, 1, 1, &now), PIECE_VERSION);
    assert_int_equal(now.bytes, N * sizeof(float));
    if (step == 0)
        return;
    const struct net_piece old = {.kind = PIECE_PUSH, .chunk = chunk, .step = (uint64_t)step - 1};
    enum piece_kind kind = send_piece(r->store, &old, 0, 1, &now);
    assert_true(kind == PIECE_DUPLICATE || kind == PIECE_STALE);
    assert_int_equal(now.bytes, dtype_block(r->job.version_dtype) > 1
                                    ? N * sizeof(float)
                                    : dtype_bytes(r->job.version_dtype, N));
}

static void chunks_change_only_at_their_turns(void **state)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_INT4};
    for (size_t k = 0; k < 3; k++) {
        struct rig r;
        setup(&r, dtypes[k]);
        for (int64_t step = 0; step < STEPS; step++)
            for (uint32_t i = 0; i < N_CHUNKS; i++) {
                int turn = fragments_turn(&r.job, r.fragment, (int)i, step);
                push(&r, i, step, turn);
                compare(&r, (int)i, step + 1);
                ask_again(&r, i, step, turn);
            }
        for (int i = 0; i < N_CHUNKS; i++) /* all chunks have a turn at the last step */
            assert_in_range(r.n_turns[i], STEPS / N_FRAGMENTS + 1, STEPS / N_FRAGMENTS + 2);
        teardown(&r);
    }
}

static void contribution_without_a_turn_is_refused(void **state)
{
    struct rig r;
    setup(&r, DTYPE_F32);
    for (uint32_t i = 0; i < N_CHUNKS; i++) {
        const struct net_piece p = {.kind = PIECE_PUSH, .chunk = i, .weight = 1};
        assert_int_equal(send_piece(r.store, &p, 0, 1, NULL),
                         fragments_turn(&r.job, r.fragment, (int)i, 0) ? PIECE_NONE
                                                                       : PIECE_REFUSED);
    }
    teardown(&r);
}

int main(void)
{
    return RUN_TESTS(chunks_change_only_at_their_turns, contribution_without_a_turn_is_refused);
}
