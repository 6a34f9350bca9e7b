/* tests/ps_clip_test.c - clipping by the norm in lockstep, without a network: several stores, which
 * share the chunks of one model, exchange their parts of the norm. The versions have the same bits
 * for any number of servers and any order of arrival, and they match plain double precision. No
 * version is made before all parts have arrived. */
#include "kernels/vector/clip.h"
#include "kernels/vector/vector.h"
#include "ps/store/handover.h"
#include "ps/store/norm.h"
#include "tests/check.h"
#include "tests/store_rig.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_MEMBERS = 2,
    MAX_SERVERS = 3,
    GENERATION = 7,
    N_W = 1324,
    N_V = 3000,
    N_ELEMS = N_W + N_V + 5,
    MAX_CHUNKS = 16,
    MAX_PARTS = 32,
};

static const struct net_param model[] = {
    {.name = "w", .shape = {2, {331, 4}}},
    {.name = "v", .shape = {2, {30, 100}}},
    {.name = "mean", .shape = {1, {5}}, .rule = PARAM_AVERAGE, .keep = 0.9f},
};

/* A message from one server to the other. */
struct part {
    int from, n;
    int64_t step;
    double square[MAX_CHUNKS];
};

struct group;
struct server {
    struct group *group;
    int number;
    struct store *store;
};

struct group {
    struct chunks *chunks;
    struct net_job job;
    int n, shard[MAX_CHUNKS];
    struct server server[MAX_SERVERS];
    struct part part[MAX_PARTS];
    int n_parts;
    int n_applied, n_rebase; /* numbers of APPLIED and of REBASE answers */
    float scale;             /* factor of all gradients; averages are not scaled */
};

static void on_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                      const struct store_answer *a)
{
    struct server *s = ctx;
    s->group->n_applied += a->kind == PIECE_APPLIED;
    s->group->n_rebase += a->kind == PIECE_REBASE;
}

static void on_squares(void *ctx, int64_t step, const double *square, int n)
{
    struct server *s = ctx;
    struct group *g = s->group;
    assert_true(g->n_parts < MAX_PARTS);
    struct part *p = &g->part[g->n_parts++];
    *p = (struct part){.from = s->number, .n = n, .step = step};
    memcpy(p->square, square, (size_t)n * sizeof *square);
}

static enum squares_answer send_part(struct group *g, int to, const struct part *p)
{
    char why[CONTROL_TEXT_BYTES];
    double square[MAX_CHUNKS];
    memcpy(square, p->square, sizeof square);
    const struct net_squares m = {
        .generation = GENERATION, .step = p->step, .server = p->from, .n = p->n, .square = square};
    return clip_receive_squares(g->server[to].store, &m, why);
}

static void deliver(struct group *g)
{
    while (g->n_parts > 0) {
        const struct part p = g->part[--g->n_parts];
        for (int i = 0; i < g->n; i++)
            if (i != p.from)
                assert_int_equal(send_part(g, i, &p), SQUARES_TAKEN);
    }
}

static void setup(struct group *g, int n, enum optim_kind optim, float clip_norm)
{
    *g = (struct group){.n = n, .scale = 1};
    assert_int_equal(chunks_create(model, 3, 4096, &g->chunks), ST_OK);
    assert_in_range(g->chunks->n_chunks, 5, MAX_CHUNKS);
    g->job = (struct net_job){.n_workers = N_MEMBERS, .sync_mode = JOB_SYNC, .train_steps = 100};
    optim_defaults(optim, &g->job.optim);
    g->job.optim.clip_norm = clip_norm;
    for (int c = 0; c < g->chunks->n_chunks; c++)
        g->shard[c] = c % n;
    for (int i = 0; i < n; i++) {
        struct server *s = &g->server[i];
        *s = (struct server){.group = g, .number = i};
        const struct store_config cfg = {.chunks = g->chunks,
                                         .job = &g->job,
                                         .server = g->shard,
                                         .self = i,
                                         .generation = GENERATION,
                                         .answer = on_answer,
                                         .ctx = s,
                                         .squares = on_squares,
                                         .squares_ctx = s};
        s->store = store_rig_open(&cfg, N_MEMBERS, 1000);
    }
}

