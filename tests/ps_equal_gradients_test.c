/* tests/ps_equal_gradients_test.c - the warning that two workers send the same gradients. */
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/store_rig.h"

enum { MEMBERS = 3, N = 1024, STEPS = 5, GENERATION = 5, INCARNATION = 100 };
static const struct net_param model[] = {
    {.name = "w", .shape = {1, {N}}},
    {.name = "bias", .shape = {1, {N}}},
    {.name = "mean", .shape = {1, {N}}, .rule = PARAM_AVERAGE, .keep = 0.9f},
};
enum { N_CHUNKS = sizeof model / sizeof *model, BIAS = 1 };

/* Returns the gradient of the bias at an element. */
typedef float gradient_fn(int member, int64_t step, int element);

static void send_all(struct store *s, gradient_fn *gradient)
{
    float data[N] = {0};
    for (int64_t step = -1; step < STEPS; step++)
        for (int m = 0; m < (step < 0 ? 1 : MEMBERS); m++)
            for (uint32_t c = 0; c < N_CHUNKS; c++) {
                const struct net_frame_head head = {GENERATION, (uint32_t)m,
                                                    INCARNATION + (uint64_t)m};
                struct net_piece piece = {.kind = step < 0 ? PIECE_INIT : PIECE_PUSH,
                                          .chunk = c,
                                          .step = step < 0 ? 0 : (uint64_t)step,
                                          .weight = step < 0 ? 0 : 8,
                                          .payload = {.bytes = sizeof data}};
                for (int i = 0; i < N; i++)
                    data[i] = c == BIAS ? gradient(m, step, i) : 1;
                assert_int_not_equal(store_rig_act(s, &head, piece, data, 0), PIECE_REFUSED);
            }
}

/* Trains and returns whether the warning was logged, once, with both workers. */
static bool is_warned(enum job_sync_mode mode, gradient_fn *gradient)
{
    static const int workers[MEMBERS] = {4, 5, 7};
    struct chunks *chunks;
    struct net_job job = {.n_workers = MEMBERS, .sync_mode = mode, .train_steps = STEPS};
    int server[N_CHUNKS] = {0};
    assert_int_equal(chunks_create(model, N_CHUNKS, 4096, &chunks), ST_OK);
    assert_int_equal(chunks->n_chunks, N_CHUNKS);
    optim_defaults(OPTIM_SGD, &job.optim);
    const struct store_config cfg = {.chunks = chunks,
                                     .job = &job,
                                     .server = server,
                                     .member = workers,
                                     .generation = GENERATION};
    struct store *s = store_rig_open(&cfg, MEMBERS, INCARNATION);
    capture_begin();
    send_all(s, gradient);
    capture_end();
    store_destroy(s);
    chunks_destroy(chunks);
    if (!capture_text[0])
        return false;
    assert_int_equal(capture_lines(), 1);
    assert_non_null(strstr(capture_text, "workers 5 and 7 sent the same gradients in 3 steps"));
    return true;
}

static float of_equal_batches(int member, int64_t step, int element)
{
    return store_rig_number(member == 2 ? 1 : member, step, element);
}

static float of_other_batches(int member, int64_t step, int element)
{
    return store_rig_number(member, step, element);
}

static float of_nothing(int member, int64_t step, int element)
{
    return 0;
}

static float equal_in_one_step(int member, int64_t step, int element)
{
    return store_rig_number(step == 1 ? 0 : member, step, element);
}

static float equal_before_the_bias(int member, int64_t step, int element)
{
    return element < N - 4 ? 1 : store_rig_number(member, step, element);
}

static void equal_batches_are_named(void **state)
{
    assert_true(is_warned(JOB_SYNC, of_equal_batches));
}

static void other_batches_are_not_named(void **state)
{
    assert_false(is_warned(JOB_SYNC, of_other_batches));
    assert_false(is_warned(JOB_SYNC, of_nothing));
    assert_false(is_warned(JOB_SYNC, equal_in_one_step));
    assert_false(is_warned(JOB_SYNC, equal_before_the_bias));
    assert_false(is_warned(JOB_ASYNC, of_equal_batches));
}

int main(void)
{
    return RUN_TESTS(equal_batches_are_named, other_batches_are_not_named);
}
