/* tests/libweir_tables_test.c - tables of libweir without servers: errors for wrong calls, settings
 * and tables, and the requests of lookups and pushes to an exchange that this file replaces. A row
 * of the replacement has the values key + version / 1000. */
#include "libweir/tables.h"
#include "tests/libweir_open.h"
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { DIM = 2, BUCKETS = 4, CHUNKS = 1 + BUCKETS, STEPS = 5, MOST = 64 };

static void test_wrong_tables_are_refused(void **state)
{
    char long_name[CHUNKS_MAX_NAME + 2];
    struct weir *w;
    memset(long_name, 'x', sizeof long_name);
    long_name[CHUNKS_MAX_NAME + 1] = 0;
    assert_int_equal(weir_open(&w), WEIR_OK);
    assert_error(w, weir_table(w, NULL, 1, 1), WEIR_E_INVALID, "table 0: a name has 1 to 255");
    assert_error(w, weir_table(w, "", 1, 1), WEIR_E_INVALID, "a name has");
    assert_error(w, weir_table(w, "two words", 1, 1), WEIR_E_INVALID, "no spaces");
    assert_error(w, weir_table(w, long_name, 1, 1), WEIR_E_INVALID, "a name has");
    assert_error(w, weir_table(w, "ads", 0, 1), WEIR_E_INVALID,
                 "'ads': dim is 0, but must be 1 to");
    assert_error(w, weir_table(w, "ads", 1025, 1), WEIR_E_INVALID, "dim is 1025");
    assert_error(w, weir_table(w, "ads", 1, 0), WEIR_E_INVALID, "max_rows is 0");
    assert_error(w, weir_table(w, "ads", 1, INT64_MAX), WEIR_E_INVALID, "max_rows is");
    assert_int_equal(weir_table(w, "ads", 1, 1), 0);
    assert_error(w, weir_table(w, "ads", 1, 1), WEIR_E_INVALID, "'ads' was added already");
    char name[16];
    for (int i = 1; i < TABLES_MAX; i++) {
        snprintf(name, sizeof name, "t%d", i);
        assert_int_equal(weir_table(w, name, 1, 1), i);
    }
    assert_error(w, weir_table(w, "more", 1, 1), WEIR_E_INVALID, "maximum of 256 tables");
    weir_close(w);
}

static void test_wrong_settings_are_refused(void **state)
{
    static const struct {
        const char *name, *value, *word;
    } wrong[] = {
        {"bucket", "4", "'ads': there is no setting 'bucket'; did you mean 'buckets'?"},
        {"step_rows", "many", "step_rows: 'many' is not a whole number"},
        {NULL, "1", "needs a name and a value"},
        {"buckets", NULL, "needs a name and a value"},
    };
    struct weir *w;
    assert_int_equal(weir_open(&w), WEIR_OK);
    assert_error(w, weir_table_set(w, 0, "buckets", "4"), WEIR_E_INVALID, "there is no table 0");
    assert_int_equal(weir_table(w, "ads", 8, 100), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_error(w, weir_table_set(w, 0, wrong[i].name, wrong[i].value), WEIR_E_INVALID,
                     wrong[i].word);
        assert_non_null(strstr(weir_error(w), "table 'ads': "));
    }
    assert_error(w, weir_table_set(w, -1, "buckets", "4"), WEIR_E_INVALID, "there is no table -1");
    weir_close(w);
}