static void teardown(struct group *g)
{
    for (int i = 0; i < g->n; i++)
        store_destroy(g->server[i].store);
    chunks_destroy(g->chunks);
}

static const float weights[N_MEMBERS] = {48, 30.5f};

static enum piece_kind send_piece(struct group *g, enum piece_kind kind, int member, int chunk,
                                  int64_t step, float weight)
{
    const struct net_chunk *c = &g->chunks->chunks[chunk];
    size_t n = kind == PIECE_PUSH && weight == 0 ? 0 : (size_t)c->n_elems;
    float *values = malloc((n + 1) * sizeof *values);
    int scaled = kind == PIECE_PUSH && model[c->param].rule == PARAM_TRAINED;
    for (size_t i = 0; i < n; i++)
        values[i] =
            store_rig_number(member, kind == PIECE_INIT ? -1 : step, c->first + (int64_t)i) *
            (scaled ? g->scale : 1); /* averages do not count for the norm */
    const struct net_frame_head head = {GENERATION, (uint32_t)member, 1000 + (uint64_t)member};
    const struct net_piece piece = {.kind = kind,
                                    .chunk = (uint32_t)chunk,
                                    .step = (uint64_t)step,
                                    .weight = weight,
                                    .payload.bytes = n * sizeof *values};
    enum piece_kind got = store_rig_act(g->server[g->shard[chunk]].store, &head, piece, values, 0);
    free(values);
    return got;
}

static void init_all(struct group *g)
{
    for (int c = 0; c < g->chunks->n_chunks; c++)
        assert_int_equal(send_piece(g, PIECE_INIT, 0, c, 0, 0), PIECE_VERSION);
}

/* Pushes all members' contributions to a step. backwards: nonzero for the reverse order. */
static void push_all(struct group *g, int64_t step, const float *weight, int backwards)
{
    int n = g->chunks->n_chunks * N_MEMBERS;
    for (int k = 0; k < n; k++) {
        int i = backwards ? n - 1 - k : k, m = i % N_MEMBERS;
        assert_int_equal(send_piece(g, PIECE_PUSH, m, i / N_MEMBERS, step, weight[m]), PIECE_NONE);
    }
}

static void read_all(struct group *g, float *out, int64_t version)
{
    for (int c = 0; c < g->chunks->n_chunks; c++)
        store_rig_read(g->server[g->shard[c]].store, &g->chunks->chunks[c], c, version,
                       out + g->chunks->chunks[c].first);
}

enum { STEPS = 5 };

static void train(int n, enum optim_kind optim, float clip_norm, int backwards, float *out)
{
    struct group g;
    setup(&g, n, optim, clip_norm);
    init_all(&g);
    for (int step = 0; step < STEPS; step++) {
        push_all(&g, step, weights, (backwards + step) % 2);
        deliver(&g);
    }
    assert_int_equal(g.n_applied, STEPS * N_MEMBERS * g.chunks->n_chunks);
    read_all(&g, out, STEPS);
    teardown(&g);
}

static void number_of_servers_does_not_change_the_bits(void **state)
{
    static float want[N_ELEMS], got[N_ELEMS], free_[N_ELEMS];
    for (int kind = 0; kind < OPTIM_N_KINDS; kind++) {
        train(1, (enum optim_kind)kind, 0.5f, 0, want);
        for (int n = 1; n <= MAX_SERVERS; n++)
            for (int backwards = 0; backwards < 2; backwards++) {
                train(n, (enum optim_kind)kind, 0.5f, backwards, got);
                assert_memory_equal(got, want, sizeof want);
            }
        train(2, (enum optim_kind)kind, 0, 0, free_);
        assert_memory_not_equal(free_, want, sizeof want);
        train(2, (enum optim_kind)kind, 1e9f, 0, got); /* the norm is below the limit */
        assert_memory_equal(got, free_, sizeof free_);
    }
}

/* The sum of these numbers depends on their order. The norm adds them in the order of the chunks,
 * wherever the chunks lie and whichever part arrives first. The test compares the norm itself,
 * since rounding to floats would hide most differences in a version. */
