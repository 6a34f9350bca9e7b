/* tests/ps_lacking_test.c - contributions without a gradient for some parameters of a chunk,
 * without a network. If a member has a gradient, other members count as zeros; if no member has
 * one, the parameter, its slots and its rounding residual stay, and Adam does not count the step
 * for it. The values match plain double precision, and the counts move with the chunks. */
#include "net/wire/lacking.h"
#include "ps/store/handover.h"
#include "tests/check.h"
#include "tests/store_rig.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    GENERATION = 3,
    MAX_MEMBERS = 3,
    N_PARAMS = 6,
    PACKED = 3, /* parameters of chunk 0 */
    N_W = 1324, /* chunks 1 and 2 */
    N_ELEMS = 3 + 300 + 2 + N_W + 5 + 4,
    N_CHUNKS = 5,
    MEAN_CHUNK = 3,
    STEPS = 12,
};

static const struct net_param model[N_PARAMS] = {
    {.name = "a", .shape = {1, {3}}},
    {.name = "b", .shape = {1, {300}}},
    {.name = "c", .shape = {1, {2}}},
    {.name = "w", .shape = {2, {331, 4}}, .has_factors = true, .factors = {0.5f, 2}},
    {.name = "mean", .shape = {1, {5}}, .rule = PARAM_AVERAGE, .keep = 0.9f},
    {.name = "frozen", .shape = {1, {4}}, .rule = PARAM_AVERAGE, .keep = 1},
};

struct fixture {
    struct chunks *chunks;
    struct net_job job;
    int n_members, server[N_CHUNKS];
    struct store *store;
    double value[N_ELEMS], slot[2][N_ELEMS]; /* reference */
    int n_updates[N_PARAMS];
    bool has_negative_zero; /* the first value of `b` is -0 */
};

static bool lacks(int member, int64_t step, int param)
{
    return model[param].keep != 0.9f && store_rig_number(member, 1000 + step, param) < 0.1f;
}

static bool all_lack(const struct fixture *f, int64_t step, int param)
{
    for (int m = 0; m < f->n_members; m++)
        if (!lacks(m, step, param))
            return false;
    return true;
}

static double weight_of(int member)
{
    return 1 + member;
}

static void open_store(struct fixture *f)
{
    const struct store_config cfg = {
        .chunks = f->chunks, .job = &f->job, .server = f->server, .generation = GENERATION};
    f->store = store_rig_open(&cfg, f->n_members, 100);
}

static struct store_answer send_init(struct fixture *f, int chunk)
{
    const struct net_chunk *c = &f->chunks->chunks[chunk];
    float values[N_ELEMS];
    for (int64_t i = 0; i < c->n_elems; i++)
        values[i] = store_rig_number(9, 0, c->first + i);
    if (f->has_negative_zero && chunk == 0)
        values[3] = -0.0f;
    const struct net_frame_head head = {GENERATION, 0, 100};
    const struct net_piece piece = {.kind = PIECE_INIT,
                                    .chunk = (uint32_t)chunk,
                                    .payload.bytes = (size_t)c->n_elems * sizeof(float)};
    return store_rig_send(f->store, &head, piece, values, 0);
}

static void setup(struct fixture *f, const struct net_job *job)
{
    f->job = *job;
    f->n_members = job->n_workers;
    f->job.train_steps = 1000;
    assert_int_equal(chunks_create(model, N_PARAMS, 4096, &f->chunks), ST_OK);
    assert_int_equal(f->chunks->n_chunks, N_CHUNKS);
    open_store(f);
    for (int c = 0; c < N_CHUNKS; c++)
        buf_unref(send_init(f, c).payload);
    for (int i = 0; i < N_ELEMS; i++)
        f->value[i] = (double)store_rig_number(9, 0, i);
}

static void teardown(struct fixture *f)
{
    store_destroy(f->store);
    chunks_destroy(f->chunks);
}

