/* tests/worker_predictions_text_test.c - names of any bytes as fields of CSV and as JSON
 * strings. */
#include "tests/check.h"
#include "worker/results/predictions_text.h"
#include <string.h>

static const struct {
    const char *name, *json, *csv;
} cases[] = {
    {"", "\"\"", ""},
    {"cat/1.png", "\"cat/1.png\"", "cat/1.png"},
    {"a,b", "\"a,b\"", "\"a,b\""},
    {"a\"b\\", "\"a\\\"b\\\\\"", "\"a\"\"b\\\""},
    {"\n\r\x01\x7f", "\"\\u000a\\u000d\\u0001\x7f\"", "\"\n\r\x01\x7f\""},
    {"\xc3\xa4\xe4\xb8\x96\xf0\x9f\x90\x88", "\"\xc3\xa4\xe4\xb8\x96\xf0\x9f\x90\x88\"",
     "\xc3\xa4\xe4\xb8\x96\xf0\x9f\x90\x88"},
    /* invalid UTF-8: single byte, overlong, surrogate, beyond Unicode, truncated */
    {"\xe4x", "\"\\u00e4x\"", "\xe4x"},
    {"\xc0\xaf", "\"\\u00c0\\u00af\"", "\xc0\xaf"},
    {"\xe0\x80\xaf", "\"\\u00e0\\u0080\\u00af\"", "\xe0\x80\xaf"},
    {"\xed\xa0\x80", "\"\\u00ed\\u00a0\\u0080\"", "\xed\xa0\x80"},
    {"\xf4\x90\x80\x80", "\"\\u00f4\\u0090\\u0080\\u0080\"", "\xf4\x90\x80\x80"},
    {"a\xe4\xb8", "\"a\\u00e4\\u00b8\"", "a\xe4\xb8"},
};

static void names_are_written_as_each_format_has_them(void **state)
{
    char out[200];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].name);
        out[predictions_text_json(out, cases[i].name, n)] = 0;
        assert_string_equal(out, cases[i].json);
        assert_true(strlen(out) <= predictions_text_most(n));
        out[predictions_text_csv(out, cases[i].name, n)] = 0;
        assert_string_equal(out, cases[i].csv);
        assert_true(strlen(out) <= predictions_text_most(n));
    }
}

int main(void)
{
    return RUN_TESTS(names_are_written_as_each_format_has_them);
}
