/* tests/worker_csv_test.c - CSV files as data: the meaning of lines and columns, and errors with
 * line and column. */
#include "base/log.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "worker/data/data_csv.h"
#include "worker/data/data_words.h"
#include "worker/data/dataset.h"

enum { MOST = 1 << 20 };

static void put_file(const char *path, const char *text)
{
    folder_rig_save(path, text, strlen(text));
}

static int setup(void **state)
{
    char *dir = strdup("/tmp/weir_csv_XXXXXX");
    assert_non_null(dir);
    assert_non_null(mkdtemp(dir));
    *state = dir;
    return 0;
}

static int teardown(void **state)
{
    static const char *const names[] = {"train.csv", "test.tsv", "labels.idx"};
    char path[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", (char *)*state, names[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(*state), 0);
    free(*state);
    return 0;
}

/* Decodes a copy of the exact size, so that AddressSanitizer detects reads beyond it. */
static enum status decode_columns(const char *text, size_t n,
                                  const struct data_csv_columns *columns, struct data_csv *out)
{
    uint8_t *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, text, n);
    enum status st = CAPTURE(data_csv_decode(copy, n, "x.csv", columns, out));
    free(copy);
    return st;
}

static enum status decode(const char *text, size_t n, const char *column,
                          struct data_array *samples, struct data_array *labels)
{
    const struct data_csv_columns columns = {.label = column};
    struct data_csv csv;
    enum status st = decode_columns(text, n, &columns, &csv);
    if (st == ST_OK) {
        assert_null(csv.classes);
        *samples = csv.samples;
        *labels = csv.labels;
        csv.samples.unpacked = csv.labels.unpacked = NULL; /* the caller frees them */
        data_csv_free(&csv);
    }
    return st;
}

/* Checks two samples of two features: 1.5, -2 with label 7 and 3, 4e2 with label 0. */
static void check_good(const char *text, const char *column)
{
    static const float want[4] = {1.5f, -2, 3, 400};
    struct data_array samples, labels;
    float got[4];
    enum status st = decode(text, strlen(text), column, &samples, &labels);
    if (st != ST_OK)
        fail_msg("\"%s\": %s; said: %s", text, status_name(st), capture_text);
    assert_string_equal(capture_text, "");
    assert_int_equal(samples.n_dims, 2);
    assert_int_equal(samples.dim[0], 2);
    assert_int_equal(samples.dim[1], 2);
    assert_int_equal(labels.n_dims, 1);
    assert_int_equal(labels.dim[0], 2);
    data_array_floats(&samples, 0, 4, got);
    for (int i = 0; i < 4; i++)
        assert_true(got[i] == want[i]);
    assert_int_equal(data_array_integer(&labels, 0), 7);
    assert_int_equal(data_array_integer(&labels, 1), 0);
    free(samples.unpacked);
    free(labels.unpacked);
}

static void lines_and_columns_mean_what_is_documented(void **state)
{
    check_good("1.5,-2,7\n3,4e2,0\n", NULL);
    check_good("1.5,-2,7\n3,4e2,0", NULL);
    check_good("1.5;-2;7\r\n3;400;0\r\n", NULL);
    check_good("1.5\t-2\t7\n\n3\t400.\t0\n\n", NULL);
    check_good(" 1.5 , \"-2\",7\n+3,4E+2,\"0\"\n", NULL);
    check_good("\xef\xbb\xbf"
               "1.5,-2,7\n3,4e2,0\n",
               NULL);
    check_good("a,b,c\n1.5,-2,7\n3,4e2,0\n", NULL);
    check_good("label,a,b\n7,1.5,-2\n0,3,4e2\n", NULL);
    check_good("\"0\",\"label\",1\n1.5,7,-2\n3,0,400\n", NULL);
    check_good("0,kind,label\n1.5,7,-2\n3,0,400\n", "kind");
    check_good("7,1.5,-2\n0,3,4e2\n", "1");
    check_good("a,b,label\n7.0,1.5,-2\n0,3,4e2\n", "1");
}

static void separator_makes_as_many_fields_of_the_next_line(void **state)
{
    check_good("a;\"b, cm\";label\n1.5;-2;7\n3;400;0\n", "label");
    check_good("a\t\"b, c; d\"\tlabel\n\n1.5\t-2\t7\n3\t400\t0\n", "label");
}

