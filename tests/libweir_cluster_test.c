/* tests/libweir_cluster_test.c - libweir's cluster from settings, TF_CONFIG and a Slurm step, with
 * a small server in the same process. */
#include "tests/libweir_rig.h"
#include <stdio.h>
#include <stdlib.h>

static void set_port(const char *variable, const char *format, int port)
{
    char text[400];
    snprintf(text, sizeof text, format, port);
    setenv(variable, text, 1);
}

/* Begins the first step, and checks that the server has received this member number. */
static void assert_member(struct librig *r, int member)
{
    struct weir_step s;
    int code = weir_next(r->w, -1, &s);
    if (code != WEIR_OK)
        fail_msg("%d: %s", code, weir_error(r->w));
    assert_int_equal(tiny_get(&r->tiny, &r->tiny.last_member), member);
}

static void test_tf_config(void **state)
{
    static const char *const own[][2] = {{"ps_hosts", "127.0.0.1:1"}, {NULL, NULL}};
    static const struct {
        const char *format, *word;
    } wrong[] = {
        {"{\"cluster\": {\"ps\": [\"127.0.0.1:%d\"]}", "TF_CONFIG"},
        {"{\"cluster\": {\"worker\": [\"a:%d\", \"b:1\"]}, "
         "\"task\": {\"type\": \"worker\", \"index\": 1}}",
         "2 workers need at least one server"},
        {"{\"cluster\": {\"ps\": [\"127.0.0.1:%d\"], \"worker\": [\"a:1\"]}, "
         "\"task\": {\"type\": \"ps\", \"index\": 0}}",
         "ps"},
    };
    struct librig r;
    struct weir_step s;
    librig_open_anywhere(&r, NULL);
    set_port("TF_CONFIG",
             "{\"cluster\": {\"ps\": [\"127.0.0.1:%d\"], \"chief\": [\"a:1\"], "
             "\"worker\": [\"b:1\", \"c:1\"]}, \"task\": {\"type\": \"worker\", \"index\": 1}}",
             r.tiny.port);
    assert_member(&r, 2); /* the chief is worker 0 */
    librig_close(&r);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        librig_open_anywhere(&r, NULL);
        set_port("TF_CONFIG", wrong[i].format, r.tiny.port);
        assert_error(r.w, weir_next(r.w, -1, &s), WEIR_E_INVALID, wrong[i].word);
        librig_close(&r);
    }
    librig_open_anywhere(&r, own); /* settings have priority */
    assert_error(r.w, weir_next(r.w, -1, &s), WEIR_E_INVALID, "set n_workers");
    librig_close(&r);
    unsetenv("TF_CONFIG");
}

static void test_slurm(void **state)
{
    static const char *const variables[][2] = {
        {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "127.0.0.1"},
        {"SLURM_NTASKS", "3"},  {"SLURM_STEP_NUM_TASKS", "3"},
        {"SLURM_PROCID", "2"},  {"SLURM_NODEID", "0"},
        {"SLURM_LOCALID", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "3"},
        {"SLURM_JOB_ID", "7"},  {"SLURM_DISTRIBUTION", "block"},
    };
    static const char *const settings[][2] = {{"slurm_ps", "1"}, {NULL, NULL}};
    struct librig r;
    struct weir_step s;
    librig_open_anywhere(&r, settings); /* outside of a Slurm step */
    assert_error(r.w, weir_next(r.w, -1, &s), WEIR_E_INVALID, "SLURM_STEP_ID");
    librig_close(&r);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        setenv(variables[i][0], variables[i][1], 1);
    for (int own = 2; own >= 0; own -= 2) { /* first as the second worker, then as the server */
        char port[16];
        set_port("SLURM_PROCID", "%d", own);
        set_port("SLURM_LOCALID", "%d", own);
        librig_open_anywhere(&r, settings);
        snprintf(port, sizeof port, "%d", r.tiny.port);
        assert_int_equal(weir_set(r.w, "slurm_port", port), WEIR_OK);
        if (own > 0)
            assert_member(&r, 1);
        else
            assert_error(r.w, weir_next(r.w, -1, &s), WEIR_E_INVALID, "ps");
        librig_close(&r);
    }
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i][0]);
}

/* Several members without a server are refused. */
static void test_no_servers(void **state)
{
    static const char *const settings[][3][2] = {
        {{"n_workers", "2"}, {"task_index", "1"}, {NULL, NULL}},
        {{"worker_hosts", "a:1,b:1"}, {"task_index", "1"}, {NULL, NULL}}};
    for (size_t i = 0; i < 2; i++) {
        struct librig r;
        struct weir_step s;
        librig_open_anywhere(&r, settings[i]);
        assert_error(r.w, weir_next(r.w, -1, &s), WEIR_E_INVALID,
                     "2 workers need at least one server");
        librig_close(&r);
    }
}

int main(void)
{
    return RUN_TESTS(test_tf_config, test_slurm, test_no_servers);
}