/* Tables whose settings do not fit together, or do not fit the job; weir_next reports them. */
static const struct {
    const char *table[4][2]; /* settings of the table */
    const char *job[3][2];
    int code;
    const char *word;
} impossible[] = {
    {{{"buckets", "3"}}, {{NULL}}, WEIR_E_INVALID, "'ads': buckets 3 is not a power of two"},
    {{{"step_rows", "16777216"}}, {{NULL}}, WEIR_E_INVALID, "lower step_rows=16777216 or raise"},
    {{{"momentum", "0.5"}},
     {{NULL}},
     WEIR_E_INVALID,
     "'ads': momentum: optimizer=adam has no such"},
    {{{"optimizer", "sgd"}, {"learning_rate", "0"}},
     {{NULL}},
     WEIR_E_INVALID,
     "'ads': learning_rate 0 is not above 0"},
    {{{"optimizer", "ftrl"}, {"lr_warmup_steps", "5"}},
     {{NULL}},
     WEIR_E_INVALID,
     "'ads': ftrl needs a constant learning rate"},
    {{{NULL}},
     {{"optimizer", "adamw"}},
     WEIR_E_INVALID,
     "'ads': the job's optimizer adamw has no form for rows; set an optimizer for this table"},
    {{{NULL}},
     {{"optimizer", "sgd"}, {"weight_decay", "0.1"}},
     WEIR_E_INVALID,
     "'ads': the job's weight_decay would change rows"},
    {{{NULL}}, {{"clip_norm", "1"}}, WEIR_E_UNSUPPORTED, "clip_norm"},
    {{{NULL}}, {{"wire_dtype", "int8"}}, WEIR_E_UNSUPPORTED, "use fp32, bf16 or fp16"},
    {{{NULL}}, {{"local_steps", "4"}, {"train_steps", "8"}}, WEIR_E_UNSUPPORTED, "local_steps"},
};

static void test_impossible_tables_are_refused(void **state)
{
    static const char *const cluster[][2] = {
        {"ps_hosts", "localhost:1"}, {"n_workers", "1"}, {NULL, NULL}};
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
        struct weir *w = open_with(cluster);
        struct weir_step s;
        int64_t dim = 4;
        assert_int_equal(weir_param(w, "a", WEIR_FLOAT32, 1, &dim, NULL), 0);
        assert_int_equal(weir_table(w, "ads", 8, 100), 0);
        for (int k = 0; k < 3 && impossible[i].job[k][0]; k++)
            assert_int_equal(weir_set(w, impossible[i].job[k][0], impossible[i].job[k][1]), 0);
        for (int k = 0; k < 4 && impossible[i].table[k][0]; k++)
            assert_int_equal(
                weir_table_set(w, 0, impossible[i].table[k][0], impossible[i].table[k][1]), 0);
        assert_error(w, weir_next(w, -1, &s), impossible[i].code, impossible[i].word);
        assert_int_equal(weir_push_rows(w, 0, NULL, 0, NULL, 1), impossible[i].code);
        weir_close(w);
    }
}

static void test_tables_need_a_server(void **state)
{
    static const char *const alone[][2] = {{"n_workers", "1"}, {NULL, NULL}};
    struct weir *w = open_with(alone);
    struct weir_step s;
    int64_t dim = 4;
    assert_int_equal(weir_table(w, "ads", 8, 100), 0);
    assert_error(w, weir_next(w, -1, &s), WEIR_E_INVALID, "no parameters");
    assert_int_equal(weir_param(w, "a", WEIR_FLOAT32, 1, &dim, NULL), 0);
    assert_error(w, weir_next(w, -1, &s), WEIR_E_UNSUPPORTED, "tables need servers");
    weir_close(w);
}

static void test_keys_of_texts(void **state)
{
    const char text[] = "country=fr";
    assert_true(weir_key(text, 10) == rng_text(text, 10));
    assert_true(weir_key(text, 10) != weir_key(text, 9));
    assert_true(weir_key(NULL, 0) == weir_key(text, 0));
    assert_true(weir_key(text, -1) == weir_key(text, 0));
}

/* The replaced exchange. A request is answered by the next wait for its chunk, unless `stalls`. */
struct exchange {
    pthread_mutex_t lock;
    bool stalls, ends; /* waits time out; the generation has ended */
    int64_t version[CHUNKS];
    int64_t pending[CHUNKS]; /* version that the answer will have; -1: no request */
    uint64_t keys[CHUNKS][MOST];
    float rows[CHUNKS][MOST * DIM];
    size_t n[CHUNKS];
    int n_pulls, n_pushes;
    struct {
        int64_t step;
        size_t n;
        uint64_t keys[MOST];
        float gradients[MOST * DIM], weight;
    } pushed[CHUNKS];
};

