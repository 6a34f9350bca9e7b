/* tests/worker_csv_layout_test.c - the columns of a CSV file are found by the names of the training
 * file if line 1 has these names, and by their positions if line 1 is a sample. */
#include "tests/capture.h"
#include "tests/check.h"
#include "worker/data/data_csv.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Decodes a copy of the exact size, so that AddressSanitizer detects reads beyond it. */
static enum status decode(const char *text, const struct data_csv_columns *columns,
                          struct data_csv *out)
{
    size_t n = strlen(text);
    uint8_t *copy = malloc(n);
    assert_non_null(copy);
    memcpy(copy, text, n);
    *out = (struct data_csv){.classes = NULL};
    enum status st = CAPTURE(data_csv_decode(copy, n, "x.csv", columns, out));
    free(copy);
    return st;
}

struct wanted {
    const char *text, *features, *label;
    int64_t rows;
    float first[3]; /* features of the first sample */
};

/* A file with several columns of one name, and the columns of the training file. */
struct equal {
    struct wanted w;
    const char *said; /* expected log line; NULL: none */
    const char *ignored, *roles;
};

static void check_file(const struct equal *e, enum data_csv_header header)
{
    const struct wanted *w = &e->w;
    const struct data_csv_columns columns = {.feature_names = w->features,
                                             .label_names = w->label,
                                             .ignored_names = e->ignored,
                                             .roles = e->roles,
                                             .features = 3,
                                             .may_lack = true,
                                             .header = header};
    struct data_csv csv;
    enum status st = decode(w->text, &columns, &csv);
    if (st != ST_OK)
        fail_msg("\"%s\": %s; said: %s", w->text, status_name(st), capture_text);
    assert_int_equal(capture_lines(), e->said != NULL);
    if (e->said && !strstr(capture_text, e->said))
        fail_msg("\"%s\": said: %s", w->text, capture_text);
    if (csv.samples.dim[0] != w->rows)
        fail_msg("\"%s\": %lld rows", w->text, (long long)csv.samples.dim[0]);
    assert_int_equal(csv.samples.dim[1], 3);
    assert_memory_equal(csv.samples.data, w->first, sizeof w->first);
    data_csv_free(&csv);
}

static void check_rows(const struct wanted *w, enum data_csv_header header)
{
    check_file(&(struct equal){.w = *w}, header);
}

