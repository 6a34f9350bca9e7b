/* tests/ps_region_waits_test.c - the text that names the program of the parent group for which a
 * region waits. It depends on the answer of the parent's ps 0. */
#include "net/exchange/waits.h"
#include "ps/region/region_impl.h"
#include "tests/check.h"
#include <stdio.h>
#include <string.h>

static struct {
    struct net_exchange_wait wait;
    enum status st; /* status of the request */
    const char *why;
    bool is_unanswered;
    int n_askers, n_created;
} now;

void __wrap_net_exchange_waits(struct net_exchange *x, struct net_exchange_wait *out);
void __wrap_net_exchange_waits(struct net_exchange *x, struct net_exchange_wait *out)
{
    *out = now.wait;
}

enum status __wrap_status_asker_create(const char *addr, struct status_asker **out);
enum status __wrap_status_asker_create(const char *addr, struct status_asker **out)
{
    assert_string_equal(addr, "a:1");
    now.n_askers++;
    now.n_created++;
    *out = (struct status_asker *)&now;
    return ST_OK;
}

void __wrap_status_asker_destroy(struct status_asker *a);
void __wrap_status_asker_destroy(struct status_asker *a)
{
    now.n_askers -= a != NULL;
}

enum status __wrap_status_asker_ask(struct status_asker *a, int64_t deadline_ms,
                                    struct net_status *out, char *why);
enum status __wrap_status_asker_ask(struct status_asker *a, int64_t deadline_ms,
                                    struct net_status *out, char *why)
{
    *out = (struct net_status){.waiting = "worker 1 (never joined)"};
    snprintf(why, CONTROL_TEXT_BYTES, "%s", now.why);
    return now.st;
}

bool __wrap_status_asker_is_unanswered(const struct status_asker *a);
bool __wrap_status_asker_is_unanswered(const struct status_asker *a)
{
    return now.is_unanswered;
}

static void failed_request_is_named_by_its_cause(void **state)
{
    static const struct {
        enum status st;
        const char *why;
        bool is_unanswered;
        const char *text;
    } cases[] = {
        {ST_OK, "", false, "region 1 (never joined) of the parent group (a:1)"},
        {ST_DEADLINE, "no answer", false, ""},
        {ST_DEADLINE, "no answer", true, "ps:0 of the parent group (a:1, no answer)"},
        {ST_UNAVAILABLE, "no such host", false, ""},
        {ST_UNAVAILABLE, "no such host", true, "ps:0 of the parent group (a:1: no such host)"},
        {ST_REFUSED, "not your role", false, "ps:0 of the parent group (a:1: not your role)"},
        {ST_PROTOCOL, "no status", false, "ps:0 of the parent group (a:1: no status)"},
        {ST_NOMEM, "out of memory", false, ""},
    };
    char *addr[] = {(char[]){"a:1"}};
    const struct hosts parents = {1, addr};
    struct ps_region r = {.cfg.parents = &parents, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct net_exchange *x = (struct net_exchange *)&now;
    char text[STATUS_WAITING_BYTES];
    now.wait = (struct net_exchange_wait){.ms = 3000};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        now.st = cases[i].st;
        now.why = cases[i].why;
        now.is_unanswered = cases[i].is_unanswered;
        region_waits_update(&r, x, 1);
        ps_region_waits(&r, text);
        assert_string_equal(text, cases[i].text);
    }
    assert_int_equal(now.n_created, 1); /* the wait has a single channel */
    assert_int_equal(now.n_askers, 1);
    region_waits_update(&r, x, 0);
    assert_int_equal(now.n_askers, 0);
}

int main(void)
{
    return RUN_TESTS(failed_request_is_named_by_its_cause);
}
