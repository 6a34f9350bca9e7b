/* tests/member_table_settings_test.c - the settings of a table that are left out, and those that
 * are unknown or do not fit together. */
#include "member/table_settings.h"
#include "tests/capture.h"
#include "tests/check.h"
#include <string.h>

static struct net_table make(struct table_settings *s, const struct net_job *job,
                             const struct net_table *running)
{
    struct net_table t = {.name = "ads", .dim = 16, .max_rows = 100};
    assert_int_equal(table_settings_make(s, job, running, &t), ST_OK);
    table_settings_free(s);
    table_settings_init(s);
    return t;
}

/* A table without an optimizer of its own has that of the job; its other settings, and those of a
 * running job that a member joins, stay unless they are set. */
static void test_settings_that_are_left_out(void **state)
{
    struct table_settings s;
    struct net_job job = {0};
    table_settings_init(&s);
    optim_defaults(OPTIM_ADAGRAD, &job.optim);
    job.optim.learning_rate = 0.5f;
    job.optim.total_steps = 77;
    struct net_table t = make(&s, &job, NULL);
    assert_int_equal(t.optimizer.kind, OPTIM_ROWS_ADAGRAD);
    assert_true(t.optimizer.common.learning_rate == 0.5f);
    assert_int_equal(t.n_buckets, 64);
    assert_int_equal(t.step_rows, 65536);
    assert_int_equal(t.admit_after, 1);
    assert_int_equal(t.evict_after, 0);
    assert_int_equal(t.when_full, ROW_FULL_STOP);
    assert_int_equal(t.row_dtype, DTYPE_F32);
    assert_int_equal(t.init, ROW_INIT_NORMAL);
    assert_true(t.init_scale == 0.25f);

    assert_int_equal(table_settings_set(&s, "optimizer", "ftrl"), ST_OK);
    t = make(&s, &job, NULL);
    assert_int_equal(t.optimizer.kind, OPTIM_ROWS_FTRL);
    assert_true(t.optimizer.common.learning_rate == 0.01f);
    assert_int_equal(t.optimizer.common.total_steps, 77);
    assert_int_equal(t.init, ROW_INIT_ZEROS);

    const struct net_table running = {.dim = 3,
                                      .n_buckets = 8,
                                      .max_rows = 5,
                                      .step_rows = 9,
                                      .optimizer = t.optimizer,
                                      .init = ROW_INIT_UNIFORM,
                                      .init_scale = 3,
                                      .admit_after = 2,
                                      .evict_after = 4,
                                      .when_full = ROW_FULL_EVICT,
                                      .row_dtype = DTYPE_BF16};
    assert_int_equal(table_settings_set(&s, "evict_after", "6"), ST_OK);
    t = make(&s, &job, &running);
    assert_int_equal(t.dim, 16);
    assert_int_equal(t.max_rows, 100);
    assert_int_equal(t.n_buckets, 8);
    assert_int_equal(t.optimizer.kind, OPTIM_ROWS_FTRL);
    assert_true(t.init == ROW_INIT_UNIFORM && t.init_scale == 3);
    assert_int_equal(t.admit_after, 2);
    assert_int_equal(t.evict_after, 6);
    assert_int_equal(t.when_full, ROW_FULL_EVICT);
    assert_int_equal(t.row_dtype, DTYPE_BF16);
    assert_int_equal(table_settings_set(&s, "row_dtype", "fp32"), ST_OK);
    t = make(&s, &job, &running);
    assert_int_equal(t.row_dtype, DTYPE_F32);
}

/* Sets the settings of a table, and completes it for a job with adam. */
static enum status read_table(const char *const (*settings)[2])
{
    struct table_settings s;
    struct net_job job = {0};
    struct net_table t = {.name = "ads", .dim = 16, .max_rows = 100};
    enum status st = ST_OK;
    optim_defaults(OPTIM_ADAM, &job.optim);
    table_settings_init(&s);
    for (; (*settings)[0] && st == ST_OK; settings++)
        st = table_settings_set(&s, (*settings)[0], (*settings)[1]);
    if (st == ST_OK)
        st = table_settings_make(&s, &job, NULL, &t);
    table_settings_free(&s);
    return st;
}

