/* tests/libweir_test.c - tests libweir by its public header: the errors for invalid settings,
 * parameters and calls. */
#include "tests/libweir_open.h"
#include <math.h>

static void test_settings(void **state)
{
    static const struct {
        const char *name, *value, *word;
    } wrong[] = {
        {"rate", "1", "no setting 'rate'"},
        {"learning_rate", "fast", "'fast' is not a number"},
        {"learning_rate", "nan", "not a number"},
        {"learning_rate", "-2", "below -1"},
        {"train_steps", "0", "below 1"},
        {"train_steps", "1.5", "not a whole number"},
        {"train_steps", "99999999999999999999", "64 bits"},
        {"task_index", "-1", "below 0"},
        {"optimizer", "best", "not one of sgd|momentum"},
        {"join", "maybe", "neither true nor false"},
        {"batch_size", "", "not a whole number"},
        {"data_checksum", "4294967296", "above"},
        {"checkpoint_dir", "gs://bucket/run", "only paths of this machine"},
        {"tls_key", "~nobody/key.pem", "only ~/ at the beginning is replaced"},
        {NULL, "1", "needs a name and a value"},
        {"seed", NULL, "needs a name and a value"},
    };
    struct weir *w;
    assert_int_equal(weir_open(&w), WEIR_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_error(w, weir_set(w, wrong[i].name, wrong[i].value), WEIR_E_INVALID, wrong[i].word);
    for (int i = 0; i < 2; i++) /* set twice: the last value counts */
        assert_int_equal(weir_set(w, "ps_hosts", i ? "b:2" : "a:1"), WEIR_OK);
    weir_close(w);
    weir_close(NULL);
    assert_string_equal(weir_code_text(WEIR_OK), "ok");
    assert_string_not_equal(weir_code_text(WEIR_E_IO), weir_code_text(-100));
    for (int code = WEIR_E_INTERNAL; code <= WEIR_REBASED; code++)
        assert_string_not_equal(weir_code_text(code), weir_code_text(99));
}

/* Invalid jobs. */
static const struct {
    const char *settings[6][2];
    int code;
    const char *word;
} impossible[] = {
    {{{"ps_hosts", "localhost:1"}}, WEIR_E_INVALID, "set n_workers"},
    {{{"ps_hosts", "localhost:1"}, {"n_workers", "2"}}, WEIR_E_INVALID, "task_index"},
    {{{"ps_hosts", "localhost:1"}, {"n_workers", "2"}, {"task_index", "2"}},
     WEIR_E_INVALID,
     "task_index: 2 is out of range; 2 workers have 0 to 1"},
    {{{"ps_hosts", "localhost:1"}, {"n_workers", "3"}, {"worker_hosts", "a:1,b:1"}},
     WEIR_E_INVALID,
     "worker_hosts"},
    {{{"ps_hosts", "localhost"}}, WEIR_E_INVALID, "no port"},
    {{{"join", "true"}}, WEIR_E_INVALID, "ps_hosts"},
    {{{"wire_dtype", "fp8"}}, WEIR_E_INVALID, "wire_dtype"},
    {{{"lr_boundaries", "5,4"}, {"lr_schedule", "step"}}, WEIR_E_INVALID, "lr_boundaries"},
    {{{"lr_boundaries", "5,x"}, {"lr_schedule", "step"}}, WEIR_E_INVALID, "rising step numbers"},
    {{{"lr_boundaries", "5"}},
     WEIR_E_INVALID,
     "lr_boundaries: lr_schedule=constant has no such setting"},
    {{{"lr_schedule", "step"}}, WEIR_E_INVALID, "lr_schedule=step needs lr_boundaries"},
    {{{"lr_schedule", "exponential"}}, WEIR_E_INVALID, "needs lr_decay_steps=N"},
    {{{"momentum", "0.5"}}, WEIR_E_INVALID, "momentum: optimizer=adam has no such setting"},
    {{{"learning_rate", "-0.5"}}, WEIR_E_INVALID, "learning_rate: -0.5 is below 0"},
    {{{"lr_decay", "-0.5"}}, WEIR_E_INVALID, "lr_decay: -0.5 is below 0"},
    {{{"n_workers", "2"}},
     WEIR_E_INVALID,
     "ps_hosts: 2 workers need at least one server to train together, and none is named"},
    {{{"outer_learning_rate", "1"}}, WEIR_E_INVALID, "are for local_steps"},
    {{{"outer_optimizer", "sgd"}, {"outer_momentum", "0.5"}, {"local_steps", "2"}},
     WEIR_E_INVALID,
     "outer_optimizer=sgd has no momentum"},
    {{{"staleness", "3"}}, WEIR_E_INVALID, "staleness"},
    {{{"sync_mode", "ssp"}}, WEIR_E_INVALID, "staleness"},
    {{{"clip_norm", "1"}}, WEIR_E_UNSUPPORTED, "clip_norm"},
    {{{"clip_norm", "1"}, {"clip_value", "1"}}, WEIR_E_INVALID, "clip_value"},
    {{{"own_local_steps", "true"}}, WEIR_E_INVALID, "local_steps"},
    {{{"ps_hosts", "localhost:1"},
      {"n_workers", "1"},
      {"local_steps", "4"},
      {"outer_optimizer", "sgd"},
      {"sync_mode", "async"}},
     WEIR_E_UNSUPPORTED,
     "without backup workers"},
    {{{"ps_hosts", "localhost:1"},
      {"n_workers", "1"},
      {"local_steps", "4"},
      {"optimizer", "adam"},
      {"sync_mode", "async"}},
     WEIR_E_UNSUPPORTED,
     "without backup workers"},
    {{{"chunk_bytes", "17"}}, WEIR_E_INVALID, "chunk"},
    {{{"replicas_to_aggregate", "2"}}, WEIR_E_INVALID, "aggregate"},
    {{{"batch_size", "1048576"}, {"local_steps", "65536"}}, WEIR_E_INVALID, "batch_size"},
    {{{"ps_hosts", "localhost:1"}, {"n_workers", "1"}, {"tls_cert", "/nowhere"}},
     WEIR_E_INVALID,
     "tls"},
    {{{"ps_hosts", "localhost:1"}, {"n_workers", "1"}, {"token_file", "/nowhere"}},
     WEIR_E_INVALID,
     "token_file"},
};

/* For an invalid job weir_next reports the error, and the handle is unusable. */
static void test_impossible_jobs(void **state)
{
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
        struct weir *w = open_with(impossible[i].settings);
        struct weir_step s;
        int64_t dim = 4;
        assert_int_equal(weir_param(w, "a", WEIR_FLOAT32, 1, &dim, NULL), 0);
        assert_error(w, weir_next(w, -1, &s), impossible[i].code, impossible[i].word);
        assert_error(w, weir_next(w, -1, &s), impossible[i].code, impossible[i].word);
        assert_int_equal(weir_push(w, 0, NULL, 0), impossible[i].code);
        assert_int_equal(weir_leave_soon(w, 0), impossible[i].code);
        weir_close(w);
    }
}

