/* tests/ps_waits_test.c - the workers and servers that training waits for, and its present pace. */
#include "ps/model_name.h"
#include "ps/service/pulse.h"
#include "ps/waits.h"
#include "tests/check.h"
#include <stdio.h>
#include <string.h>

static const int64_t s_ns = 1000000000;

/* A job that trains, with three workers and two servers. */
struct job {
    struct net_status s;
    struct net_status_member member[3];
    struct net_status_server server[2];
    int late[3];
};

static struct job *training(void)
{
    static struct job j;
    memset(&j, 0, sizeof j);
    for (int i = 0; i < 3; i++)
        j.member[i] = (struct net_status_member){
            .member = i, .rank = i, .state = MEMBER_TRAINING, .ms = 12700};
    for (int i = 0; i < 2; i++)
        j.server[i] = (struct net_status_server){
            .server = i, .state = SERVER_HERE, .address = "h:1", .n_chunks = 1, .heard_ms = 12700};
    j.s = (struct net_status){.generation = 1,
                              .state = STATE_TRAINING,
                              .step = 7,
                              .job = {.n_workers = 3},
                              .n_members = 3,
                              .n_servers = 2,
                              .members = j.member,
                              .servers = j.server};
    return &j;
}

static const char *named(struct job *j)
{
    static char text[STATUS_WAITING_BYTES];
    const struct ps_waits_config cfg = {.status = &j->s, .n_hosts = 3, .late = j->late};
    ps_waits_name(&cfg, text);
    return text;
}

/* Worker 0 waits for an evaluation to which worker 1 must contribute. Other workers, which
 * continue, then wait for worker 0. */
static void evaluation_is_named_before_a_step(void **state)
{
    static const int64_t evaluates[3] = {-1, 40, -1};
    char text[STATUS_WAITING_BYTES];
    struct job *j = training();
    j->late[0] = 4;
    const struct ps_waits_config cfg = {
        .status = &j->s, .n_hosts = 3, .late = j->late, .evaluates = evaluates};
    ps_waits_name(&cfg, text);
    assert_string_equal(text,
                        "worker 1 (connected; its part of the validation at step 40 is missing)");
}

static void stalled_region_names_its_parent(void **state)
{
    char text[STATUS_WAITING_BYTES];
    struct job *j = training();
    const struct ps_waits_config cfg = {
        .status = &j->s, .n_hosts = 3, .parent = "ps:0 of the parent group (a:1, no connection)"};
    ps_waits_name(&cfg, text);
    assert_string_equal(text, "ps:0 of the parent group (a:1, no connection)");
    j->server[1].state = SERVER_MISSING; /* messages to the parent need this server */
    ps_waits_name(&cfg, text);
    assert_string_equal(text, "ps:1 (h:1; no message for 12 s)");
}

static void computing_workers_are_not_named(void **state)
{
    struct job *j = training();
    j->member[1].awaited = 4; /* chunks that wait for more than 100 ms */
    assert_string_equal(named(j), "");
}

static void absent_workers_are_named_with_the_reason(void **state)
{
    struct job *j = training();
    j->member[1].state = MEMBER_EXPECTED;
    assert_string_equal(named(j), "worker 1 (never joined)");
    j->member[2].state = MEMBER_MISSING;
    assert_string_equal(named(j), "worker 1 (never joined), worker 2 (no connection for 12 s)");
    snprintf(j->member[1].refused, sizeof j->member[1].refused, "another job: --seed");
    j->member[1].refused_ms = 3200;
    j->member[2].state = MEMBER_DONE;
    assert_string_equal(named(j), "worker 1 (refused 3 s ago: another job: --seed)");
    j->s.state = STATE_DONE;
    assert_string_equal(named(j), "");
}

static void late_workers_are_named(void **state)
{
    struct job *j = training();
    j->late[2] = 1;
    assert_string_equal(named(j), "worker 2 (connected; its part of step 7 is missing)");
    j->s.step = -1;
    assert_string_equal(named(j), "worker 2 (connected; the first values are missing)");
}

/* In async no step waits for a worker. If there is a backup worker, no step waits for a single
 * absent worker. */
