/* tests/worker_csv_text_test.c - bytes that are not UTF-8 are found when a CSV file is opened, with
 * their line and the command that converts the file. */
#include "tests/capture.h"
#include "tests/check.h"
#include "worker/data/data_csv.h"
#include <stdlib.h>
#include <string.h>

#define TEXT(s) s, sizeof s - 1

/* Decodes a copy of the exact size, so that AddressSanitizer detects reads beyond it. */
static enum status decode(const char *text, size_t n, const struct data_csv_columns *columns)
{
    struct data_csv csv = {.classes = NULL};
    uint8_t *copy = malloc(n);
    assert_non_null(copy);
    memcpy(copy, text, n);
    enum status st = CAPTURE(data_csv_decode(copy, n, "x.csv", columns, &csv));
    free(copy);
    if (st != ST_OK)
        return st;
    data_csv_free(&csv);
    return st;
}

static const char latin1[] = "iconv -f LATIN1 -t UTF-8 FILE > NEW";

static void words_of_another_encoding_are_named_with_their_line(void **state)
{
    static const struct {
        const char *text;
        size_t n;
        struct data_csv_columns columns;
        const char *piece;
    } bad[] = {
        {TEXT("a,label\n1,bitter\n\n2,s\xfc\xdf\n"),
         {.label = NULL},
         "x.csv: line 4, column 2: 's?\?' is not UTF-8"},
        {TEXT("1,s\xfc\xdf\n2,bitter\n"),
         {.label = NULL},
         "x.csv: line 1, column 2: 's?\?' is not"},
        {TEXT("1,s\xfc\xdf\n"), {.classes = "bitter\nsauer"}, "x.csv: line 1, column 2: 's?\?' is"},
        {TEXT("a;Gr\xf6\337e;label\n1;2;3\n"),
         {.label = NULL},
         "x.csv: line 1, column 2: 'Gr?\?e'"},
        {TEXT("a,Ma\xdf\n1,2\n"), {.label = "Ma\xc3\x9f"}, "x.csv: line 1, column 2: 'Ma?'"},
        {TEXT("1,Ma\xdf,3\n1,2,3\n"), {.label = NULL}, "x.csv: line 1, column 2: 'Ma?'"},
        {TEXT("id,Ma\xdf,b,label\n1,2,3,4\n"), {.ignored = "id"}, "x.csv: line 1, column 2: 'Ma?'"},
        {TEXT("Ma\xdf,b\n1,2\n"),
         {.feature_names = "Ma\xc3\x9f\nb", .label_names = "y", .features = 2, .may_lack = 1},
         "x.csv: line 1, column 1: 'Ma?'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        enum status st = decode(bad[i].text, bad[i].n, &bad[i].columns);
        if (st != ST_CORRUPT || capture_lines() != 1 || !strstr(capture_text, bad[i].piece) ||
            !strstr(capture_text, latin1))
            fail_msg("case %zu: %s; said: %s", i, status_name(st), capture_text);
    }
}

/* Ignored columns need not be text. */
static void utf8_and_ignored_columns_are_read(void **state)
{
    static const struct {
        const char *text;
        size_t n;
        struct data_csv_columns columns;
    } good[] = {
        {TEXT("Gr\xc3\xb6\xc3\237e,label\n1,s\xc3\xbc\xc3\x9f\n2,\xe2\x82\xac\n"), {.label = NULL}},
        {TEXT("\xef\xbb\277a,label\n1,s\xc3\xbc\xc3\x9f\n2,\xf0\x9f\x98\x80\n"), {.label = NULL}},
        {TEXT("s\xfc\xdf,1,2\ns\xfc\xdf,3,4\n"), {.ignored = "1"}},
        {TEXT("id,a,label\ns\xfc\xdf,3,4\n"), {.ignored = "id"}},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        enum status st = decode(good[i].text, good[i].n, &good[i].columns);
        if (st != ST_OK)
            fail_msg("case %zu: %s; said: %s", i, status_name(st), capture_text);
    }
}

static void utf16_utf32_and_nul_are_named(void **state)
{
    static const struct {
        const char *text;
        size_t n;
        const char *piece, *other;
    } bad[] = {
        {TEXT("\xff\376a\0,\0b\0\n\0001\0,\0002\0\n\0"), "x.csv: is UTF-16 text",
         "iconv -f UTF-16 -t UTF-8 FILE > NEW"},
        {TEXT("\xfe\xff\0a\0,\0b\0\n"), "x.csv: is UTF-16 text", "iconv -f UTF-16 -t UTF-8"},
        {TEXT("\xff\xfe\0\0a\0\0\0,\0\0\0"), "x.csv: is UTF-32 text", "iconv -f UTF-32 -t UTF-8"},
        {TEXT("a\0,\0b\0\n\0001\0,\0002\0\n\0"), "x.csv: line 1: has a byte of value 0",
         "iconv -f UTF-16LE -t UTF-8 FILE > NEW"},
        {TEXT("\0a\0,\0b\0\n\0001\0,\0002\0\n"), "x.csv: line 1: has a byte of value 0",
         "iconv -f UTF-16BE -t UTF-8 FILE > NEW"},
        {TEXT("a,label\n1,2\n\n1,\0\n"), "x.csv: line 4: has a byte of value 0",
         "fix or remove the line"},
    };
    const struct data_csv_columns columns = {.label = NULL};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        enum status st = decode(bad[i].text, bad[i].n, &columns);
        if (st != ST_CORRUPT || capture_lines() != 1 || !strstr(capture_text, bad[i].piece) ||
            !strstr(capture_text, bad[i].other))
            fail_msg("case %zu: %s; said: %s", i, status_name(st), capture_text);
    }
}

int main(void)
{
    return RUN_TESTS(words_of_another_encoding_are_named_with_their_line,
                     utf8_and_ignored_columns_are_read, utf16_utf32_and_nul_are_named);
}
