/* tests/member_waiting_test.c - the log lines of a wait, and the end of its display. */
#include "base/clock.h"
#include "member/waiting.h"
#include "net/exchange/status_client.h"
#include "tests/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void lines_of_one_wait_become_rare(void **state)
{
    static const int64_t seconds[] = {3, 30, 60, 120, 240, 480};
    struct waiting_lines l = {.line_ms = 0};
    size_t n = 0;
    for (int64_t s = 3; s < 600; s++)
        if (waiting_line_is_due(&l,
                                s % 2 ? "worker 1 (no connection for 9 s)"
                                      : "worker 1 (no connection for 10 s)",
                                s * 1000)) {
            assert_true(n < sizeof seconds / sizeof *seconds);
            assert_int_equal(s, seconds[n++]);
        }
    assert_int_equal(n, sizeof seconds / sizeof *seconds);
}

static void another_reason_gets_a_line_soon(void **state)
{
    struct waiting_lines l = {.line_ms = 0};
    assert_true(waiting_line_is_due(&l, "worker 1 (never joined)", 3000));
    assert_false(waiting_line_is_due(&l, "worker 1 (never joined)", 3500));
    assert_false(waiting_line_is_due(&l, "worker 1 (refused 0 s ago: another job)", 4000));
    assert_true(waiting_line_is_due(&l, "worker 1 (refused 2 s ago: another job)", 6000));
    assert_false(waiting_line_is_due(&l, "worker 1 (refused 12 s ago: another job)", 16000));
    assert_true(waiting_line_is_due(&l, "worker 1 (never joined)", 17000));
    assert_true(waiting_line_is_due(&l, "worker 1 (never joined)", 30000));
}

/* Two reasons alternate twice a second for 10 minutes: together they get fewer and fewer lines. */
static void reasons_that_alternate_get_few_lines(void **state)
{
    struct waiting_lines l = {.line_ms = 0};
    int n = 0;
    for (int64_t ms = 3000; ms < 600000; ms += 500)
        n += waiting_line_is_due(
            &l, ms % 1000 ? "worker 1 (never joined)" : "ps:0 (a:1, no answer)", ms);
    assert_in_range(n, 6, 24);
}

enum { GENEROUS_MS = 60000 };

/* The member's wait, and its display. */
static struct {
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t moved;
    struct net_exchange_wait wait;
    char shown[STATUS_WAITING_BYTES];
    int64_t shown_ms;
    int n_looks; /* number of calls of waits() */
} now = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *ps0_waits = ""; /* the workers that ps 0 waits for */

static const char *silent = ""; /* address of a server that does not answer */

enum status __wrap_status_asker_create(const char *addr, struct status_asker **out);
enum status __wrap_status_asker_create(const char *addr, struct status_asker **out)
{
    *out = (struct status_asker *)strdup(addr);
    return ST_OK;
}

void __wrap_status_asker_destroy(struct status_asker *a);
void __wrap_status_asker_destroy(struct status_asker *a)
{
    free(a);
}

enum status __wrap_status_asker_ask(struct status_asker *a, int64_t deadline_ms,
                                    struct net_status *out, char *why);
enum status __wrap_status_asker_ask(struct status_asker *a, int64_t deadline_ms,
                                    struct net_status *out, char *why)
{
    if (strcmp((const char *)a, silent) == 0) {
        snprintf(why, CONTROL_TEXT_BYTES, "no answer");
        return ST_DEADLINE;
    }
    *out = (struct net_status){.chunks = NULL};
    snprintf(out->waiting, sizeof out->waiting, "%s", ps0_waits);
    return ST_OK;
}

bool __wrap_status_asker_is_unanswered(const struct status_asker *a);
bool __wrap_status_asker_is_unanswered(const struct status_asker *a)
{
    return strcmp((const char *)a, silent) == 0;
}

static void waits(void *ctx, struct net_exchange_wait *out)
{
    pthread_mutex_lock(&now.lock);
    *out = now.wait;
    now.n_looks++;
    pthread_cond_broadcast(&now.moved);
    pthread_mutex_unlock(&now.lock);
}

static void changed(void *ctx, const char *whom, int64_t ms)
{
    pthread_mutex_lock(&now.lock);
    snprintf(now.shown, sizeof now.shown, "%s", whom ? whom : "");
    now.shown_ms = ms;
    pthread_cond_broadcast(&now.moved);
    pthread_mutex_unlock(&now.lock);
}

static void await_shown(const char *whom)
{
    int64_t deadline_ns = clock_deadline_ns(GENEROUS_MS);
    pthread_mutex_lock(&now.lock);
    while (strcmp(now.shown, whom) != 0 && clock_cond_wait(&now.moved, &now.lock, deadline_ns) == 0)
        ;
    assert_string_equal(now.shown, whom);
    pthread_mutex_unlock(&now.lock);
}

/* The lost server is connected again, and its answer names no program that it waits for: the wait
 * continues, but is not shown. */
