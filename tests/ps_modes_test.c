/* tests/ps_modes_test.c - the store in all modes except sync: which pushes count, wait and are
 * applied, compared with a plain reference, and which members a step has waited for. */
#include "base/digest.h"
#include "base/rng.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/store_rig.h"
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 4, N_ELEMS = 1324 + 5, N_CHUNKS = 3, MAX_SEEN = 64, GENERATION = 3, MS = 1000000 };
static const float rate = 0.125f;

static const struct net_param model[] = {
    {.name = "w", .shape = {2, {331, 4}}}, /* chunks of 1024 and 300 */
    {.name = "mean", .shape = {1, {5}}, .rule = PARAM_AVERAGE, .keep = 0.5f},
};

struct seen {
    int member;
    enum piece_kind kind;
    uint32_t chunk;
    int64_t step;
};

struct race;
struct fixture {
    struct race *race; /* NULL: answers are stored in seen */
    struct chunks *chunks;
    int server[N_CHUNKS];
    struct store *store;
    struct seen seen[MAX_SEEN];
    int n_seen;
    int ask_taken;  /* pushes request TAKEN */
    int64_t now_ns; /* the store's time */
};

/* State of members that run in their own threads. */
struct race {
    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t answered;
    int64_t held[MEMBERS][N_CHUNKS]; /* version that the member has; -1: it waits for an answer */
};

static void race_answer(struct race *r, uint32_t member, uint32_t chunk, uint64_t step)
{
    pthread_mutex_lock(&r->lock);
    r->held[member][chunk] = (int64_t)step;
    pthread_cond_broadcast(&r->answered);
    pthread_mutex_unlock(&r->lock);
}

static void on_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                      const struct store_answer *a)
{
    struct fixture *f = ctx;
    if (f->race) {
        race_answer(f->race, head->member, a->chunk, a->step);
        return;
    }
    assert_in_range(f->n_seen, 0, MAX_SEEN - 1);
    f->seen[f->n_seen++] = (struct seen){(int)head->member, a->kind, a->chunk, (int64_t)a->step};
    assert_int_equal(digest_crc32c(0, a->payload->data, a->payload->bytes), a->crc32c);
}

static void setup(struct fixture *f, struct net_job job)
{
    *f = (struct fixture){.n_seen = 0};
    assert_int_equal(chunks_create(model, 2, 4096, &f->chunks), ST_OK);
    assert_int_equal(f->chunks->n_chunks, N_CHUNKS);
    if (job.train_steps == 0)
        job.train_steps = 1000;
    optim_defaults(OPTIM_SGD, &job.optim);
    job.optim.learning_rate = rate;
    struct store_config cfg = {.chunks = f->chunks,
                               .job = &job,
                               .server = f->server,
                               .generation = GENERATION,
                               .straggler_ms = 20,
                               .answer = on_answer,
                               .ctx = f};
    assert_null(job_check_mode(&job));
    f->store = store_rig_open(&cfg, job.n_workers, 100);
    store_sum(f->store);
}

static void teardown(struct fixture *f)
{
    store_destroy(f->store);
    chunks_destroy(f->chunks);
}

/* Sends a piece of the member's process number `life`. The payload is store_rig_number(member,
 * step, element of the chunk). */
static enum piece_kind act(struct fixture *f, enum piece_kind kind, int member, int life, int chunk,
                           int64_t step)
{
    float data[1024];
    size_t n = kind == PIECE_PULL ? 0 : (size_t)f->chunks->chunks[chunk].n_elems;
    for (size_t i = 0; i < n; i++)
        data[i] = store_rig_number(member, kind == PIECE_INIT ? -1 : step, (int64_t)i);
    const struct net_frame_head head = {GENERATION, (uint32_t)member,
                                        100 + (uint64_t)member + 10 * (uint64_t)life};
    struct net_piece piece = {.kind = kind,
                              .chunk = (uint32_t)chunk,
                              .step = (uint64_t)step,
                              .weight = kind == PIECE_PUSH ? 1.0f + (float)member : 0,
                              .ask_taken = f->ask_taken,
                              .payload.bytes = n * sizeof *data};
    struct store_answer a = store_rig_send(f->store, &head, piece, data, f->now_ns);
    buf_unref(a.payload);
    if (f->race && a.kind != PIECE_NONE)
        race_answer(f->race, (uint32_t)member, (uint32_t)chunk, a.step);
    return a.kind;
}