static void sample_with_numbers_of_the_names_stays_a_sample(void **state)
{
    static const struct wanted files[] = {
        {"1,7,9\n4,5,6\n", "0\n1\n2", "label", 2, {1, 7, 9}}, /* a single name is a number */
        {"2,7,1\n4,5,6\n", "0\n1\n2", "label", 2, {2, 7, 1}}, /* two names are numbers */
        {"2,7,1\n4,5,6\n", "1\na\nb", "label", 2, {2, 7, 1}}, /* other names are words */
        {"4,5,6,3\n7,8,9,2\n", "0\n1\n2", "3", 2, {4, 5, 6}}, /* the label's name is a number */
        {"7,8,9\n1,2,3\n", "\na\nb", "label", 2, {7, 8, 9}},  /* a column has no name */
        {"0,1,2\n4,5,6\n", "2\n1\n3", "label", 2, {0, 1, 2}},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        check_rows(&files[i], DATA_CSV_HEADER_AUTO);
}

static void names_that_are_numbers_are_found_beside_a_word(void **state)
{
    static const struct wanted files[] = {
        {"2,label,0,1\n4,0,5,6\n", "0\n1\n2", "label", 1, {5, 6, 4}},
        {"2,b,0\n4,5,6\n", "0\nb\n2", "label", 1, {6, 5, 4}},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        check_rows(&files[i], DATA_CSV_HEADER_AUTO);
}

/* If all names are numbers, nothing in the file shows whether line 1 contains names. */
static void line_of_all_names_as_numbers_asks_for_the_flag(void **state)
{
    static const char *const texts[] = {"0,1,2\n4,5,6\n", "2,1,0\n4,5,6\n", "0,1,2,1\n4,5,6,2\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const struct data_csv_columns columns = {
            .feature_names = "0\n1\n2", .label_names = "label", .features = 3, .may_lack = true};
        struct data_csv csv;
        assert_int_equal(decode(texts[i], &columns, &csv), ST_INVALID);
        assert_int_equal(capture_lines(), 1);
        assert_non_null(strstr(capture_text, "x.csv: line 1: its numbers are the names that"));
        assert_non_null(
            strstr(capture_text,
                   "--csv_header=yes if it names the columns, --csv_header=no if it is a sample"));
    }
    check_rows(&(struct wanted){"2,0,1\n4,5,6\n", "0\n1\n2", "label", 1, {5, 6, 4}},
               DATA_CSV_HEADER_YES);
    check_rows(&(struct wanted){"2,0,1\n4,5,6\n", "0\n1\n2", "label", 2, {2, 0, 1}},
               DATA_CSV_HEADER_NO);
}

static void name_of_the_label_makes_names_of_the_line(void **state)
{
    const struct data_csv_columns columns = {
        .feature_names = "a\nb", .label_names = "y", .features = 2};
    struct data_csv csv;
    assert_int_equal(decode("b2,a2,y\n1,2,3\n", &columns, &csv), ST_MISMATCH);
    assert_non_null(strstr(capture_text, "line 1: has no column 'a', which is feature 1"));
}

static void equal_names_keep_their_order(void **state)
{
    static const struct equal files[] = {
        {{"b,a,a\n1,2,3\n", "a\nb\na", "y", 1, {2, 1, 3}},
         "columns 2 and 3 have the same name, 'a',",
         NULL,
         NULL},
        {{",a,\n1,2,3\n", "a\n\n", "y", 1, {2, 1, 3}},
         "columns 1 and 3 have no name and are matched",
         NULL,
         NULL},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        check_file(&files[i], DATA_CSV_HEADER_AUTO);
}

/* Columns of the same name are matched by their order in the training file, even if one of them is
 * the label or ignored. */
static void equal_names_keep_positions_of_training(void **state)
{
    static const char a[] = "have the same name, 'a',",
                      one[] = "has 1 column 'a', but the training";
    static const struct equal files[] = {
        {{"a,b,a,c,y\n1,2,3,4,0\n", "b\na\nc", "y", 1, {2, 3, 4}}, a, "a", "ifffl"},
        {{"a,b,a,c\n1,2,3,4\n", "b\na\nc", "y", 1, {2, 3, 4}}, a, "a", "ifffl"},
        {{"c,a,b\n1,2,3\n", "b\na\nc", "y", 1, {3, 2, 1}}, one, "a", "ifffl"},
        {{"c,b,a,a\n1,2,0,3\n", "a\nb\nc", "a", 1, {3, 2, 1}}, a, NULL, "lfff"},
        {{"c,b,a\n1,2,3\n", "a\nb\nc", "a", 1, {3, 2, 1}}, one, NULL, "lfff"},
        {{"a,b,a,c\n1,2,3,4\n", "a\nb\nc", "y", 1, {1, 2, 4}}, a, "a", "iff;"}, /* damaged */
        {{"c,x,b,a,x\n1,8,2,3,9\n", "a\nb\nc", "y", 1, {3, 2, 1}}, NULL, "x\nx", "fffiil"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        check_file(&files[i], DATA_CSV_HEADER_AUTO);
}

/* R writes the names of rows as a column without a heading, which would move all columns by one. */
static void row_names_without_a_heading_are_refused(void **state)
{
    const struct data_csv_columns columns = {
        .feature_names = "a\nb", .label_names = "y", .features = 2, .may_lack = true};
    struct data_csv csv;
    assert_int_equal(decode("\"b\",\"a\"\n\"1\",5,6\n\"2\",7,8\n", &columns, &csv), ST_CORRUPT);
    assert_int_equal(capture_lines(), 1);
    assert_non_null(strstr(capture_text, "has 3 fields, more than line 1 has names"));
    assert_non_null(strstr(capture_text, "--ignore_columns=1"));
}

/* The table has the largest number of columns, in reverse order. A search over all columns for each
 * column would be too slow. */
static void widest_table_is_found_in_any_order(void **state)
{
    enum { N = DATA_CSV_MAX_COLUMNS - 1, BYTES = 8 };
    char *names = malloc(N * BYTES), *text = malloc(2 * N * BYTES), *n = names, *t = text;
    struct data_csv csv;
    assert_true(names && text);
    for (int i = 0; i < N; i++) {
        n += sprintf(n, "%sc%d", i ? "\n" : "", i);
        t += sprintf(t, "%sc%d", i ? "," : "", N - 1 - i);
    }
    for (int i = 0; i < N; i++)
        t += sprintf(t, "%c%d", i ? ',' : '\n', N - 1 - i);
    const struct data_csv_columns columns = {
        .feature_names = names, .label_names = "y", .features = N, .may_lack = true};
    assert_int_equal(decode(text, &columns, &csv), ST_OK);
    const float *got = csv.samples.unpacked;
    for (int i = 0; i < N; i++)
        if (got[i] != (float)i)
            fail_msg("feature %d is %g", i, (double)got[i]);
    data_csv_free(&csv);
    free(names);
    free(text);
}

/* All columns of this table have the same name. A search over all of them for each column would be
 * too slow. */
static void widest_table_of_one_name_is_found(void **state)
{
    enum { N = DATA_CSV_MAX_COLUMNS - 2 };
    char *names = malloc(2 * N), *text = malloc(4 * N + 16), *n = names, *t = text;
    char *roles = malloc(N + 2);
    struct data_csv csv;
    assert_true(names && text && roles);
    for (int i = 0; i < N; i++) {
        n += sprintf(n, "%sa", i ? "\n" : "");
        roles[i] = 'f';
    }
    roles[N / 2] = 'i';
    names[2 * (N - 1) - 1] = 0; /* all but the excluded column */
    roles[N] = 'l';
    roles[N + 1] = 0;
    for (int i = 0; i <= N; i++)
        t += sprintf(t, "%s", i < N ? "a," : "y\n");
    for (int i = 0; i <= N; i++)
        t += sprintf(t, "%s%d", i ? "," : "", i == N / 2 ? 5 : 1);
    const struct data_csv_columns columns = {.feature_names = names,
                                             .label_names = "y",
                                             .ignored_names = "a",
                                             .roles = roles,
                                             .features = N - 1};
    assert_int_equal(decode(text, &columns, &csv), ST_OK);
    const float *got = csv.samples.unpacked;
    for (int i = 0; i < N - 1; i++)
        if (got[i] != 1)
            fail_msg("feature %d is %g", i, (double)got[i]);
    data_csv_free(&csv);
    free(roles);
    free(names);
    free(text);
}

/* The flag contains the names of half of the columns. A search of the whole line for each name
 * would be too slow. */
static void half_of_the_widest_table_is_ignored_by_name(void **state)
{
    enum { N = DATA_CSV_MAX_COLUMNS - 1, BYTES = 8 };
    char *ignored = malloc(N * BYTES), *text = malloc(2 * N * BYTES), *n = ignored, *t = text;
    struct data_csv csv;
    assert_true(ignored && text);
    for (int i = 0; i < N; i++)
        t += sprintf(t, "%sc%d", i ? "," : "", i);
    for (int i = 0; i < N; i++)
        t += sprintf(t, "%c%d", i ? ',' : '\n', i);
    for (int i = N - 2; i >= 0; i -= 2) /* all columns with even numbers */
        n += sprintf(n, "%sc%d", n > ignored ? "," : "", i);
    const struct data_csv_columns columns = {.ignored = ignored};
    assert_int_equal(decode(text, &columns, &csv), ST_OK);
    assert_int_equal(csv.samples.dim[1], N / 2 - 1);
    const float *got = csv.samples.unpacked;
    for (int i = 0; i < N / 2 - 1; i++)
        if (got[i] != (float)(2 * i + 1))
            fail_msg("feature %d is %g", i, (double)got[i]);
    data_csv_free(&csv);
    free(ignored);
    free(text);
}

static void check_order(const char *roles, const float wanted[2])
{
    const struct data_csv_columns columns = {.roles = roles, .features = 1, .may_lack = true};
    struct data_csv csv;
    enum status st = decode("1,2,3\n4,5,6\n", &columns, &csv);
    bool placed = st == ST_OK && csv.labels.type == DATA_F32;
    if (placed != (wanted != NULL) ||
        (wanted && memcmp(csv.labels.data, wanted, 2 * sizeof *wanted) != 0))
        fail_msg("\"%s\": %s; said: %s", roles, status_name(st), capture_text);
    if (wanted)
        assert_string_equal(csv.roles, roles);
    data_csv_free(&csv);
}

static void targets_are_where_they_were_in_training(void **state)
{
    static const char *const damaged[] = {"tft;",
                                          "tft;1",
                                          "tft;1,",
                                          "tft;1,1",
                                          "tft;1,2",
                                          "tft;-1,0",
                                          "tft;1,0,",
                                          "tft;1,0,2",
                                          "tft;x,0",
                                          "tft;1;0",
                                          "tft;1,99999999999999999999",
                                          "lff;0",
                                          "tf;0t",
                                          ";",
                                          ";1"};
    check_order("tft", (const float[]){1, 3});
    check_order("tft;1,0", (const float[]){3, 1});
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++)
        check_order(damaged[i], NULL);
}

int main(void)
{
    return RUN_TESTS(
        targets_are_where_they_were_in_training, sample_with_numbers_of_the_names_stays_a_sample,
        names_that_are_numbers_are_found_beside_a_word,
        line_of_all_names_as_numbers_asks_for_the_flag, name_of_the_label_makes_names_of_the_line,
        equal_names_keep_their_order, equal_names_keep_positions_of_training,
        widest_table_of_one_name_is_found, row_names_without_a_heading_are_refused,
        widest_table_is_found_in_any_order, half_of_the_widest_table_is_ignored_by_name);
}
