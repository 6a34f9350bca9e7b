/* tests/worker_trainer_rows_test.c - a trainer on the CPU backend whose model reads rows of a
 * table, over an imitation of the servers that updates parameters and rows by plain descent. It
 * answers requests as handle_pull does (ps/store/pieces.c): in lockstep with the requested version
 * if it is the present one or the one before it, otherwise with the present one. The result is
 * compared with loops in double, and is the same after evaluations, and after the end of a
 * generation. */
#include "base/clock.h"
#include "base/log.h"
#include "kernels/tuning.h"
#include "member/dataset_order.h"
#include "net/wire/tables.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/skip.h"
#include "worker/data/dataset_keys.h"
#include "worker/train/evaluate.h"
#include "worker/train/trainer.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    ITEMS = 20,
    BATCH = 6,
    STEPS = 9,
    DENSE = 2,
    COLUMNS = 3,
    UNITS = 2,
    BAG = COLUMNS * UNITS,
    JOINED = BAG + DENSE,
    CLASSES = 2,
    WEIGHTS = CLASSES * JOINED,
    KEYS = 7, /* different keys */
    BUCKETS = 4,
    LAYERS = 5,
    MOST = 64,
    OTHERS_PUSH_AT = 3
};
static const double rate = 0.5;

static const struct backend *cpu;

/* Imitation of the servers. */
static struct {
    pthread_mutex_t lock;  /* guards all fields below */
    float params[WEIGHTS]; /* values that the servers have */
    float *worker;         /* the worker's params, to which waits copy */
    const struct net_table *table;
    /* rows of the present version, and of the one before it */
    float rows[KEYS][UNITS], before[KEYS][UNITS];
    bool in_lockstep;
    int64_t version[1 + BUCKETS];
    struct {
        int64_t version;
        size_t n;
        uint64_t keys[MOST];
        float rows[MOST * UNITS];
    } answer[1 + BUCKETS];
    int64_t pull_ns;     /* time until a pull is answered */
    int n_pulls, n_zero; /* n_zero: contributions of weight 0 */
    int64_t ends_at;     /* wait for this step's bucket ends the generation once; -1: none */
    int ends_in_pull;    /* number of the pull that ends the generation once; 0: none */
    bool ended;
    bool loses_all; /* true: the next generation begins at step 0 */
    /* true: after the contributions of step OTHERS_PUSH_AT, other workers make all later ones */
    bool others_push;
    pthread_t first_tower; /* set in step 0 */
    pthread_cond_t pulled;
} ps = {.lock = PTHREAD_MUTEX_INITIALIZER, .pulled = PTHREAD_COND_INITIALIZER};

/* Returns true if a key of the data is in this bucket. */
static bool has_keys(int chunk)
{
    bool any = false;
    for (uint64_t key = 0; key < KEYS; key++)
        any |= chunk == 1 + tables_bucket(ps.table, key);
    return any;
}

static void answer(int chunk, int64_t version, const uint64_t *reads, size_t n)
{
    float(*from)[UNITS] = version == ps.version[chunk] ? ps.rows : ps.before;
    assert_true(n <= MOST);
    ps.answer[chunk].version = version;
    ps.answer[chunk].n = n;
    for (size_t i = 0; i < n; i++) {
        ps.answer[chunk].keys[i] = reads[i];
        memcpy(ps.answer[chunk].rows + i * UNITS, from[reads[i]], sizeof ps.rows[0]);
    }
}

static enum status fake_push(void *ctx, int chunk, int64_t step, const float *data, float weight)
{
    pthread_mutex_lock(&ps.lock);
    enum status st = ps.ended ? ST_REBASED : ST_OK;
    if (st == ST_OK) {
        assert_int_equal(chunk, 0);
        assert_int_equal(step, ps.version[0]);
        for (int i = 0; i < WEIGHTS && weight > 0; i++)
            ps.params[i] -= (float)rate * data[i];
        ps.n_zero += weight == 0;
        ps.version[0] = step + 1;
        if (ps.others_push && step == OTHERS_PUSH_AT)
            ps.version[0] = STEPS;
        ps.answer[0].version = ps.version[0];
    }
    pthread_mutex_unlock(&ps.lock);
    return st;
}

