/* tests/ps_rates_test.c - factors of the learning rate and the weight decay in the store: those of
 * a parameter, and those that the members send for a step. */
#include "tests/check.h"
#include "tests/store_rig.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MEMBERS = 2, N = 12, N_CHUNKS = 3, STEPS = 6, GENERATION = 5 };
static const struct net_param model[N_CHUNKS] = {
    {.name = "w", .shape = {1, {N}}},
    {.name = "bias", .shape = {1, {N}}, .has_factors = true, .factors = {1, 0}},
    {.name = "head", .shape = {1, {N}}, .has_factors = true, .factors = {0.25f, 3}},
};

struct fixture {
    struct chunks *chunks;
    struct net_job job;
    int server[N_CHUNKS];
    struct store *store;
};

static void set_up(struct fixture *f, const struct net_job *job)
{
    *f = (struct fixture){.job = *job};
    assert_int_equal(chunks_create(model, N_CHUNKS, 4096, &f->chunks), ST_OK);
    assert_int_equal(f->chunks->n_chunks, N_CHUNKS);
    f->job.train_steps = 100;
    const struct store_config cfg = {
        .chunks = f->chunks, .job = &f->job, .server = f->server, .generation = GENERATION};
    assert_null(job_check_mode(&f->job));
    f->store = store_rig_open(&cfg, MEMBERS, 100);
}

static void tear_down(struct fixture *f)
{
    store_destroy(f->store);
    chunks_destroy(f->chunks);
}

static struct net_job job_of(enum optim_kind kind)
{
    struct net_job job = {.n_workers = MEMBERS, .sync_mode = JOB_SYNC};
    optim_defaults(kind, &job.optim);
    job.optim.weight_decay = 0.1f;
    return job;
}

static void fill(int chunk, int member, int64_t step, float *out)
{
    for (int i = 0; i < N; i++)
        out[i] = store_rig_number(member, step, chunk * N + i);
}

/* Sends a first value (step -1), or a contribution of weight 1 with this factor. */
static struct store_answer send(struct fixture *f, int member, int chunk, int64_t step, float rate)
{
    float data[N];
    const struct net_frame_head head = {GENERATION, (uint32_t)member, 100 + (uint64_t)member};
    fill(chunk, member, step, data);
    struct net_piece piece = {.kind = step < 0 ? PIECE_INIT : PIECE_PUSH,
                              .chunk = (uint32_t)chunk,
                              .step = step < 0 ? 0 : (uint64_t)step,
                              .weight = step < 0 ? 0 : 1,
                              .has_rate = rate != 1,
                              .rate = rate,
                              .payload.bytes = sizeof data};
    struct store_answer a = store_rig_send(f->store, &head, piece, data, 0);
    buf_unref(a.payload);
    return a;
}

static void send_first(struct fixture *f)
{
    for (int c = 0; c < N_CHUNKS; c++)
        assert_int_equal(send(f, 0, c, -1, 1).kind, PIECE_VERSION);
}

static void assert_refused(struct store_answer a, const char *text)
{
    assert_int_equal(a.kind, PIECE_REFUSED);
    assert_string_equal(a.text, text);
}

struct state {
    float value[N], slots[2 * N];
};

/* Updates a chunk by the mean of the members' contributions, or (member >= 0) by that member's. */
static void update(struct state *s, const struct optim_config *optim,
                   const struct optim_factors *factors, int chunk, int member, int64_t step)
{
    float sum[N], other[N];
    struct optim_step scalars;
    fill(chunk, member < 0 ? 0 : member, step, sum);
    fill(chunk, 1, step, other);
    for (int i = 0; member < 0 && i < N; i++)
        sum[i] += other[i];
    optim_begin_scaled(optim, (uint64_t)step + 1, 0, factors, &scalars);
    const struct optim_run run = {.n = N,
                                  .sum = sum,
                                  .weight = 1,
                                  .scale = member < 0 ? 0.5f : 1,
                                  .old = s->value,
                                  .slots = s->slots,
                                  .new_slots = s->slots,
                                  .slot_stride = N,
                                  .new_ = s->value};
    optim_run(&scalars, &run);
}

static void assert_version(struct fixture *f, int chunk, int64_t version, const struct state *want)
{
    float got[N];
    store_rig_read(f->store, &f->chunks->chunks[chunk], chunk, version, got);
    for (int i = 0; i < N; i++)
        if (memcmp(&got[i], &want->value[i], sizeof *got) != 0)
            fail_msg("chunk %d, version %d, element %d: %.9g, not %.9g", chunk, (int)version, i,
                     (double)got[i], (double)want->value[i]);
}

/* Trains by all members with a factor for each step; `clips`: versions wait for the norm, whose
 * limit no step reaches. */
static void train_in_sync(enum optim_kind kind, bool clips)
{
    static const float rates[STEPS] = {1, 0.5f, 0, 2, 1, 0.125f};
    struct fixture f;
    struct net_job job = job_of(kind);
    struct state state[N_CHUNKS] = {{{0}, {0}}};
    job.optim.clip_norm = clips ? 1e6f : 0;
    set_up(&f, &job);
    send_first(&f);
    for (int c = 0; c < N_CHUNKS; c++)
        fill(c, 0, -1, state[c].value);
    for (int64_t step = 0; step < STEPS; step++) {
        for (int k = 0; k < MEMBERS; k++) /* another member is the first in each step */
            for (int c = 0; c < N_CHUNKS; c++)
                assert_int_not_equal(send(&f, (int)(k + step) % MEMBERS, c, step, rates[step]).kind,
                                     PIECE_REFUSED);
        for (int c = 0; c < N_CHUNKS; c++) {
            struct optim_factors factors = f.chunks->params[c].factors;
            factors.rate *= rates[step];
            update(&state[c], &job.optim, &factors, c, -1, step);
            assert_version(&f, c, step + 1, &state[c]);
        }
    }
    tear_down(&f);
}