static void norm_is_summed_in_the_order_of_chunks(void **state)
{
    enum { N = 7 };
    static const double square[N] = {1e16, 1, 1, 1, 1, 1, 1};
    static const int shards[][N] = {
        {0, 0, 0, 0, 0, 0, 0}, {0, 1, 0, 1, 0, 1, 0}, {2, 1, 0, 0, 1, 2, 1}, {1, 1, 1, 0, 2, 2, 2}};
    double want = 0, backwards = 0;
    for (int i = 0; i < N; i++) {
        want += square[i];
        backwards += square[N - 1 - i];
    }
    assert_true(want != backwards);
    for (size_t k = 0; k < sizeof shards / sizeof *shards; k++)
        for (int order = 0; order < 2; order++) {
            struct ps_norm *norm = NULL;
            int news = 0, n_own, all = 0;
            assert_int_equal(ps_norm_create(N, shards[k], 0, &norm), ST_OK);
            for (int at = 0; at < 3; at++) {
                int server = order ? 2 - at : at, n = 0;
                double theirs[N];
                for (int i = 0; i < N; i++) {
                    if (shards[k][i] != server)
                        continue;
                    theirs[n++] = square[i];
                    if (server == 0) {
                        assert_int_equal(all, 0);
                        ps_norm_put(norm, 4, i, square[i], &news);
                        all |= news & NORM_ALL;
                    }
                }
                if (server != 0 && n > 0) {
                    assert_int_equal(ps_norm_put_server(norm, 4, server, theirs, n, &news), ST_OK);
                    all |= news & NORM_ALL;
                }
            }
            assert_int_equal(all, NORM_ALL);
            assert_true(ps_norm_squares(norm, 4) == want);
            const double *own = ps_norm_own(norm, 4, &n_own);
            for (int i = 0, n = 0; i < N; i++)
                if (shards[k][i] == 0)
                    assert_true(own[n++] == square[i]);
            ps_norm_destroy(norm);
        }
}

/* Computes sgd in plain double precision. */
static void reference(double clip_norm, double rate, double *p)
{
    static double mean[N_ELEMS];
    double total = (double)weights[0] + (double)weights[1];
    for (int64_t i = 0; i < N_ELEMS; i++)
        p[i] = (double)store_rig_number(0, -1, i);
    for (int step = 0; step < STEPS; step++) {
        double squares = 0;
        for (int64_t i = 0; i < N_ELEMS; i++) {
            mean[i] = 0;
            for (int m = 0; m < N_MEMBERS; m++)
                mean[i] += (double)weights[m] * (double)store_rig_number(m, step, i) / total;
            squares += i < N_W + N_V ? mean[i] * mean[i] : 0;
        }
        double factor = sqrt(squares) > clip_norm ? clip_norm / sqrt(squares) : 1;
        assert_true(factor < 0.5);
        for (int64_t i = 0; i < N_ELEMS; i++)
            p[i] = i < N_W + N_V ? p[i] - rate * factor * mean[i]
                                 : 0.9 * p[i] + (1 - (double)0.9f) * mean[i];
    }
}

static void clipped_versions_match_double_precision(void **state)
{
    static float got[N_ELEMS];
    static double want[N_ELEMS];
    struct optim_config optim;
    optim_defaults(OPTIM_SGD, &optim);
    train(3, OPTIM_SGD, 0.5f, 0, got);
    reference(0.5, (double)optim.learning_rate, want);
    for (int i = 0; i < N_ELEMS; i++)
        assert_true(fabs((double)got[i] - want[i]) < 1e-6);
}

/* No version is made and no answer is sent until the last part of the norm has arrived. No member
 * counts as missing during this wait, and repeated parts change nothing. */
