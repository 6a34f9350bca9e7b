/* tests/ps_pool_test.c - a shelf keeps what it may and no more, and outlives its owner. */
#include "ps/pool.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { BYTES = 4096 };

static int n_freed;

void __real_buf_free(struct buf *b);
void __wrap_buf_free(struct buf *b);

void __wrap_buf_free(struct buf *b)
{
    n_freed++;
    __real_buf_free(b);
}

static void take(struct ps_pool *pool, struct buf **b, int n)
{
    for (int i = 0; i < n; i++)
        assert_int_equal(ps_pool_take(pool, 0, BYTES, &b[i]), ST_OK);
}

static void give_back(struct buf **b, int n)
{
    for (int i = 0; i < n; i++)
        buf_unref(b[i]);
}

static void check_bound(int keep, int kept)
{
    struct ps_pool *pool;
    struct buf *b[PS_POOL_MAX_KEEP + 4];
    assert_int_equal(ps_pool_create(1, keep, &pool), ST_OK);
    for (int round = 0; round < 3; round++) {
        n_freed = 0;
        take(pool, b, kept + 3);
        give_back(b, kept + 3);
        assert_int_equal(n_freed, 3);
    }
    n_freed = 0;
    ps_pool_destroy(pool);
    assert_int_equal(n_freed, kept);
}

static void test_bound(void **state)
{
    check_bound(2, 2);
    check_bound(PS_POOL_MAX_KEEP + 100, PS_POOL_MAX_KEEP);
}

/* Answers on their way out may outlast the store. */
static void test_outlives_owner(void **state)
{
    struct ps_pool *pool;
    struct buf *b[2];
    assert_int_equal(ps_pool_create(1, 4, &pool), ST_OK);
    take(pool, b, 2);
    n_freed = 0;
    ps_pool_destroy(pool);
    assert_int_equal(n_freed, 0);
    give_back(b, 2);
    assert_int_equal(n_freed, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_outlives_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