static enum status fake_push_rows(void *ctx, int chunk, int64_t step, const struct net_rows *rows,
                                  float weight)
{
    pthread_mutex_lock(&ps.lock);
    enum status st = ps.ended ? ST_REBASED : ST_OK;
    if (st == ST_OK) {
        assert_int_equal(step, ps.version[chunk]);
        for (uint64_t key = 0; key < KEYS; key++)
            if (chunk == 1 + tables_bucket(ps.table, key))
                memcpy(ps.before[key], ps.rows[key], sizeof ps.before[key]);
        for (size_t i = 0; i < rows->n && weight > 0; i++)
            for (int d = 0; d < UNITS; d++)
                ps.rows[rows->keys[i]][d] -= (float)rate * rows->gradients[i * UNITS + (size_t)d];
        ps.version[chunk] = step + 1;
        if (ps.others_push && step == OTHERS_PUSH_AT && !has_keys(chunk))
            ps.version[chunk] = STEPS;
        answer(chunk, ps.version[chunk], rows->reads, rows->n_reads);
    }
    pthread_mutex_unlock(&ps.lock);
    return st;
}

static enum status fake_pull(void *ctx, int chunk, int64_t step)
{
    return ST_OK;
}

static enum status fake_pull_rows(void *ctx, int chunk, int64_t step, const uint64_t *reads,
                                  size_t n)
{
    int64_t begin_ns = clock_now_ns();
    pthread_mutex_lock(&ps.lock);
    while (clock_now_ns() - begin_ns < ps.pull_ns)
        ;
    ps.ended |= ++ps.n_pulls == ps.ends_in_pull;
    enum status st = ps.ended ? ST_REBASED : ST_OK;
    if (ps.others_push && ps.version[0] == STEPS)
        ps.version[chunk] = STEPS;
    int64_t present = ps.version[chunk];
    bool is_kept = ps.in_lockstep && (step == present || step == present - 1);
    if (st == ST_OK && step > present) /* the answer would never arrive */
        st = ST_PROTOCOL;
    if (st == ST_OK)
        answer(chunk, is_kept ? step : present, reads, n);
    pthread_cond_broadcast(&ps.pulled);
    pthread_mutex_unlock(&ps.lock);
    return st;
}

static const float *fake_rows(void *ctx, int chunk, const uint64_t **keys, size_t *n)
{
    *keys = ps.answer[chunk].keys;
    *n = ps.answer[chunk].n;
    return ps.answer[chunk].rows;
}

static enum status fake_wait(void *ctx, int first, int n, int64_t step, int64_t deadline_ns)
{
    pthread_mutex_lock(&ps.lock);
    ps.ended |= ps.ends_at >= 0 && step == ps.ends_at && first > 0;
    enum status st = ps.ended ? ST_REBASED : ST_OK;
    for (int c = first; c < first + n && st == ST_OK; c++)
        if (ps.answer[c].version < step) /* the wait would never end */
            st = ST_PROTOCOL;
    if (st == ST_OK && first == 0 && n > 0)
        memcpy(ps.worker, ps.params, sizeof ps.params);
    pthread_mutex_unlock(&ps.lock);
    return st;
}

static void first_values(void)
{
    memset(ps.version, 0, sizeof ps.version);
    memset(ps.answer, 0, sizeof ps.answer);
    for (int i = 0; i < WEIGHTS; i++)
        ps.params[i] = rng_uniform(8, (uint64_t)i) - 0.5f;
    for (int i = 0; i < KEYS * UNITS; i++)
        ps.rows[i / UNITS][i % UNITS] = rng_uniform(9, (uint64_t)i) - 0.5f;
}