/* Sets the marks of a contribution. Returns true if it lacks all gradients of the chunk. */
static bool mark(const struct fixture *f, int member, int64_t step, int chunk, uint8_t *marks)
{
    int first = f->chunks->chunks[chunk].param, n = lacking_n_params(f->chunks, chunk);
    memset(marks, 0, lacking_bytes(n));
    for (int k = 0; k < n; k++)
        if (lacks(member, step, first + k))
            lacking_set(marks, k);
    return lacking_all(marks, n);
}

static float gradient(const struct fixture *f, int member, int64_t step, int64_t elem)
{
    int param = 0;
    while (elem >= f->chunks->params[param].first + f->chunks->params[param].n_elems)
        param++;
    return lacks(member, step, param) ? 0 : store_rig_number(member, step, elem);
}

static struct store_answer push(struct fixture *f, int member, int64_t step, int chunk)
{
    const struct net_chunk *c = &f->chunks->chunks[chunk];
    float values[N_ELEMS];
    uint8_t marks[1], wire[sizeof values];
    enum dtype dtype = job_push_dtype(&f->job, f->chunks, chunk);
    bool is_empty = mark(f, member, step, chunk, marks);
    const struct net_span span = {marks, marks[0] ? 1 : 0};
    for (int64_t i = 0; i < c->n_elems; i++)
        values[i] = gradient(f, member, step, c->first + i);
    dtype_encode(dtype, wire, values, (size_t)c->n_elems);
    const struct net_frame_head head = {GENERATION, (uint32_t)member, 100 + (uint64_t)member};
    const struct net_piece piece = {.kind = PIECE_PUSH,
                                    .chunk = (uint32_t)chunk,
                                    .step = (uint64_t)step,
                                    .weight = (float)weight_of(member),
                                    .dtype = dtype,
                                    .lacking = {&span, 0, span.n},
                                    .payload.bytes =
                                        is_empty ? 0 : dtype_bytes(dtype, (size_t)c->n_elems)};
    struct store_answer a = store_rig_send(f->store, &head, piece, wire, 0);
    if (a.kind == PIECE_REFUSED)
        fail_msg("refused: %s", a.text);
    return a;
}

/* Pushes all chunks of all members, in an order that depends on the step. */
static void push_step(struct fixture *f, int64_t step)
{
    for (int c = 0; c < N_CHUNKS; c++)
        for (int m = 0; m < f->n_members; m++)
            buf_unref(
                push(f, (m * (step % 2 ? -1 : 1) + (int)step + MAX_MEMBERS) % f->n_members, step, c)
                    .payload);
}

static double mean_of(const struct fixture *f, int64_t step, int64_t elem)
{
    double sum = 0, weight = 0;
    for (int m = 0; m < f->n_members; m++) {
        sum += weight_of(m) * (double)gradient(f, m, step, elem);
        weight += weight_of(m);
    }
    return sum / weight;
}

/* Returns the factor by which the reference clips the step's gradients. */
static double clip_of(const struct fixture *f, int64_t step)
{
    double squares = 0, limit = (double)f->job.optim.clip_norm;
    for (int i = 0; i < N_PARAMS && limit > 0; i++) {
        const struct net_param *p = &f->chunks->params[i];
        for (int64_t e = p->first; p->rule == PARAM_TRAINED && e < p->first + p->n_elems; e++)
            squares += mean_of(f, step, e) * mean_of(f, step, e);
    }
    return limit > 0 && sqrt(squares) > limit ? limit / sqrt(squares) : 1;
}

/* One update of an element as torch.optim computes it, in double precision. */
static void update(struct fixture *f, const struct optim_factors *factors, int64_t i, double g,
                   int t)
{
    const struct optim_config *o = &f->job.optim;
    double lr = (double)o->learning_rate * (double)factors->rate;
    double wd = (double)o->weight_decay * (double)factors->decay;
    double b1 = (double)o->beta1, b2 = (double)o->beta2, *m = f->slot[0], *v = f->slot[1];
    if (o->kind == OPTIM_ADAMW)
        f->value[i] *= 1 - lr * wd;
    else
        g += wd * f->value[i];
    if (o->kind == OPTIM_SGD) {
        f->value[i] -= lr * g;
    } else if (o->kind == OPTIM_MOMENTUM) {
        m[i] = (double)o->momentum * m[i] + g;
        f->value[i] -= lr * m[i];
    } else {
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        double m_hat = m[i] / (1 - pow(b1, t)), v_hat = v[i] / (1 - pow(b2, t));
        f->value[i] -= lr * m_hat / (sqrt(v_hat) + (double)o->epsilon);
    }
}