static enum piece_kind push(struct fixture *f, int member, int chunk, int64_t step)
{
    return act(f, PIECE_PUSH, member, 0, chunk, step);
}

static void init_all(struct fixture *f)
{
    for (int c = 0; c < N_CHUNKS; c++)
        assert_int_equal(act(f, PIECE_INIT, 0, 0, c, 0), PIECE_VERSION);
}

static int64_t version_of(struct fixture *f, int chunk)
{
    int64_t v = -1;
    buf_unref(store_read(f->store, chunk, &v));
    return v;
}

/* Returns the largest difference from the expected values. */
static double distance(struct fixture *f, int chunk, const double *expect)
{
    int64_t v;
    double worst = 0;
    struct buf *b = store_read(f->store, chunk, &v);
    for (int64_t i = 0; i < f->chunks->chunks[chunk].n_elems; i++)
        worst = fmax(worst, fabs((double)((const float *)b->data)[i] - expect[i]));
    buf_unref(b);
    return worst;
}

/* Three of four members make a step. The fourth gets the version without counting, and delays no
 * member. */
static void backup_worker_that_is_late_does_not_count(void **state)
{
    struct fixture f;
    enum { STEPS = 20 };
    static double expect[1024];
    setup(&f, (struct net_job){.n_workers = MEMBERS, .aggregate = 3});
    init_all(&f);
    for (int64_t i = 0; i < 1024; i++)
        expect[i] = (double)store_rig_number(0, -1, i);
    for (int64_t step = 0; step < STEPS; step++) {
        int late = (int)(step * 7 % MEMBERS);
        double sum[1024] = {0}, weight = 0;
        f.n_seen = 0;
        for (int k = 1; k < MEMBERS; k++) { /* another member is the first each time */
            int m = (late + k) % MEMBERS;
            assert_int_equal(f.n_seen, 0);
            assert_int_equal(push(&f, m, 0, step), PIECE_NONE);
            if (k == 1) /* a repeat, before the step is over */
                assert_int_equal(push(&f, m, 0, step), PIECE_NONE);
            weight += 1 + m;
            for (int64_t i = 0; i < 1024; i++)
                sum[i] += (1.0 + m) * (double)store_rig_number(m, step, i);
        }
        assert_int_equal(version_of(&f, 0), step + 1);
        assert_int_equal(f.n_seen, 3);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(f.seen[k].kind, PIECE_APPLIED);
            assert_int_equal(f.seen[k].step, step + 1);
            assert_int_not_equal(f.seen[k].member, late);
        }
        assert_int_equal(push(&f, late, 0, step), PIECE_STALE);
        assert_int_equal(push(&f, late, 0, step), PIECE_STALE);
        assert_int_equal(push(&f, (late + 1) % MEMBERS, 0, step), PIECE_DUPLICATE);
        for (int64_t i = 0; i < 1024; i++)
            expect[i] -= (double)rate * sum[i] / weight;
        assert_int_equal(version_of(&f, 0), step + 1);
        assert_true(distance(&f, 0, expect) < 1e-5);
    }
    assert_int_equal(version_of(&f, 1), 0); /* chunks advance independently */
    teardown(&f);
}

static void awaited_backup_members_are_counted(void **state)
{
    struct fixture f;
    int missing[MEMBERS] = {0};
    int64_t step = -1;
    setup(&f, (struct net_job){.n_workers = MEMBERS, .aggregate = 3});
    init_all(&f);
    push(&f, 3, 1, 0);
    push(&f, 1, 1, 0);
    assert_int_equal(store_missing(f.store, INT64_MAX, missing, &step), 1);
    assert_int_equal(step, 0);
    assert_true(missing[0] == 1 && missing[2] == 1 && missing[1] == 0 && missing[3] == 0);
    /* A restarted process repeats its push. The push counts only once, and its answer follows with
     * the version. */
    store_admit(f.store, 3, 113);
    assert_int_equal(act(&f, PIECE_PUSH, 3, 1, 1, 0), PIECE_NONE);
    assert_int_equal(version_of(&f, 1), 0);
    assert_int_equal(push(&f, 0, 1, 0), PIECE_NONE);
    assert_int_equal(version_of(&f, 1), 1);
    assert_int_equal(f.n_seen, 3);
    teardown(&f);
}

