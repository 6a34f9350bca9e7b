/* tests/ps_outer_test.c - the store of a region: the first values and every third version (a gate)
 * wait for the other regions, and the store calls its hooks. */
#include "kernels/vector/vector.h"
#include "ps/region/region.h"
#include "ps/store/handover.h"
#include "ps/store/outer.h"
#include "tests/check.h"
#include "tests/store_rig.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 700, N_MEMBERS = 2, GATE = 3, GENERATION = 7 };

static const struct outer_adoption as_computed = {.to = NULL};
static const struct net_param model[] = {{.name = "w", .shape = {2, {70, 10}}}};

/* A store of one chunk, and a record of the calls of its hooks. */
struct rig {
    struct chunks *chunks;
    struct store *store, *other; /* other: a store without regions */
    float first[N];
    int n_first, n_made, n_waits, n_answers;
    int64_t made;
    float value[N]; /* value of version `made`, which a hook received */
    int64_t since;
    int n_stopped;
};

static int waits(void *ctx, int64_t version, int64_t train_steps)
{
    assert_int_equal(train_steps, 100);
    return version % GATE == 0;
}

static void made(void *ctx, int chunk, int64_t version, int waits_now, struct buf *value)
{
    struct rig *r = ctx;
    assert_int_equal(chunk, 0);
    assert_int_equal(waits_now, version % GATE == 0);
    r->n_made++;
    r->n_waits += waits_now;
    r->made = version;
    memcpy(r->value, value->data, sizeof r->value);
}

static void first(void *ctx, int chunk, const struct net_payload *value)
{
    struct rig *r = ctx;
    r->n_first++;
    payload_copy(value, r->first);
}

static int64_t slots_since(void *ctx)
{
    return ((struct rig *)ctx)->since;
}

static void on_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                      const struct store_answer *a)
{
    ((struct rig *)ctx)->n_answers += a->kind == PIECE_APPLIED || a->kind == PIECE_VERSION;
}

static void on_stopped(void *ctx)
{
    ((struct rig *)ctx)->n_stopped++;
}

static void make_store(struct rig *r, const struct outer_hooks *outer, float clip_norm,
                       struct store **out)
{
    static const int server[] = {0};
    struct net_job job = {.n_workers = N_MEMBERS, .sync_mode = JOB_SYNC, .train_steps = 100};
    optim_defaults(OPTIM_ADAM, &job.optim);
    job.optim.clip_norm = clip_norm;
    const struct store_config cfg = {.chunks = r->chunks,
                                     .job = &job,
                                     .server = server,
                                     .generation = GENERATION,
                                     .outer = outer,
                                     .answer = on_answer,
                                     .stopped = on_stopped,
                                     .ctx = r};
    *out = store_rig_open(&cfg, N_MEMBERS, 1000);
}

static void setup(struct rig *r, float clip_norm)
{
    static struct outer_hooks outer;
    *r = (struct rig){.made = -1};
    outer = (struct outer_hooks){waits, made, first, slots_since, r};
    assert_int_equal(chunks_create(model, 1, 4096, &r->chunks), ST_OK);
    assert_int_equal(r->chunks->n_chunks, 1);
    make_store(r, &outer, clip_norm, &r->store);
    make_store(r, NULL, clip_norm, &r->other);
}

static void teardown(struct rig *r)
{
    store_destroy(r->store);
    store_destroy(r->other);
    chunks_destroy(r->chunks);
}

static enum piece_kind send_piece(struct store *s, enum piece_kind kind, int member, int64_t step)
{
    float values[N];
    for (int i = 0; i < N; i++)
        values[i] = store_rig_number(member, step, i);
    const struct net_frame_head head = {GENERATION, (uint32_t)member, 1000 + (uint64_t)member};
    const struct net_piece piece = {.kind = kind,
                                    .step = (uint64_t)step,
                                    .weight = kind == PIECE_PUSH ? 10 : 0,
                                    .payload.bytes = kind == PIECE_PULL ? 0 : sizeof values};
    return store_rig_act(s, &head, piece, values, 0);
}