static void line_of_numbers_is_a_sample(void **state)
{
    struct data_array samples, labels;
    assert_int_equal(decode("0,1,2\n3,4,5\n", 12, "2", &samples, &labels), ST_OK);
    assert_int_equal(samples.dim[0], 2);
    assert_int_equal(data_array_integer(&labels, 1), 4);
    free(samples.unpacked);
    free(labels.unpacked);
}

static const struct {
    const char *text, *column;
    enum status st;
    const char *piece, *other;
} bad[] = {
    {"", NULL, ST_CORRUPT, "x.csv: empty", ""},
    {"\xef\xbb\xbf", NULL, ST_CORRUPT, "x.csv: empty", ""},
    {"\n", NULL, ST_CORRUPT, "line 1: has one column", "commas"},
    {"12\n13\n", NULL, ST_CORRUPT, "line 1: has one column", "commas"},
    {"\n1,2\n", NULL, ST_CORRUPT, "line 1: has one column", "commas"},
    {"a,label\n", NULL, ST_CORRUPT, "no samples", "add a line"},
    {"a,label", NULL, ST_CORRUPT, "no samples", "add a line"},
    {"1,2\n3\n", NULL, ST_CORRUPT, "line 2: has fewer columns than line 1, which has 2", "fix"},
    {"1,2\n\n3,4,5\n", NULL, ST_CORRUPT, "line 3: has more columns", ""},
    {"1,2\n3,4,\n", NULL, ST_CORRUPT, "line 2: has more columns", ""},
    {"1,2\n,4\n", NULL, ST_CORRUPT, "line 2, column 1: '' is no finite number", "remove"},
    {"1,2\nnan,4\n", NULL, ST_CORRUPT, "line 2, column 1: 'nan' is no finite number", ""},
    {"1,2\n0x10,4\n", NULL, ST_CORRUPT, "column 1: '0x10'", ""},
    {"1,2\n1e39,4\n", NULL, ST_CORRUPT, "column 1: '1e39' is beyond the range of float32", "scale"},
    {"1,2\n-1e999,4\n", NULL, ST_CORRUPT, "column 1: '-1e999' is beyond the range", "scale"},
    {"1,2\n1-2,4\n", NULL, ST_CORRUPT, "column 1: '1-2'", ""},
    {"1,2\n-,4\n", NULL, ST_CORRUPT, "column 1: '-'", ""},
    {"1,2\n\x1b[2J\x80,4\n", NULL, ST_CORRUPT, "column 1: '?[2J?'", ""},
    {"1,2\n1,-1\n", NULL, ST_CORRUPT, "line 2, column 2: '-1' is not a label", "0 to 65535"},
    {"1,2\n1,65536\n", NULL, ST_CORRUPT, "'65536' is not a label", ""},
    {"1,2\n1,0.5\n", NULL, ST_CORRUPT, "'0.5' is not a label", ""},
    {"1,2\n1,\n", NULL, ST_CORRUPT, "line 2, column 2: '' is not a label", "0 to 65535"},
    {"a,label\n1,\n", NULL, ST_CORRUPT, "line 2, column 2 'label': '' is not a label", ""},
    {"a,b\n1,0.6681\n", NULL, ST_CORRUPT,
     "line 2, column 2 'b': '0.6681' is not a label, which is a whole number from 0 to 65535; the last column "
     "is the label by default: name the label's column with --label_column",
     "or numbers to fit with --target_columns"},
    {"a,label\n1,0.5\n", NULL, ST_CORRUPT, "fix it or remove the line, or name numbers to fit",
     "--target_columns"},
    {"a,kind,b\n1,cat,2\n", NULL, ST_CORRUPT,
     "line 2, column 2 'kind': 'cat' is no finite number; name the column with --label_column=2 "
     "if it is the label (default: the last column), otherwise fix it",
     "--ignore_columns=2"},
    {"a,kind,b\n1,2,3\n1,cat,2\n", NULL, ST_CORRUPT,
     "column 2 'kind': 'cat' is no finite number; fix it, remove the line", ""},
    {"a,kind,b\n1,cat,2\n", "b", ST_CORRUPT,
     "column 2 'kind': 'cat' is no finite number; fix it, remove the line", ""},
    {"a,b,label\n1,2,0\n3,red,1\n", NULL, ST_CORRUPT,
     "line 3, column 2 'b': 'red' is no finite number; fix it, remove the line, or exclude the "
     "column",
     "--ignore_columns=2"},
    {"a,b,c\n1,2,3\n1,2,x\n", NULL, ST_CORRUPT, "line 3, column 3 'c': the label 'x' is a word",
     "(default: the last one) with --label_column"},
    {"x,3\n4,5\n", NULL, ST_CORRUPT, "line 1: some fields are numbers, but column 1", ""},
    {"1,x,3\n4,5,6\n", NULL, ST_CORRUPT,
     "line 1: some fields are numbers, but column 2, 'x', is not;",
     "rename the label's column to 'label', or name it with --label_column=NAME"},
    {"1,x,3\n4,5,6\n", "3", ST_CORRUPT,
     "but column 2, 'x', is not; if line 1 contains the names of the columns, set --label_column to "
     "one of these names instead of 3",
     "fix the field"},
    {"\"a\",\"label\"\n\"1\",5,0\n\"2\",6,1\n", "label", ST_CORRUPT,
     "has 3 fields, more than line 1 has names", "--ignore_columns=1"},
    {"a,b\n1,2\n", "kind", ST_NOT_FOUND, "no column 'kind' among its 2", "--label_column"},
    {"1,2\n1,2\n", "label", ST_NOT_FOUND, "no column 'label'", ""},
    {"1,2\n", "0", ST_NOT_FOUND, "no column '0'", ""},
    {"1,2\n", "3", ST_NOT_FOUND, "no column '3'", ""},
    {"1,2\n", "1.5", ST_NOT_FOUND, "no column '1.5'", ""},
    {"1,2\n", "", ST_NOT_FOUND, "no column ''", ""},
};