static void absent_workers_are_named_only_where_needed(void **state)
{
    struct job *j = training();
    j->s.job.sync_mode = JOB_ASYNC;
    j->member[0].state = MEMBER_MISSING;
    assert_string_equal(named(j), "");
    j->s.step = -1; /* worker 0 sends the first values */
    assert_string_equal(named(j), "worker 0 (no connection for 12 s)");
    j->s.step = 7;
    j->s.job.sync_mode = JOB_SYNC;
    j->s.job.aggregate = 2;
    assert_string_equal(named(j), "");
    j->member[0].awaited = 1; /* if worker 2 has ended, steps need both other workers */
    assert_string_equal(named(j), "worker 0 (no connection for 12 s)");
    j->member[0].awaited = 0;
    for (int i = 0; i < 3; i++)
        j->member[i].state = MEMBER_EXPECTED;
    assert_string_equal(named(j),
                        "worker 0 (never joined), worker 1 (never joined), worker 2 (never "
                        "joined)");
}

static void servers_are_named_first(void **state)
{
    struct job *j = training();
    j->member[1].state = MEMBER_MISSING;
    j->server[1].state = SERVER_MISSING;
    assert_string_equal(named(j), "ps:1 (h:1; no message for 12 s)");
    j->server[1].n_chunks = 0; /* training does not wait for it */
    assert_string_equal(named(j), "worker 1 (no connection for 12 s)");
}

static void first_worker_is_named_before_a_job(void **state)
{
    struct job *j = training();
    j->s.generation = 0;
    j->s.state = STATE_EMPTY;
    j->s.n_members = 0;
    assert_string_equal(named(j), "worker 0 (never joined)");
    snprintf(j->s.change, sizeof j->s.change, "ps:1 (h:1) has not connected to ps:0 yet");
    assert_string_equal(named(j), "the servers: ps:1 (h:1) has not connected to ps:0 yet");
}

/* All workers have left, so the servers have stopped. */
static void job_below_min_workers_waits_for_workers(void **state)
{
    char text[STATUS_WAITING_BYTES], label[STATUS_WAITING_BYTES];
    struct job *j = training();
    (void)state;
    j->s.state = STATE_STOPPED;
    snprintf(j->s.change, sizeof j->s.change, "training waits at step 7: 0 workers are present");
    const struct ps_waits_config cfg = {.status = &j->s, .lacks_workers = true, .n_hosts = 3};
    ps_waits_name(&cfg, text);
    assert_string_equal(text, "workers: training waits at step 7: 0 workers are present");
    net_status_waiting_label(text, label);
    assert_string_equal(label, "workers");
}

static void long_lists_are_cut_between_reasons(void **state)
{
    struct job *j = training();
    struct net_status_member many[200];
    for (int i = 0; i < 200; i++) {
        many[i] = (struct net_status_member){.member = i, .rank = i, .state = MEMBER_EXPECTED};
        memset(many[i].refused, 'x', sizeof many[i].refused - 1);
    }
    j->s.members = many;
    j->s.n_members = 200;
    const char *text = named(j); /* three workers, each with its complete reason */
    for (int i = 0; i < 3; i++) {
        text = strstr(text, many[i].refused);
        assert_non_null(text);
        assert_int_equal(text[strlen(many[i].refused)], ')');
        text += strlen(many[i].refused);
    }
    assert_string_equal(text, "), and 197 more");
    for (int i = 0; i < 200; i++)
        many[i].refused[0] = 0;
    assert_string_equal(named(j),
                        "worker 0 (never joined), worker 1 (never joined), worker 2 (never "
                        "joined), and 197 more");
}

static void sentence_has_the_time(void **state)
{
    char text[STATUS_SENTENCE_BYTES];
    struct job *j = training();
    net_status_waiting_text("worker 1 (never joined)", 12900, text);
    assert_string_equal(text, "waiting for worker 1 (never joined), 12 s so far");
    assert_string_equal(net_status_state(&j->s), "training");
    snprintf(j->s.waiting, sizeof j->s.waiting, "worker 1 (never joined)");
    assert_string_equal(net_status_state(&j->s), "waiting");
    j->s.state = STATE_STOPPED;
    assert_string_equal(net_status_state(&j->s), "stopped");
}

/* A label whose numbers change with time would make a new series at each scrape. */
static void label_has_no_running_figures(void **state)
{
    static const char *const labels[][2] = {
        {"worker 1 (never joined), worker 2 (left)", "worker 1 (never joined), worker 2 (left)"},
        {"worker 1 (no connection for 12 s)", "worker 1"},
        {"worker 1 (connected; its part of step 7 is missing), worker 3 (left), and 2 more",
         "worker 1, worker 3 (left), and 2 more"},
        {"worker 1 (refused 3 s ago: another job (--seed))", "worker 1"},
        {"worker 1 (refused 3 s ago: cut (of", "worker 1"},
        {"ps:1 (h:1; no message for 12 s)", "ps:1"},
        {"the servers: ps:1 (h:1) has not called ps:0 since 3 s", "the servers"},
        {"an answer of ps:0 (h:1)", "an answer of ps:0"},
        {"the first worker", "the first worker"},
        {"", ""},
    };
    char label[STATUS_WAITING_BYTES];
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        net_status_waiting_label(labels[i][0], label);
        assert_string_equal(label, labels[i][1]);
    }
}