static void push_all(struct store *s, int64_t step)
{
    for (int m = 0; m < N_MEMBERS; m++)
        assert_int_equal(send_piece(s, PIECE_PUSH, m, step), PIECE_NONE);
}

static int64_t read_value(struct store *s, float out[N])
{
    int64_t version = -1;
    struct buf *b = store_read(s, 0, &version);
    if (b)
        memcpy(out, b->data, N * sizeof *out);
    buf_unref(b);
    return version;
}

static void begin(struct rig *r)
{
    float zero[N] = {0};
    assert_int_equal(send_piece(r->other, PIECE_INIT, 0, 0), PIECE_VERSION);
    read_value(r->other, zero);
    assert_int_equal(outer_set_first(r->store, 0, 0, zero), ST_OK);
}

/* No member gets first values before the parent group has chosen them and their version. */
static void first_values_wait_for_the_parent(void **state)
{
    struct rig r;
    float theirs[N], got[N];
    setup(&r, 0);
    assert_int_equal(send_piece(r.store, PIECE_INIT, 0, 0), PIECE_NONE);
    assert_int_equal(send_piece(r.store, PIECE_PULL, 1, 0), PIECE_NONE);
    assert_int_equal(send_piece(r.store, PIECE_INIT, 0, 0),
                     PIECE_NONE); /* a repeat on a new stream */
    assert_true(r.n_first == 2 && r.n_answers == 0);
    assert_int_equal(read_value(r.store, got), -1);
    assert_true(r.first[3] != 0);
    for (int i = 0; i < N; i++)
        theirs[i] = (float)i;
    assert_int_equal(outer_set_first(r.store, 0, 6, theirs), ST_OK);
    assert_int_equal(r.n_answers, 2);
    assert_int_equal(read_value(r.store, got), 6);
    assert_memory_equal(got, theirs, sizeof got);
    theirs[0] = 99; /* a chunk has first values only once */
    assert_int_equal(outer_set_first(r.store, 0, 9, theirs), ST_OK);
    assert_int_equal(read_value(r.store, got), 6);
    assert_true(got[0] == 0);
    assert_int_equal(send_piece(r.store, PIECE_INIT, 0, 0), PIECE_VERSION);
    teardown(&r);
}

static void gate_waits_for_the_parent(void **state)
{
    float clip_norms[] = {0, 0.1f};
    for (size_t k = 0; k < 2; k++) {
        struct rig r;
        float want[N], got[N], to[N], from[N];
        setup(&r, clip_norms[k]);
        begin(&r);
        for (int step = 0; step < GATE; step++) {
            push_all(r.store, step);
            push_all(r.other, step);
        }
        /* The version is computed and passed to the hook, but not sent. */
        assert_int_equal(read_value(r.store, got), GATE - 1);
        assert_int_equal(read_value(r.other, want), GATE);
        assert_true(r.made == GATE && r.n_made == GATE && r.n_waits == 1);
        assert_memory_equal(r.value, want, sizeof want);
        int before = r.n_answers;
        assert_int_equal(send_piece(r.store, PIECE_PUSH, 0, GATE - 1), PIECE_NONE); /* a repeat */
        assert_int_equal(send_piece(r.store, PIECE_PULL, 1, GATE + 1), PIECE_NONE);
        assert_false(outer_adopt(r.store, 0, GATE + 1, &as_computed));
        assert_int_equal(r.n_answers, before);
        for (int i = 0; i < N; i++) {
            to[i] = (float)i;
            from[i] = (float)i / 2;
        }
        const struct outer_adoption changed = {to, from, 0, 0};
        assert_true(outer_adopt(r.store, 0, GATE, &changed));
        assert_false(outer_adopt(r.store, 0, GATE, &changed));
        assert_int_equal(r.n_answers, before + N_MEMBERS + 1);
        assert_int_equal(read_value(r.store, got), GATE);
        for (int i = 0; i < N; i++)
            assert_true(got[i] == want[i] + (to[i] - from[i]));
        /* A version may be adopted unchanged, with a change, or mixed with other values. */
        for (int step = GATE; step < 2 * GATE; step++) {
            push_all(r.store, step);
            push_all(r.other, step);
        }
        memcpy(want, r.value, sizeof want);
        assert_true(outer_adopt(r.store, 0, 2 * GATE, &as_computed));
        assert_int_equal(read_value(r.store, got), 2 * GATE);
        assert_memory_equal(got, want, sizeof got);
        for (int step = 2 * GATE; step < 3 * GATE; step++)
            push_all(r.store, step);
        const struct outer_adoption whole = {.to = to, .mixed = 1, .mix = 0.5f};
        assert_true(outer_adopt(r.store, 0, 3 * GATE, &whole));
        assert_int_equal(read_value(r.store, got), 3 * GATE);
        assert_memory_equal(got, to, sizeof got);
        for (int step = 3 * GATE; step < 4 * GATE; step++)
            push_all(r.store, step);
        memcpy(want, r.value, sizeof want);
        const struct outer_adoption mixed = {to, from, 1, 0.25f};
        assert_true(outer_adopt(r.store, 0, 4 * GATE, &mixed));
        read_value(r.store, got);
        for (int i = 0; i < N; i++)
            assert_true(got[i] == to[i] + 0.25f * (want[i] - to[i]));
        teardown(&r);
    }
}