static void faults_reported_with_line_and_column(void **state)
{
    struct data_array samples, labels;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        enum status st = decode(bad[i].text, strlen(bad[i].text), bad[i].column, &samples, &labels);
        if (st != bad[i].st || capture_lines() != 1 || !strstr(capture_text, bad[i].piece) ||
            !strstr(capture_text, bad[i].other))
            fail_msg("%zu: status %s, wanted %s with \"%s\" and \"%s\"; said: %s", i,
                     status_name(st), status_name(bad[i].st), bad[i].piece, bad[i].other,
                     capture_text);
    }
}

/* Files of NUL bytes, of separators only, or of one field with a million digits: each is refused
 * with one line. */
static void hostile_files_are_refused(void **state)
{
    static const char fills[] = {0, ',', ';', '\t', '"', ' ', '\r', '\n', '9', '-', 'e', '\xff'};
    struct data_array samples, labels;
    char *text = malloc(MOST);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof fills; i++) {
        memset(text, fills[i], MOST);
        assert_int_equal(decode(text, MOST, NULL, &samples, &labels), ST_CORRUPT);
        assert_int_equal(capture_lines(), 1);
        memcpy(text, "1,2\n", 4);
        enum status st = decode(text, MOST, NULL, &samples, &labels);
        assert_int_equal(st, fills[i] == '\n' ? ST_OK
                                              : ST_CORRUPT); /* such a file has only empty lines */
        assert_int_equal(capture_lines(), st != ST_OK);
        if (st == ST_OK) {
            free(samples.unpacked);
            free(labels.unpacked);
        }
    }
    free(text);
}