static enum status fake_start(void *ctx, struct net_start *out)
{
    struct exchange *x = ctx;
    *out = (struct net_start){.generation = 1, .place = {.n_members = 1, .train_steps = STEPS}};
    for (int c = 0; c < CHUNKS; c++) {
        x->version[c] = 0;
        x->pending[c] = -1;
        x->n[c] = 0;
    }
    return ST_OK;
}

static enum status request(struct exchange *x, int chunk, int64_t version, const uint64_t *reads,
                           size_t n)
{
    if (x->ends)
        return ST_REBASED;
    pthread_mutex_lock(&x->lock);
    assert_int_equal(x->pending[chunk], -1);
    assert_true(n <= MOST);
    x->pending[chunk] = version;
    x->n[chunk] = n;
    if (n > 0)
        memcpy(x->keys[chunk], reads, n * sizeof *reads);
    pthread_mutex_unlock(&x->lock);
    return ST_OK;
}

static enum status fake_push(void *ctx, int chunk, int64_t step, const float *data, float weight,
                             const uint8_t *lacking)
{
    return request(ctx, chunk, step + 1, NULL, 0);
}

static enum status fake_push_rows(void *ctx, int chunk, int64_t step, const struct net_rows *rows,
                                  float weight)
{
    struct exchange *x = ctx;
    x->pushed[chunk].step = step;
    x->pushed[chunk].n = rows->n;
    x->pushed[chunk].weight = weight;
    memcpy(x->pushed[chunk].keys, rows->keys, rows->n * sizeof *rows->keys);
    memcpy(x->pushed[chunk].gradients, rows->gradients, rows->n * DIM * sizeof(float));
    x->n_pushes++;
    return request(x, chunk, step + 1, rows->reads, rows->n_reads);
}

static enum status fake_pull_rows(void *ctx, int chunk, int64_t step, const uint64_t *reads,
                                  size_t n)
{
    ((struct exchange *)ctx)->n_pulls++;
    return request(ctx, chunk, step, reads, n);
}

static const float *fake_rows(void *ctx, int chunk, const uint64_t **keys, size_t *n)
{
    struct exchange *x = ctx;
    *keys = x->keys[chunk];
    *n = x->n[chunk];
    return x->rows[chunk];
}

static float value_of(uint64_t key, int64_t version)
{
    return (float)key + (float)version / 1000;
}

static void answer(struct exchange *x, int chunk)
{
    x->version[chunk] = x->pending[chunk];
    x->pending[chunk] = -1;
    for (size_t i = 0; i < x->n[chunk] * DIM; i++)
        x->rows[chunk][i] = value_of(x->keys[chunk][i / DIM], x->version[chunk]);
}

static enum status fake_wait(void *ctx, int first, int n, int64_t step, int64_t deadline_ns)
{
    struct exchange *x = ctx;
    enum status st = x->ends ? ST_REBASED : ST_OK;
    pthread_mutex_lock(&x->lock);
    for (int c = first; c < first + n; c++) {
        if (x->pending[c] >= 0 && x->stalls)
            st = ST_DEADLINE;
        else if (x->pending[c] >= 0)
            answer(x, c);
    }
    for (int c = first; c < first + n && st == ST_OK; c++)
        assert_true(x->version[c] >= step);
    pthread_mutex_unlock(&x->lock);
    return st;
}

static void fake_flush(void *ctx)
{
}

static int64_t fake_version(void *ctx, int chunk)
{
    struct exchange *x = ctx;
    pthread_mutex_lock(&x->lock);
    int64_t version = x->version[chunk];
    pthread_mutex_unlock(&x->lock);
    return version;
}

static int fake_is_busy(void *ctx, int chunk)
{
    struct exchange *x = ctx;
    pthread_mutex_lock(&x->lock);
    int busy = x->pending[chunk] >= 0;
    pthread_mutex_unlock(&x->lock);
    return busy;
}

