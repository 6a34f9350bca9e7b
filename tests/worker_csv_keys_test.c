/* tests/worker_csv_keys_test.c - columns of keys of CSV files: listed and guessed columns, the keys
 * of cells, later files, and errors with line and column. */
#include "base/log.h"
#include "base/rng.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "worker/data/data_csv.h"

/* Decodes a copy of the exact size, so that AddressSanitizer detects reads beyond it. */
static enum status decode(const char *text, const struct data_csv_columns *columns,
                          struct data_csv *out)
{
    size_t n = strlen(text);
    uint8_t *copy = malloc(n + !n);
    assert_non_null(copy);
    memcpy(copy, text, n);
    enum status st = CAPTURE(data_csv_decode(copy, n, "x.csv", columns, out));
    free(copy);
    return st;
}

static uint64_t key(const char *text)
{
    return rng_text(text, strlen(text));
}

static const struct data_csv_key_input guessed = {.name = "fields"};

/* Decodes a file that is valid. */
static struct data_csv read_file(const char *text, const struct data_csv_columns *columns)
{
    struct data_csv csv;
    enum status st = decode(text, columns, &csv);
    if (st != ST_OK)
        fail_msg("\"%s\": %s; said: %s", text, status_name(st), capture_text);
    return csv;
}

/* Decodes a file that is not valid. */
static void refuse(const char *text, const struct data_csv_columns *columns, enum status want,
                   const char *said)
{
    struct data_csv csv;
    enum status st = decode(text, columns, &csv);
    if (st == ST_OK)
        data_csv_free(&csv);
    if (st != want || !strstr(capture_text, said))
        fail_msg("\"%s\": %s; said: %s", text, status_name(st), capture_text);
}

static void listed_columns_have_the_order_of_the_list(void **state)
{
    const struct data_csv_key_input in = {
        .name = "fields", .columns = "genre,1", .listed_by = "--key_columns"};
    const struct data_csv_columns columns = {.keys = &in, .n_keys = 1, .describe = 1};
    struct data_csv csv =
        read_file("city,age,genre,label\nOslo,3,rock,1\n\"Rom\",4, pop ,0\n", &columns);
    const struct data_csv_keys *k = &csv.keys[0];
    assert_int_equal(k->n_columns, 2);
    assert_null(k->first);
    assert_string_equal(k->columns, "genre,city");
    assert_true(k->keys[0] == key("genre=rock") && k->keys[1] == key("city=Oslo"));
    assert_true(k->keys[2] == key("genre=pop") && k->keys[3] == key("city=Rom"));
    assert_int_equal(csv.samples.dim[1], 1);
    assert_string_equal(csv.roles, "kfkl");
    assert_string_equal(csv.columns, "age");
    assert_non_null(strstr(
        capture_text, "x.csv: column 3 'genre' is keys of input 'fields': --key_columns lists it"));
    data_csv_free(&csv);
}

static void inputs_have_lists_of_their_own(void **state)
{
    const struct data_csv_key_input in[] = {
        {.name = "a", .columns = "id", .listed_by = "the model", .are_numbers = true},
        {.name = "b"},
    };
    const struct data_csv_columns columns = {.keys = in, .n_keys = 2};
    struct data_csv csv = read_file(
        "city,id,label\nOslo,-1,1\nRom,18446744073709551615,0\nRom,-9223372036854775808,0\n",
        &columns);
    assert_int_equal(csv.keys[0].n_columns, 1);
    assert_true(csv.keys[0].keys[0] == UINT64_MAX && csv.keys[0].keys[1] == UINT64_MAX);
    assert_true(csv.keys[0].keys[2] == (uint64_t)1 << 63);
    assert_true(csv.keys[1].keys[2] == key("city=Rom"));
    assert_int_equal(csv.samples.dim[1], 0);
    data_csv_free(&csv);
}