static void step_reference(struct fixture *f, int64_t step)
{
    double factor = clip_of(f, step);
    for (int k = 0; k < N_PARAMS; k++) {
        const struct net_param *p = &f->chunks->params[k];
        if (all_lack(f, step, k))
            continue;
        int t = ++f->n_updates[k];
        for (int64_t i = p->first; i < p->first + p->n_elems; i++)
            if (p->rule == PARAM_TRAINED)
                update(f, &p->factors, i, factor * mean_of(f, step, i), t);
            else
                f->value[i] =
                    (double)p->keep * f->value[i] + (1 - (double)p->keep) * mean_of(f, step, i);
    }
}

static void check_values(const struct fixture *f, int64_t version)
{
    float value[N_ELEMS];
    store_rig_read_all(f->store, f->chunks, version, value);
    for (int i = 0; i < N_ELEMS; i++)
        if (!(fabs((double)value[i] - f->value[i]) <= 2e-5))
            fail_msg("optimizer %s, %d members: element %d is %g, not %g at version %lld",
                     optim_name(f->job.optim.kind), f->n_members, i, (double)value[i], f->value[i],
                     (long long)version);
}

static struct net_job job_of(enum optim_kind kind, int n_members)
{
    struct net_job job = {.n_workers = n_members};
    optim_defaults(kind, &job.optim);
    job.optim.learning_rate = 0.05f;
    job.optim.weight_decay = 0.1f;
    return job;
}

static void versions_match_double_precision(void **state)
{
    static const enum optim_kind kinds[] = {OPTIM_SGD, OPTIM_MOMENTUM, OPTIM_ADAM, OPTIM_ADAMW};
    for (int k = 0; k < 4; k++)
        for (int n = 1; n <= MAX_MEMBERS; n++)
            for (int clips = 0; clips < 2; clips++) {
                struct fixture f = {0};
                struct net_job job = job_of(kinds[k], n);
                job.optim.clip_norm = clips ? 0.7f : 0;
                setup(&f, &job);
                for (int64_t step = 0; step < STEPS; step++) {
                    push_step(&f, step);
                    step_reference(&f, step);
                    check_values(&f, step + 1);
                }
                teardown(&f);
            }
}

/* Without lockstep each contribution makes a version, and the slots are overwritten in place. */
static void each_contribution_counts_alone_in_async(void **state)
{
    static const enum job_sync_mode modes[] = {JOB_ASYNC, JOB_SSP};
    for (int k = 0; k < 2; k++) {
        struct fixture f = {0};
        struct net_job job = job_of(OPTIM_ADAM, 1);
        job.sync_mode = modes[k];
        job.delay_compensation = 0.5f;
        setup(&f, &job);
        for (int64_t step = 0; step < STEPS; step++) {
            push_step(&f, step);
            step_reference(&f, step);
            check_values(&f, step + 1);
        }
        teardown(&f);
    }
}

struct part {
    float value[2][300], slots[2][3][300];
};

/* Copies value and slots of parameter `b`, which lies in the middle of chunk 0. */
static void take_part(struct fixture *f, int which, struct part *out)
{
    struct handover_chunk t;
    const struct net_chunk *c = &f->chunks->chunks[0];
    assert_int_equal(handover_take(f->store, 0, -1, &t), ST_OK);
    memcpy(out->value[which], (float *)t.value->data + 3, sizeof out->value[which]);
    for (size_t k = 0; t.slots && k < t.slots->bytes / sizeof(float) / (size_t)c->n_elems; k++)
        memcpy(out->slots[which][k], (float *)t.slots->data + k * (size_t)c->n_elems + 3,
               sizeof out->slots[which][k]);
    handover_drop(&t);
}

