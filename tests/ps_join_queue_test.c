/* tests/ps_join_queue_test.c - the list of processes that wait to join. */
#include "ps/service/join_queue.h"
#include "tests/check.h"
#include <stdio.h>

static struct join_queue_entry waiter(int member, uint64_t incarnation, const char *peer,
                                      int64_t ms)
{
    struct join_queue_entry w = {
        .member = member, .incarnation = incarnation, .heard_ns = ms * 1000000};
    snprintf(w.peer, sizeof w.peer, "%s", peer);
    return w;
}

/* The list is bounded, and a host that floods it displaces its own entries. */
static void flooding_host_displaces_its_own_entries(void **state)
{
    static struct join_queue w;
    char peer[64];
    struct join_queue_entry real = waiter(2, 5, "ipv4:10.0.0.7:1", 0);
    join_queue_put(&w, &real);
    for (int i = 0; i < 3 * JOIN_QUEUE_MAX; i++) {
        snprintf(peer, sizeof peer, "ipv4:10.0.0.66:%d", 1000 + i);
        struct join_queue_entry liar = waiter(10 + i, 1000 + (uint64_t)i, peer, 1 + i);
        join_queue_put(&w, &liar);
        assert_in_range(w.n, 1, JOIN_QUEUE_MAX);
        assert_non_null(join_queue_find(&w, 1000 + (uint64_t)i));
    }
    assert_int_equal(w.n, JOIN_QUEUE_MAX);
    assert_non_null(join_queue_find(&w, 5));
    struct join_queue_entry late = waiter(3, 6, "ipv4:10.0.0.8:1", 9000); /* it gets a place, too */
    join_queue_put(&w, &late);
    assert_non_null(join_queue_find(&w, 5));
    assert_non_null(join_queue_find(&w, 6));
    assert_int_equal(w.n, JOIN_QUEUE_MAX);
    struct join_queue_entry again = waiter(3, 7, "ipv4:10.0.0.8:2", 9001); /* a restarted process */
    join_queue_put(&w, &again);
    assert_null(join_queue_find(&w, 6));
    assert_int_equal(join_queue_find_member(&w, 3)->incarnation, 7);
    join_queue_expire(&w, (9001 + JOIN_QUEUE_EXPIRY_MS) * 1000000LL);
    assert_int_equal(w.n, 1);
    assert_non_null(join_queue_find(&w, 7));
}

int main(void)
{
    return RUN_TESTS(flooding_host_displaces_its_own_entries);
}