static void only_columns_of_text_are_guessed(void **state)
{
    const struct data_csv_columns columns = {.keys = &guessed, .n_keys = 1, .describe = 1};
    struct data_csv csv = read_file("id,city,age,kind,label\n7,Oslo,3,,x\n8,,4,a,y\n", &columns);
    const struct data_csv_keys *k = &csv.keys[0];
    static const uint32_t first[] = {0, 1, 1, 1, 2};
    assert_string_equal(csv.roles, "fkfkl");
    assert_string_equal(k->columns, "city,kind");
    assert_memory_equal(k->first, first, sizeof first);
    assert_true(k->keys[0] == key("city=Oslo") && k->keys[1] == key("kind=a"));
    assert_non_null(
        strstr(capture_text,
               "column 2 'city' is keys of input 'fields': no cell is a number (line 2: 'Oslo')"));
    assert_non_null(strstr(capture_text, "column 4 'kind' is keys"));
    assert_non_null(strstr(capture_text, "x.csv: --key_columns is not set: input 'fields' reads "
                                         "the 2 columns without numbers; if columns of numbers"));
    data_csv_free(&csv);
}

/* Cells that are lists repeat less often than their parts; other texts with blanks do not. */
static void cells_that_look_like_lists_are_named(void **state)
{
    static const char says[] =
        "'g': most cells contain '%c', and each whole cell is one key; set --key_separator='%c' if";
    const char *separator = "|;, ";
    for (int i = 0; i < 4; i++) {
        char text[200], line[200];
        const char c = separator[i];
        struct data_csv_columns columns = {
            .keys = &guessed, .n_keys = 1, .describe = 1, .warn = 1, .label = "label"};
        snprintf(text, sizeof text, "g\tlabel\na%cb\t1\nb%cc\t0\na%cc\t1\na%cb%cc\t0\n\t0\nb\t1", c,
                 c, c, c, c);
        snprintf(line, sizeof line, says, c, c);
        struct data_csv csv = read_file(text, &columns);
        if (!strstr(capture_text, line))
            fail_msg("\"%s\"; said: %s", text, capture_text);
        data_csv_free(&csv);
        columns.key_separator = c;
        csv = read_file(text, &columns);
        assert_null(strstr(capture_text, "most cells contain"));
        data_csv_free(&csv);
    }
}

static void texts_with_blanks_are_no_lists(void **state)
{
    const struct data_csv_columns columns = {
        .keys = &guessed, .n_keys = 1, .describe = 1, .warn = 1};
    static const char *const texts[] = {
        "g,label\nNew York,1\nLos Angeles,0\nNew York,1\nRom,0\n", /* parts repeat no more than
                                                                      cells */
        "g,label\na b,1\na,1\nb,0\nc,0\n",                         /* few cells have a blank */
        "g,label\n,1\n,0\na,0\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct data_csv csv = read_file(texts[i], &columns);
        assert_null(strstr(capture_text, "most cells contain"));
        data_csv_free(&csv);
    }
}

static void file_without_names_uses_numbers_of_columns(void **state)
{
    const struct data_csv_columns columns = {.keys = &guessed, .n_keys = 1};
    struct data_csv csv = read_file("3,Oslo,1\n4,Rom,0\n", &columns);
    assert_string_equal(csv.keys[0].columns, "2");
    assert_int_equal(csv.samples.dim[0], 2);
    assert_true(csv.keys[0].keys[0] == key("2=Oslo"));
    data_csv_free(&csv);
    refuse("3,1,1\n4,Rom,0\n", &columns, ST_CORRUPT,
           "column 2 has numbers (first in line 1: '1') and text (first in line 2: 'Rom')");
}

static void mixed_columns_and_no_text_are_errors(void **state)
{
    const struct data_csv_columns columns = {.keys = &guessed, .n_keys = 1};
    refuse("city,age,label\nOslo,3,1\nRom,4x,0\n", &columns, ST_CORRUPT,
           "x.csv: column 2 'age' has numbers (first in line 2: '3') and text (first in line 3:");
    refuse("age,label\n3,1\n4,0\n", &columns, ST_CORRUPT,
           "no column has only text; name its columns with --key_columns");
    struct data_csv csv = read_file("city,age,label\nOslo,3,yes\nRom,4,no\n", &columns);
    assert_string_equal(csv.keys[0].columns, "city");
    data_csv_free(&csv);
}

static void separator_makes_several_keys_of_a_cell(void **state)
{
    const struct data_csv_key_input in = {.name = "g", .columns = "genre", .listed_by = "a list"};
    struct data_csv_columns columns = {.keys = &in, .n_keys = 1, .key_separator = '|'};
    struct data_csv csv =
        read_file("genre,age,label\nrock| pop ||,1,0\n,2,1\n|,3,1\njazz,4,0\n", &columns);
    static const uint32_t first[] = {0, 2, 2, 2, 3};
    assert_memory_equal(csv.keys[0].first, first, sizeof first);
    assert_true(csv.keys[0].keys[1] == key("genre=pop") &&
                csv.keys[0].keys[2] == key("genre=jazz"));
    data_csv_free(&csv);
    columns.key_separator = ',';
    refuse("genre,age,label\na,1,0\n", &columns, ST_INVALID, "--key_separator is also");
}