static void test_params(void **state)
{
    const float one[1] = {1};
    const int64_t good[2] = {2, 3}, empty[2] = {2, 0}, huge[2] = {1 << 30, 1 << 30};
    struct weir_step s;
    struct weir *w;
    assert_int_equal(weir_open(&w), WEIR_OK);
    assert_error(w, weir_next(w, 0, &s), WEIR_E_INVALID, "no parameters");
    assert_error(w, weir_param(w, NULL, 0, 2, good, NULL), WEIR_E_INVALID, "no name");
    assert_error(w, weir_param(w, "a", 7, 2, good, NULL), WEIR_E_UNSUPPORTED, "dtype 7");
    assert_error(w, weir_param(w, "a", 0, -1, good, NULL), WEIR_E_INVALID, "dimensions");
    assert_error(w, weir_param(w, "a", 0, 7, good, NULL), WEIR_E_INVALID, "0 to 6");
    assert_error(w, weir_param(w, "a", 0, 2, NULL, NULL), WEIR_E_INVALID, "dimensions");
    assert_error(w, weir_param(w, "a", 0, 2, empty, NULL), WEIR_E_INVALID, "below 1");
    assert_error(w, weir_param(w, "a", 0, 2, huge, NULL), WEIR_E_INVALID, "too many");
    assert_int_equal(weir_param(w, "scalar", 0, 0, NULL, one), 0);
    assert_int_equal(weir_param(w, "a", 0, 2, good, NULL), 1);
    assert_error(w, weir_param_average(w, 2, 0.5), WEIR_E_INVALID, "no parameter 2");
    assert_error(w, weir_param_average(w, 0, 1.5), WEIR_E_INVALID, "keep");
    assert_error(w, weir_param_average(w, 0, NAN), WEIR_E_INVALID, "keep");
    assert_null(weir_values(w, 0));
    assert_null(weir_gradient(w, -1));
    assert_error(w, weir_push(w, 0, one, 1), WEIR_E_INVALID, "there is no step");
    assert_error(w, weir_wait(w, 0, 0), WEIR_E_INVALID, "there is no step");
    assert_error(w, weir_pull(w, 0), WEIR_E_INVALID, "there is no step");
    assert_error(w, weir_leave_soon(w, 0), WEIR_E_INVALID, "nothing to leave");
    assert_error(w, weir_leave_failed(w, "so"), WEIR_E_INVALID, "joined no servers");
    assert_error(w, weir_leave_failed(w, ""), WEIR_E_INVALID, "a line");
    assert_error(w, weir_next(w, -1, NULL), WEIR_E_INVALID, "the pointer to the");
    assert_error(w, weir_next_event(w, NULL), WEIR_E_INVALID, "the pointer to the");
    assert_int_equal(weir_sample(w, 0, 0), -1);
    assert_int_equal(weir_sample(w, 10, -1), -1);
    assert_int_equal(weir_param(w, "a", 0, 2, good, NULL), 2); /* refused by weir_next, not here */
    assert_error(w, weir_next(w, -1, &s), WEIR_E_INVALID, "'a'");
    assert_error(w, weir_param(w, "b", 0, 2, good, NULL), WEIR_E_INVALID, "before the first");
    assert_error(w, weir_set(w, "seed", "1"), WEIR_E_INVALID, "before the first");
    assert_error(w, weir_fd(w), WEIR_E_INVALID, "before the first");
    weir_close(w);
}

int main(void)
{
    return RUN_TESTS(test_settings, test_impossible_jobs, test_params);
}