static enum status fake_leave(void *ctx, int done, const char *error)
{
    return ST_OK;
}

static void fake_nothing(void *ctx)
{
}

static const struct updates_ops fake = {
    .start = fake_start,
    .push_lacking = fake_push,
    .push_rows = fake_push_rows,
    .pull_rows = fake_pull_rows,
    .rows = fake_rows,
    .flush = fake_flush,
    .wait = fake_wait,
    .version = fake_version,
    .is_busy = fake_is_busy,
    .leave = fake_leave,
    .cancel = fake_nothing,
    .destroy = fake_nothing,
};

/* Returns a handle in its first step, with one parameter and one table of 4 buckets whose share of
 * step_rows is 23 keys. */
static struct weir *open_fake(struct exchange *x, struct weir_step *s)
{
    static const char *const settings[][2] = {
        {"optimizer", "sgd"}, {"train_steps", "5"}, {"batch_size", "3"}, {NULL, NULL}};
    struct weir *w = open_with(settings);
    const int64_t dim = 1;
    *x = (struct exchange){.lock = PTHREAD_MUTEX_INITIALIZER};
    assert_int_equal(weir_param(w, "a", WEIR_FLOAT32, 1, &dim, NULL), 0);
    assert_int_equal(weir_table(w, "ads", DIM, 100), 0);
    assert_int_equal(weir_table_set(w, 0, "buckets", "4"), WEIR_OK);
    assert_int_equal(weir_table_set(w, 0, "step_rows", "4"), WEIR_OK);
    optim_defaults(OPTIM_SGD, &w->job.optim);
    w->job.batch = w->batch = 3;
    w->n_local = 1;
    w->job.train_steps = STEPS;
    assert_int_equal(weir_params_make_chunks(w, 4096), ST_OK);
    assert_int_equal(w->chunks->n_chunks, CHUNKS);
    w->gradients = w->contributions = w->own_gradients = calloc(1, sizeof(float));
    w->updates = (struct updates){&fake, x};
    assert_int_equal(weir_next(w, -1, s), WEIR_OK);
    return w;
}

static const uint64_t keys[] = {5, 900, 5, 17, 3, 42, 900};
enum { N = sizeof keys / sizeof *keys };

static void check_rows(struct weir *w, int64_t version)
{
    float rows[N * DIM] = {0};
    assert_int_equal(weir_lookup(w, 0, keys, N, rows, -1), WEIR_OK);
    for (int i = 0; i < N * DIM; i++)
        assert_true(rows[i] == value_of(keys[i / DIM], version));
}

static void push_all(struct weir *w)
{
    float gradients[N * DIM], one = 1;
    for (int i = 0; i < N * DIM; i++)
        gradients[i] = (float)i;
    assert_int_equal(weir_push_rows(w, 0, keys, N, gradients, 3), WEIR_OK);
    assert_int_equal(weir_push(w, 0, &one, 3), WEIR_OK);
}

/* A lookup pulls the rows that the last answer does not have, and only those buckets. */
static void test_lookups_pull_only_what_is_missing(void **state)
{
    struct exchange x;
    struct weir_step s;
    struct weir *w = open_fake(&x, &s);
    const uint64_t more[] = {5, 6, 7, 8, 9, 10, 11, 12};
    float rows[8 * DIM];
    check_rows(w, 0);
    int n = x.n_pulls;
    assert_in_range(n, 2, BUCKETS);
    check_rows(w, 0); /* the last answers have the rows */
    assert_int_equal(x.n_pulls, n);
    assert_int_equal(weir_lookup(w, 0, more, 1, rows, -1), WEIR_OK);
    assert_int_equal(weir_lookup(w, 0, NULL, 0, NULL, -1), WEIR_OK);
    assert_int_equal(x.n_pulls, n);
    assert_int_equal(weir_lookup(w, 0, more, 8, rows, -1), WEIR_OK);
    assert_true(x.n_pulls > n);
    for (int i = 0; i < 8 * DIM; i++)
        assert_true(rows[i] == value_of(more[i / DIM], 0));
    weir_close(w);
}

