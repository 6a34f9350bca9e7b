/* tests/worker_parts_test.c - the training loop over a backend that copies in parts
 * (kernels/parts.h): each chunk is pushed when its part has arrived, the host reads gradients only
 * if the device has found some that may be bad, and each chunk is copied to the device when its
 * version has arrived. */
#include "kernels/parts.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/trainer_rig.h"
#include <math.h>
#include <string.h>

enum { PART = CHUNKS_MIN_BYTES / sizeof(float), N_PARTS = (N_ELEMS + PART - 1) / PART };

/* The backend of this test. A gradient is NaN on the host until the host has waited for it. */
static struct {
    const struct updates *updates; /* local updates, which those of the test call */
    float gradient;
    int64_t elems;
    int n_waited, n_checked, n_whole; /* parts of this step; checks; waits for a whole layer */
    int n_pushed;                     /* chunks of this step */
    int suspect_at;                   /* number of the check that finds a bad gradient, from 1 */
    float bad;                        /* the bad gradient, in the last part; 0: a false alarm */
    int n_loaded, n_begun;            /* parts copied to the device; steps begun there */
    int64_t rebase_at;                /* step in which the generation ends once; -1: none */
    struct net_start start;           /* start of the next generation */
} card;

static enum status card_create(const struct backend_plan_config *cfg, struct plan **out)
{
    if (!cfg->inference_only) {
        assert_non_null(cfg->parts);
        card.elems = cfg->parts->elems;
        assert_int_equal(card.elems, PART);
        /* 3.4e38 / (4 samples * 2 * 4096), and less because of bf16 */
        assert_true(cfg->parts->largest_grad > 1.02e34f && cfg->parts->largest_grad < 1.04e34f);
    }
    return fake_backend.plan_create(cfg, out);
}

static enum status card_backward(struct plan *p, int layer)
{
    if (layer != 0)
        return ST_OK;
    assert_int_equal(fake_backward(p, layer), ST_OK);
    card.gradient = p->cfg.grads[0][0];
    card.n_waited = card.n_pushed = 0;
    for (int i = 0; i < N_ELEMS; i++)
        p->cfg.grads[0][i] = NAN;
    return ST_OK;
}

static enum status card_part(struct plan *p, int param, int64_t part)
{
    assert_int_equal(param, 0);
    assert_int_equal(part, card.n_waited++);
    for (int64_t i = part * PART; i < N_ELEMS && i < (part + 1) * PART; i++)
        p->cfg.grads[0][i] = card.gradient;
    return ST_OK;
}

static enum status card_wait(struct plan *p, int layer)
{
    assert_int_equal(layer, 0);
    card.n_whole++;
    for (int i = 0; i < N_ELEMS; i++)
        p->cfg.grads[0][i] = card.gradient;
    if (card.bad != 0 && card.n_checked == card.suspect_at)
        p->cfg.grads[0][N_ELEMS - 1] = card.bad;
    return ST_OK;
}

static enum status card_check(struct plan *p, int layer, bool *suspect)
{
    assert_int_equal(layer, 0);
    *suspect = ++card.n_checked == card.suspect_at;
    return ST_OK;
}

/* Pushes to the local updates. Each chunk is pushed before the wait for the next part. */
static enum status count_push(void *ctx, int chunk, int64_t step, const float *data, float weight)
{
    card.n_pushed++;
    assert_true(card.n_whole > 0 || card.n_waited == card.n_pushed);
    return card.updates->ops->push(card.updates->ctx, chunk, step, data, weight);
}

/* Chunks arrive from the last one to the first. */
static enum status arrive(void *ctx, const uint8_t *skip, int64_t step, int *chunk)
{
    for (*chunk = N_PARTS - 1; skip[*chunk]; --*chunk)
        assert_true(*chunk > 0);
    assert_int_equal(card.n_loaded, N_PARTS * card.n_begun + N_PARTS - 1 - *chunk);
    assert_int_equal(card.updates->ops->version(card.updates->ctx, *chunk), step);
    if (card.rebase_at != step || *chunk > 0)
        return ST_OK;
    card.rebase_at = -1;
    card.n_loaded -= N_PARTS - 1; /* all chunks arrive again */
    return ST_REBASED;
}

static enum status start_again(void *ctx, struct net_start *out)
{
    *out = card.start;
    return ST_OK;
}

static enum status card_load(struct plan *p, int param, int64_t part)
{
    assert_int_equal(param, 0);
    assert_int_equal(part, N_PARTS - 1 - card.n_loaded % N_PARTS);
    card.n_loaded++;
    return ST_OK;
}

static enum status card_forward(struct plan *p, int layer, int train)
{
    if (layer == 0 && train && card.n_loaded > 0)
        assert_int_equal(card.n_loaded, N_PARTS * ++card.n_begun);
    return ST_OK;
}

static const struct parts_ops parts = {card_part, card_check, card_load};

/* Makes the rig's trainer use a backend with parts; by_parts 0: the fake backend. */
static void make(struct rig *r, int by_parts)
{
    static struct backend b;
    b = fake_backend;
    b.plan_create = card_create;
    b.forward = card_forward;
    b.backward = card_backward;
    b.wait_grads = card_wait;
    b.parts = &parts;
    rig_make(r, 3, 4, 1, 4);
    memset(&card, 0, sizeof card);
    card.rebase_at = -1;
    if (!by_parts)
        return;
    trainer_destroy(r->trainer);
    r->towers[0].own.backend = &b;
    strcpy(r->layers[0].name, "dense1");
    assert_int_equal(trainer_create(&r->cfg, &r->trainer), ST_OK);
}