/* Adam's first step has the length of its learning rate for any gradient, even if it is not the
 * job's first step. */
static void slots_begin_at_the_first_version_of_the_region(void **state)
{
    struct rig r;
    float theirs[N] = {0}, got[N];
    double rate = 0, sum = 0;
    setup(&r, 0);
    r.since = 31;
    struct optim_config adam;
    optim_defaults(OPTIM_ADAM, &adam);
    rate = (double)optim_rate(&adam, 32);
    assert_int_equal(outer_set_first(r.store, 0, 31, theirs), ST_OK);
    push_all(r.store, 31);
    assert_int_equal(read_value(r.store, got), 32);
    for (int i = 0; i < N; i++)
        sum += fabs((double)got[i]);
    assert_true(sum / N > 0.99 * rate && sum / N < 1.001 * rate);
    teardown(&r);
}

/* The next generation computes the step again. */
static void stop_drops_a_waiting_version(void **state)
{
    struct rig r;
    struct handover_chunk t;
    float want[N], got[N];
    setup(&r, 0);
    begin(&r);
    for (int step = 0; step < GATE; step++) {
        read_value(r.store, want);
        push_all(r.store, step);
    }
    assert_true(!handover_is_stopped(r.store) && r.n_stopped == 0);
    handover_stop(r.store);
    assert_true(handover_is_stopped(r.store) && r.n_stopped == 1);
    assert_false(outer_adopt(r.store, 0, GATE, &as_computed));
    assert_int_equal(handover_take(r.store, 0, GATE - 1, &t), ST_OK);
    memcpy(got, t.value->data, sizeof got);
    assert_memory_equal(got, want, sizeof got);
    handover_drop(&t);
    teardown(&r);
}

static void gates_follow_the_steps(void **state)
{
    for (int64_t steps = 1; steps <= 12; steps++)
        for (int64_t overlap = 0; overlap < steps; overlap++)
            for (int64_t last = overlap + 1; last <= 40; last++) {
                const struct ps_region_config c = {.steps = steps, .overlap = overlap};
                int64_t n = 0, before = 0;
                assert_int_equal(ps_region_gates(&c, 0, last), 0);
                assert_false(ps_region_is_gate(&c, 0, last));
                for (int64_t v = 1; v <= last; v++) {
                    if (ps_region_is_gate(&c, v, last)) {
                        assert_int_equal(ps_region_gate_version(&c, ++n, last), v);
                        assert_true(v - overlap >=
                                    before); /* at most a single exchange at a time */
                        before = v;
                    }
                    assert_int_equal(ps_region_gates(&c, v, last), n);
                }
                assert_int_equal(before, last);
            }
}

int main(void)
{
    return RUN_TESTS(first_values_wait_for_the_parent, gate_waits_for_the_parent,
                     slots_begin_at_the_first_version_of_the_region, stop_drops_a_waiting_version,
                     gates_follow_the_steps);
}