/* The rows of the keys that weir_next_keys has named arrive with the answer to the push. */
static void test_next_keys_arrive_with_the_answer(void **state)
{
    struct exchange x;
    struct weir_step s;
    struct weir *w = open_fake(&x, &s);
    assert_int_equal(weir_next_keys(w, 0, keys, 3), WEIR_OK);
    assert_int_equal(weir_next_keys(w, 0, keys, N), WEIR_OK); /* the last call counts */
    push_all(w);
    assert_int_equal(weir_next(w, -1, &s), WEIR_OK);
    check_rows(w, 1);
    assert_int_equal(x.n_pulls, 0);
    push_all(w); /* without weir_next_keys */
    assert_int_equal(weir_next(w, -1, &s), WEIR_OK);
    check_rows(w, 2);
    assert_true(x.n_pulls > 0);
    weir_close(w);
}

/* After the push a lookup waits for the answer, and returns rows of the next step. */
static void test_lookups_after_a_push_read_the_next_version(void **state)
{
    struct exchange x;
    struct weir_step s;
    struct weir *w = open_fake(&x, &s);
    push_all(w);
    check_rows(w, 1);
    weir_close(w);
}

static void test_pushes_sum_repeated_keys(void **state)
{
    struct exchange x;
    struct weir_step s;
    struct weir *w = open_fake(&x, &s);
    size_t n = 0;
    push_all(w);
    assert_int_equal(x.n_pushes, BUCKETS);
    for (int c = 1; c < CHUNKS; c++) {
        assert_int_equal(x.pushed[c].step, 0);
        assert_true(x.pushed[c].weight == 3);
        for (size_t k = 0; k < x.pushed[c].n; k++, n++)
            for (int d = 0; d < DIM; d++) {
                float sum = 0;
                for (int i = 0; i < N; i++)
                    sum += keys[i] == x.pushed[c].keys[k] ? (float)(i * DIM + d) : 0;
                assert_true(x.pushed[c].gradients[k * DIM + (size_t)d] == sum);
            }
    }
    assert_int_equal(n, 5); /* different keys */
    assert_int_equal(weir_next(w, -1, &s), WEIR_OK);
    assert_int_equal(weir_push_rows(w, 0, keys, N, NULL, 0), WEIR_OK); /* adds nothing */
    for (int c = 1; c < CHUNKS; c++)
        assert_true(x.pushed[c].n == 0 && x.pushed[c].weight == 0 && x.pushed[c].step == 1);
    weir_close(w);
}