/* Begins a generation at the lowest version of a chunk. Rows and parameters of later versions are
 * those of this step, because the step's contributions are still complete or absent. */
static enum status fake_start(void *ctx, struct net_start *out)
{
    pthread_mutex_lock(&ps.lock);
    for (int c = 0; c <= BUCKETS; c++) {
        assert_int_equal(ps.version[c], ps.version[0]);
        ps.answer[c].version = ps.version[0];
        ps.answer[c].n = 0;
    }
    if (ps.loses_all)
        first_values();
    ps.ended = false;
    ps.ends_at = -1;
    *out = (struct net_start){.step = ps.version[0], .generation = 2, .place = {.n_members = 1}};
    pthread_mutex_unlock(&ps.lock);
    return ST_OK;
}

/* Returns true if the last answer for each bucket has the last version. */
static bool have_last(void)
{
    bool all = true;
    for (int c = 1; c <= BUCKETS; c++)
        all &= ps.answer[c].version == STEPS;
    return all;
}

static int64_t fake_version(void *ctx, int chunk)
{
    pthread_mutex_lock(&ps.lock);
    while (ps.others_push && chunk == 0 && ps.version[0] == STEPS && !have_last() &&
           !pthread_equal(pthread_self(), ps.first_tower))
        pthread_cond_wait(&ps.pulled, &ps.lock);
    int64_t version = ps.ended ? -1 : ps.answer[chunk].version;
    pthread_mutex_unlock(&ps.lock);
    return version;
}

static void fake_nothing(void *ctx)
{
}

static const struct updates_ops ops = {
    .start = fake_start,
    .push = fake_push,
    .pull = fake_pull,
    .push_rows = fake_push_rows,
    .pull_rows = fake_pull_rows,
    .rows = fake_rows,
    .wait = fake_wait,
    .version = fake_version,
    .flush = fake_nothing,
    .cancel = fake_nothing,
};

/* bag -> flat; [flat, image] -> dense -> loss */
static struct layer layers[LAYERS] = {
    {.kind = LAYER_EMBEDDING_BAG, .name = "bag", .out = {3, {COLUMNS, 1, UNITS}}, .mean = true},
    {.kind = LAYER_FLATTEN,
     .name = "flat",
     .in = {3, {COLUMNS, 1, UNITS}},
     .out = {1, {BAG}},
     .n_inputs = 1,
     .input = {0}},
    {.kind = LAYER_CONCAT,
     .name = "join",
     .in = {1, {BAG}},
     .out = {1, {JOINED}},
     .n_inputs = 2,
     .input = {1, LAYER_INPUT_IMAGE}},
    {.kind = LAYER_DENSE,
     .name = "dense",
     .in = {1, {JOINED}},
     .out = {1, {CLASSES}},
     .n_params = 1,
     .n_inputs = 1,
     .input = {2}},
    {.kind = LAYER_SOFTMAX_XENT,
     .name = "loss",
     .in = {1, {CLASSES}},
     .out = {1, {CLASSES}},
     .n_inputs = 1,
     .input = {3}},
};

struct rig {
    struct net_param param;
    struct net_table table;
    struct model model;
    struct chunks *chunks;
    struct dataset data;
    struct dataset_keys keys;
    uint8_t images[ITEMS * DENSE];
    int32_t labels[ITEMS];
    uint64_t key[ITEMS * COLUMNS * 2];
    uint32_t first[ITEMS * COLUMNS + 1];
    float params[WEIGHTS];
    struct updates updates;
    struct tower_spec towers[3];
    struct trainer_config cfg;
    struct net_start start;
};