/* No step is made after the job's last step. */
static void no_step_follows_the_last(void **state)
{
    static const struct net_job jobs[] = {
        {.n_workers = 2, .train_steps = 3},
        {.n_workers = 2, .train_steps = 3, .aggregate = 1},
        {.n_workers = 2, .train_steps = 3, .sync_mode = JOB_ASYNC},
        {.n_workers = 2, .train_steps = 3, .sync_mode = JOB_SSP, .staleness = 5},
    };
    for (int j = 0; j < 4; j++) {
        struct fixture f;
        setup(&f, jobs[j]);
        init_all(&f);
        for (int64_t step = 0; step < 3; step++) {
            push(&f, 0, 0, step);
            if (j == 0)
                push(&f, 1, 0, step);
        }
        assert_int_equal(version_of(&f, 0), 3);
        assert_int_equal(push(&f, 0, 0, 3), PIECE_STALE);
        assert_int_equal(push(&f, 1, 0, 3), PIECE_STALE);
        assert_int_equal(push(&f, 1, 0, 1), PIECE_STALE);
        assert_int_equal(version_of(&f, 0), 3);
        teardown(&f);
    }
}

/* Lead of each member over the slowest member, in counted pushes, when the member gets its
 * answer. */
struct pacer {
    int64_t clock[MEMBERS], base[MEMBERS];
    int waits[MEMBERS];
};

static void collect_answers(struct fixture *f, struct pacer *p)
{
    for (int i = 0; i < f->n_seen; i++) {
        int m = f->seen[i].member;
        assert_int_equal(f->seen[i].kind, PIECE_APPLIED);
        assert_true(p->waits[m]);
        p->waits[m] = 0;
        p->base[m] = f->seen[i].step;
        assert_int_equal(f->seen[i].step, version_of(f, 0)); /* the present version is sent */
    }
    f->n_seen = 0;
}

/* Members push in a random order, each as soon as it may: no lead exceeds the bound, the bound is
 * reached, and no member stops. */
static void ssp_lead_stays_within_the_bound(void **state)
{
    for (int64_t staleness = 0; staleness <= 3; staleness++) {
        struct fixture f;
        struct pacer p = {.waits = {0}};
        int64_t widest = 0;
        setup(&f, (struct net_job){.n_workers = MEMBERS,
                                   .sync_mode = JOB_SSP,
                                   .staleness = staleness,
                                   .train_steps = 1000});
        init_all(&f);
        for (uint64_t i = 0; i < 4000 && version_of(&f, 0) < 900; i++) {
            int m = (int)rng_below(7, i, 16);
            m = m < 13 ? 0 : m - 12; /* the first member is much faster */
            if (p.waits[m]) {
                assert_int_equal(push(&f, m, 0, p.base[m]), PIECE_NONE); /* repeats keep waiting */
                assert_int_equal(f.n_seen, 0);
                continue;
            }
            int64_t lowest = INT64_MAX;
            for (int k = 0; k < MEMBERS; k++)
                lowest = p.clock[k] < lowest ? p.clock[k] : lowest;
            assert_in_range(p.clock[m] - lowest, 0, staleness);
            widest = p.clock[m] - lowest > widest ? p.clock[m] - lowest : widest;
            assert_int_equal(push(&f, m, 0, p.base[m]), PIECE_NONE);
            p.clock[m]++;
            p.waits[m] = 1;
            collect_answers(&f, &p);
        }
        int64_t total = p.clock[0] + p.clock[1] + p.clock[2] + p.clock[3];
        assert_int_equal(version_of(&f, 0), total); /* each push has counted once, and at once */
        assert_in_range(total, 300, 1000);
        assert_int_equal(widest, staleness);
        teardown(&f);
    }
}

