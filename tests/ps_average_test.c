/* tests/ps_average_test.c - averages of parameters (ema_decay) in the chunk store: which version a
 * member receives, parameters without a gradient, statistics, and pulls that are refused. */
#include "tests/check.h"
#include "tests/store_rig.h"
#include <math.h>
#include <string.h>

enum { N = 4, N_ELEMS = 3 * N, INCARNATION = 100 };
static const float decay = 0.75f;

static const struct net_param model[] = {
    {.name = "a", .shape = {1, {N}}},
    {.name = "b", .shape = {1, {N}}}, /* lies in one chunk with a */
    {.name = "mean", .shape = {1, {N}}, .rule = PARAM_AVERAGE, .keep = 0.9f},
};

struct fixture {
    struct chunks *chunks;
    struct net_job job;
    struct store *store;
};

static void open_store(struct fixture *f)
{
    static const int server[] = {0, 0};
    struct store_config cfg = {
        .chunks = f->chunks, .job = &f->job, .server = server, .generation = 1};
    f->store = store_rig_open(&cfg, f->job.n_workers, INCARNATION);
}

/* Asynchronous jobs have two members, others one. */
static void setup(struct fixture *f, enum job_sync_mode mode, float ema_decay)
{
    *f = (struct fixture){
        .job = {.n_workers = mode == JOB_ASYNC ? 2 : 1, .sync_mode = mode, .train_steps = 100}};
    assert_int_equal(chunks_create(model, 3, 4096, &f->chunks), ST_OK);
    assert_int_equal(f->chunks->n_chunks, 2);
    optim_defaults(OPTIM_SGD, &f->job.optim);
    f->job.optim.learning_rate = 1;
    f->job.optim.ema_decay = ema_decay;
    open_store(f);
}

static void teardown(struct fixture *f)
{
    store_destroy(f->store);
    chunks_destroy(f->chunks);
}

static struct store_answer act_as(struct fixture *f, uint32_t member, struct net_piece piece,
                                  const float *data)
{
    const struct net_frame_head head = {
        .generation = 1, .member = member, .incarnation = INCARNATION + member};
    if (data)
        piece.payload.bytes = sizeof(float) * (size_t)f->chunks->chunks[piece.chunk].n_elems;
    return store_rig_send(f->store, &head, piece, data, 0);
}

static struct store_answer act(struct fixture *f, struct net_piece piece, const float *data)
{
    return act_as(f, 0, piece, data);
}

static void init(struct fixture *f, const float *values)
{
    for (uint32_t c = 0; c < 2; c++) {
        const struct net_piece piece = {.kind = PIECE_INIT, .chunk = c};
        buf_unref(act(f, piece, values + f->chunks->chunks[c].first).payload);
    }
}

static void push(struct fixture *f, uint32_t chunk, uint64_t step, const float *gradient)
{
    const struct net_piece piece = {
        .kind = PIECE_PUSH, .chunk = chunk, .step = step, .weight = gradient ? 1 : 0};
    struct store_answer a = act(f, piece, gradient);
    assert_int_not_equal(a.kind, PIECE_REFUSED);
    buf_unref(a.payload);
}

/* Pulls the averages at version `step` - 1, and returns the version of the answer. */
static uint64_t pull(struct fixture *f, uint32_t chunk, uint64_t step, float *out)
{
    const struct net_piece piece = {.kind = PIECE_PULL_AVERAGE, .chunk = chunk, .step = step};
    struct store_answer a = act(f, piece, NULL);
    assert_int_equal(a.kind, PIECE_AVERAGE);
    assert_int_equal(a.dtype, DTYPE_F32);
    assert_int_equal(a.payload->bytes, sizeof(float) * (size_t)f->chunks->chunks[chunk].n_elems);
    memcpy(out, a.payload->data, a.payload->bytes);
    buf_unref(a.payload);
    return a.step;
}