static void set_opened_by_name_of_its_file(void **state)
{
    struct dataset_request r = {.dir = *state, .part = "train"};
    struct dataset *d = NULL;
    char path[64], labels[64];
    float sample[2];
    snprintf(path, sizeof path, "%s/train.csv", (char *)*state);
    put_file(path, "label,a,b\n2,0.5,8\n1,3,4\n");
    assert_int_equal(dataset_open(&r, &d), ST_OK);
    assert_int_equal(d->n, 2);
    assert_int_equal(d->classes, 3);
    assert_int_equal(d->sample.dim[0], 1);
    assert_int_equal(d->sample.dim[1], 1);
    assert_int_equal(d->sample.dim[2], 2);
    assert_null(d->bytes);
    assert_string_equal(d->path, path);
    assert_int_equal(dataset_sample(d, 0, sample), ST_OK);
    assert_true(sample[0] == 0.5f && sample[1] == 8);
    assert_int_equal(CAPTURE(dataset_check_classes(d, 2)), ST_MISMATCH);
    assert_non_null(strstr(capture_text, "train.csv: label 0 is 2"));
    struct dataset *held = NULL;
    assert_int_equal(dataset_split(d, 0.5, 1, &held), ST_OK);
    assert_int_equal(held->n + d->n, 2);
    dataset_destroy(held);
    dataset_destroy(d);
    d = NULL;
    snprintf(labels, sizeof labels, "%s/labels.idx", (char *)*state);
    r.data = path;
    r.labels = labels;
    assert_int_equal(CAPTURE(dataset_open(&r, &d)), ST_INVALID);
    assert_non_null(strstr(capture_text, "--train_labels: "));
    snprintf(path, sizeof path, "%s/test.tsv", (char *)*state);
    put_file(path, "1\t2\n");
    r.labels = NULL;
    r.label_column = "1";
    assert_int_equal(dataset_open(&r, &d), ST_OK);
    assert_int_equal(d->labels[0], 1);
    dataset_destroy(d);
}

/* Checks two samples: features 1.5 and 3, -2 and 400; targets 7.5, 0.25 and -1, 0, in the named
 * order. */
static void check_targets(const char *text, const char *targets)
{
    static const float features[4] = {1.5f, -2, 3, 400}, wanted[4] = {7.5f, 0.25f, -1, 0};
    const struct data_csv_columns columns = {.targets = targets};
    struct data_csv csv;
    float got[4];
    enum status st = decode_columns(text, strlen(text), &columns, &csv);
    if (st != ST_OK)
        fail_msg("\"%s\": %s; said: %s", text, status_name(st), capture_text);
    const struct data_array samples = csv.samples, labels = csv.labels;
    assert_int_equal(labels.type, DATA_F32);
    assert_int_equal(labels.n_dims, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(samples.dim[i], 2);
        assert_int_equal(labels.dim[i], 2);
    }
    data_array_floats(&samples, 0, 4, got);
    assert_memory_equal(got, features, sizeof features);
    data_array_floats(&labels, 0, 4, got);
    assert_memory_equal(got, wanted, sizeof wanted);
    data_csv_free(&csv);
}

static void targets_are_columns_in_the_order_named(void **state)
{
    check_targets("a,price,b,area\n1.5,0.25,-2,7.5\n3,0,400,-1\n", "area,price");
    check_targets("1.5;0.25;-2;7.5\n3;0;400;-1\n", "4,2");
    check_targets("7.5,0.25,1.5,-2\n-1,0,3,400", "1,2");
    check_targets("a,\"y\",b,2\n1.5,0.25,-2,7.5\n3,0,400,-1\n", "4,y");
}