static void make_data(struct rig *r)
{
    for (int i = 0; i < ITEMS; i++)
        r->labels[i] = i % 3 == 0;
    for (int i = 0; i < ITEMS * DENSE; i++)
        r->images[i] = (uint8_t)rng_below(4, (uint64_t)i, 256);
    for (uint32_t c = 0, n = 0; c < ITEMS * COLUMNS; c++) {
        uint32_t more = (uint32_t)rng_below(5, c, 3);
        for (uint32_t k = 0; k < more; k++)
            r->key[n + k] = rng_below(6, n + k, KEYS);
        n += more;
        r->first[c + 1] = n;
    }
    r->keys = (struct dataset_keys){1, {{COLUMNS, r->key, r->first}}};
    r->data = (struct dataset){.n = ITEMS,
                               .sample = {1, {DENSE}},
                               .classes = CLASSES,
                               .labels = r->labels,
                               .bytes = r->images,
                               .keys = &r->keys};
}

static void reset_servers(const struct net_table *table, float *params)
{
    ps.table = table;
    ps.worker = params;
    ps.in_lockstep = true;
    ps.others_push = false;
    ps.pull_ns = 0;
    ps.n_pulls = ps.n_zero = ps.ends_in_pull = 0;
    ps.ends_at = -1;
    ps.ended = ps.loses_all = false;
    first_values();
    memcpy(params, ps.params, sizeof ps.params);
}

static void rig_make(struct rig *r, int n_towers)
{
    memset(r, 0, sizeof *r);
    layers[0].in = (struct shape){1, {DENSE}};
    r->param = (struct net_param){.name = "dense/weights", .shape = {2, {CLASSES, JOINED}}};
    r->table = (struct net_table){.name = "bag",
                                  .dim = UNITS,
                                  .n_buckets = BUCKETS,
                                  .max_rows = 1000,
                                  .step_rows = 1000,
                                  .init = ROW_INIT_ZEROS};
    optim_rows_defaults(OPTIM_ROWS_SGD, &r->table.optimizer);
    assert_int_equal(chunks_create(&r->param, 1, CHUNKS_MIN_BYTES, &r->chunks), ST_OK);
    assert_int_equal(tables_add(r->chunks, &r->table, 1), ST_OK);
    assert_int_equal(r->chunks->n_chunks, 1 + BUCKETS);
    r->model = (struct model){.name = "rows",
                              .n_layers = LAYERS,
                              .layers = layers,
                              .classes = CLASSES,
                              .n_params = 1,
                              .params = &r->param};
    make_data(r);
    r->updates = (struct updates){&ops, NULL};
    for (int i = 0; i < n_towers; i++)
        r->towers[i] = (struct tower_spec){.own = {.backend = cpu, .n_threads = 1}};
    tower_plan_share(r->towers, n_towers, 0, BATCH);
    r->cfg = (struct trainer_config){.model = &r->model,
                                     .chunks = r->chunks,
                                     .train = &r->data,
                                     .updates = &r->updates,
                                     .params = r->params,
                                     .towers = r->towers,
                                     .n_towers = n_towers,
                                     .batch = BATCH,
                                     .train_steps = STEPS,
                                     .log_every = 1000000,
                                     .progress = PROGRESS_LINES,
                                     .seed = 7};
    r->start.place = (struct net_place){.n_members = 1};
    reset_servers(r->chunks->tables, r->params);
}

static void rig_free(struct rig *r)
{
    chunks_destroy(r->chunks);
}

/* The network in double. */
struct exact {
    double w[WEIGHTS], rows[KEYS][UNITS];
};

static void exact_begin(struct exact *e)
{
    for (int i = 0; i < WEIGHTS; i++)
        e->w[i] = (double)(rng_uniform(8, (uint64_t)i) - 0.5f);
    for (int i = 0; i < KEYS * UNITS; i++)
        e->rows[i / UNITS][i % UNITS] = (double)(rng_uniform(9, (uint64_t)i) - 0.5f);
}

/* Computes the loss of an item, and adds its gradients, divided by `n`, to *sum; NULL: adds
 * none. */