static void ssp_bound_ignores_left_members(void **state)
{
    struct fixture f;
    setup(&f, (struct net_job){.n_workers = 3, .sync_mode = JOB_SSP, .staleness = 1});
    init_all(&f);
    assert_int_equal(push(&f, 0, 0, 0), PIECE_NONE);
    assert_int_equal(f.n_seen, 1);
    f.ask_taken = 1;
    f.now_ns = 50 * MS;
    assert_int_equal(push(&f, 0, 0, 1), PIECE_TAKEN); /* now two steps ahead of both */
    f.now_ns = 90 * MS;
    assert_int_equal(push(&f, 0, 0, 1), PIECE_TAKEN); /* a repeat does not shorten the wait */
    assert_int_equal(f.n_seen, 1);
    int missing[3] = {0};
    int64_t step = -1;
    assert_int_equal(store_missing(f.store, 50 * MS, missing, &step), 0);
    assert_int_equal(store_missing(f.store, 50 * MS + 1, missing, &step), 1);
    assert_true(step == 2 && missing[0] == 0 && missing[1] == 1 && missing[2] == 1);
    store_leave(f.store, 1);
    assert_int_equal(f.n_seen, 1);
    store_leave(f.store, 2);
    assert_int_equal(f.n_seen, 2);
    assert_int_equal(f.seen[1].step, 2);
    for (int64_t i = 2; i < 10; i++) /* alone, it does not wait: TAKEN would follow the answer */
        assert_int_equal(push(&f, 0, 0, i), PIECE_NONE);
    assert_int_equal(f.n_seen, 10);
    /* A member that has just returned neither waits nor is awaited. */
    store_admit(f.store, 2, 112);
    assert_int_equal(act(&f, PIECE_PUSH, 2, 1, 0, 10), PIECE_NONE);
    assert_int_equal(push(&f, 0, 0, 11), PIECE_NONE);
    assert_int_equal(f.n_seen, 12);
    teardown(&f);
}

/* A restart may leave a member's clocks one apart between chunks. Two such members would block each
 * other for ever if a restart did not make the bound one larger. */
static void ssp_restart_extends_the_bound(void **state)
{
    struct fixture f;
    setup(&f, (struct net_job){.n_workers = 2, .sync_mode = JOB_SSP, .staleness = 0});
    init_all(&f);
    assert_int_equal(push(&f, 0, 0, 0), PIECE_NONE); /* dies before chunk 1 */
    assert_int_equal(push(&f, 1, 1, 0), PIECE_NONE); /* dies before chunk 0 */
    assert_int_equal(f.n_seen, 0);
    for (int m = 0; m < 2; m++)
        store_admit(f.store, m, 110 + (uint64_t)m);
    for (int m = 0; m < 2; m++)
        for (int c = 0; c < 2; c++)
            assert_int_equal(act(&f, PIECE_PULL, m, 1, c, 0), PIECE_VERSION);
    f.n_seen = 0;
    int64_t base[2][2] = {{1, 1}, {1, 1}};
    for (int round = 0; round < 20; round++) {
        for (int m = 0; m < 2; m++)
            for (int c = 0; c < 2; c++)
                assert_int_equal(act(&f, PIECE_PUSH, m, 1, c, base[m][c]), PIECE_NONE);
        assert_int_equal(f.n_seen, 4); /* all four are answered, so both members can continue */
        for (int i = 0; i < 4; i++)
            base[f.seen[i].member][f.seen[i].chunk] = f.seen[i].step;
        f.n_seen = 0;
    }
    teardown(&f);
}

/* The applied gradient is g + lambda g g (w_now - w_base). The member computed g on version
 * w_base. */