static void wrong_targets_are_named(void **state)
{
    static const struct {
        const char *text, *targets;
        enum status st;
        const char *piece;
    } bad[] = {
        {"a,b\n1,2\n", "c", ST_NOT_FOUND,
         "line 1: has no column 'c' among its 2 columns (a,b); each entry of "},
        {"1,2\n", "3", ST_NOT_FOUND, "no column '3'"},
        {"1,2\n", "0", ST_NOT_FOUND, "no column '0'"},
        {"1,2,3\n", "1,1", ST_INVALID, "--target_columns names column 1 twice"},
        {"a,b\n1,2\n", "b,2", ST_INVALID, "names column 2 twice"},
        {"1,2\n", "1,2", ST_INVALID, "names all 2 columns"},
        {"a,2\n1,2\n", "2", ST_CORRUPT,
         "line 1: some fields are numbers, but column 1, 'a', is not; if line 1 contains "
         "the names of the columns, set --target_columns to one of these names instead of 2"},
        {"a,b\n1,x\n", "b", ST_CORRUPT, "line 2, column 2 'b': 'x' is no finite number"},
        {"a,b\n1,nan\n", "b", ST_CORRUPT, "line 2, column 2 'b': 'nan' is no finite number"},
        {"a,b\n", "b", ST_CORRUPT, "but no samples"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct data_csv_columns columns = {.targets = bad[i].targets};
        struct data_csv csv;
        enum status st = decode_columns(bad[i].text, strlen(bad[i].text), &columns, &csv);
        if (st != bad[i].st || capture_lines() != 1 || !strstr(capture_text, bad[i].piece))
            fail_msg("case %zu: %s; said: %s", i, status_name(st), capture_text);
    }
}

/* Checks the remaining columns: two samples of two features, 1.5, -2 and 3, 400; labels 7 and 0. */
static void columns_that_are_ignored_are_not_read(void **state)
{
    static const float want[4] = {1.5f, -2, 3, 400};
    static const struct {
        const char *text, *label, *ignored;
    } good[] = {
        {"id,a,b,label\nx1,1.5,-2,7\nx2,3,4e2,0\n", NULL, "id"},
        {"id,a,b,label\nx1,1.5,-2,7\nx2,3,4e2,0\n", NULL, "1"},
        {"x1,1.5,-2,7\nx2,3,4e2,0\n", NULL, "1"},
        {"x1,1.5,-2,7,\nx2,3,4e2,0,nan\n", NULL, "5,1"},
        {"x1,1.5,-2,7,\nx2,3,4e2,0,\xff\n", "4", "1,5"},
        {"1,1.5,-2,7,when\n2,3,4e2,0,\n", NULL, "when,1"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const struct data_csv_columns columns = {.label = good[i].label,
                                                 .ignored = good[i].ignored};
        struct data_csv csv;
        int names =
            strchr(good[i].ignored, 'w') != NULL; /* line 1 has a word, so it is not a sample */
        enum status st = decode_columns(good[i].text, strlen(good[i].text), &columns, &csv);
        if (st != ST_OK)
            fail_msg("case %zu: %s; said: %s", i, status_name(st), capture_text);
        assert_int_equal(csv.samples.dim[0], names ? 1 : 2);
        assert_int_equal(csv.samples.dim[1], 2);
        assert_memory_equal(csv.samples.data, want + 2 * names, sizeof want / (names ? 2 : 1));
        assert_int_equal(data_array_integer(&csv.labels, 0), names ? 0 : 7);
        assert_null(csv.classes);
        data_csv_free(&csv);
    }
}

/* Ignored fields may be empty, so a line with ignored fields may have fewer bytes than other
 * lines. */
static void ignored_fields_may_be_empty(void **state)
{
    enum { ROWS = 1000 };
    static const char head[] = "a,b,c,d,e,f,g,label\n", row[] = "1,,,,,,,2\n";
    const struct data_csv_columns columns = {.ignored = "b,c,d,e,f,g"};
    struct data_csv csv;
    char *text = malloc(sizeof head + ROWS * sizeof row), *at = text;
    assert_non_null(text);
    at = stpcpy(at, head);
    for (int i = 0; i < ROWS; i++)
        at = stpcpy(at, row);
    assert_int_equal(decode_columns(text, (size_t)(at - text), &columns, &csv), ST_OK);
    assert_int_equal(csv.samples.dim[0], ROWS);
    assert_int_equal(data_array_integer(&csv.labels, ROWS - 1), 2);
    data_csv_free(&csv);
    free(text);
}

static void check_words(const char *text, const struct data_csv_columns *columns,
                        const char *classes, const char *numbers)
{
    struct data_csv csv;
    enum status st = decode_columns(text, strlen(text), columns, &csv);
    if (st != ST_OK)
        fail_msg("\"%s\": %s; said: %s", text, status_name(st), capture_text);
    assert_string_equal(csv.classes, classes);
    assert_int_equal(csv.labels.dim[0], strlen(numbers));
    for (int64_t i = 0; numbers[i]; i++)
        assert_int_equal(data_array_integer(&csv.labels, i), numbers[i] - '0');
    data_csv_free(&csv);
}

/* Words are numbered in the order of their bytes, or as in the training set. */
static void words_are_numbered(void **state)
{
    const struct data_csv_columns by_rule = {.label = NULL}, third = {.label = "3"},
                                  named = {.label = "species", .ignored = "id"},
                                  given = {.classes = "a\nbee\ncat\nd"};
    check_words("x,label\n1,dog\n2,cat\n3,dog\n4,Dog\n", &by_rule, "Dog\ncat\ndog", "2120");
    check_words("1,2,b\n3,4,a\n5,6,b\n", &third, "a\nb", "101");
    check_words("1,2,b\n3,4,a\n5,6,b\n", &by_rule, "a\nb", "101");
    check_words("id,species,2\nx,ab,3\ny,a,4\nz,abc,5\n", &named, "a\nab\nabc", "102");
    check_words("1,\"N/A\"\n2, \xc3\xa4 \n3,N/A\n", &by_rule, "N/A\n\xc3\xa4", "010");
    check_words("1,cat\n2,a\n3,cat\n", &given, "a\nbee\ncat\nd", "202");
    check_words("x,label\n1,only\n", &by_rule, "only", "0");
}

static void wrong_words_and_columns_are_named(void **state)
{
    static const struct {
        const char *text, *label, *ignored, *classes;
        enum status st;
        const char *piece;
    } bad[] = {
        {"a,label\n1,cat\n2,3\n", NULL, NULL, NULL, ST_CORRUPT,
         "line 3, column 2 'label': the label '3' is a number, but the label of line 2 is a word"},
        {"a,label\n1,3\n2,cat\n", NULL, NULL, NULL, ST_CORRUPT,
         "line 3, column 2 'label': the label 'cat' is a word, but the label of line 2 is a number"},
        {"0,1,kind\n1,2,3\n", NULL, NULL, NULL, ST_CORRUPT,
         "if line 1 names the columns, name the label's column in --label_column"},
        {"0,1,kind\n1,2,cat\n3,4,cat\n", "3", NULL, NULL, ST_CORRUPT,
         "line 1: its label is a word that no other line has"},
        {"a,label\n1,cat\n2,\n", NULL, NULL, NULL, ST_CORRUPT,
         "line 3, column 2 'label': '' is not a label"},
        {"a,label\n1,\x01x\n", NULL, NULL, NULL, ST_CORRUPT,
         "line 2, column 2 'label': '?x' is not a label"},
        {"1,cat\n2,dog\n", NULL, NULL, "ant\ncat", ST_MISMATCH,
         "line 2, column 2: the label 'dog' is not among the classes of the training set, ant/cat"},
        {"1,cat\n", NULL, NULL, "", ST_MISMATCH,
         "the label 'cat' is a word without a known number"},
        {"1,7\n", NULL, NULL, "ant\ncat", ST_MISMATCH, "the label '7' is not among the classes"},
        {"a,b,label\n1,2,3\n", NULL, "c", NULL, ST_NOT_FOUND,
         "no column 'c' among its 3 columns (a,b,label); each entry of --ignore_columns"},
        {"1,2,3\n", NULL, "4", NULL, ST_NOT_FOUND, "no column '4'"},
        {"1,2,3\n", NULL, "1,1", NULL, ST_INVALID, "--ignore_columns names column 1 twice"},
        {"1,2,3\n", "1", "1", NULL, ST_INVALID,
         "column 1 is named in --ignore_columns and in --label_column"},
        {"1,2,3\n", NULL, "1,2", NULL, ST_INVALID, "--ignore_columns leaves none of its 3"},
        {"1,2\n", NULL, "1,2", NULL, ST_INVALID, "--ignore_columns leaves none of its 2"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct data_csv_columns columns = {
            .label = bad[i].label, .ignored = bad[i].ignored, .classes = bad[i].classes};
        struct data_csv csv;
        enum status st = decode_columns(bad[i].text, strlen(bad[i].text), &columns, &csv);
        if (st != bad[i].st || capture_lines() != 1 || !strstr(capture_text, bad[i].piece))
            fail_msg("case %zu: %s; said: %s", i, status_name(st), capture_text);
    }
}

/* The labels may be missing. features: number in training; labels: nonzero if labels are found; n:
 * number of features that are found. */
static void labels_that_are_missing_are_not_made_up(void **state)
{
    static const struct {
        const char *text, *label, *targets, *ignored;
        int64_t features;
        int labels, n;
    } good[] = {
        {"1,2\n3,4\n", NULL, NULL, NULL, 2, 0, 2},
        {"1,2\n3,4\n", NULL, NULL, NULL, 1, 1, 1},
        {"1,2\n3,4\n", "1", NULL, NULL, 2, 0, 2},
        {"1,2\n3,4\n", "2", NULL, NULL, 0, 1, 1},
        {"1,2\n3,4\n", "none", NULL, NULL, 0, 0, 2},
        {"1,2\n3,4\n", NULL, "y,z", NULL, 2, 0, 2},
        {"1,2\n3,4\n", NULL, "1", NULL, 1, 1, 1},
        {"1\n3\n", NULL, NULL, NULL, 1, 0, 1},
        {"a\n3\n4\n", NULL, NULL, NULL, 1, 0, 1},
        {"x,1,2\ny,3,4\n", NULL, NULL, "1", 2, 0, 2},
        {"label,a\n1,2\n3,4\n", NULL, NULL, NULL, 0, 1, 1},
    };
    static const struct {
        const char *text;
        int64_t features;
        enum status st;
        const char *piece;
    } bad[] = {
        {"1,2\n3,4\n", 0, ST_INVALID, "--label_column=none"},
        {"1,2\n3,4\n", 3, ST_MISMATCH,
         "has 2 columns, of which 1 would be features, but training "},
        {"a,label\n3,4\n", 2, ST_MISMATCH, "has 2 columns, of which 1 would be features"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const struct data_csv_columns columns = {.label = good[i].label,
                                                 .targets = good[i].targets,
                                                 .ignored = good[i].ignored,
                                                 .features = good[i].features,
                                                 .may_lack = 1};
        struct data_csv csv;
        enum status st = decode_columns(good[i].text, strlen(good[i].text), &columns, &csv);
        if (st != ST_OK || (csv.labels.n_dims > 0) != good[i].labels || csv.samples.dim[0] != 2 ||
            csv.samples.dim[1] != good[i].n)
            fail_msg("case %zu: %s; said: %s", i, status_name(st), capture_text);
        data_csv_free(&csv);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct data_csv_columns columns = {.features = bad[i].features, .may_lack = 1};
        struct data_csv csv;
        enum status st = decode_columns(bad[i].text, strlen(bad[i].text), &columns, &csv);
        if (st != bad[i].st || capture_lines() != 1 || !strstr(capture_text, bad[i].piece))
            fail_msg("case %zu: %s; said: %s", i, status_name(st), capture_text);
    }
}

/* Keeps the names of the sample's columns, not those of other columns in the line. */
static void names_of_features_are_kept(void **state)
{
    const struct {
        const char *text, *label, *targets, *ignored, *want;
    } files[] = {
        {"a,\"b c\", d,label\n1,2,3,4\n", NULL, NULL, NULL, "a\nb c\nd"},
        {"label,a,,d\n1,2,3,4\n", NULL, NULL, "d", "a\n"},
        {"a,b,y,z\r\n1,2,3,4\r\n", NULL, "z,b", NULL, "a\ny"},
        {"1,2,3\n4,5,6\n", NULL, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const struct data_csv_columns columns = {
            .label = files[i].label, .targets = files[i].targets, .ignored = files[i].ignored};
        struct data_csv csv;
        assert_int_equal(decode_columns(files[i].text, strlen(files[i].text), &columns, &csv),
                         ST_OK);
        if (files[i].want)
            assert_string_equal(csv.columns, files[i].want);
        else
            assert_null(csv.columns);
        data_csv_free(&csv);
    }
}

static void columns_are_found_by_the_names_of_training(void **state)
{
    const struct data_csv_columns columns = {.feature_names = "a\nb",
                                             .label_names = "y\nz",
                                             .ignored_names = "id",
                                             .features = 2,
                                             .are_targets = true};
    const char *text = "z,b,id,y,a\n1,2,3,4,5\n";
    struct data_csv csv;
    float got[2];
    assert_int_equal(decode_columns(text, strlen(text), &columns, &csv), ST_OK);
    data_array_floats(&csv.samples, 0, 2, got);
    assert_true(got[0] == 5 && got[1] == 2);
    assert_int_equal(csv.labels.dim[1], 2);
    data_array_floats(&csv.labels, 0, 2, got);
    assert_true(got[0] == 4 && got[1] == 1);
    assert_string_equal(csv.columns, "a\nb");
    data_csv_free(&csv);
}

static void texts_of_other_encodings_reported(void **state)
{
    static const char utf16[] = "\xff\376a\0,\0b\0\n\0001\0,\0002\0\n";
    static const char cr[] = "a,label\r1,0\r2,1\r";
    const struct data_csv_columns columns = {.label = "label"};
    struct data_csv csv;
    assert_int_equal(decode_columns(utf16, sizeof utf16, &columns, &csv), ST_CORRUPT);
    assert_non_null(strstr(capture_text, "x.csv: is UTF-16 text, which is not supported"));
    assert_int_equal(decode_columns(cr, sizeof cr - 1, &columns, &csv), ST_CORRUPT);
    assert_non_null(strstr(capture_text, "x.csv: its lines end with CR alone"));
}

static void lists_differ_at_their_first_difference(void **state)
{
    const struct {
        const char *a, *b;
        int64_t place;
        const char *in_a, *in_b;
    } lists[] = {
        {"a\nb", "a\nb", -1, NULL, NULL}, {"a\nb", "a\nc", 1, "b", "c"}, {"a\nb", "a", 1, "b", ""},
        {"ab", "a", 0, "ab", "a"},        {"a\n", "a\nb", 1, "", "b"},   {"", "", -1, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char in_a[DATA_WORDS_TEXT_BYTES], in_b[DATA_WORDS_TEXT_BYTES];
        assert_int_equal(data_words_differ(lists[i].a, lists[i].b, in_a, in_b), lists[i].place);
        if (lists[i].place >= 0) {
            assert_string_equal(in_a, lists[i].in_a);
            assert_string_equal(in_b, lists[i].in_b);
        }
    }
}

/* The largest number of classes is read, one more is refused. */
static void words_have_a_bound(void **state)
{
    enum { LINE = 16 };
    char *text = malloc((DATASET_MAX_CLASSES + 1) * LINE), *at = text + sprintf(text, "a,label\n");
    const struct data_csv_columns columns = {.label = NULL};
    struct data_csv csv;
    for (int i = 0; i < DATASET_MAX_CLASSES; i++)
        at += sprintf(at, "1,w%05d\n", i);
    assert_int_equal(decode_columns(text, (size_t)(at - text), &columns, &csv), ST_OK);
    assert_int_equal(data_array_integer(&csv.labels, 40000), 40000);
    data_csv_free(&csv);
    char *names = malloc(DATASET_MAX_CLASSES * LINE), *end = names;
    for (int i = 0; i <= DATASET_MAX_CLASSES; i++)
        end += sprintf(end, "%sw%05d", i ? "\n" : "", i);
    const struct data_csv_columns of_export = {.classes = names};
    assert_int_equal(decode_columns("1,w00001\n", 9, &of_export, &csv), ST_UNSUPPORTED);
    assert_int_equal(capture_lines(), 1);
    assert_non_null(strstr(capture_text, "its training had more than 65536 words as classes"));
    free(names);
    at += sprintf(at, "1,x\n");
    assert_int_equal(decode_columns(text, (size_t)(at - text), &columns, &csv), ST_UNSUPPORTED);
    assert_non_null(strstr(capture_text, "line 65538, column 2 'label': more than 65536 words"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_and_columns_mean_what_is_documented),
        cmocka_unit_test(separator_makes_as_many_fields_of_the_next_line),
        cmocka_unit_test(line_of_numbers_is_a_sample),
        cmocka_unit_test(faults_reported_with_line_and_column),
        cmocka_unit_test(hostile_files_are_refused),
        cmocka_unit_test(targets_are_columns_in_the_order_named),
        cmocka_unit_test(wrong_targets_are_named),
        cmocka_unit_test(columns_that_are_ignored_are_not_read),
        cmocka_unit_test(ignored_fields_may_be_empty),
        cmocka_unit_test(words_are_numbered),
        cmocka_unit_test(wrong_words_and_columns_are_named),
        cmocka_unit_test(labels_that_are_missing_are_not_made_up),
        cmocka_unit_test(names_of_features_are_kept),
        cmocka_unit_test(columns_are_found_by_the_names_of_training),
        cmocka_unit_test(texts_of_other_encodings_reported),
        cmocka_unit_test(lists_differ_at_their_first_difference),
        cmocka_unit_test(words_have_a_bound),
        cmocka_unit_test_setup_teardown(set_opened_by_name_of_its_file, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