static void parameter_without_gradient_keeps_its_bits_in_each_format(void **state)
{
    int n_stayed = 0;
    for (int d = 0; d < DTYPE_N_KINDS; d++)
        for (int kind = 0; kind < OPTIM_N_KINDS; kind++)
            for (int mode = JOB_SYNC; mode <= JOB_SSP; mode++) {
                struct fixture f = {0};
                struct part part = {0};
                struct net_job job = job_of((enum optim_kind)kind, mode == JOB_SYNC ? 2 : 1);
                job.push_dtype = job.version_dtype = (enum dtype)d;
                job.sync_mode = (enum job_sync_mode)mode;
                setup(&f, &job);
                for (int64_t step = 0; step < STEPS; step++) {
                    take_part(&f, 0, &part);
                    push_step(&f, step);
                    take_part(&f, 1, &part);
                    bool stays = all_lack(&f, step, 1);
                    bool is_same = !memcmp(part.value[0], part.value[1], sizeof part.value[0]) &&
                                   !memcmp(part.slots[0], part.slots[1], sizeof part.slots[0]);
                    if (stays != is_same)
                        fail_msg("%s, %s, mode %d, step %lld: the parameter %s",
                                 dtype_name((enum dtype)d), optim_name((enum optim_kind)kind), mode,
                                 (long long)step, stays ? "changes" : "stays");
                    n_stayed += stays;
                }
                teardown(&f);
            }
    assert_true(n_stayed > 0);
}

/* A change of 0, which members add to the value that they have, turns -0 into 0. */
static void check_negative_zero(enum dtype d, uint8_t marks)
{
    static const float zeros[305];
    struct fixture f = {.has_negative_zero = true};
    struct part part;
    struct net_job job = job_of(OPTIM_ADAM, 1);
    const struct net_span span = {&marks, 1};
    const struct net_frame_head head = {GENERATION, 0, 100};
    const struct net_piece piece = {.kind = PIECE_PUSH,
                                    .weight = 1,
                                    .lacking = {&span, 0, 1},
                                    .payload.bytes = marks == 7 ? 0 : sizeof zeros};
    job.version_dtype = d;
    setup(&f, &job);
    assert_int_not_equal(store_rig_act(f.store, &head, piece, zeros, 0), PIECE_REFUSED);
    take_part(&f, 0, &part);
    assert_true(part.value[0][0] == 0);
    assert_int_equal(signbit(part.value[0][0]) != 0, dtype_block(d) == 1);
    teardown(&f);
}

static void kept_negative_zero_stays_unless_versions_are_changes(void **state)
{
    for (enum dtype d = DTYPE_F32; d < DTYPE_N_KINDS; d++) {
        check_negative_zero(d, 2); /* lacks `b` */
        check_negative_zero(d, 7); /* lacks all of the chunk */
    }
}

/* Moves all chunks to a new store, by reference or as another server's. */
static void move_chunks(struct fixture *f, int64_t step, bool as_copy)
{
    struct store *before = f->store;
    open_store(f);
    for (int c = 0; c < N_CHUNKS; c++) {
        struct handover_chunk t;
        assert_int_equal(handover_take(before, c, step, &t), ST_OK);
        const struct handover_copied from = {
            .version = t.version,
            .value = t.value->data,
            .slots = t.slots ? t.slots->data : NULL,
            .n_value = t.value->bytes / sizeof(float),
            .n_slots = t.slots ? t.slots->bytes / sizeof(float) : 0,
            .idle = t.idle ? t.idle->data : NULL,
            .n_idle = t.idle ? t.idle->bytes / sizeof(uint64_t) : 0};
        if (as_copy)
            assert_int_equal(handover_copy(f->store, c, &from), ST_OK);
        else
            assert_int_equal(handover_give(f->store, c, &t), ST_OK);
        handover_drop(&t);
    }
    store_destroy(before);
}