static void test_wrong_calls_are_refused(void **state)
{
    struct exchange x;
    struct weir_step s;
    struct weir *w = open_fake(&x, &s);
    float rows[N * DIM], one = 1;
    assert_error(w, weir_table(w, "b", 1, 1), WEIR_E_INVALID, "before the first weir_next");
    assert_error(w, weir_table_set(w, 0, "init", "zeros"), WEIR_E_INVALID, "before the first");
    assert_error(w, weir_lookup(w, 1, keys, N, rows, 0), WEIR_E_INVALID, "there is no table 1");
    assert_error(w, weir_lookup(w, 0, keys, -1, rows, 0), WEIR_E_INVALID, "n is -1 keys");
    assert_error(w, weir_lookup(w, 0, NULL, 1, rows, 0), WEIR_E_INVALID,
                 "keys is NULL, but n is 1");
    assert_error(w, weir_lookup(w, 0, keys, 1, NULL, 0), WEIR_E_INVALID, "rows is NULL");
    assert_error(w, weir_next_keys(w, -1, keys, N), WEIR_E_INVALID, "there is no table -1");
    assert_error(w, weir_next_keys(w, 0, NULL, 1), WEIR_E_INVALID, "keys is NULL");
    assert_error(w, weir_push_rows(w, 2, keys, N, rows, 1), WEIR_E_INVALID, "no table 2");
    assert_error(w, weir_push_rows(w, 0, NULL, 3, rows, 1), WEIR_E_INVALID, "keys is NULL");
    assert_error(w, weir_push_rows(w, 0, keys, INT64_MAX, rows, 1), WEIR_E_INVALID, "must be 0 to");
    assert_error(w, weir_push_rows(w, 0, keys, N, NULL, 1), WEIR_E_INVALID, "gradients is NULL");
    assert_error(w, weir_push_rows(w, 0, keys, N, rows, -1), WEIR_E_INVALID, "samples is -1");
    assert_error(w, weir_push_rows(w, 0, keys, N, rows, NAN), WEIR_E_INVALID, "samples is");
    assert_int_equal(weir_push(w, 0, &one, 3), WEIR_OK);
    assert_error(w, weir_next(w, 0, &s), WEIR_E_INVALID,
                 "table 'ads' was not pushed at step 0: call weir_push_rows once");
    assert_int_equal(weir_push_rows(w, 0, NULL, 0, NULL, 3), WEIR_OK);
    assert_error(w, weir_push_rows(w, 0, NULL, 0, NULL, 3), WEIR_E_INVALID,
                 "table 'ads' is pushed twice at step 0");
    assert_int_equal(weir_next(w, -1, &s), WEIR_OK);
    assert_int_equal(s.step, 1);
    weir_close(w);
}

/* Fills `to` with n keys of bucket 2. */
static void fill_bucket(const struct weir *w, uint64_t *to, int n)
{
    for (uint64_t key = 0; n > 0; key++)
        if (tables_bucket(weir_tables_net(w, 0), key) == 2)
            to[--n] = key;
}

/* A push may not have more keys of a bucket than its share; a lookup reads them in parts. */
static void test_a_bucket_has_a_share_of_the_keys(void **state)
{
    struct exchange x;
    struct weir_step s;
    struct weir *w = open_fake(&x, &s);
    uint64_t many[60];
    float rows[60 * DIM] = {0};
    fill_bucket(w, many, 60);
    assert_error(
        w, weir_push_rows(w, 0, many, 24, rows, 1), WEIR_E_INVALID,
        "table 'ads', bucket 2: 24 keys in one step, at most 23; raise step_rows=4 or buckets=4");
    assert_error(w, weir_next_keys(w, 0, many, 24), WEIR_E_INVALID, "24 keys in one step");
    assert_int_equal(x.n_pushes, 0);
    assert_int_equal(weir_lookup(w, 0, many, 60, rows, -1), WEIR_OK);
    assert_int_equal(x.n_pulls, 3);
    for (int i = 0; i < 60 * DIM; i++)
        assert_true(rows[i] == value_of(many[i / DIM], 0));
    assert_int_equal(weir_push_rows(w, 0, many, 23, rows, 1), WEIR_OK);
    weir_close(w);
}

/* A lookup whose timeout has passed continues, and does not repeat the parts that it has read. */
static void test_a_lookup_continues_after_its_timeout(void **state)
{
    struct exchange x;
    struct weir_step s;
    struct weir *w = open_fake(&x, &s);
    uint64_t many[60];
    float rows[60 * DIM] = {0};
    fill_bucket(w, many, 60);
    for (int i = 1; i <= 3; i++) {
        x.stalls = true;
        assert_int_equal(weir_lookup(w, 0, many, 60, rows, 0), WEIR_AGAIN);
        assert_int_equal(x.n_pulls, i);
        assert_int_equal(weir_lookup(w, 0, many, 60, rows, 0), WEIR_AGAIN);
        assert_int_equal(x.n_pulls, i);
        assert_error(w, weir_push_rows(w, 0, NULL, 0, NULL, 1), WEIR_E_INVALID,
                     "repeat weir_lookup");
        for (int c = 1; c < CHUNKS; c++)
            if (x.pending[c] >= 0)
                answer(&x, c);
    }
    assert_int_equal(weir_lookup(w, 0, many, 60, rows, 0), WEIR_OK);
    assert_int_equal(x.n_pulls, 3);
    for (int i = 0; i < 60 * DIM; i++)
        assert_true(rows[i] == value_of(many[i / DIM], 0));
    weir_close(w);
}