static double exact_item(const struct exact *e, const struct rig *r, int64_t item, int n,
                         struct exact *sum)
{
    double x[JOINED] = {0}, z[CLASSES] = {0}, dx[JOINED] = {0};
    const uint32_t *first = r->first + item * COLUMNS;
    for (int i = 0; i < BAG; i++)
        for (uint32_t k = first[i / UNITS]; k < first[i / UNITS + 1]; k++)
            x[i] += e->rows[r->key[k]][i % UNITS] / (first[i / UNITS + 1] - first[i / UNITS]);
    for (int i = 0; i < DENSE; i++)
        x[BAG + i] = r->images[item * DENSE + i] / 255.0;
    for (int i = 0; i < WEIGHTS; i++)
        z[i / JOINED] += e->w[i] * x[i % JOINED];
    double all = exp(z[0]) + exp(z[1]);
    for (int i = 0; i < WEIGHTS && sum; i++) {
        double dz = exp(z[i / JOINED]) / all - (r->labels[item] == i / JOINED);
        sum->w[i] += dz * x[i % JOINED] / n;
        dx[i % JOINED] += dz * e->w[i] / n;
    }
    for (int i = 0; i < BAG && sum; i++)
        for (uint32_t k = first[i / UNITS]; k < first[i / UNITS + 1]; k++)
            sum->rows[r->key[k]][i % UNITS] += dx[i] / (first[i / UNITS + 1] - first[i / UNITS]);
    return log(all) - z[r->labels[item]];
}

/* Computes the first n steps. skipped: the steps with this remainder by 3 change nothing; -1:
 * none. */
static void exact_train(struct exact *e, const struct rig *r, int skipped, int64_t n)
{
    struct dataset_order *order;
    assert_int_equal(dataset_order_create(ITEMS, 7, &order), ST_OK);
    exact_begin(e);
    for (int step = 0; step < n; step++) {
        struct exact sum = {{0}, {{0}}};
        for (int i = 0; i < BATCH; i++)
            exact_item(e, r, dataset_order_item(order, (uint64_t)(step * BATCH + i)), BATCH, &sum);
        for (int i = 0; i < WEIGHTS && step % 3 != skipped; i++)
            e->w[i] -= rate * sum.w[i];
        for (int i = 0; i < KEYS * UNITS && step % 3 != skipped; i++)
            e->rows[i / UNITS][i % UNITS] -= rate * sum.rows[i / UNITS][i % UNITS];
    }
    dataset_order_destroy(order);
}

static void check_result(const struct rig *r, int skipped)
{
    struct exact e;
    exact_train(&e, r, skipped, STEPS);
    for (int i = 0; i < WEIGHTS; i++)
        assert_true(fabs(e.w[i] - (double)ps.params[i]) < 1e-5);
    for (int i = 0; i < KEYS * UNITS; i++)
        assert_true(fabs(e.rows[i / UNITS][i % UNITS] - (double)ps.rows[i / UNITS][i % UNITS]) <
                    1e-5);
}

static struct trainer_result train(struct rig *r)
{
    struct trainer *t;
    struct trainer_result result;
    assert_int_equal(trainer_create(&r->cfg, &t), ST_OK);
    assert_int_equal(trainer_run(t, &r->start, &result), ST_OK);
    trainer_destroy(t);
    return result;
}

static void test_steps_equal_plain_loops(void **state)
{
    for (int n_towers = 1; n_towers <= 3; n_towers++) {
        struct rig r;
        rig_make(&r, n_towers);
        train(&r);
        check_result(&r, -1);
        assert_in_range(ps.n_pulls, 1, BUCKETS); /* each push has named the keys of the next step */
        rig_free(&r);
    }
}

static enum status create_no_group(const struct backend_group_config *cfg,
                                   struct backend_group **out)
{
    return ST_UNSUPPORTED;
}

/* Towers whose backend has groups add their gradients on the host. */
static void test_towers_join_no_group(void **state)
{
    struct backend grouping = *cpu;
    struct rig r;
    grouping.group_create = create_no_group;
    rig_make(&r, 2);
    r.towers[0].own.backend = r.towers[1].own.backend = &grouping;
    train(&r);
    check_result(&r, -1);
    rig_free(&r);
}