/* In lockstep the chunks may also return to the version before the last one. */
static void counts_move_with_the_chunks(void **state)
{
    for (int back = 0; back < 2; back++) {
        struct fixture f = {0};
        struct net_job job = job_of(OPTIM_ADAMW, 2);
        setup(&f, &job);
        for (int64_t step = 0; step < STEPS; step++) {
            push_step(&f, step);
            if (back && step > 0) {
                move_chunks(&f, step, step % 2);
                push_step(&f, step);
            }
            step_reference(&f, step);
            check_values(&f, step + 1);
            move_chunks(&f, step + 1, step % 2 == 0);
        }
        teardown(&f);
    }
}

static void counts_that_do_not_fit_are_refused(void **state)
{
    struct fixture f = {0};
    struct net_job job = job_of(OPTIM_ADAM, 1);
    setup(&f, &job);
    static const uint64_t idle[4] = {0, 1, 0, 0};
    static float zeros[3 * N_ELEMS];
    struct handover_copied from = {.version = 1,
                                   .value = zeros,
                                   .slots = zeros,
                                   .n_value = 305,
                                   .n_slots = 610,
                                   .idle = idle,
                                   .n_idle = 4};
    assert_int_equal(handover_copy(f.store, 0, &from), ST_PROTOCOL);
    from.n_idle = 3;
    assert_int_equal(handover_copy(f.store, 0, &from), ST_OK);
    from.version = 0; /* more idle updates than updates */
    assert_int_equal(handover_copy(f.store, 0, &from), ST_PROTOCOL);
    teardown(&f);
}

/* The last contribution of a step, which is the only one with a gradient for `b`, is not finite.
 * Its sender is refused, and the correct contribution of another process counts as if it were the
 * first. */
static void refused_contribution_leaves_no_marks(void **state)
{
    struct fixture f = {0};
    struct net_job job = job_of(OPTIM_ADAM, 2);
    int64_t step = 0;
    setup(&f, &job);
    for (; !lacks(0, step, 1) || lacks(1, step, 1); step++) {
        push_step(&f, step);
        step_reference(&f, step);
    }
    buf_unref(push(&f, 0, step, 0).payload);
    float values[305] = {INFINITY};
    const uint8_t marks = 2; /* lacks `b`, too */
    const struct net_span span = {&marks, 1};
    const struct net_frame_head head = {GENERATION, 1, 101};
    const struct net_piece piece = {.kind = PIECE_PUSH,
                                    .step = (uint64_t)step,
                                    .weight = 2,
                                    .lacking = {&span, 0, 1},
                                    .payload.bytes = sizeof values};
    assert_int_equal(store_rig_act(f.store, &head, piece, values, 0), PIECE_REFUSED);
    buf_unref(push(&f, 1, step, 0).payload);
    for (int c = 1; c < N_CHUNKS; c++)
        for (int m = 0; m < 2; m++)
            buf_unref(push(&f, m, step, c).payload);
    step_reference(&f, step);
    check_values(&f, step + 1);
    teardown(&f);
}

static void marks_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        const char *what, *why;
        enum piece_kind kind;
        int chunk, n_marks;
        uint8_t marks[2];
        float weight;
        size_t payload;
    } cases[] = {
        {"too many", "do not fit 3 parameters", PIECE_PUSH, 0, 2, {1, 0}, 1, 305},
        {"none set", "do not fit 3 parameters", PIECE_PUSH, 0, 1, {0}, 1, 305},
        {"unused bit", "do not fit 3 parameters", PIECE_PUSH, 0, 1, {9}, 1, 305},
        {"weight 0", "only a PUSH with a weight", PIECE_PUSH, 0, 1, {1}, 0, 0},
        {"PULL", "only a PUSH with a weight", PIECE_PULL, 0, 1, {1}, 0, 0},
        {"statistic", "'mean' is a statistic", PIECE_PUSH, MEAN_CHUNK, 1, {1}, 1, 0},
        {"payload", "payload of 1220 bytes, not 0", PIECE_PUSH, 0, 1, {7}, 1, 305},
        {"no payload", "payload of 0 bytes, not 1220", PIECE_PUSH, 0, 1, {3}, 1, 0},
    };
    struct fixture f = {0};
    struct net_job job = job_of(OPTIM_ADAM, 1);
    static const float zeros[N_ELEMS];
    setup(&f, &job);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct net_span span = {cases[i].marks, (size_t)cases[i].n_marks};
        const struct net_frame_head head = {GENERATION, 0, 100};
        const struct net_piece piece = {.kind = cases[i].kind,
                                        .chunk = (uint32_t)cases[i].chunk,
                                        .weight = cases[i].weight,
                                        .lacking = {&span, 0, span.n},
                                        .payload.bytes = cases[i].payload * sizeof(float)};
        struct store_answer a = store_rig_send(f.store, &head, piece, zeros, 0);
        if (a.kind != PIECE_REFUSED || !strstr(a.text, cases[i].why))
            fail_msg("%s: answer %d, \"%s\"", cases[i].what, (int)a.kind, a.text);
    }
    teardown(&f);
}

