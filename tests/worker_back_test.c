/* tests/worker_back_test.c - the training loop with servers that roll back to an earlier step, and
 * with planned changes of the members. */
#include "tests/check.h"
#include "tests/trainer_rig.h"
#include <string.h>

/* Servers that roll back: call number `at` of push or wait finds them in another generation, and
 * the next start continues with the versions of two steps before. */
static struct {
    pthread_mutex_t lock; /* guards the fields below */
    float history[16][N_ELEMS];
    int64_t version[16];
    const struct chunks *chunks;
    float *params;
    int n_calls, at, rebased, n_starts;
} back = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Counts a call. Returns nonzero if the servers have rolled back. The caller holds the lock. */
static int back_call(void)
{
    back.rebased |= ++back.n_calls == back.at;
    return back.rebased;
}

static enum status back_push(void *ctx, int chunk, int64_t step, const float *data, float weight)
{
    const struct net_chunk *c = &back.chunks->chunks[chunk];
    pthread_mutex_lock(&back.lock);
    int rebased = back_call();
    if (!rebased) {
        assert_int_equal(step, back.version[chunk]);
        for (int64_t i = 0; i < c->n_elems; i++)
            back.params[c->first + i] -= 0.01f * data[i];
        back.version[chunk]++;
        memcpy(&back.history[step + 1][c->first], &back.params[c->first],
               (size_t)c->n_elems * sizeof(float));
    }
    pthread_mutex_unlock(&back.lock);
    return rebased ? ST_REBASED : ST_OK;
}

static enum status back_wait(void *ctx, int first, int n, int64_t step, int64_t deadline_ns)
{
    pthread_mutex_lock(&back.lock);
    int rebased = back_call();
    for (int c = first; c < first + n && !rebased; c++)
        assert_true(back.version[c] >= step); /* otherwise the wait would never return */
    pthread_mutex_unlock(&back.lock);
    return rebased ? ST_REBASED : ST_OK;
}

static enum status back_start(void *ctx, struct net_start *out)
{
    int64_t lowest = INT64_MAX;
    pthread_mutex_lock(&back.lock);
    for (int c = 0; c < back.chunks->n_chunks; c++)
        lowest = back.version[c] < lowest ? back.version[c] : lowest;
    int64_t step = lowest > 2 ? lowest - 2 : 0;
    *out = (struct net_start){.step = step, .place = {.n_members = 1}};
    for (int c = 0; c < back.chunks->n_chunks; c++)
        back.version[c] = step;
    memcpy(back.params, back.history[step], sizeof back.history[0]);
    back.rebased = 0;
    back.n_starts++;
    pthread_mutex_unlock(&back.lock);
    return ST_OK;
}

static int64_t back_version(void *ctx, int chunk)
{
    pthread_mutex_lock(&back.lock);
    int64_t version = back.version[chunk];
    pthread_mutex_unlock(&back.lock);
    return version;
}

static void back_nothing(void *ctx)
{
}

/* An observer that checks that it receives each start, and all steps in order after each start. */
static struct {
    int n_starts;
    int64_t next;
} told;

static void told_start(void *ctx, const struct net_start *start)
{
    told.n_starts++;
    told.next = start->step + 1;
}

static void told_step(void *ctx, const struct trainer_figures *f)
{
    assert_int_equal(f->number, told.next++);
}

static int told_wants(void *ctx, int64_t number, int is_last)
{
    return 0;
}

static void told_evaluated(void *ctx, int64_t step, const char *what, double accuracy, double loss)
{
}

static const struct trainer_observer observer = {.start = told_start,
                                                 .step = told_step,
                                                 .wants_values = told_wants,
                                                 .evaluated = told_evaluated};

static void train_and_go_back(const struct backend *backend, int n_towers, int at, float *end)
{
    static const struct updates_ops ops = {.start = back_start,
                                           .push = back_push,
                                           .wait = back_wait,
                                           .version = back_version,
                                           .flush = back_nothing,
                                           .cancel = back_nothing};
    struct rig r;
    struct trainer_result result;
    rig_make(&r, 0, 1, n_towers, 6);
    trainer_destroy(r.trainer);
    struct updates exchange = {&ops, NULL};
    r.cfg.updates = &exchange;
    r.cfg.eval_every = 4;
    r.cfg.observer = &observer;
    told.n_starts = 0;
    r.data.in_file = at % 2; /* half of the runs read ahead */
    for (int i = 0; i < n_towers; i++)
        r.towers[i].own.backend = backend;
    assert_int_equal(trainer_create(&r.cfg, &r.trainer), ST_OK);
    memset(back.version, 0, sizeof back.version);
    memset(back.history[0], 0, sizeof back.history[0]);
    back.chunks = r.chunks;
    back.params = r.params;
    back.n_calls = back.n_starts = 0;
    back.at = at;
    assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
    assert_int_equal(result.global_step, 15);
    assert_int_equal(back.n_starts, at > 0 && back.n_calls >= at);
    assert_int_equal(told.n_starts, 1 + back.n_starts);
    assert_int_equal(told.next, 16);
    assert_in_range(result.local_steps, 15, 15 + 3 * back.n_starts);
    assert_in_range(fake.n_reads, 6 * 15, 6 * (result.local_steps + 3 * back.n_starts));
    memcpy(end, r.params, sizeof r.params);
    rig_free(&r);
}

/* ThreadSanitizer only looks for races, and is slow: it tests each third call. */
#ifdef __SANITIZE_THREAD__
enum { STRIDE = 3 };
#else
enum { STRIDE = 1 };
#endif