/* The card never updates parameters of a model whose rows are on servers. */
static void test_updates_stay_on_servers(void **state)
{
    struct rig r;
    const struct optim_config optim = {.kind = OPTIM_SGD};
    rig_make(&r, 1);
    r.towers[0].own.tuning = TUNING_UPDATES;
    r.cfg.server_optim = &optim;
    CAPTURE(train(&r).global_step);
    assert_non_null(strstr(capture_text, "from step 0 on: it does not support tables"));
    check_result(&r, -1);
    rig_free(&r);
}

/* Evaluations of a run: their number at each step, and the last loss. wait_ns: time that the steps
 * waited. */
struct seen {
    int n[STEPS + 1];
    double loss[STEPS + 1];
    int64_t wait_ns;
};

static void see_start(void *ctx, const struct net_start *start)
{
}

static void see_step(void *ctx, const struct trainer_figures *f)
{
    ((struct seen *)ctx)->wait_ns = f->wait_ns;
}

/* Called by the first tower. */
static int see_no_values(void *ctx, int64_t number, int is_last)
{
    pthread_mutex_lock(&ps.lock);
    ps.first_tower = pthread_self();
    pthread_mutex_unlock(&ps.lock);
    return 0;
}

static void see_evaluated(void *ctx, int64_t step, const char *what, double accuracy, double loss)
{
    struct seen *s = ctx;
    s->n[step]++;
    s->loss[step] = loss;
}

/* async and ssp pull the rows of each step, and wait for them. */
static void test_own_pace_pulls_rows(void **state)
{
    struct rig r;
    struct seen seen = {.wait_ns = 0};
    const struct trainer_observer observer = {
        .ctx = &seen, .start = see_start, .step = see_step, .wants_values = see_no_values};
    rig_make(&r, 2);
    r.cfg.observer = &observer;
    ps.pull_ns = 1000000;
    r.cfg.own_pace = true;
    ps.in_lockstep = false;
    train(&r);
    check_result(&r, -1);
    assert_true(ps.n_pulls >= STEPS);
    assert_true(seen.wait_ns >= ps.n_pulls * ps.pull_ns);
    rig_free(&r);
}

/* Compares the loss of all items with that of the parameters and rows after `step` steps. */
static void check_loss(const struct rig *r, int64_t step, double loss)
{
    struct exact e;
    double exact_loss = 0;
    exact_train(&e, r, -1, step);
    for (int i = 0; i < ITEMS; i++)
        exact_loss += exact_item(&e, r, i, 1, NULL) / ITEMS;
    assert_true(fabs(exact_loss - loss) < 1e-5);
}

/* Trains with an evaluation before each step but the first, and after the last one. validates: the
 * evaluations use validation data. Returns the number of pulls. */
static int train_and_evaluate(int n_towers, bool own_pace, bool validates, int ends_in_pull)
{
    struct rig r;
    struct seen seen = {.wait_ns = 0};
    const struct trainer_observer observer = {.ctx = &seen,
                                              .start = see_start,
                                              .step = see_step,
                                              .wants_values = see_no_values,
                                              .evaluated = see_evaluated};
    struct trainer *t;
    struct trainer_result result;
    double accuracy, loss, auc;
    rig_make(&r, n_towers);
    ps.ends_in_pull = ends_in_pull;
    ps.in_lockstep = !own_pace;
    r.cfg.own_pace = own_pace;
    r.cfg.observer = &observer;
    r.cfg.eval_every = 1;
    *(validates ? &r.cfg.validation : &r.cfg.test) = &r.data;
    assert_int_equal(trainer_create(&r.cfg, &t), ST_OK);
    assert_int_equal(trainer_run(t, &r.start, &result), ST_OK);
    if (validates) {
        assert_int_equal(trainer_validate(t, STEPS), ST_OK);
    } else {
        assert_int_equal(trainer_evaluate(t, &accuracy, &loss, &auc), ST_OK);
        check_loss(&r, STEPS, loss);
    }
    check_result(&r, -1);
    for (int i = 1; i < STEPS; i++) {
        assert_int_equal(seen.n[i], 1);
        check_loss(&r, i, seen.loss[i]);
    }
    assert_int_equal(seen.n[STEPS], validates);
    trainer_destroy(t);
    rig_free(&r);
    return ps.n_pulls;
}