/* A contribution that marks a gradient as missing and has a number for it is refused in each number
 * format, wherever the payload is cut; the correct contribution of the same step then counts. */
static void filled_gradient_that_is_marked_is_refused(void **state)
{
    enum { N = 305, C = 304 };
    for (enum dtype d = DTYPE_F32; d < DTYPE_N_KINDS; d++) {
        struct fixture f = {0};
        struct net_job job = job_of(OPTIM_ADAM, 1);
        float values[N] = {0};
        uint8_t bytes[N * sizeof(float)];
        const uint8_t marks = 4; /* lacks `c` */
        const struct net_span span = {&marks, 1};
        const struct net_frame_head head = {GENERATION, 0, 100};
        const struct net_piece piece = {.kind = PIECE_PUSH,
                                        .weight = 1,
                                        .dtype = d,
                                        .lacking = {&span, 0, 1},
                                        .payload.bytes = dtype_bytes(d, N)};
        job.push_dtype = d;
        job.sync_mode = JOB_ASYNC;
        setup(&f, &job);
        for (int is_correct = 0; is_correct < 2; is_correct++) {
            values[C] = is_correct ? 0 : 0.5f;
            values[1] = 0.25f;
            dtype_encode(d, bytes, values, N);
            struct store_answer a = store_rig_send(f.store, &head, piece, bytes, 3);
            if (is_correct)
                assert_int_equal(a.kind, PIECE_APPLIED);
            else if (a.kind != PIECE_REFUSED || !strstr(a.text, "'c' is marked as missing"))
                fail_msg("%s: answer %d, \"%s\"", dtype_name(d), (int)a.kind, a.text);
            buf_unref(a.payload);
        }
        teardown(&f);
    }
}

/* A member may send a contribution again from memory in which a damaged answer has replaced zeros.
 * The contribution has counted, so the server does not read it again. */
static void repeated_contribution_is_not_read(void **state)
{
    struct fixture f = {0};
    struct net_job job = job_of(OPTIM_ADAM, 1);
    float values[305] = {0};
    const uint8_t marks = 4; /* lacks `c` */
    const struct net_span span = {&marks, 1};
    const struct net_frame_head head = {GENERATION, 0, 100};
    const struct net_piece piece = {
        .kind = PIECE_PUSH, .weight = 1, .lacking = {&span, 0, 1}, .payload.bytes = sizeof values};
    setup(&f, &job);
    assert_int_not_equal(store_rig_act(f.store, &head, piece, values, 0), PIECE_REFUSED);
    values[304] = 0.5f;
    assert_int_equal(store_rig_act(f.store, &head, piece, values, 0), PIECE_DUPLICATE);
    teardown(&f);
}

int main(void)
{
    return RUN_TESTS(versions_match_double_precision, each_contribution_counts_alone_in_async,
                     parameter_without_gradient_keeps_its_bits_in_each_format,
                     kept_negative_zero_stays_unless_versions_are_changes,
                     counts_move_with_the_chunks, counts_that_do_not_fit_are_refused,
                     refused_contribution_leaves_no_marks, marks_that_do_not_fit_are_refused,
                     filled_gradient_that_is_marked_is_refused, repeated_contribution_is_not_read);
}