static void versions_use_factors_of_parameter_and_step(void **state)
{
    for (int kind = 0; kind < OPTIM_N_KINDS; kind++) {
        train_in_sync((enum optim_kind)kind, false);
        train_in_sync((enum optim_kind)kind, true);
    }
}

static void another_factor_in_a_step_is_refused(void **state)
{
    struct fixture f;
    struct net_job job = job_of(OPTIM_SGD);
    struct state want;
    set_up(&f, &job);
    send_first(&f);
    fill(0, 0, -1, want.value);
    assert_int_equal(send(&f, 1, 0, 0, 0.5f).kind, PIECE_NONE);
    assert_refused(
        send(&f, 0, 0, 0, 1),
        "worker 0 has factor 1 of the learning rate at step 0, but worker 1 has factor 0.5; all members must set the same (weir_step_rate)");
    assert_refused(
        send(&f, 0, 0, 0, 0.25f),
        "worker 0 has factor 0.25 of the learning rate at step 0, but worker 1 has factor 0.5; all members must set the same (weir_step_rate)");
    assert_int_equal(send(&f, 1, 0, 0, 0.5f).kind,
                     PIECE_NONE); /* a repeat, which changes nothing */
    send(&f, 0, 0, 0, 0.5f);
    update(&want, &job.optim, &(struct optim_factors){0.5f, 1}, 0, -1, 0);
    assert_version(&f, 0, 1, &want);
    assert_int_equal(send(&f, 0, 0, 0, 1).kind, PIECE_DUPLICATE);
    assert_int_equal(send(&f, 0, 0, 1, 1).kind, PIECE_NONE); /* the next step has its own factor */
    tear_down(&f);
}

static void contributions_have_their_own_factors_in_async(void **state)
{
    static const float rates[MEMBERS][STEPS] = {{1, 0.5f, 1, 0, 3, 1}, {2, 1, 1, 0.25f, 1, 0}};
    struct fixture f;
    struct net_job job = job_of(OPTIM_ADAMW);
    struct state want[N_CHUNKS] = {{{0}, {0}}};
    job.sync_mode = JOB_ASYNC;
    set_up(&f, &job);
    send_first(&f);
    for (int c = 0; c < N_CHUNKS; c++)
        fill(c, 0, -1, want[c].value);
    for (int64_t version = 0; version < MEMBERS * STEPS; version++)
        for (int c = 0; c < N_CHUNKS; c++) {
            int m = (int)version % MEMBERS;
            float rate = rates[m][version / MEMBERS];
            struct optim_factors factors = f.chunks->params[c].factors;
            assert_int_equal(send(&f, m, c, version, rate).kind, PIECE_APPLIED);
            factors.rate *= rate;
            update(&want[c], &job.optim, &factors, c, m, version);
            assert_version(&f, c, version + 1, &want[c]);
        }
    tear_down(&f);
}

/* If the job has local steps, the members' optimizer has used the parameters' factors. */
static void servers_of_local_steps_use_no_factors(void **state)
{
    struct fixture f;
    struct net_job job = job_of(OPTIM_MOMENTUM);
    struct state want[N_CHUNKS] = {{{0}, {0}}};
    job.local_steps = 4;
    set_up(&f, &job);
    send_first(&f);
    for (int c = 0; c < N_CHUNKS; c++) {
        fill(c, 0, -1, want[c].value);
        for (int m = 0; m < MEMBERS; m++)
            send(&f, m, c, 0, 1);
        update(&want[c], &job.optim, &(struct optim_factors){1, 1}, c, -1, 0);
        assert_version(&f, c, 1, &want[c]);
    }
    assert_refused(send(&f, 0, 1, 1, 0.5f),
                   "chunk 1: a factor of a step's learning rate cannot be used with local_steps");
    tear_down(&f);
}

static void impossible_factors_are_refused(void **state)
{
    static const float bad[] = {-1, -0.5f, NAN, INFINITY, -INFINITY};
    struct fixture f;
    struct net_job job = job_of(OPTIM_SGD);
    set_up(&f, &job);
    send_first(&f);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[160];
        snprintf(text, sizeof text, "chunk 0: factor %g of the learning rate must be 0 or above",
                 (double)bad[i]);
        assert_refused(send(&f, 0, 0, 0, bad[i]), text);
    }
    tear_down(&f);
    job.aggregate = 1;
    set_up(&f, &job);
    send_first(&f);
    assert_refused(
        send(&f, 0, 0, 0, 0.5f),
        "chunk 0: a factor of a step's learning rate cannot be used with backup workers");
    tear_down(&f);
}

int main(void)
{
    return RUN_TESTS(versions_use_factors_of_parameter_and_step,
                     another_factor_in_a_step_is_refused,
                     contributions_have_their_own_factors_in_async,
                     servers_of_local_steps_use_no_factors, impossible_factors_are_refused);
}