static void delayed_gradient_is_compensated(void **state)
{
    static const struct net_job jobs[] = {
        {.n_workers = 3, .sync_mode = JOB_ASYNC, .delay_compensation = 2},
        {.n_workers = 3, .sync_mode = JOB_SSP, .staleness = 50, .delay_compensation = 2},
    };
    for (int j = 0; j < 2; j++) {
        struct fixture f;
        static double w[100][1024];
        int64_t base[3] = {0}, version = 0;
        int n_late = 0;
        setup(&f, jobs[j]);
        init_all(&f);
        for (int m = 0; m < 3; m++)
            assert_int_equal(act(&f, PIECE_PULL, m, 0, 0, 0), PIECE_VERSION);
        for (int64_t i = 0; i < 1024; i++)
            w[0][i] = (double)store_rig_number(0, -1, i);
        for (uint64_t k = 0; k < 90; k++) {
            int m = (int)rng_below(3, k, 3);
            n_late += base[m] < version;
            for (int64_t i = 0; i < 1024; i++) {
                double g = (double)store_rig_number(m, base[m], i);
                g += 2 * g * g * (w[version][i] - w[base[m]][i]);
                w[version + 1][i] = w[version][i] - (double)rate * g;
            }
            enum piece_kind kind = push(&f, m, 0, base[m]);
            assert_int_equal(kind, j == 0 ? PIECE_APPLIED : PIECE_NONE);
            f.n_seen = 0;
            base[m] = ++version;
            assert_int_equal(version_of(&f, 0), version);
            assert_true(distance(&f, 0, w[version]) < 1e-5);
        }
        assert_in_range(n_late, 30, 90);
        teardown(&f);
    }
}

/* A gradient is applied unchanged if the version on which it was computed is unknown. */
static void unknown_base_leaves_the_gradient_unchanged(void **state)
{
    struct fixture f;
    static double expect[1024];
    setup(&f, (struct net_job){.n_workers = 2, .sync_mode = JOB_ASYNC, .delay_compensation = 2});
    init_all(&f);
    assert_int_equal(push(&f, 0, 0, 0), PIECE_APPLIED);
    assert_int_equal(push(&f, 1, 0, 0), PIECE_APPLIED); /* this store never sent version 0 to it */
    for (int64_t i = 0; i < 1024; i++)
        expect[i] =
            (double)store_rig_number(0, -1, i) -
            (double)rate * ((double)store_rig_number(0, 0, i) + (double)store_rig_number(1, 0, i));
    assert_true(distance(&f, 0, expect) < 1e-6);
    /* member 0 has pulled again since, but its push was computed on version 1 */
    assert_int_equal(act(&f, PIECE_PULL, 0, 0, 0, 0), PIECE_VERSION);
    assert_int_equal(push(&f, 1, 0, 2), PIECE_APPLIED);
    assert_int_equal(push(&f, 0, 0, 1), PIECE_APPLIED);
    for (int64_t i = 0; i < 1024; i++)
        expect[i] -=
            (double)rate * ((double)store_rig_number(0, 1, i) + (double)store_rig_number(1, 2, i));
    assert_true(distance(&f, 0, expect) < 1e-6);
    /* an averaged parameter has no gradient */
    for (int m = 0; m < 2; m++) {
        assert_int_equal(act(&f, PIECE_PULL, m, 0, 2, 0), PIECE_VERSION);
    }
    assert_int_equal(push(&f, 0, 2, 0), PIECE_APPLIED);
    assert_int_equal(push(&f, 1, 2, 0), PIECE_APPLIED);
    for (int64_t i = 0; i < 5; i++)
        expect[i] = 0.5 * (0.5 * (double)store_rig_number(0, -1, i) +
                           0.5 * (double)store_rig_number(0, 0, i)) +
                    0.5 * (double)store_rig_number(1, 0, i);
    assert_true(distance(&f, 2, expect) < 1e-6);
    teardown(&f);
}

struct racer {
    struct fixture *f;
    int member;
    int64_t train_steps;
};

/* Runs a worker: pushes every chunk that has not reached its end, waits for all answers, and
 * repeats. */
