/* tests/ps_bind_test.c - --bind: addresses with and without a port, and invalid ones. */
#include "ps/bind.h"
#include "tests/capture.h"
#include "tests/check.h"
#include <string.h>

static void listens(const char *bind, const char *own, const char *at)
{
    char out[BIND_BYTES];
    assert_int_equal(CAPTURE(ps_bind_address(bind, own, out)), ST_OK);
    assert_string_equal(out, at);
    assert_string_equal(capture_text, "");
}

static void refused(const char *bind, const char *words)
{
    char out[BIND_BYTES];
    assert_int_equal(CAPTURE(ps_bind_address(bind, "a:1", out)), ST_INVALID);
    assert_non_null(strstr(capture_text, "--bind: '"));
    if (!strstr(capture_text, words))
        fail_msg("'%s' lacks '%s'", capture_text, words);
}

static void bind_completes_a_missing_port(void **state)
{
    char longest[400];
    listens(NULL, "a:1", "a:1");
    listens("", "[::1]:1", "[::1]:1");
    listens("0.0.0.0", "a:2221", "0.0.0.0:2221");
    listens("[::]", "[fe80::1]:2221", "[::]:2221");
    listens("[::]:7", "a:1", "[::]:7");
    listens("10.0.0.5:7", "a:1", "10.0.0.5:7");
    refused("::", "has no port");
    refused("fe80::1:7", "is an IPv6 address without brackets");
    refused("b:x", "has a port that is not a number");
    refused("b,c", "has no valid host name");
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    refused(longest, "is too long");
}

int main(void)
{
    return RUN_TESTS(bind_completes_a_missing_port);
}