static void test_settings_that_do_not_fit(void **state)
{
    static const struct {
        const char *settings[3][2];
        enum status st;
        const char *word;
    } wrong[] = {
        {{{"bucket", "4"}}, ST_NOT_FOUND, "no setting 'bucket'; did you mean 'buckets'?"},
        {{{"weight_decay", "0.1"}}, ST_NOT_FOUND, "there is no setting 'weight_decay'"},
        {{{"buckets", "0"}}, ST_INVALID, "below 1"},
        {{{"buckets", "2048"}}, ST_INVALID, "above 1024"},
        {{{"step_rows", "many"}}, ST_INVALID, "step_rows: 'many' is not a whole number"},
        {{{"learning_rate", "-1"}}, ST_INVALID, "below 0"},
        {{{"optimizer", "nesterov"}}, ST_INVALID, "not one of sgd|momentum|adagrad|rowwise_adag"},
        {{{"init", "ones"}}, ST_INVALID, "not one of zeros|uniform|normal"},
        {{{"admit_after", "0"}}, ST_INVALID, "below 1"},
        {{{"when_full", "grow"}}, ST_INVALID, "not one of stop|evict"},
        {{{"row_dtype", "fp16"}}, ST_INVALID, "not one of fp32|bf16"},
        {{{"momentum", "0.5"}}, ST_INVALID, "'ads': momentum: optimizer=adam has no such setting"},
        {{{"optimizer", "sgd"}, {"beta1", "0.5"}}, ST_INVALID, "it is for adam"},
        {{{"optimizer", "adam"}, {"l1", "0.5"}}, ST_INVALID, "it is for ftrl"},
        {{{"lr_boundaries", "5"}}, ST_INVALID, "'ads': lr_boundaries has no effect"},
        {{{"lr_decay", "0.5"}}, ST_INVALID, "'ads': lr_decay has no effect"},
        {{{"lr_decay_steps", "5"}}, ST_INVALID, "'ads': lr_decay_steps has no effect"},
        {{{"lr_schedule", "step"}}, ST_INVALID, "'ads': lr_schedule=step needs lr_boundaries"},
        {{{"lr_schedule", "step"}, {"lr_boundaries", "5,4"}},
         ST_INVALID,
         "'ads': lr_boundaries: '5,4' is not a list of rising"},
        {{{"lr_schedule", "exponential"}}, ST_INVALID, "needs lr_decay_steps=N"},
        {{{"init", "zeros"}, {"init_scale", "1"}}, ST_INVALID, "init_scale has no effect"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(CAPTURE(read_table(wrong[i].settings)), wrong[i].st);
        assert_non_null(strstr(capture_text, wrong[i].word));
    }
}

static void test_schedule_of_a_table(void **state)
{
    struct table_settings s;
    struct net_job job = {0};
    optim_defaults(OPTIM_SGD, &job.optim);
    job.optim.warmup_steps = 9;
    table_settings_init(&s);
    assert_int_equal(table_settings_set(&s, "lr_schedule", "step"), ST_OK);
    assert_int_equal(table_settings_set(&s, "lr_boundaries", "3,4"), ST_OK);
    assert_int_equal(table_settings_set(&s, "lr_boundaries", "5,7"), ST_OK); /* the last counts */
    assert_int_equal(table_settings_set(&s, "lr_decay", "0.5"), ST_OK);
    const struct net_table t = make(&s, &job, NULL);
    const struct optim_config *o = &t.optimizer.common;
    assert_int_equal(o->schedule, SCHEDULE_STEP);
    assert_int_equal(o->n_boundaries, 2);
    assert_true(o->boundary[0] == 5 && o->boundary[1] == 7);
    assert_true(o->lr_decay == 0.5f);
    assert_int_equal(o->warmup_steps, 9);
}

static struct chunks *make_chunks(void)
{
    const struct net_param param = {.name = "w", .shape = {1, {3}}};
    struct chunks *c;
    assert_int_equal(chunks_create(&param, 1, CHUNKS_MIN_BYTES, &c), ST_OK);
    return c;
}

/* Tables of a member that joins have the settings of the running job's tables of their names. */
static void test_tables_of_a_job(void **state)
{
    struct table_settings own, none;
    struct net_job job = {0};
    struct chunks *running = make_chunks(), *joins = make_chunks(), *refused = make_chunks();
    optim_defaults(OPTIM_SGD, &job.optim);
    table_settings_init(&own);
    table_settings_init(&none);
    assert_int_equal(table_settings_set(&own, "buckets", "8"), ST_OK);
    const struct table_wish first[] = {{"ads", 16, 100, &own}},
                            both[] = {{"users", 4, 50, &none}, {"ads", 16, 100, &none}};
    assert_int_equal(table_settings_add(first, 1, &job, NULL, running), ST_OK);
    assert_int_equal(table_settings_add(both, 2, &job, running, joins), ST_OK);
    assert_int_equal(joins->n_tables, 2);
    assert_string_equal(joins->tables[0].name, "users");
    assert_int_equal(joins->tables[0].n_buckets, 64);
    assert_int_equal(joins->tables[1].n_buckets, 8);
    assert_int_equal(joins->tables[1].first_chunk, 1 + 64);
    job.local_steps = 2;
    assert_int_equal(CAPTURE(table_settings_add(both, 2, &job, NULL, refused)), ST_UNSUPPORTED);
    assert_non_null(strstr(capture_text, "tables cannot be combined with local_steps"));
    chunks_destroy(running);
    chunks_destroy(joins);
    chunks_destroy(refused);
}

static void test_default_step_rows_fit_the_rows(void **state)
{
    static const struct {
        int dim, buckets;
        int64_t step_rows; /* the default; twice as many do not fit */
    } cases[] = {{16, 64, 65536}, {512, 64, 65536}, {1024, 64, 32768}, {1024, 1, 512}};
    struct net_job job = {0};
    optim_defaults(OPTIM_ADAM, &job.optim);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct net_table t = {.name = "ads", .dim = cases[i].dim, .max_rows = 100};
        struct table_settings s;
        char buckets[8];
        table_settings_init(&s);
        snprintf(buckets, sizeof buckets, "%d", cases[i].buckets);
        assert_int_equal(table_settings_set(&s, "buckets", buckets), ST_OK);
        assert_int_equal(table_settings_make(&s, &job, NULL, &t), ST_OK);
        assert_int_equal(t.step_rows, cases[i].step_rows);
        assert_true(tables_step_fits(&t));
        table_settings_free(&s);
    }
}

int main(void)
{
    return RUN_TESTS(test_settings_that_are_left_out, test_settings_that_do_not_fit,
                     test_schedule_of_a_table, test_tables_of_a_job,
                     test_default_step_rows_fit_the_rows);
}