static void *race_main(void *arg)
{
    struct racer *w = arg;
    struct race *r = w->f->race;
    for (int64_t lowest = 0; lowest < w->train_steps;) {
        int64_t base[N_CHUNKS];
        lowest = INT64_MAX;
        for (int c = 0; c < N_CHUNKS; c++) {
            pthread_mutex_lock(&r->lock);
            while (r->held[w->member][c] < 0)
                pthread_cond_wait(&r->answered, &r->lock);
            base[c] = r->held[w->member][c];
            r->held[w->member][c] = base[c] < w->train_steps ? -1 : base[c];
            pthread_mutex_unlock(&r->lock);
            lowest = base[c] < lowest ? base[c] : lowest;
        }
        for (int c = 0; c < N_CHUNKS; c++) {
            if (base[c] < w->train_steps)
                act(w->f, PIECE_PUSH, w->member, 0, c, base[c]);
            if ((lowest + w->member) % 3 == 0)
                sched_yield();
        }
    }
    return NULL;
}

static void race_in(const struct net_job *job)
{
    struct fixture f;
    struct race race = {.held = {{0}}};
    pthread_t thread[MEMBERS];
    struct racer racer[MEMBERS];
    pthread_mutex_init(&race.lock, NULL);
    pthread_cond_init(&race.answered, NULL);
    setup(&f, *job);
    init_all(&f);
    f.race = &race;
    for (int m = 0; m < MEMBERS; m++) {
        racer[m] = (struct racer){&f, m, job->train_steps};
        assert_int_equal(pthread_create(&thread[m], NULL, race_main, &racer[m]), 0);
    }
    for (int m = 0; m < MEMBERS; m++) {
        pthread_join(thread[m], NULL);
        store_leave(f.store, m);
    }
    for (int c = 0; c < N_CHUNKS; c++)
        assert_int_equal(version_of(&f, c), job->train_steps);
    teardown(&f);
    pthread_cond_destroy(&race.answered);
    pthread_mutex_destroy(&race.lock);
}

/* All members reach the end in every mode and any order. */
static void racing_members_reach_the_end(void **state)
{
    static const struct net_job jobs[] = {
        {.n_workers = MEMBERS, .aggregate = 3, .train_steps = 200},
        {.n_workers = MEMBERS, .aggregate = 1, .train_steps = 200},
        {.n_workers = MEMBERS, .sync_mode = JOB_ASYNC, .train_steps = 400},
        {.n_workers = MEMBERS, .sync_mode = JOB_ASYNC, .delay_compensation = 1, .train_steps = 400},
        {.n_workers = MEMBERS, .sync_mode = JOB_SSP, .staleness = 0, .train_steps = 401},
        {.n_workers = MEMBERS,
         .sync_mode = JOB_SSP,
         .staleness = 2,
         .delay_compensation = 1,
         .train_steps = 401},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++)
        race_in(&jobs[i]);
}

/* Two members push three chunks. Member 1 is late at one chunk of one step. */
static void late_member_of_a_step_is_recorded(void **state)
{
    struct fixture f;
    struct late_total t[2];
    setup(&f, (struct net_job){.n_workers = 2});
    init_all(&f);
    capture_begin();
    for (int64_t step = 0; step < 5; step++)
        for (int c = 0; c < N_CHUNKS; c++) {
            int last = step == 3 && c == 1;
            push(&f, !last ? 1 : 0, c, step);
            if (last)
                f.now_ns += 60 * MS;
            push(&f, !last ? 0 : 1, c, step);
        }
    capture_end();
    assert_int_equal(capture_lines(), 1);
    assert_non_null(strstr(capture_text, "step 3 waited 60 ms for worker 1\n"));
    for (int m = 0; m < 2; m++)
        stragglers_total(store_stragglers(f.store), m, &t[m]);
    assert_true(t[1].times >= 1 && t[0].times + t[1].times == 5);
    assert_float_equal(t[1].seconds, 0.06, 1e-9);
    assert_float_equal(t[0].seconds, 0, 1e-9);
    teardown(&f);
}

int main(void)
{
    return RUN_TESTS(backup_worker_that_is_late_does_not_count, awaited_backup_members_are_counted,
                     no_step_follows_the_last, ssp_lead_stays_within_the_bound,
                     ssp_bound_ignores_left_members, ssp_restart_extends_the_bound,
                     delayed_gradient_is_compensated, unknown_base_leaves_the_gradient_unchanged,
                     racing_members_reach_the_end, late_member_of_a_step_is_recorded);
}