/* The caller may use the memory of its rows for something else after a timeout, and pass it to the
 * next lookup of the same keys. */
static void test_a_lookup_continues_in_other_memory(void **state)
{
    struct exchange x;
    struct weir_step s;
    struct weir *w = open_fake(&x, &s);
    uint64_t many[60];
    float rows[60 * DIM] = {0};
    fill_bucket(w, many, 60);
    x.stalls = true;
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(weir_lookup(w, 0, many, 60, rows, 0), WEIR_AGAIN);
        assert_int_equal(x.n_pulls, i);
        memset(rows, 0xff, sizeof rows);
        answer(&x, 1 + 2);
    }
    x.stalls = false;
    assert_int_equal(weir_lookup(w, 0, many, 60, rows, -1), WEIR_OK);
    assert_int_equal(x.n_pulls, 3);
    for (int i = 0; i < 60 * DIM; i++)
        assert_true(rows[i] == value_of(many[i / DIM], 0));
    weir_close(w);
}

/* After the end of a generation a step no longer counts, until weir_next begins the next one. */
static void test_a_generation_that_ends(void **state)
{
    struct exchange x;
    struct weir_step s;
    struct weir *w = open_fake(&x, &s);
    float rows[N * DIM], one = 1;
    assert_int_equal(weir_next_keys(w, 0, keys, N), WEIR_OK);
    x.ends = true;
    assert_int_equal(weir_lookup(w, 0, keys, N, rows, -1), WEIR_REBASED);
    assert_int_equal(weir_lookup(w, 0, keys, N, rows, -1), WEIR_REBASED);
    assert_int_equal(weir_push_rows(w, 0, keys, N, rows, 3), WEIR_OK);
    assert_int_equal(weir_push(w, 0, &one, 3), WEIR_OK);
    assert_int_equal(x.n_pushes, 0);
    x.ends = false;
    assert_int_equal(weir_next(w, -1, &s), WEIR_OK);
    assert_true(s.began);
    check_rows(w, 0);
    push_all(w);
    weir_close(w);
}

/* Between WEIR_DONE and weir_goodbye lookups return the last rows. */
static void test_lookups_after_the_last_step(void **state)
{
    struct exchange x;
    struct weir_step s;
    struct weir *w = open_fake(&x, &s);
    float rows[N * DIM];
    for (int i = 0; i < STEPS; i++) {
        push_all(w);
        assert_int_equal(weir_next(w, -1, &s), i == STEPS - 1 ? WEIR_DONE : WEIR_OK);
    }
    check_rows(w, STEPS);
    assert_error(w, weir_lookup(w, 1, keys, N, rows, 0), WEIR_E_INVALID, "there is no table 1");
    assert_int_equal(weir_push_rows(w, 0, keys, N, rows, 1), WEIR_E_INVALID);
    const uint64_t other = 1234;
    x.stalls = true;
    assert_int_equal(weir_lookup(w, 0, &other, 1, rows, 0), WEIR_AGAIN);
    x.stalls = false;
    assert_int_equal(weir_lookup(w, 0, &other, 1, rows, 0), WEIR_OK);
    assert_true(rows[0] == value_of(other, STEPS));
    x.ends = true;
    assert_error(w, weir_lookup(w, 0, keys, N, rows, 0), WEIR_E_UNAVAILABLE, "last checkpoint");
    assert_int_equal(weir_next(w, -1, &s), WEIR_DONE);
    assert_int_equal(weir_goodbye(w), WEIR_OK);
    assert_error(w, weir_lookup(w, 0, keys, N, rows, 0), WEIR_E_INVALID, "there is no step");
    weir_close(w);
}

