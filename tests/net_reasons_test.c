/* tests/net_reasons_test.c - the reasons of failed calls in this project's words. */
#include "net/rpc/reasons.h"
#include "tests/check.h"
#include <stdio.h>
#include <string.h>

static void check(const char *text, const char *expected)
{
    char got[REASON_BYTES];
    snprintf(got, sizeof got, "%s", text);
    net_reason_explain(got, sizeof got);
    assert_string_equal(got, expected);
}

static void name_without_address_is_reported_with_cause(void **state)
{
    check(
        "DNS resolution failed for ps9:2222: C-ares status is not ARES_SUCCESS qtype=AAAA name=ps9 is_balancer=0: Domain name not found",
        "the host name 'ps9' cannot be resolved: Domain name not found");
    check("DNS resolution failed for ps9:2222: UNKNOWN: Name or service not known",
          "the host name 'ps9' cannot be resolved: Name or service not known");
}

static void longest_name_keeps_its_cause(void **state)
{
    char name[256], text[REASON_BYTES], expected[REASON_BYTES];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    snprintf(
        text, sizeof text,
        "DNS resolution failed for %s:2222: C-ares status is not ARES_SUCCESS qtype=A name=%s is_balancer=0: Misformatted domain name",
        name, name);
    snprintf(expected, sizeof expected,
             "the host name '%s' cannot be resolved: Misformatted domain name", name);
    check(text, expected);
}

static void cut_text_still_names_the_host(void **state)
{
    check("DNS resolution failed for ps9", "the host name 'ps9' cannot be resolved: no answer");
}

static void missing_descriptors_name_their_limit(void **state)
{
    check(
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.7:2222: Too many open files",
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.7:2222: Too many open files: this process has no descriptor left; raise the limit with ulimit -n");
}

static void refused_connection_is_explained(void **state)
{
    check(
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:2221: Failed to connect to remote host: Connection refused",
        "failed to connect: no program listens at this address (Connection refused)");
    check(
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:2221: Socket closed",
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:2221: Socket closed; does it use TLS (--tls_cert), or has it no descriptor left (see its log)?");
}

static void other_texts_stay_unchanged(void **state)
{
    check("the server is stopping", "the server is stopping");
    check("", "");
}

int main(void)
{
    return RUN_TESTS(name_without_address_is_reported_with_cause, longest_name_keeps_its_cause,
                     cut_text_still_names_the_host, missing_descriptors_name_their_limit,
                     refused_connection_is_explained, other_texts_stay_unchanged);
}