/* Creates a file whose cells of genre have n keys each, in so many columns. */
static char *many_keys(int n, int n_columns)
{
    char *text = calloc((size_t)(n + 8) * (size_t)n_columns + 64, 2), *to = text;
    assert_non_null(text);
    for (int k = 0; k < n_columns; k++)
        to += sprintf(to, "c%d,", k);
    to += sprintf(to, "label\n");
    for (int k = 0; k < n_columns; k++) {
        for (int i = 0; i < n; i++)
            to += sprintf(to, "a|");
        *to++ = ',';
    }
    sprintf(to, "1\n");
    return text;
}

static void keys_of_cell_and_row_are_limited(void **state)
{
    const struct data_csv_columns columns = {.keys = &guessed, .n_keys = 1, .key_separator = '|'};
    static const int n[][2] = {{4096, 16}, {4097, 1}, {4096, 17}, {1, 1024}, {1, 1025}};
    static const char *const said[] = {NULL, "line 2, column 1 'c0': the cell has more than 4096",
                                       "column 17 'c16': the line has more than 65536 keys", NULL,
                                       "input 'fields' has more than 1024 columns of keys"};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        char *text = many_keys(n[i][0], n[i][1]);
        if (said[i]) {
            refuse(text, &columns, ST_UNSUPPORTED, said[i]);
        } else {
            struct data_csv csv = read_file(text, &columns);
            assert_int_equal(csv.keys[0].n_columns, n[i][1]);
            data_csv_free(&csv);
        }
        free(text);
    }
}

static void wrong_lists_and_numbers_are_refused(void **state)
{
    struct data_csv_key_input in = {.name = "f", .columns = "town", .listed_by = "--key_columns"};
    struct data_csv_columns columns = {.keys = &in, .n_keys = 1};
    const char *text = "city,age,label\nOslo,3,1\n9,4,0\n";
    refuse(text, &columns, ST_NOT_FOUND,
           "has no column 'town' among its 3 columns (city,age,label); --key_columns");
    in.columns = "city,1";
    refuse(text, &columns, ST_INVALID, "column 1 is named in --key_columns and in another entry");
    in.columns = "city";
    columns.ignored = "1";
    refuse(text, &columns, ST_INVALID, "named in --key_columns and in --ignore_columns");
    columns.ignored = NULL;
    columns.label = "city";
    refuse(text, &columns, ST_INVALID, "column 1 is named in --key_columns and in --label_column");
    columns.label = NULL;
    in.columns = "city,2,3";
    refuse("a,city,c\n1,Oslo,2\n", &columns, ST_INVALID, "another entry");
    in.columns = "city,1,3";
    refuse("a,city,c\n1,Oslo,2\n", &columns, ST_INVALID, "none is left for the label");
    in.columns = "city";
    in.are_numbers = true;
    refuse(text, &columns, ST_CORRUPT, "line 2, column 1 'city': 'Oslo' is not a whole number");
    refuse("city,age,label\n18446744073709551616,3,1\n", &columns, ST_CORRUPT, "whole number");
    refuse("city,age,label\n-9223372036854775809,3,1\n", &columns, ST_CORRUPT, "whole number");
    refuse("city,age,label\n-,3,1\n", &columns, ST_CORRUPT, "whole number");
}

static void texts_for_missing_values_are_keys_with_a_warning(void **state)
{
    const struct data_csv_columns columns = {.keys = &guessed, .n_keys = 1, .warn = 1};
    struct data_csv csv = read_file("city,age,label\nOslo,3,1\nNA,4,0\n?,5,0\n", &columns);
    assert_true(csv.keys[0].keys[1] == key("city=NA"));
    assert_non_null(strstr(capture_text,
                           "column 1 'city': 'NA' (first in line 3) is a key of its "
                           "own, but often stands for a missing value, as do 2 keys"));
    data_csv_free(&csv);
}