/* The result is that of an undisturbed run, at whatever call the servers roll back. */
static void rollback_ends_as_undisturbed_run(void **state)
{
    struct backend group = group_backend();
    for (int n_towers = 1; n_towers <= 3; n_towers++) {
        for (int k = 0; k < 2; k++) {
            const struct backend *backend = k ? &group : &fake_backend;
            float undisturbed[N_ELEMS], end[N_ELEMS];
            train_and_go_back(backend, n_towers, 0, undisturbed);
            int n_calls = back.n_calls;
            for (int at = 1; at <= n_calls; at += STRIDE) {
                train_and_go_back(backend, n_towers, at, end);
                assert_memory_equal(end, undisturbed, sizeof end);
            }
        }
    }
}

/* Generations of a job whose members join and leave at announced steps. The test runs each member
 * alone, since the member's samples depend only on its places. */
enum { N_GENERATIONS = 3, LAST_STEP = 7 };
static const struct {
    int64_t step;
    uint64_t position;
    int n_members, member[3];
} plans[N_GENERATIONS] = {{0, 0, 1, {0}}, {2, 8, 3, {0, 1, 5}}, {5, 44, 2, {1, 5}}};

static struct {
    pthread_mutex_t lock; /* guards the fields below */
    int member, at;       /* index of the member; number of its generation */
    int64_t version[16];
    const struct chunks *chunks;
    int n_after_end; /* pushes of a step of the next generation */
} go = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t go_end(void)
{
    return go.at + 1 < N_GENERATIONS ? plans[go.at + 1].step : INT64_MAX;
}

/* Sets the member's place in a generation. Returns 0 if the member has no place. */
static int go_place(int at, struct net_start *out)
{
    for (int i = 0; at < N_GENERATIONS && i < plans[at].n_members; i++) {
        if (plans[at].member[i] != go.member)
            continue;
        *out = (struct net_start){.step = plans[at].step,
                                  .generation = (uint64_t)at + 1,
                                  .place = {.member = go.member,
                                            .rank = i,
                                            .n_members = plans[at].n_members,
                                            .first_step = plans[at].step,
                                            .position = plans[at].position,
                                            .train_steps = LAST_STEP}};
        return 1;
    }
    return 0;
}

static enum status go_push(void *ctx, int chunk, int64_t step, const float *data, float weight)
{
    pthread_mutex_lock(&go.lock);
    assert_int_equal(step, go.version[chunk]);
    go.n_after_end += step >= go_end();
    go.version[chunk]++;
    pthread_mutex_unlock(&go.lock);
    return ST_OK;
}

static enum status go_wait(void *ctx, int first, int n, int64_t step, int64_t deadline_ns)
{
    pthread_mutex_lock(&go.lock);
    int over = step >= go_end();
    pthread_mutex_unlock(&go.lock);
    return over ? ST_REBASED : ST_OK;
}

static enum status go_start(void *ctx, struct net_start *out)
{
    pthread_mutex_lock(&go.lock);
    for (int c = 0; c < go.chunks->n_chunks; c++) /* each chunk has the generation's last version */
        assert_int_equal(go.version[c], go_end());
    int there = go_place(++go.at, out);
    pthread_mutex_unlock(&go.lock);
    return there ? ST_OK : ST_CANCELLED;
}

static int go_is_leaving(void *ctx)
{
    return 1;
}

static int64_t go_version(void *ctx, int chunk)
{
    pthread_mutex_lock(&go.lock);
    int64_t version = go.version[chunk];
    pthread_mutex_unlock(&go.lock);
    return version;
}

/* Trains as one member, and adds the samples that it reads to n_read. in_file: it reads ahead. */
static void train_as(int member, int n_towers, int in_file, int n_read[N_ITEMS])
{
    static const struct updates_ops ops = {.start = go_start,
                                           .push = go_push,
                                           .wait = go_wait,
                                           .version = go_version,
                                           .is_leaving = go_is_leaving,
                                           .flush = back_nothing,
                                           .cancel = back_nothing};
    struct rig r;
    struct trainer_result result;
    struct updates exchange = {&ops, NULL};
    rig_make(&r, 0, 1, n_towers, 4);
    trainer_destroy(r.trainer);
    r.cfg.updates = &exchange;
    r.data.in_file = in_file;
    assert_int_equal(trainer_create(&r.cfg, &r.trainer), ST_OK);
    go.member = member;
    go.chunks = r.chunks;
    go.n_after_end = 0;
    for (go.at = 0; !go_place(go.at, &r.start);)
        go.at++;
    for (int c = 0; c < r.chunks->n_chunks; c++)
        go.version[c] = r.start.step;
    assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
    assert_int_equal(result.left, member == 0);
    assert_int_equal(result.global_step, member == 0 ? plans[2].step : LAST_STEP);
    assert_int_equal(result.local_steps, result.global_step - r.start.step);
    assert_int_equal(go.n_after_end, 0);
    for (int i = 0; i < fake.n_reads; i++)
        n_read[fake.reads[i]]++;
    rig_free(&r);
}

/* Each sample of a pass is read exactly once, whichever members join and leave during the pass, and
 * no step runs twice (I6). */
static void joins_and_leaves_read_each_sample_once(void **state)
{
    for (int run = 0; run < 6; run++) {
        int n_read[N_ITEMS] = {0}, n_towers = 1 + run / 2;
        train_as(0, n_towers, run % 2, n_read);
        train_as(1, n_towers, run % 2, n_read);
        train_as(5, n_towers, run % 2, n_read);
        for (int i = 0; i < N_ITEMS; i++)
            assert_int_equal(n_read[i], 1);
    }
}

int main(void)
{
    return RUN_TESTS(rollback_ends_as_undisturbed_run, joins_and_leaves_read_each_sample_once);
}
