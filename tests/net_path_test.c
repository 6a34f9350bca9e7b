/* tests/net_path_test.c - the conditions under which stalled connections prove that large packets
 * are lost. */
#include "net/rpc/path.h"
#include "tests/check.h"
#include <string.h>

#define S INT64_C(1000000000)

static const struct net_path_suspect first = {"10.0.0.1", 40001, 2222, 1500, 0},
                                     second = {"10.0.0.1", 40002, 2222, 1500, 0},
                                     elsewhere = {"10.0.0.2", 40003, 2222, 1500, 0};

static void one_connection_proves_nothing(void **state)
{
    struct net_path_watch w = {.logged_ns = 0};
    for (int i = 3; i < 30; i++)
        assert_false(net_path_note(&w, &first, i * S));
}

static void later_connection_to_host_is_proof(void **state)
{
    struct net_path_watch w = {.logged_ns = 0};
    assert_false(net_path_note(&w, &first, 3 * S));
    assert_false(net_path_note(&w, &first, 10 * S));
    assert_false(net_path_note(&w, &elsewhere, 13 * S));
    assert_true(net_path_note(&w, &second, 13 * S));
    assert_true(net_path_note(&w, &second, 14 * S));
}

static void two_connections_cut_at_once_prove_nothing(void **state)
{
    struct net_path_watch w = {.logged_ns = 0};
    for (int i = 3; i < 10; i++) {
        assert_false(net_path_note(&w, &first, i * S));
        assert_false(net_path_note(&w, &second, i * S + S / 2));
    }
}

static void old_connection_proves_nothing(void **state)
{
    struct net_path_watch w = {.logged_ns = 0};
    assert_false(net_path_note(&w, &first, 3 * S));
    assert_false(net_path_note(&w, &second, 63 * S));
}

static void oldest_suspect_is_replaced(void **state)
{
    struct net_path_watch w = {.logged_ns = 0};
    struct net_path_suspect s = elsewhere;
    assert_false(net_path_note(&w, &first, 3 * S));
    for (int i = 0; i < NET_PATH_SUSPECTS; i++) {
        s.host[7] = (char)('A' + i);
        assert_false(net_path_note(&w, &s, (4 + i) * S));
    }
    assert_false(net_path_note(&w, &second, 21 * S));
    s.local_port = 50000;
    assert_true(net_path_note(&w, &s, 25 * S));
}

static void process_without_connections_has_no_suspect(void **state)
{
    struct net_path_watch w = {.logged_ns = 0};
    assert_int_equal(net_path_look(&w, 0), 0);
}

int main(void)
{
    return RUN_TESTS(one_connection_proves_nothing, later_connection_to_host_is_proof,
                     two_connections_cut_at_once_prove_nothing, old_connection_proves_nothing,
                     oldest_suspect_is_replaced, process_without_connections_has_no_suspect);
}