/* A cell in another encoding, or cut by a separator within quotes, would silently be another key.
 */
static void texts_that_other_files_may_write_differently_are_refused(void **state)
{
    const struct data_csv_key_input in = {.name = "f", .columns = "city", .listed_by = "the model"};
    struct data_csv_columns columns = {.keys = &in, .n_keys = 1};
    refuse("city,age,label\nOslo,3,1\nM\xfcnchen,3,0\n", &columns, ST_CORRUPT,
           "line 3, column 1: 'M?nchen' is not UTF-8");
    refuse("age,city,label\n3,\"Roe;Al,1\n4,Oslo,0\n", &columns, ST_CORRUPT,
           "line 2, column 2 'city': '\"Roe;Al' has a quote at one end only");
}

/* Texts that other programs write for numbers become keys, but not without a warning. */
static void numbers_in_other_notations_are_keys_with_a_warning(void **state)
{
    struct data_csv_columns columns = {.keys = &guessed, .n_keys = 1, .warn = 1};
    static const char *const cells[] = {"3,5", "12%", "2024-01-31", "$ 5", "10:30"};
    static const char *const other[] = {"a3", "-", "Rom 5b"};
    char text[96];
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        snprintf(text, sizeof text, "price;x;label\n%s;1;1\n%s;2;0\n", cells[i], cells[i]);
        struct data_csv csv = read_file(text, &columns);
        assert_non_null(strstr(capture_text, "(line 2) looks like a number or a date in another"));
        data_csv_free(&csv);
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        snprintf(text, sizeof text, "price;x;label\n%s;1;1\n", other[i]);
        struct data_csv csv = read_file(text, &columns);
        assert_null(strstr(capture_text, "looks like a number"));
        data_csv_free(&csv);
    }
    const struct data_csv_key_input in = {
        .name = "f", .columns = "price", .listed_by = "--key_columns"};
    columns.keys = &in;
    struct data_csv csv = read_file("price;x;label\n3,5;1;1\n", &columns);
    assert_null(strstr(capture_text, "looks like a number"));
    data_csv_free(&csv);
}

static void later_files_find_keys_by_name_or_position(void **state)
{
    struct data_csv_key_input in = {.name = "f", .columns = "city", .listed_by = "the model"};
    struct data_csv_columns columns = {.keys = &in,
                                       .n_keys = 1,
                                       .features = 1,
                                       .feature_names = "age",
                                       .label_names = "label",
                                       .roles = "kfl"};
    struct data_csv csv = read_file("label,age,city\n1,3,Oslo\n", &columns);
    assert_true(csv.keys[0].keys[0] == key("city=Oslo"));
    data_csv_free(&csv);
    columns.feature_names = columns.label_names = NULL;
    in.columns = "1";
    csv = read_file("Oslo,3,1\nRom,4,0\n", &columns);
    assert_true(csv.keys[0].keys[1] == key("1=Rom"));
    assert_string_equal(csv.roles, "kfl");
    data_csv_free(&csv);
    columns.may_lack = true;
    csv = read_file("Oslo,3\nRom,4\n", &columns);
    assert_int_equal(csv.labels.n_dims, 0);
    data_csv_free(&csv);
    in.columns = "3";
    columns.roles = "flk";
    refuse("3,x,Oslo,9\n", &columns, ST_INVALID, "the label was column 2 of 3 in training");
    in.columns = "2";
    refuse("3,4,1\n", &columns, ST_MISMATCH, "its columns of keys are not at the positions");
}

/* Line 1 has the names of key columns, but not of the feature or the label. */
static void later_files_without_feature_name_it(void **state)
{
    const struct data_csv_key_input in = {
        .name = "f", .columns = "city,kind", .listed_by = "the model", .is_resolved = true};
    const struct data_csv_columns columns = {.keys = &in,
                                             .n_keys = 1,
                                             .features = 1,
                                             .feature_names = "age",
                                             .label_names = "liked",
                                             .roles = "kfkl",
                                             .may_lack = true};
    refuse("kind,city\na,Oslo\n", &columns, ST_MISMATCH,
           "has no column 'age', which is feature 1 of the training file");
}

