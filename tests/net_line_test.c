/* tests/net_line_test.c - the number format that suits a line, and the text that explains it. */
#include "net/exchange/line.h"
#include "tests/check.h"
#include <string.h>

/* 13.1 MB are 3.3 million parameters. rounds: 50 steps of 0.1 s between two exchanges; an exchange
 * may last 1 s. */
static const struct net_line_use rounds = {13.1e6, 50, 0.1}, steps = {13.1e6, 1, 0.1};

static enum dtype choose(double rtt_ms, double mbit, const struct net_line_use *use,
                         const char *expected)
{
    char text[LINE_TEXT_BYTES];
    const struct net_line l = {.rtt_s = rtt_ms * 1e-3, .bytes_per_s = mbit * 1e6 / 8};
    enum dtype dtype = net_line_choose(&l, use, text);
    if (!strstr(text, expected))
        fail_msg("'%s' does not contain '%s'", text, expected);
    return dtype;
}

static void format_with_least_loss_is_chosen(void **state)
{
    assert_int_equal(
        choose(20, 1000, &rounds,
               "fp32: 1e+03 Mbit/s and 20 ms of round-trip time; an exchange of 26.2 MB"),
        DTYPE_F32);
    assert_int_equal(choose(80, 94, &rounds,
                            "int8: 94 Mbit/s and 80 ms of round-trip time; an exchange of 6.7 MB "
                            "lasts 0.65 s and is due every 5.00 s (50 steps of 100 ms)"),
                     DTYPE_INT8);
    assert_int_equal(choose(80, 50, &rounds, "int4: 50 Mbit/s"), DTYPE_INT4);
    assert_int_equal(choose(80, 1, &rounds, "more steps between exchanges"), DTYPE_INT4);
}

/* A local network uses fp32, whatever number of bytes a step has. */
static void local_network_uses_fp32(void **state)
{
    assert_int_equal(choose(0.05, 8000, &steps, "so the link counts as a local network"),
                     DTYPE_F32);
    assert_int_equal(choose(0.3, 110, &steps, "so the link counts as a local network"), DTYPE_F32);
    assert_int_equal(choose(0.3, 90, &steps, "int4: 90 Mbit/s"), DTYPE_INT4);
    assert_int_equal(choose(6, 8000, &steps, "int8"), DTYPE_INT8);
}

int main(void)
{
    return RUN_TESTS(format_with_least_loss_is_chosen, local_network_uses_fp32);
}