/* Makes the trainer again, with changed settings. */
static void make_again(struct rig *r)
{
    trainer_destroy(r->trainer);
    assert_int_equal(trainer_create(&r->cfg, &r->trainer), ST_OK);
}

static void run_plain(float params[N_ELEMS])
{
    struct rig r;
    struct trainer_result result;
    make(&r, 0);
    assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
    memcpy(params, r.params, sizeof r.params);
    rig_free(&r);
}

static void chunks_are_pushed_part_by_part(void **state)
{
    struct rig r;
    struct trainer_result result;
    float want[N_ELEMS];
    run_plain(want);
    make(&r, 1);
    struct updates_ops ops = *r.updates.ops;
    struct updates counted = {&ops, r.updates.ctx};
    ops.push = count_push;
    card.updates = &r.updates;
    r.cfg.updates = &counted;
    make_again(&r);
    assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
    assert_memory_equal(r.params, want, sizeof want);
    assert_int_equal(card.n_pushed, N_PARTS);
    assert_int_equal(card.n_checked, 15);
    assert_int_equal(card.n_whole, 0);
    rig_free(&r);
}

/* Also if the generation ends when some chunks of a step have arrived. */
static void chunks_are_loaded_as_they_arrive(void **state)
{
    float want[N_ELEMS];
    run_plain(want);
    for (int rebases = 0; rebases < 2; rebases++) {
        struct rig r;
        struct trainer_result result;
        make(&r, 1);
        struct updates_ops ops = *r.updates.ops;
        struct updates arriving = {&ops, r.updates.ctx};
        ops.wait_any = arrive;
        ops.start = start_again;
        card.updates = &r.updates;
        r.cfg.updates = &arriving;
        make_again(&r);
        if (rebases) {
            card.rebase_at = 5;
            card.start = r.start;
            card.start.step = 5;
        }
        int n_loads = atomic_load(&fake.n_loads);
        assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
        assert_memory_equal(r.params, want, sizeof want);
        assert_int_equal(card.n_begun, 15);
        assert_int_equal(card.n_loaded, 16 * N_PARTS); /* also the result of the last step */
        assert_int_equal(atomic_load(&fake.n_loads), n_loads);
        assert_int_equal(card.rebase_at, -1);
        rig_free(&r);
    }
}

/* A suspicion that the host does not confirm changes nothing. */
static void false_alarm_changes_nothing(void **state)
{
    struct rig r;
    struct trainer_result result;
    float want[N_ELEMS];
    run_plain(want);
    make(&r, 1);
    card.suspect_at = 6;
    assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
    assert_memory_equal(r.params, want, sizeof want);
    assert_int_equal(card.n_whole, 1);
    rig_free(&r);
}

static void bad_gradient_ends_the_run(void **state)
{
    struct rig r;
    struct trainer_result result;
    make(&r, 1);
    card.suspect_at = 6;
    card.bad = NAN;
    assert_int_equal(CAPTURE(trainer_run(r.trainer, &r.start, &result)), ST_INVALID);
    assert_non_null(strstr(capture_text,
                           "worker 3, step 5: the gradient of 'w' (layer 'dense1') is not finite"));
    assert_int_equal(card.n_pushed, 0);
    assert_null(trainer_bad_param(r.trainer));
    rig_free(&r);
}

/* Only the bad step changes nothing. */
static void bad_gradient_is_skipped(void **state)
{
    struct rig r;
    struct trainer_result result;
    make(&r, 1);
    r.cfg.skip_nonfinite = true;
    r.cfg.max_nonfinite = 1;
    make_again(&r);
    card.suspect_at = 15;
    card.bad = INFINITY;
    assert_int_equal(CAPTURE(trainer_run(r.trainer, &r.start, &result)), ST_OK);
    assert_int_equal(result.skipped, 1);
    float with = r.params[0];
    for (int i = 1; i < N_ELEMS; i++)
        assert_true(r.params[i] == with);
    rig_free(&r);
    make(&r, 0);
    r.cfg.train_steps = 14;
    make_again(&r);
    assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
    assert_true(r.params[0] == with);
    rig_free(&r);
}

/* The norm is that of whole gradients, which are on the host before it is computed. They are
 * clipped there, as in a job with servers, and the clipped gradients are pushed. */
static void clipping_reads_whole_layers(void **state)
{
    float params[2];
    for (int by_parts = 0; by_parts < 2; by_parts++) {
        struct rig r;
        struct trainer_result result;
        make(&r, by_parts);
        struct updates_ops ops = *r.updates.ops;
        struct updates other = {&ops, r.updates.ctx};
        r.cfg.updates = &other;
        r.cfg.clip_norm = 1;
        make_again(&r);
        assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
        params[by_parts] = r.params[N_ELEMS - 1];
        assert_int_equal(card.n_whole, by_parts * 15);
        rig_free(&r);
    }
    assert_true(params[0] == params[1]);
}

/* The fault of --fault_nonfinite is found although the device finds nothing. */
static void injected_fault_is_found(void **state)
{
    struct rig r;
    struct trainer_result result;
    make(&r, 1);
    r.cfg.fault_nonfinite = 4;
    make_again(&r);
    assert_int_equal(CAPTURE(trainer_run(r.trainer, &r.start, &result)), ST_INVALID);
    assert_non_null(strstr(capture_text, "step 3: the gradient of 'w'"));
    rig_free(&r);
}

int main(void)
{
    return RUN_TESTS(chunks_are_pushed_part_by_part, chunks_are_loaded_as_they_arrive,
                     false_alarm_changes_nothing, bad_gradient_ends_the_run,
                     bad_gradient_is_skipped, clipping_reads_whole_layers, injected_fault_is_found);
}