/* Arguments of a thread that looks rows up until `ends`, before and after the step's push. */
struct reader {
    struct weir *w;
    _Atomic bool *ends;
};

static void *read_often(void *arg)
{
    const struct reader *r = arg;
    float rows[N * DIM];
    while (!*r->ends) {
        if (weir_lookup(r->w, 0, keys, N, rows, -1) != WEIR_OK)
            return "a lookup failed";
        for (int i = 0; i < N * DIM; i++)
            if (rows[i] != value_of(keys[i / DIM], 0) && rows[i] != value_of(keys[i / DIM], 1))
                return "a row has another version";
    }
    return NULL;
}

static void test_threads_use_a_table_at_the_same_time(void **state)
{
    enum { READERS = 3 };
    struct exchange x;
    struct weir_step s;
    struct weir *w = open_fake(&x, &s);
    _Atomic bool ends = false;
    struct reader reader = {w, &ends};
    pthread_t threads[READERS];
    float rows[N * DIM], gradients[N * DIM] = {0};
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_often, &reader), 0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(weir_lookup(w, 0, keys, N, rows, -1), WEIR_OK);
        assert_int_equal(weir_next_keys(w, 0, keys, N), WEIR_OK);
    }
    assert_int_equal(weir_push_rows(w, 0, keys, N, gradients, 3), WEIR_OK);
    for (int i = 0; i < 100; i++)
        assert_int_equal(weir_lookup(w, 0, keys, N, rows, -1), WEIR_OK);
    ends = true;
    for (int i = 0; i < READERS; i++) {
        void *problem;
        pthread_join(threads[i], &problem);
        assert_null(problem);
    }
    weir_close(w);
}

/* A thread that looks rows up once. */
struct late {
    struct weir *w;
    int code;
    float row[DIM];
};

static void *read_late(void *arg)
{
    struct late *late = arg;
    late->code = weir_lookup(late->w, 0, keys, 1, late->row, -1);
    return NULL;
}

/* Waits until n calls are within a step. */
static void await_calls(struct weir *w, int n)
{
    for (int now = -1; now != n; sched_yield()) {
        pthread_mutex_lock(&w->lock);
        now = w->n_within;
        pthread_mutex_unlock(&w->lock);
    }
}

/* A lookup that waits for the other calls of its table reads the rows of the step that it finds,
 * not of the step in which it was called. */
static void test_a_lookup_waits_while_steps_begin(void **state)
{
    struct exchange x;
    struct weir_step s;
    struct weir *w = open_fake(&x, &s);
    struct late late = {.w = w, .code = -1};
    pthread_t thread;
    push_all(w);
    pthread_mutex_lock(&w->tables[0]->lock);
    assert_int_equal(pthread_create(&thread, NULL, read_late, &late), 0);
    await_calls(w, 1);
    assert_int_equal(weir_next(w, -1, &s), WEIR_OK);
    pthread_mutex_unlock(&w->tables[0]->lock);
    push_all(w); /* usually acquires the table's lock before the thread */
    pthread_join(thread, NULL);
    assert_int_equal(late.code, WEIR_OK);
    assert_true(late.row[0] == value_of(keys[0], 1) || late.row[0] == value_of(keys[0], 2));
    weir_close(w);
}

int main(void)
{
    return RUN_TESTS(
        test_wrong_tables_are_refused, test_wrong_settings_are_refused,
        test_impossible_tables_are_refused, test_tables_need_a_server, test_keys_of_texts,
        test_lookups_pull_only_what_is_missing, test_next_keys_arrive_with_the_answer,
        test_lookups_after_a_push_read_the_next_version, test_pushes_sum_repeated_keys,
        test_wrong_calls_are_refused, test_a_bucket_has_a_share_of_the_keys,
        test_a_lookup_continues_after_its_timeout, test_a_lookup_continues_in_other_memory,
        test_a_generation_that_ends, test_lookups_after_the_last_step,
        test_threads_use_a_table_at_the_same_time, test_a_lookup_waits_while_steps_begin);
}
