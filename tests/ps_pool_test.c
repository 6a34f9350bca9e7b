/* tests/ps_pool_test.c - a pool keeps a limited number of buffers, and outlives its owner. */
#include "ps/store/pool.h"
#include "tests/capture.h"
#include "tests/check.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BYTES = 4096 };

static int n_freed, reservations_left = INT_MAX;

int fallocate(int fd, int mode, off_t offset, off_t n)
{
    if (reservations_left-- > 0)
        return (int)syscall(SYS_fallocate, fd, mode, offset, n);
    errno = ENOMEM;
    return -1;
}

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
        assert_int_equal(ps_pool_take(pool, 0, BYTES, 0, &b[i]), ST_OK);
}

static void return_buffers(struct buf **b, int n)
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
        return_buffers(b, kept + 3);
        assert_int_equal(n_freed, 3);
    }
    n_freed = 0;
    ps_pool_destroy(pool);
    assert_int_equal(n_freed, kept);
}

static void shelf_keeps_a_limited_number(void **state)
{
    check_bound(2, 2);
    check_bound(PS_POOL_MAX_KEEP + 100, PS_POOL_MAX_KEEP);
}

/* Answers in flight may outlast the store. */
static void buffers_outlive_the_owner(void **state)
{
    struct ps_pool *pool;
    struct buf *b[2];
    assert_int_equal(ps_pool_create(1, 4, &pool), ST_OK);
    take(pool, b, 2);
    n_freed = 0;
    ps_pool_destroy(pool);
    assert_int_equal(n_freed, 0);
    return_buffers(b, 2);
    assert_int_equal(n_freed, 2);
}

/* A store uses buffers of the previous store as long as it runs. Such a buffer does not keep idle
 * buffers of the previous store in memory. */
static void buffer_outside_the_segment_holds_no_idle_ones(void **state)
{
    enum { STRIDE = SEGMENT_STAMP_BYTES + BYTES };
    struct ps_pool *pool;
    struct segment *segment;
    struct buf *lent, *other[2];
    char why[SEGMENT_WHY_BYTES];
    assert_int_equal(segment_create(STRIDE, &segment, why), ST_OK);
    struct segment_name name;
    segment_name_of(segment, &name);
    assert_int_equal(ps_pool_create(1, 4, &pool), ST_OK);
    ps_pool_share(pool, 0, segment, 0, STRIDE, 1);
    segment_unref(segment);
    assert_int_equal(ps_pool_take(pool, 0, BYTES, 1, &lent), ST_OK);
    take(pool, other, 2);
    buf_unref(other[1]);
    n_freed = 0;
    ps_pool_destroy(pool);
    assert_int_equal(n_freed, 1);
    assert_true(fcntl((int)name.fd, F_GETFD) >= 0); /* `lent` lies in the segment */
    buf_unref(lent);
    assert_int_equal(fcntl((int)name.fd, F_GETFD), -1);
    buf_unref(other[0]);
    assert_int_equal(n_freed, 3);
}

static int in_segment(struct segment *segment, const struct buf *b)
{
    uint64_t at = segment_find(segment, b->data, b->bytes);
    assert_true(at == b->shared);
    return at != 0;
}

/* Lent buffers have places in the segment, each with a new stamp. The number of places is fixed. No
 * place is lost, and no two places overlap. */
static void places_in_the_segment_are_reused(void **state)
{
    enum { PLACES = 3, STRIDE = SEGMENT_STAMP_BYTES + BYTES, FIRST = 128 };
    struct ps_pool *pool;
    struct segment *segment;
    struct buf *b[6];
    char why[SEGMENT_WHY_BYTES];
    uint64_t stamp = 0;
    assert_int_equal(segment_create(FIRST + PLACES * STRIDE, &segment, why), ST_OK);
    assert_int_equal(ps_pool_create(1, 4, &pool), ST_OK);
    ps_pool_share(pool, 0, segment, FIRST, STRIDE, PLACES);
    for (int round = 0; round < 4; round++) {
        take(pool, b, 2);
        for (int i = 2; i < 6; i++)
            assert_int_equal(ps_pool_take(pool, 0, BYTES, 1, &b[i]), ST_OK);
        for (int i = 0; i < 6; i++) {
            assert_int_equal(in_segment(segment, b[i]), i >= 2 && i < 2 + PLACES);
            memset(b[i]->data, i, BYTES);
        }
        for (int i = 0; i < 6; i++)
            assert_true(((char *)b[i]->data)[0] == i && ((char *)b[i]->data)[BYTES - 1] == i);
        for (int i = 2; i < 2 + PLACES; i++)
            assert_true(segment_stamp(b[i]->data) == stamp + 1);
        stamp++;
        n_freed = 0;
        return_buffers(b, 6); /* four are kept: those in the segment, and one more */
        assert_int_equal(n_freed, 2);
    }
    assert_int_equal(ps_pool_take(pool, 0, BYTES, 1, &b[0]), ST_OK);
    ps_pool_destroy(pool);
    segment_unref(segment); /* the buffer holds pool and segment */
    memset(b[0]->data, 1, BYTES);
    buf_unref(b[0]);
}

/* The kernel has no memory for a place in the segment. A write to this place would end the
 * process. */
static void segment_without_memory_is_not_used(void **state)
{
    enum { PLACES = 3, STRIDE = SEGMENT_STAMP_BYTES + BYTES };
    struct ps_pool *pool;
    struct segment *segment;
    struct buf *b[5];
    char why[SEGMENT_WHY_BYTES];
    assert_int_equal(segment_create_sparse(PLACES * STRIDE, &segment, why), ST_OK);
    assert_int_equal(ps_pool_create(1, 4, &pool), ST_OK);
    ps_pool_share(pool, 0, segment, 0, STRIDE, PLACES);
    for (int round = 0; round < 2; round++) {
        reservations_left = round == 0; /* only for the first place */
        for (int i = 0; i < 5; i++) {
            assert_int_equal(CAPTURE(ps_pool_take(pool, 0, BYTES, 1, &b[i])), ST_OK);
            assert_int_equal(in_segment(segment, b[i]), i == 0);
            assert_int_equal(capture_lines(), i == 1 && round == 0);
            memset(b[i]->data, i, BYTES);
        }
        return_buffers(b, 5);
    }
    ps_pool_destroy(pool);
    segment_unref(segment);
    reservations_left = INT_MAX;
}

int main(void)
{
    return RUN_TESTS(shelf_keeps_a_limited_number, buffers_outlive_the_owner,
                     buffer_outside_the_segment_holds_no_idle_ones,
                     places_in_the_segment_are_reused, segment_without_memory_is_not_used);
}