/* A column that is listed by number has the same keys in later files, where it is elsewhere. */
static void numbers_of_columns_become_names(void **state)
{
    struct data_csv_key_input in = {.name = "f", .columns = "3,1", .listed_by = "--key_columns"};
    const struct data_csv_columns columns = {.keys = &in, .n_keys = 1};
    struct data_csv trained = read_file("city,age,kind,label\nOslo,3,a,1\n", &columns);
    assert_string_equal(trained.keys[0].columns, "kind,city");
    in.columns = trained.keys[0].columns;
    in.is_resolved = true;
    struct data_csv csv = read_file("age,kind,city,label\n3,a,Oslo,1\n", &columns);
    assert_memory_equal(csv.keys[0].keys, trained.keys[0].keys, 2 * sizeof(uint64_t));
    assert_string_equal(csv.keys[0].columns, "kind,city");
    data_csv_free(&csv);
    refuse("Oslo,3,a,1\n", &columns, ST_NOT_FOUND,
           "has no column 'kind', which has keys of input 'f' in the training file");
    data_csv_free(&trained);
}

/* The keys of a training file without names stay the same in later files with names. */
static void numbers_of_training_without_names_stay(void **state)
{
    struct data_csv_key_input in = {.name = "f", .columns = "1", .listed_by = "--key_columns"};
    const struct data_csv_columns columns = {.keys = &in, .n_keys = 1};
    struct data_csv trained = read_file("Oslo,3,1\n", &columns);
    assert_string_equal(trained.keys[0].columns, "1");
    in.columns = trained.keys[0].columns;
    in.is_resolved = true;
    struct data_csv csv = read_file("city,age,label\nOslo,3,1\n", &columns);
    assert_int_equal(csv.samples.dim[0], 1);
    assert_true(csv.keys[0].keys[0] == trained.keys[0].keys[0]);
    assert_string_equal(csv.keys[0].columns, "1");
    data_csv_free(&csv);
    data_csv_free(&trained);
}

static void names_that_later_files_cannot_find_are_refused(void **state)
{
    struct data_csv_key_input in = {.name = "f", .columns = "1", .listed_by = "--key_columns"};
    struct data_csv_columns columns = {.keys = &in, .n_keys = 1};
    static const char *const files[] = {"a,a,age,label\nx,y,3,1\n", ",b,age,label\nx,2,3,1\n",
                                        "7,b,age,label\nx,2,3,1\n", "\"a,b\";b;label\nx;2;1\n"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        refuse(files[i], &columns, ST_INVALID, "so it needs a name that no other column has");
    in.columns = NULL;
    refuse(files[1], &columns, ST_INVALID, "or exclude it by --ignore_columns");
    const struct data_csv_key_input two[] = {{.name = "f"}, {.name = "g"}};
    columns.keys = two;
    columns.n_keys = 2;
    refuse(files[0], &columns, ST_INVALID, "inputs 'f' and 'g' of the model list no columns");
}

static void equal_names_keep_positions_beside_keys(void **state)
{
    const struct data_csv_key_input in = {.name = "f", .columns = "city", .listed_by = "the model"};
    const struct data_csv_columns columns = {.keys = &in,
                                             .n_keys = 1,
                                             .features = 1,
                                             .feature_names = "x",
                                             .label_names = "label",
                                             .ignored_names = "x",
                                             .roles = "kifl"};
    struct data_csv csv = read_file("city,x,x,label\nOslo,1,2,1\n", &columns);
    float feature;
    data_array_floats(&csv.samples, 0, 1, &feature);
    assert_true(feature == 2);
    data_csv_free(&csv);
}

int main(void)
{
    return RUN_TESTS(numbers_in_other_notations_are_keys_with_a_warning,
                     cells_that_look_like_lists_are_named, texts_with_blanks_are_no_lists,

                     listed_columns_have_the_order_of_the_list, inputs_have_lists_of_their_own,
                     only_columns_of_text_are_guessed, file_without_names_uses_numbers_of_columns,
                     mixed_columns_and_no_text_are_errors, separator_makes_several_keys_of_a_cell,
                     keys_of_cell_and_row_are_limited, wrong_lists_and_numbers_are_refused,
                     texts_that_other_files_may_write_differently_are_refused,
                     texts_for_missing_values_are_keys_with_a_warning,
                     later_files_find_keys_by_name_or_position, later_files_without_feature_name_it,
                     numbers_of_columns_become_names, numbers_of_training_without_names_stay,
                     names_that_later_files_cannot_find_are_refused,
                     equal_names_keep_positions_beside_keys);
}