static void average_begins_with_first_values(void **state)
{
    float values[N_ELEMS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, got[2 * N];
    struct fixture f;
    setup(&f, JOB_SYNC, decay);
    init(&f, values);
    assert_int_equal(pull(&f, 0, 1, got), 0);
    assert_memory_equal(got, values, sizeof got);
    push(&f, 0, 0, NULL); /* a step that changes nothing */
    assert_int_equal(pull(&f, 0, 2, got), 1);
    assert_memory_equal(got, values, sizeof got);
    teardown(&f);
}

static void each_version_has_its_average(void **state)
{
    float values[N_ELEMS] = {0}, down[2 * N], before[2 * N], got[2 * N];
    float want = 0;
    struct fixture f;
    for (int mode = JOB_SYNC; mode <= JOB_ASYNC; mode++) {
        setup(&f, (enum job_sync_mode)mode, decay);
        init(&f, values);
        for (int i = 0; i < 2 * N; i++)
            down[i] = -1; /* each step adds 1 to the values */
        for (uint64_t step = 0; step < 5; step++) {
            float value = (float)step + 1;
            want = step > 0 ? decay * want + (1 - decay) * value : value;
            assert_int_equal(pull(&f, 0, step + 1, before), step);
            push(&f, 0, step, down);
            assert_int_equal(pull(&f, 0, step + 2, got), step + 1);
            for (int i = 0; i < 2 * N; i++)
                assert_true(fabsf(got[i] - want) < 1e-5f);
            /* only lockstep has the version before */
            assert_int_equal(pull(&f, 0, step + 1, got), step + (mode != JOB_SYNC));
            if (mode == JOB_SYNC)
                assert_memory_equal(got, before, sizeof got);
            assert_int_equal(pull(&f, 0, 0, got), step + 1); /* the newest */
        }
        teardown(&f);
    }
}

/* The value of a parameter without a gradient stays, but its average still approaches it. */
static void average_of_a_parameter_that_stays_moves(void **state)
{
    float values[N_ELEMS] = {0}, gradient[2 * N], got[2 * N];
    uint8_t lacking = 2; /* b */
    struct net_span marks = {&lacking, 1};
    struct fixture f;
    setup(&f, JOB_SYNC, decay);
    init(&f, values);
    for (int i = 0; i < 2 * N; i++)
        gradient[i] = -1;
    push(&f, 0, 0, gradient);
    push(&f, 0, 1, gradient); /* the values are 2, the averages 0.75 + 0.25 * 2 */
    memset(gradient + N, 0, N * sizeof *gradient);
    const struct net_piece piece = {
        .kind = PIECE_PUSH, .step = 2, .weight = 1, .lacking = {&marks, 0, 1}};
    buf_unref(act(&f, piece, gradient).payload);
    assert_int_equal(pull(&f, 0, 4, got), 3);
    float before = 0.75f + 0.25f * 2;
    for (int i = 0; i < N; i++) {
        assert_true(fabsf(got[i] - (decay * before + (1 - decay) * 3)) < 1e-5f);
        assert_true(fabsf(got[N + i] - (decay * before + (1 - decay) * 2)) < 1e-5f);
    }
    teardown(&f);
}

/* The average is not the version on which a member computes, so delay compensation (DC-ASGD) still
 * uses the version that the member has received. */
static void average_is_no_base_of_compensation(void **state)
{
    float values[N_ELEMS] = {0}, gradient[2 * N], got[2][2 * N], averages[2 * N];
    for (int pulls = 0; pulls < 2; pulls++) {
        struct fixture f;
        setup(&f, JOB_ASYNC, decay);
        store_destroy(f.store);
        f.job.delay_compensation = 1;
        open_store(&f);
        init(&f, values);
        for (int i = 0; i < 2 * N; i++)
            gradient[i] = 2;
        const struct net_piece other = {.kind = PIECE_PUSH, .weight = 1};
        buf_unref(act_as(&f, 1, other, gradient).payload);
        if (pulls)
            assert_int_equal(pull(&f, 0, 1, averages), 1);
        push(&f, 0, 0, gradient);
        store_rig_read(f.store, &f.chunks->chunks[0], 0, 2, got[pulls]);
        assert_true(got[pulls][0] == -4 + 8); /* compensated by 2 * 2 * (-2 - 0) */
        teardown(&f);
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
}

static void statistics_have_their_value(void **state)
{
    float values[N_ELEMS] = {0}, batch[N] = {1, 1, 1, 1}, got[2 * N], value[N];
    struct fixture f;
    setup(&f, JOB_SYNC, decay);
    init(&f, values);
    push(&f, 1, 0, batch);
    push(&f, 1, 1, batch);
    assert_int_equal(pull(&f, 1, 3, got), 2);
    store_rig_read(f.store, &f.chunks->chunks[1], 1, 2, value);
    assert_memory_equal(got, value, sizeof value);
    teardown(&f);
}

static void pulls_without_average_are_refused(void **state)
{
    float values[N_ELEMS] = {0};
    const struct net_piece piece = {.kind = PIECE_PULL_AVERAGE};
    struct fixture f;
    setup(&f, JOB_SYNC, 0);
    init(&f, values);
    struct store_answer a = act(&f, piece, NULL);
    assert_int_equal(a.kind, PIECE_REFUSED);
    assert_string_equal(a.text, "chunk 0: the job has no averages (ema_decay)");
    teardown(&f);
    setup(&f, JOB_SYNC, decay);
    a = act(&f, piece, NULL);
    assert_int_equal(a.kind, PIECE_REFUSED);
    assert_string_equal(a.text, "chunk 0 has no averages before its first value");
    teardown(&f);
}

int main(void)
{
    return RUN_TESTS(average_begins_with_first_values, each_version_has_its_average,
                     average_of_a_parameter_that_stays_moves, average_is_no_base_of_compensation,
                     statistics_have_their_value, pulls_without_average_are_refused);
}