static void wait_without_name_is_not_shown(void **state)
{
    const struct updates_ops ops = {.waits = waits};
    const struct updates updates = {.ops = &ops};
    const struct waiting_config cfg = {.updates = &updates, .ps0 = "a:1", .changed = changed};
    struct waiting *w;
    clock_cond_init(&now.moved);
    now.wait = (struct net_exchange_wait){.server = 1, .ms = 4000};
    snprintf(now.wait.address, sizeof now.wait.address, "a:2");
    snprintf(now.wait.reason, sizeof now.wait.reason, "connection refused");
    assert_int_equal(waiting_create(&cfg, &w), ST_OK);
    await_shown("ps:1 (a:2, no connection)");
    pthread_mutex_lock(&now.lock);
    now.wait.reason[0] = 0;
    pthread_mutex_unlock(&now.lock);
    await_shown("");
    waiting_destroy(w);
}

/* The server has no connection to this worker, for example because packets are lost. */
static void worker_does_not_name_itself(void **state)
{
    const struct updates_ops ops = {.waits = waits};
    const struct updates updates = {.ops = &ops};
    const struct waiting_config cfg = {.updates = &updates, .ps0 = "a:1", .changed = changed};
    struct waiting *w;
    ps0_waits = "worker 0 (no connection for 2 s)";
    now.wait = (struct net_exchange_wait){.ms = 12000, .address = "a:1"};
    assert_int_equal(waiting_create(&cfg, &w), ST_OK);
    waiting_set_member(w, 0);
    await_shown("an answer of ps:0 (a:1)");
    waiting_destroy(w);
    ps0_waits = "worker 0 (no connection for 2 s), worker 1 (never joined)";
    assert_int_equal(waiting_create(&cfg, &w), ST_OK);
    waiting_set_member(w, 0);
    await_shown(ps0_waits);
    waiting_destroy(w);
    ps0_waits = "";
}

static void server_without_answer_is_named_by_number(void **state)
{
    const struct updates_ops ops = {.waits = waits};
    const struct updates updates = {.ops = &ops};
    const struct waiting_config cfg = {.updates = &updates, .ps0 = "a:1", .changed = changed};
    struct waiting *w;
    now.wait = (struct net_exchange_wait){.server = 2, .ms = 4000, .address = "a:3"};
    silent = "a:3";
    assert_int_equal(waiting_create(&cfg, &w), ST_OK);
    await_shown("ps:2 (a:3, no answer)");
    waiting_destroy(w);
    silent = "a:1";
    assert_int_equal(waiting_create(&cfg, &w), ST_OK);
    await_shown("ps:0 (a:1, no answer)");
    waiting_destroy(w);
    silent = "";
}

/* Sets the wait, and waits until the thread has seen it, and has ended the look in which it saw
 * it. */
static void set_wait(int64_t ms, int64_t step, uint64_t generation)
{
    int64_t deadline_ns = clock_deadline_ns(GENEROUS_MS);
    pthread_mutex_lock(&now.lock);
    now.wait.ms = ms;
    now.wait.step = step;
    now.wait.generation = generation;
    int enough = now.n_looks + 4; /* a look calls waits() once or twice */
    while (now.n_looks < enough && clock_cond_wait(&now.moved, &now.lock, deadline_ns) == 0)
        ;
    assert_in_range(now.n_looks, enough, INT32_MAX);
    pthread_mutex_unlock(&now.lock);
}

/* The job waits for worker 1, and a worker that joins causes a new generation. The answers with
 * which this generation begins do not end the wait; the next step ends it. */
static void wait_continues_in_next_generation(void **state)
{
    const struct updates_ops ops = {.waits = waits};
    const struct updates updates = {.ops = &ops};
    const struct waiting_config cfg = {.updates = &updates, .ps0 = "a:1", .changed = changed};
    struct waiting *w;
    ps0_waits = "worker 1 (no connection for 5 s)";
    now.wait =
        (struct net_exchange_wait){.ms = 40000, .address = "a:1", .step = 9350, .generation = 2};
    assert_int_equal(waiting_create(&cfg, &w), ST_OK);
    await_shown(ps0_waits);
    set_wait(0, -1, 2);
    await_shown(ps0_waits);
    set_wait(25, 9350, 3);
    await_shown(ps0_waits);
    set_wait(3000, 9350, 3);
    await_shown(ps0_waits);
    pthread_mutex_lock(&now.lock);
    assert_in_range(now.shown_ms, 40000, INT64_MAX);
    pthread_mutex_unlock(&now.lock);
    set_wait(0, 9351, 3);
    await_shown("");
    waiting_destroy(w);
    ps0_waits = "";
}

/* A slow worker delays the other workers only for the length of its steps, so no server reports it
 * as late. */
static void slower_worker_is_named_instead_of_server(void **state)
{
    struct net_status_member member[3] = {
        {.member = 0, .awaited = 4}, {.member = 1}, {.member = 2}};
    const struct net_status s = {.n_members = 3, .members = member};
    char whom[STATUS_WAITING_BYTES];
    waiting_name_slower(&s, 0, whom); /* this worker itself */
    assert_string_equal(whom, "");
    waiting_name_slower(&s, 1, whom);
    assert_string_equal(whom, "worker 0 (slower than this one)");
    member[2].awaited = 1;
    waiting_name_slower(&s, 1, whom);
    assert_string_equal(whom, "worker 0 (slower than this one), worker 2 (slower than this one)");
}

int main(void)
{
    return RUN_TESTS(lines_of_one_wait_become_rare, another_reason_gets_a_line_soon,
                     slower_worker_is_named_instead_of_server, reasons_that_alternate_get_few_lines,
                     wait_without_name_is_not_shown, worker_does_not_name_itself,
                     server_without_answer_is_named_by_number, wait_continues_in_next_generation);
}