/* An evaluation reads the rows of its step, and changes no bits of training. */
static void test_evaluation_reads_rows(void **state)
{
    struct rig r;
    float params[WEIGHTS], rows[KEYS][UNITS];
    rig_make(&r, 2);
    train(&r);
    memcpy(params, ps.params, sizeof params);
    memcpy(rows, ps.rows, sizeof rows);
    rig_free(&r);
    train_and_evaluate(2, false, false, 0);
    assert_memory_equal(params, ps.params, sizeof params);
    assert_memory_equal(rows, ps.rows, sizeof rows);
    train_and_evaluate(1, false, true, 0);
    train_and_evaluate(2, true, false, 0);
}

/* The first tower evaluates, and so reads later versions of rows, while the second one has not
 * begun the step. Both towers end with the same step. */
static void test_evaluation_ends_no_single_tower(void **state)
{
    struct rig r;
    struct seen seen = {.wait_ns = 0};
    const struct trainer_observer observer = {.ctx = &seen,
                                              .start = see_start,
                                              .step = see_step,
                                              .wants_values = see_no_values,
                                              .evaluated = see_evaluated};
    rig_make(&r, 2);
    ps.in_lockstep = false;
    ps.others_push = true;
    r.cfg.own_pace = true;
    r.cfg.observer = &observer;
    r.cfg.eval_every = 1;
    r.cfg.test = &r.data;
    struct trainer_result result = train(&r);
    assert_int_equal(result.global_step, STEPS);
    assert_int_equal(result.local_steps, OTHERS_PUSH_AT + 2);
    rig_free(&r);
}

/* The generation ends in each of the pulls, also in those of evaluations during and after
 * training. The step or the evaluation begins again, with the same result. */
static void test_end_of_generation_in_each_pull(void **state)
{
    for (int validates = 0; validates < 2; validates++) {
        int n = train_and_evaluate(2, false, validates, 0);
        for (int i = 1; i <= n; i++)
            train_and_evaluate(2, false, validates, i);
    }
}

/* The servers have lost all steps when the worker evaluates the last one. The worker trains again,
 * and shows its progress. */
static void test_lost_steps_are_redone_after_the_end(void **state)
{
    struct rig r;
    struct trainer *t;
    struct trainer_result result;
    double accuracy, loss, auc;
    rig_make(&r, 2);
    r.cfg.test = &r.data;
    assert_int_equal(trainer_create(&r.cfg, &t), ST_OK);
    assert_int_equal(trainer_run(t, &r.start, &result), ST_OK);
    ps.ends_in_pull = ps.n_pulls + 1;
    ps.loses_all = true;
    assert_int_equal(CAPTURE(trainer_evaluate(t, &accuracy, &loss, &auc)), ST_OK);
    assert_non_null(strstr(capture_text, "training step 9 done"));
    check_loss(&r, STEPS, loss);
    check_result(&r, -1);
    trainer_destroy(t);
    rig_free(&r);
}

/* Reads rows of a file in which the row of key 0 is missing. ctx: number of calls. */
static enum status read_rows(void *ctx, int table, const uint64_t *keys, size_t n, float *rows)
{
    assert_int_equal(table, 0);
    ++*(int *)ctx;
    for (size_t i = 0; i < n; i++)
        for (int d = 0; d < UNITS; d++)
            rows[i * UNITS + (size_t)d] = keys[i] == 0 ? 0 : ps.rows[keys[i]][d];
    return ST_OK;
}