static void versions_wait_for_all_parts(void **state)
{
    struct group g;
    int missing[N_MEMBERS] = {0};
    int64_t step;
    setup(&g, 2, OPTIM_ADAM, 0.5f);
    init_all(&g);
    push_all(&g, 0, weights, 0);
    assert_int_equal(g.n_parts, 2);
    assert_int_equal(g.n_applied, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(store_highest(g.server[i].store), 0);
        assert_int_equal(store_missing(g.server[i].store, INT64_MAX, missing, &step), 0);
    }
    assert_int_equal(send_piece(&g, PIECE_PUSH, 0, 0, 0, weights[0]), PIECE_NONE);
    const struct part first = g.part[0];
    assert_int_equal(send_part(&g, 1 - first.from, &first), SQUARES_TAKEN);
    assert_int_equal(store_step(g.server[1 - first.from].store), 1);
    assert_int_equal(store_highest(g.server[first.from].store), 0);
    assert_int_equal(send_part(&g, 1 - first.from, &first), SQUARES_TAKEN); /* a repeat */
    deliver(&g);
    assert_int_equal(store_step(g.server[first.from].store), 1);
    assert_int_equal(g.n_applied, N_MEMBERS * g.chunks->n_chunks);
    push_all(&g, 1, weights, 0);
    deliver(&g);
    assert_int_equal(store_step(g.server[0].store), 2);
    teardown(&g);
}

/* A store that stops before the norm is complete stays at its step. Its version can still be handed
 * over. */
static void stop_before_the_norm_keeps_the_step(void **state)
{
    struct group g;
    struct handover_chunk t;
    setup(&g, 2, OPTIM_ADAM, 0.5f);
    init_all(&g);
    push_all(&g, 0, weights, 0);
    deliver(&g);
    push_all(&g, 1, weights, 0);
    g.n_applied = 0;
    handover_stop(g.server[0].store);
    assert_true(handover_is_stopped(g.server[0].store));
    assert_int_equal(g.n_rebase, N_MEMBERS * ((g.chunks->n_chunks + 1) / 2));
    deliver(&g);
    assert_int_equal(store_highest(g.server[0].store), 1);
    assert_int_equal(store_step(g.server[1].store), 2); /* this server has the other one's part */
    assert_int_equal(handover_take(g.server[0].store, 0, 1, &t), ST_OK);
    handover_drop(&t);
    assert_int_equal(handover_take(g.server[1].store, 1, 1, &t), ST_OK); /* I4 */
    handover_drop(&t);
    teardown(&g);
}

