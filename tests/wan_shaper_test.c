/* tests/wan_shaper_test.c - one direction of the emulated link (tests/wan/shaper.h), with an
 * artificial clock: delay, rate, queue, loss and order do not depend on the machine's load. */
#include "tests/check.h"
#include "tests/wan/shaper.h"
#include <math.h>

#define MS INT64_C(1000000)
enum { PACKET = 1500, N = 100000 };

static struct shaper made(struct shaper_config cfg)
{
    struct shaper s;
    cfg.seed = 7;
    shaper_init(&s, &cfg);
    return s;
}

static void packet_arrives_after_delay(void **state)
{
    struct shaper s = made((struct shaper_config){.delay_ns = 40 * MS});
    int64_t due = 0;
    for (int64_t now = 0; now < 1000; now++) {
        assert_int_equal(shaper_put(&s, now, PACKET, &due), SHAPER_SENT);
        assert_int_equal(due, now + 40 * MS);
    }
}

/* Sends twice the capacity, in packets of several sizes, for a second. */
static void rate_is_kept(void **state)
{
    static const int64_t rates[] = {1000000, 100000000, 1000000000, 10000000000};
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        struct shaper s = made((struct shaper_config){
            .rate_bits = rates[r], .queue_bytes = rates[r] / 80, .burst_bytes = 3000});
        int64_t arrived = 0, due = 0, last = 0;
        double now = 0;
        for (int i = 0; now < 1e9; i++) {
            int64_t bytes = i % 3 ? PACKET : 60;
            if (shaper_put(&s, (int64_t)now, bytes, &due) == SHAPER_SENT) {
                assert_true(due >= last);
                last = due;
                arrived += due <= 1000 * MS ? bytes : 0;
            }
            now += (double)bytes * 8e9 / (2.0 * (double)rates[r]);
        }
        double share = (double)arrived * 8 / (double)rates[r];
        if (share < 0.97 || share > 1.03)
            fail_msg("%.3f of %lld bit/s", share, (long long)rates[r]);
    }
}

/* At 8 Mbit/s a packet of 1000 bytes lasts a millisecond. */
static void queue_is_bounded(void **state)
{
    struct shaper s = made(
        (struct shaper_config){.rate_bits = 8000000, .queue_bytes = 10000, .burst_bytes = 1000});
    int64_t due = 0;
    for (int i = 0; i <= 10; i++) {
        assert_int_equal(shaper_put(&s, 5 * MS, 1000, &due), SHAPER_SENT);
        assert_int_equal(due, (5 + i) * MS); /* the first packet used a full bucket */
    }
    assert_int_equal(shaper_put(&s, 5 * MS, 1000, &due), SHAPER_FULL);
    assert_int_equal(shaper_put(&s, 5 * MS + 1, 1000, &due), SHAPER_FULL);
    assert_int_equal(shaper_put(&s, 6 * MS, 1000, &due), SHAPER_SENT); /* a packet has left */
    assert_int_equal(due, 16 * MS);
    assert_int_equal(shaper_put(&s, 900 * MS, 1000, &due), SHAPER_SENT);
    assert_int_equal(due, 900 * MS); /* the full bucket has room for one packet */
    assert_int_equal(shaper_put(&s, 900 * MS, 1000, &due), SHAPER_SENT);
    assert_int_equal(due, 901 * MS);
}

/* The number of lost packets is within four standard deviations. The same seed loses the same
 * packets whenever the test runs. */
static void losses_match_configured_rate(void **state)
{
    static const double shares[] = {0, 0.001, 0.01, 0.3, 1};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        struct shaper s = made((struct shaper_config){.loss = shares[i]});
        struct shaper later = made((struct shaper_config){
            .loss = shares[i], .rate_bits = 1000000000, .queue_bytes = 1 << 30});
        int64_t due;
        int n_lost = 0;
        for (int k = 0; k < N; k++) {
            enum shaper_verdict v = shaper_put(&s, k, PACKET, &due);
            n_lost += v == SHAPER_LOST;
            assert_int_equal(shaper_put(&later, k * MS, PACKET, &due), v);
        }
        double spread = 4 * sqrt(N * shares[i] * (1 - shares[i]));
        if (fabs(n_lost - N * shares[i]) > spread)
            fail_msg("%d of %d lost, with %g asked for", n_lost, N, shares[i]);
    }
}

static void jitter_lies_around_the_delay(void **state)
{
    struct shaper s = made((struct shaper_config){.delay_ns = 40 * MS, .jitter_ns = 8 * MS});
    int64_t due, last = 0, least = INT64_MAX, most = 0, sum = 0;
    int n_overtaken = 0;
    for (int i = 0; i < N; i++) {
        assert_int_equal(shaper_put(&s, i * MS, PACKET, &due), SHAPER_SENT);
        int64_t took = due - i * MS;
        least = took < least ? took : least;
        most = took > most ? took : most;
        sum += took;
        n_overtaken += due < last;
        last = due;
    }
    assert_in_range(least, 32 * MS, 32 * MS + MS / 10);
    assert_in_range(most, 48 * MS - MS / 10, 48 * MS);
    assert_in_range(sum / N, 40 * MS - MS / 10, 40 * MS + MS / 10);
    assert_true(n_overtaken > N / 10);
}

int main(void)
{
    return RUN_TESTS(packet_arrives_after_delay, rate_is_kept, queue_is_bounded,
                     losses_match_configured_rate, jitter_lies_around_the_delay);
}