/* An inference without servers reads all rows of a batch from a reader. */
static void test_inference_reads_from_reader(void **state)
{
    struct rig r;
    struct exact e;
    struct tower *t;
    struct evaluate_sums sums;
    int n_calls = 0;
    double exact_loss = 0;
    const struct table_reader reader = {read_rows, &n_calls};
    rig_make(&r, 1);
    r.cfg.test = &r.data;
    r.cfg.updates = NULL;
    r.cfg.reader = &reader;
    assert_int_equal(evaluate_tower_create(&r.cfg, &t), ST_OK);
    assert_int_equal(evaluate_run(t, NULL, &sums), ST_OK);
    assert_int_equal(n_calls, 1);
    exact_begin(&e);
    memset(e.rows[0], 0, sizeof e.rows[0]);
    for (int i = 0; i < ITEMS; i++)
        exact_loss += exact_item(&e, &r, i, 1, NULL);
    assert_true(fabs(exact_loss - sums.loss) < 1e-4);
    tower_destroy(t);
    rig_free(&r);
}

/* A model with a table needs servers, or a reader. */
static void test_tables_without_rows_are_refused(void **state)
{
    static const struct updates_ops alone = {.push = fake_push};
    struct updates updates = {&alone, NULL};
    struct rig r;
    struct tower *t;
    rig_make(&r, 1);
    r.cfg.test = &r.data;
    for (int i = 0; i < 2; i++) {
        r.cfg.updates = i == 0 ? NULL : &updates;
        assert_int_equal(CAPTURE(evaluate_tower_create(&r.cfg, &t)), ST_UNSUPPORTED);
        assert_non_null(strstr(capture_text, "layer 'bag' of model 'rows' reads rows of a table"));
    }
    rig_free(&r);
}

/* The generation ends while towers wait for versions or rows; the step begins again, with the same
 * result. */
static void test_end_of_generation(void **state)
{
    for (int n_towers = 1; n_towers <= 3; n_towers++) {
        struct rig r;
        rig_make(&r, n_towers);
        ps.ends_in_pull = 2;
        train(&r);
        check_result(&r, -1);
        rig_free(&r);
        rig_make(&r, n_towers);
        ps.ends_at = 4;
        train(&r);
        check_result(&r, -1);
        assert_int_equal(ps.ends_at, -1);
        assert_in_range(ps.n_pulls, 2, 2 * BUCKETS); /* the first step of both generations */
        rig_free(&r);
    }
}

/* A contribution that is not finite has weight 0 for rows and parameters. */
static void test_bad_gradients_are_skipped(void **state)
{
    struct rig r;
    rig_make(&r, 2);
    r.cfg.fault_nonfinite = 3;
    r.cfg.skip_nonfinite = true;
    r.cfg.max_nonfinite = 100;
    struct trainer_result result = CAPTURE(train(&r));
    assert_non_null(strstr(capture_text, "a gradient of table 'bag' is not finite"));
    assert_int_equal(result.skipped, STEPS / 3);
    assert_int_equal(ps.n_zero, STEPS / 3);
    check_result(&r, 2);
    rig_free(&r);
}

int main(void)
{
    log_init("worker", 0, LOG_LEVEL_INFO);
    if (backend_open("cpu", WEIR_TEST_BACKEND_DIR, &cpu) != ST_OK)
        return skip_program("the CPU backend was not built");
    return RUN_TESTS(test_steps_equal_plain_loops, test_towers_join_no_group,
                     test_updates_stay_on_servers, test_own_pace_pulls_rows,
                     test_evaluation_reads_rows, test_evaluation_ends_no_single_tower,
                     test_end_of_generation_in_each_pull, test_lost_steps_are_redone_after_the_end,
                     test_inference_reads_from_reader, test_tables_without_rows_are_refused,
                     test_end_of_generation, test_bad_gradients_are_skipped);
}