static void invalid_parts_are_refused(void **state)
{
    struct group g;
    setup(&g, 2, OPTIM_SGD, 0.5f);
    const struct part early = {.from = 1, .n = 1, .step = 0};
    assert_int_equal(send_part(&g, 0, &early), SQUARES_REFUSED); /* there is no version yet */
    init_all(&g);
    int n = g.chunks->n_chunks / 2;
    const struct part wrong[] = {{.from = 1, .n = n + 1, .step = 0},
                                 {.from = 0, .n = g.chunks->n_chunks - n, .step = 0},
                                 {.from = 2, .n = 1, .step = 0}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(send_part(&g, 0, &wrong[i]), SQUARES_REFUSED);
    const struct part ahead = {.from = 1, .n = n, .step = 2}, far = {.from = 1, .n = n, .step = 1};
    assert_int_equal(send_part(&g, 0, &ahead), SQUARES_LATER);
    assert_int_equal(send_part(&g, 0, &far), SQUARES_TAKEN); /* stored for the next step */
    push_all(&g, 0, weights, 0);
    deliver(&g);
    assert_int_equal(store_step(g.server[0].store), 1);
    assert_int_equal(store_step(g.server[1].store), 1);
    const struct part old = {.from = 1, .n = n, .step = 0};
    assert_int_equal(send_part(&g, 0, &old), SQUARES_TAKEN);
    teardown(&g);
    setup(&g, 2, OPTIM_SGD, 0);
    assert_int_equal(send_part(&g, 0, &old), SQUARES_REFUSED);
    teardown(&g);
}

/* Each contribution is finite, but their sum is not: no chunk changes on any server. */
static void infinite_norm_changes_no_chunk(void **state)
{
    static float before[N_ELEMS], after[N_ELEMS];
    struct group g;
    setup(&g, 2, OPTIM_MOMENTUM, 0.5f);
    init_all(&g);
    read_all(&g, before, 0);
    g.scale = 3e38f;
    push_all(&g, 0, weights, 0);
    deliver(&g);
    read_all(&g, after, 1);
    assert_memory_equal(after, before, sizeof before);
    g.scale = 1;
    push_all(&g, 1, weights, 0);
    deliver(&g);
    read_all(&g, after, 2);
    assert_memory_not_equal(after, before, sizeof before);
    teardown(&g);
}

/* The mean covers only contributions that are not skipped. If all are skipped, the version stays
 * the same. */
static void skipped_contributions_are_left_out(void **state)
{
    static const float none[N_MEMBERS] = {0, 0}, second[N_MEMBERS] = {0, 30.5f},
                       first[N_MEMBERS] = {48, 0};
    static float before[N_ELEMS], after[N_ELEMS];
    struct group g;
    setup(&g, 2, OPTIM_SGD, 0.5f);
    init_all(&g);
    read_all(&g, before, 0);
    push_all(&g, 0, none, 0);
    deliver(&g);
    read_all(&g, after, 1);
    assert_memory_equal(after, before, sizeof before);
    for (int k = 0; k < 2; k++) {
        double moved = 0;
        push_all(&g, 1 + k, k ? second : first, k);
        deliver(&g);
        read_all(&g, after, 2 + k);
        for (int i = 0; i < N_W + N_V; i++)
            moved += pow((double)after[i] - (double)before[i], 2);
        double want = 0.5 * (double)g.job.optim.learning_rate; /* largest move within the limit */
        assert_true(fabs(sqrt(moved) - want) < 1e-3 * want);
        memcpy(before, after, sizeof before);
    }
    teardown(&g);
}

static void server_decides_which_jobs_it_clips(void **state)
{
    struct net_job job = {.n_workers = 3, .optim = {.clip_norm = 1}};
    assert_null(job_check_mode(&job));
    assert_true(job_servers_clip(&job));
    job.aggregate = 3;
    assert_null(job_check_mode(&job));
    job.aggregate = 2;
    assert_string_equal(job_check_mode(&job), "clip_norm in the mode sync is for jobs without "
                                              "backup workers (aggregate)");
    job.n_workers = 0; /* unknown, as in the request of a worker that joins a running job: any
                          number is possible */
    job.optim.clip_norm = 0;
    assert_non_null(job_check_mode(&job));
    assert_null(job_check_asked(&job));
    job.n_workers = 3;
    job.optim.clip_norm = 1;
    job.aggregate = 0;
    job.optim.clip_value = 1;
    assert_string_equal(job_check_mode(&job), "clip_value and clip_norm are both set");
    job.optim.clip_value = 0;
    job.sync_mode = JOB_ASYNC;
    assert_null(job_check_mode(&job));
    assert_false(job_servers_clip(&job)); /* the workers clip such a job */
}

static void sum_of_squares_matches_double_precision(void **state)
{
    for (size_t n = 0; n < 40; n++) {
        float src[40];
        double want = 0;
        for (size_t i = 0; i < n; i++) {
            src[i] = store_rig_number(1, 1, (int64_t)i);
            volatile float v = 3.7f * src[i];
            want += (double)v * (double)v;
        }
        double got = vector_sum_squares(src, 3.7f, n);
        assert_true(fabs(got - want) <= 1e-14 * want);
    }
    assert_true(clip_factor(4, 2) == 1);
    assert_true(clip_factor(16, 2) == 0.5);
    assert_true(clip_factor(0, 1e-30f) == 1);
    assert_true(clip_factor((double)INFINITY, 2) == 0);
    assert_true(clip_factor((double)NAN, 2) == 0);
    assert_true(clip_factor(1e300, 1e-30f) > 0);
    assert_true(clip_scale(1, 3) == (float)(1.0 / 3));
}

int main(void)
{
    return RUN_TESTS(sum_of_squares_matches_double_precision,
                     number_of_servers_does_not_change_the_bits,
                     norm_is_summed_in_the_order_of_chunks, clipped_versions_match_double_precision,
                     versions_wait_for_all_parts, stop_before_the_norm_keeps_the_step,
                     invalid_parts_are_refused, infinite_norm_changes_no_chunk,
                     skipped_contributions_are_left_out, server_decides_which_jobs_it_clips);
}