/* 20 steps a second are made, then none. The speed is that of the last 10 s, so it becomes 0. */
static void speed_is_0_when_training_stalls(void **state)
{
    struct pulse p = {.n = 0};
    int64_t now = s_ns;
    assert_true(pulse_rate(&p, now) == 0 && pulse_stood_ms(&p, now) == 0);
    for (int i = 0; i <= 600; i++, now += s_ns / 20)
        pulse_note(&p, 1, i < 300 ? i / 2 : i - 150, now);
    assert_float_equal(pulse_rate(&p, now), 20, 0.1);
    assert_false(pulse_stands(&p, now));
    for (int i = 0; i < 4; i++, now += s_ns)
        pulse_note(&p, 1, 450, now);
    assert_true(pulse_stands(&p, now));
    assert_true(pulse_rate(&p, now) == 0);
    assert_int_equal(pulse_stood_ms(&p, now), 4050);
}

/* A job of slow steps has not stalled while a step lasts no longer than the steps before it. */
static void slow_steps_are_not_a_stall(void **state)
{
    struct pulse p = {.n = 0};
    int64_t now = s_ns;
    for (int i = 0; i < 120; i++, now += s_ns / 2)
        pulse_note(&p, 1, i / 20, now); /* 10 s per step */
    assert_false(pulse_stands(&p, now));
    assert_float_equal(pulse_rate(&p, now), 0.1, 1e-9);
    now += 11 * s_ns;
    assert_false(pulse_stands(&p, now));
    now += 10 * s_ns;
    assert_true(pulse_stands(&p, now));
}

/* Generations that begin at an earlier step make no progress. */
static void generations_without_a_step_are_a_stall(void **state)
{
    struct pulse p = {.n = 0};
    int64_t now = s_ns;
    pulse_note(&p, 1, 10, now);
    for (uint64_t i = 2; i < 12; i++, now += s_ns)
        pulse_note(&p, i, i % 2 ? -1 : 9, now);
    assert_int_equal(pulse_stood_ms(&p, now), 10000);
    assert_true(pulse_stands(&p, now));
    pulse_note(&p, 12, 11, now);
    assert_int_equal(pulse_stood_ms(&p, now), 0);
}

/* After a rollback, or in the next job of a server with --serve, lower steps count as progress. */
static void steps_below_the_highest_one_count(void **state)
{
    struct pulse p = {.n = 0};
    int64_t now = s_ns;
    for (int i = 0; i < 10; i++, now += s_ns)
        pulse_note(&p, 1, 100 + i, now);
    now += 20 * s_ns;
    pulse_note(&p, 2, 50, now); /* no step was made yet */
    assert_int_equal(pulse_stood_ms(&p, now), 21000);
    for (int i = 1; i < 10; i++)
        pulse_note(&p, 2, 50 + i, now += s_ns);
    assert_int_equal(pulse_stood_ms(&p, now), 0);
    assert_false(pulse_stands(&p, now));
    assert_float_equal(pulse_rate(&p, now), 1, 0.01);
}

static void model_has_a_name(void **state)
{
    char name[STATUS_MODEL_BYTES];
    ps_model_name("{\"name\": \"mlp\", \"layers\": []}", name);
    assert_string_equal(name, "mlp");
    ps_model_name("{\"name\": 5}", name);
    assert_string_equal(name, "");
    ps_model_name("{", name);
    assert_string_equal(name, "");
}

int main(void)
{
    return RUN_TESTS(stalled_region_names_its_parent, evaluation_is_named_before_a_step,
                     computing_workers_are_not_named, absent_workers_are_named_with_the_reason,
                     late_workers_are_named, absent_workers_are_named_only_where_needed,
                     servers_are_named_first, first_worker_is_named_before_a_job,
                     job_below_min_workers_waits_for_workers, long_lists_are_cut_between_reasons,
                     sentence_has_the_time, label_has_no_running_figures,
                     speed_is_0_when_training_stalls, slow_steps_are_not_a_stall,
                     generations_without_a_step_are_a_stall, steps_below_the_highest_one_count,
                     model_has_a_name);
}
