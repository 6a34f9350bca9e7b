/* tests/worker_dataset_keys_test.c - keys from arrays of whole numbers in safetensors files and
 * from columns of CSV files, arrays that are refused, and keys in fingerprints. */
#include "base/log.h"
#include "base/rng.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "worker/data/dataset.h"
#include "worker/data/dataset_keys.h"
#include "worker/data/dataset_same.h"
#include "worker/data/fingerprint.h"
#include <string.h>

enum { ROWS = 4, COLUMNS = 3 };

/* header of a file of three tensors; arguments: type, shape and end of the third one */
#define HEADER                                                                                     \
    "{\"images\":{\"dtype\":\"F32\",\"shape\":[4,2],\"data_offsets\":[0,32]},"                     \
    "\"labels\":{\"dtype\":\"I64\",\"shape\":[4],\"data_offsets\":[32,64]},"                       \
    "\"ids\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[64,%zu]}}"

static char dir[] = "/tmp/weir_keys_XXXXXX", path[64];

/* Saves samples, labels and one more tensor of this type and shape. The header is padded so that
 * the tensor begins `shift` bytes after a multiple of 8. */
static void save(const char *type, const char *shape, const void *keys, size_t bytes, size_t shift)
{
    static const float images[ROWS * 2] = {0.5f};
    static const int64_t labels[ROWS] = {0, 1, 1, 0};
    char header[512];
    int n = snprintf(header, sizeof header, HEADER, type, shape, 64 + bytes);
    while (n % 8 != (int)shift)
        header[n++] = ' ';
    uint64_t length = (uint64_t)n;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(&length, 8, 1, f), 1);
    assert_int_equal(fwrite(header, (size_t)n, 1, f), 1);
    assert_int_equal(fwrite(images, sizeof images, 1, f), 1);
    assert_int_equal(fwrite(labels, sizeof labels, 1, f), 1);
    assert_int_equal(fwrite(keys, bytes, 1, f), 1);
    assert_int_equal(fclose(f), 0);
}

static enum status open_set(const char *array, struct dataset **out)
{
    const struct dataset_key_source source = {.input = "fields", .array = array};
    const struct dataset_request r = {
        .dir = dir, .part = "train", .data = path, .keys = &source, .n_keys = 1};
    return dataset_open(&r, out);
}

static void check_bad(const char *array, enum status st, const char *text)
{
    struct dataset *d = NULL;
    assert_int_equal(CAPTURE(open_set(array, &d)), st);
    if (!strstr(capture_text, text))
        fail_msg("'%s' is not in '%s'", text, capture_text);
    assert_null(d);
}

static void check_keys(int n_columns, const uint64_t *expected)
{
    struct dataset *d;
    assert_int_equal(open_set("ids", &d), ST_OK);
    assert_int_equal(d->keys->n, 1);
    assert_int_equal(d->keys->input[0].n_columns, n_columns);
    assert_null(d->keys->input[0].first);
    assert_memory_equal(d->keys->input[0].keys, expected,
                        (size_t)(ROWS * n_columns) * sizeof *expected);
    dataset_destroy(d);
}

/* Numbers of 64 bits are used unchanged, also if they are not aligned in the file. */
static void test_whole_numbers_are_keys(void **state)
{
    uint64_t keys[ROWS * COLUMNS];
    for (uint64_t i = 0; i < ROWS * COLUMNS; i++)
        keys[i] = i % 3 == 0 ? UINT64_MAX - i : i * 1000003;
    for (size_t shift = 0; shift < 8; shift += 3) {
        save("U64", "[4,3]", keys, sizeof keys, shift);
        check_keys(COLUMNS, keys);
        save("I64", "[4,3]", keys, sizeof keys, shift);
        check_keys(COLUMNS, keys);
    }
    const int32_t small[ROWS] = {7, -1, 0, INT32_MIN};
    const uint64_t wide[ROWS] = {7, UINT64_MAX, 0, UINT64_MAX - INT32_MAX};
    save("I32", "[4]", small, sizeof small, 0);
    check_keys(1, wide);
}

/* Both parts of a set have the keys of all rows, also after the other part has been destroyed. */
static void test_split_sets_have_keys(void **state)
{
    uint64_t keys[ROWS];
    struct dataset *d, *held;
    for (uint64_t i = 0; i < ROWS; i++)
        keys[i] = 10 + i;
    save("U64", "[4]", keys, sizeof keys, 0);
    assert_int_equal(open_set("ids", &d), ST_OK);
    assert_int_equal(dataset_split(d, 0.5, 1, &held), ST_OK);
    assert_int_equal(d->keys->n, 1);
    assert_memory_equal(d->keys->input[0].keys, keys, sizeof keys);
    dataset_destroy(d);
    assert_int_equal(held->keys->n, 1);
    assert_memory_equal(held->keys->input[0].keys, keys, sizeof keys);
    dataset_destroy(held);
}

static void test_other_arrays_are_refused(void **state)
{
    const int64_t keys[ROWS * 2] = {0};
    save("F64", "[4]", keys, ROWS * 8, 0);
    check_bad("ids", ST_CORRUPT,
              "array 'ids' has numbers of type float64, but the keys of input 'fields' are whole");
    save("I64", "[4,2,1]", keys, sizeof keys, 0);
    check_bad("ids", ST_CORRUPT, "array 'ids' is an array of (4, 2, 1), but the keys of input");
    save("I64", "[8]", keys, sizeof keys, 0);
    check_bad("ids", ST_MISMATCH, "array 'ids' is an array of (8), but there are 4 samples");
    check_bad("other", ST_NOT_FOUND, "other");
    FILE *f = fopen(path, "wb"); /* an IDX file has no names */
    assert_non_null(f);
    assert_int_equal(fwrite("\0\0\x08\x02\0\0\0\x01\0\0\0\x01\x05", 13, 1, f), 1);
    assert_int_equal(fclose(f), 0);
    check_bad("ids", ST_UNSUPPORTED, "input 'fields' of the model reads keys");
}

static uint32_t checksum(const struct dataset_keys *keys, const uint32_t *rows)
{
    static const uint8_t bytes[ROWS];
    static const int32_t labels[ROWS];
    const struct dataset d = {.n = ROWS,
                              .sample = {3, {1, 1, 1}},
                              .classes = 1,
                              .bytes = bytes,
                              .labels = labels,
                              .rows = rows,
                              .keys = keys};
    struct job_data out;
    assert_int_equal(fingerprint_compute(&d, NULL, "/", 0, &out), ST_OK);
    return out.train_samples;
}

/* The checksum of samples changes with each key, with the cells of the keys, and with their
 * order. */
static void test_keys_change_fingerprint(void **state)
{
    static const uint32_t swapped[ROWS] = {1, 0, 2, 3};
    uint64_t keys[ROWS] = {5, 6, 7, 8};
    uint32_t first[ROWS + 1] = {0, 2, 2, 3, 4}, other[ROWS + 1] = {0, 1, 2, 2, 4};
    struct dataset_keys k = {1, {{1, keys, NULL}}};
    uint32_t none = checksum(NULL, NULL), plain = checksum(&k, NULL);
    assert_int_not_equal(none, plain);
    assert_int_not_equal(plain, checksum(&k, swapped));
    k.input[0].first = first;
    uint32_t cells = checksum(&k, NULL);
    assert_int_not_equal(plain, cells);
    k.input[0].first = other;
    assert_int_not_equal(cells, checksum(&k, NULL));
    k.input[0].first = NULL;
    keys[3]++;
    assert_int_not_equal(plain, checksum(&k, NULL));
}

static struct dataset *open_csv(const char *text, enum status want)
{
    static const struct dataset_key_source source[] = {
        {.input = "ids", .columns = "id", .listed_by = "the model", .are_numbers = true},
        {.input = "fields"},
    };
    char csv[72];
    snprintf(csv, sizeof csv, "%s/x.csv", dir);
    const struct dataset_request r = {.dir = dir,
                                      .part = "train",
                                      .data = csv,
                                      .keys = source,
                                      .n_keys = 2,
                                      .key_separator = '|'};
    struct dataset *d = NULL;
    FILE *f = fopen(csv, "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    enum status st = CAPTURE(dataset_open(&r, &d));
    remove(csv);
    if (st != want)
        fail_msg("%s; said: %s", status_name(st), capture_text);
    return d;
}

/* The columns of a CSV file become inputs with one list each; split sets share them. */
static void test_columns_of_csv_are_keys(void **state)
{
    static const uint32_t first[] = {0, 2, 2, 3};
    static const uint64_t ids[] = {UINT64_MAX, 8, 9};
    struct dataset *held, *d = open_csv("id,age,kind,label\n-1,2,a|b,0\n8,3,,1\n9,4,a,1\n", ST_OK);
    assert_int_equal(d->keys->n, 2);
    assert_memory_equal(d->keys->input[0].keys, ids, sizeof ids);
    assert_null(d->keys->input[0].first);
    assert_memory_equal(d->keys->input[1].first, first, sizeof first);
    assert_true(d->keys->input[1].keys[0] == rng_text("kind=a", 6));
    assert_string_equal(d->key_columns[0], "id");
    assert_string_equal(d->key_columns[1], "kind");
    assert_int_equal(shape_elems(&d->sample), 1);
    assert_int_equal(dataset_split(d, 0.5, 1, &held), ST_OK);
    dataset_destroy(d);
    assert_string_equal(held->key_columns[1], "kind");
    assert_memory_equal(held->keys->input[1].first, first, sizeof first);
    dataset_destroy(held);
    assert_null(open_csv("id,kind,label\n1,a,0\n", ST_UNSUPPORTED));
    assert_non_null(
        strstr(capture_text, "have keys, but input 'image' of the model reads numbers"));
    assert_null(open_csv("id,age,label\n1,2,0\n", ST_CORRUPT));
    assert_non_null(strstr(capture_text, "no column has only text"));
}

/* Writes a text to x.csv, opens it for this part, and removes it. */
static struct dataset *open_text(const char *text, const struct dataset_request *like,
                                 enum status want)
{
    char csv[72];
    snprintf(csv, sizeof csv, "%s/x.csv", dir);
    struct dataset_request r = *like;
    struct dataset *d = NULL;
    r.data = csv;
    r.no_dense = true;
    FILE *f = fopen(csv, "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    enum status st = CAPTURE(dataset_open(&r, &d));
    remove(csv);
    if (st != want)
        fail_msg("\"%s\": %s; said: %s", text, status_name(st), capture_text);
    return d;
}

/* Checks that the set has no numbers, and a key of these texts in each row. */
static void check_only_keys(const struct dataset *d, const char *const *texts, int n)
{
    assert_int_equal(d->n, n);
    assert_int_equal(shape_elems(&d->sample), 1);
    assert_null(d->columns);
    assert_true(dataset_is_bytes(d));
    float sample = -1;
    for (int i = 0; i < n; i++) {
        assert_int_equal(dataset_sample(d, i, &sample), ST_OK);
        assert_true(sample == 0);
        assert_true(d->keys->input[0].keys[i] == rng_text(texts[i], strlen(texts[i])));
    }
}

/* A table may have only columns of keys: in training, and in later files that find them by name or
 * by position, with or without labels. */
static void test_table_without_numbers(void **state)
{
    static const char *const towns[] = {"town=Oslo", "town=Rom"}, *const first[] = {"1=Oslo"};
    struct dataset_key_source source = {.input = "fields"};
    struct dataset_request r = {.part = "train", .keys = &source, .n_keys = 1};
    struct dataset *d = open_text("town,label\nOslo,1\nRom,0\n", &r, ST_OK);
    check_only_keys(d, towns, 2);
    assert_string_equal(d->csv_roles, "kl");
    struct dataset *other = open_text("town,label\nRom,1\nOslo,0\n", &r, ST_OK);
    struct dataset *same = open_text("town,label\nOslo,1\nRom,0\n", &r, ST_OK);
    assert_false(dataset_same_samples(d, other));
    assert_true(dataset_same_samples(d, same));
    dataset_destroy(other);
    dataset_destroy(same);
    source = (struct dataset_key_source){
        .input = "fields", .columns = d->key_columns[0], .is_resolved = true};
    r = (struct dataset_request){.part = "test",
                                 .keys = &source,
                                 .n_keys = 1,
                                 .features = 1,
                                 .label_names = d->label_names,
                                 .csv_roles = d->csv_roles};
    struct dataset *test = open_text("label,town\n1,Oslo\n0,Rom\n", &r, ST_OK);
    check_only_keys(test, towns, 2);
    dataset_destroy(test);
    r.to_predict = true;
    test = open_text("town\nOslo\nRom\n", &r, ST_OK);
    check_only_keys(test, towns, 2);
    assert_false(dataset_has_labels(test));
    dataset_destroy(test);
    assert_null(open_text("town,label,age\nOslo,1,7\n", &r, ST_MISMATCH));
    assert_non_null(strstr(capture_text, "column 3, 'age', is not a column of the training file"));
    dataset_destroy(d);
    r = (struct dataset_request){.part = "train", .keys = &source, .n_keys = 1};
    source = (struct dataset_key_source){.input = "fields"};
    d = open_text("Oslo,1\nRom,0\n", &r, ST_OK);
    assert_int_equal(d->n, 2);
    source = (struct dataset_key_source){
        .input = "fields", .columns = d->key_columns[0], .is_resolved = true};
    r.csv_roles = d->csv_roles;
    test = open_text("Oslo,1\n", &r, ST_OK);
    check_only_keys(test, first, 1);
    dataset_destroy(test);
    dataset_destroy(d);
}

static void test_tables_without_numbers_that_are_refused(void **state)
{
    const struct dataset_key_source source = {.input = "fields"};
    struct dataset_request r = {.part = "train", .keys = &source, .n_keys = 1};
    assert_null(open_text("town,age,label\nOslo,7,1\n", &r, ST_INVALID));
    assert_non_null(strstr(capture_text, "no input of the model reads column 2 'age'"));
    assert_null(open_text("town,age,label\nOslo,7,1\nRom,x,1\n", &r, ST_CORRUPT));
    assert_non_null(strstr(capture_text, "column 2 'age' has numbers"));
    static const char text[] = "town,likes\nOslo,no\nRom,yes\nOslo,no\n";
    assert_null(open_text(text, &r, ST_INVALID));
    assert_non_null(strstr(capture_text, "may be a header or a sample; set --csv_header=yes"));
    r.csv_header = DATA_CSV_HEADER_YES;
    struct dataset *d = open_text(text, &r, ST_OK);
    assert_int_equal(d->n, 3);
    dataset_destroy(d);
}

struct tensor {
    const char *name, *type, *shape;
    const void *bytes;
    size_t n;
};

static void save_all(const struct tensor *t, int n)
{
    char header[1024] = "{";
    size_t end = 0;
    for (int i = 0; i < n; end += t[i++].n)
        snprintf(header + strlen(header), sizeof header - strlen(header),
                 "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                 i ? "," : "", t[i].name, t[i].type, t[i].shape, end, end + t[i].n);
    strcat(header, "}");
    while (strlen(header) % 8 != 0)
        strcat(header, " ");
    uint64_t length = strlen(header);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(&length, 8, 1, f), 1);
    assert_int_equal(fwrite(header, length, 1, f), 1);
    for (int i = 0; i < n; i++)
        assert_int_equal(fwrite(t[i].bytes, t[i].n, 1, f), 1);
    assert_int_equal(fclose(f), 0);
}

static const float numbers[] = {0.25f, 0.5f, 0.75f, 1};
static const int64_t some_labels[] = {1, 0}, some_keys[] = {7, 8, 9, 10};

static void check_part(const char *part, const char *array, bool no_dense, int64_t n, uint64_t key)
{
    const struct dataset_key_source source = {.input = "fields", .array = array};
    const struct dataset_request r = {.part = part,
                                      .data = path,
                                      .keys = &source,
                                      .n_keys = 1,
                                      .no_dense = no_dense,
                                      .dense_input = no_dense ? NULL : "numbers"};
    struct dataset *d;
    enum status st = CAPTURE(dataset_open(&r, &d));
    if (st != ST_OK)
        fail_msg("%s; said: %s", status_name(st), capture_text);
    assert_int_equal(d->n, n);
    assert_true(d->keys->input[0].keys[0] == key);
    assert_null(d->key_columns);
    assert_int_equal(d->has_test_beside, strcmp(part, "train") == 0);
    dataset_destroy(d);
}

/* If a file has the training set and the test set, each has keys of its own. */
static void test_sets_of_one_file_have_their_keys(void **state)
{
    const struct tensor t[] = {
        {"x_train", "F32", "[2,1]", numbers, 8},     {"x_test", "F32", "[1,1]", numbers, 4},
        {"y_train", "I64", "[2]", some_labels, 16},  {"y_test", "I64", "[1]", some_labels, 8},
        {"ids_train", "I64", "[2]", some_keys, 16},  {"ids_test", "I64", "[1]", some_keys + 3, 8},
        {"fields", "I64", "[2]", some_keys + 1, 16},
    };
    save_all(t, 7);
    for (int no_dense = 0; no_dense < 2; no_dense++) {
        check_part("train", "ids", no_dense, 2, 7);
        check_part("test", "ids", no_dense, 1, 10);
    }
    check_bad("fields", ST_NOT_FOUND,
              "input 'fields' of the model reads the array 'fields_train', which the file does not "
              "have; save the keys under this name, or set --input_names=fields=ARRAY");
}

/* Arrays have the names of the inputs; a model without a dense input needs only keys and labels. */
static void test_arrays_have_names_of_inputs(void **state)
{
    const struct tensor t[] = {{"fields", "I64", "[2,2]", some_keys, 32},
                               {"labels", "I64", "[2]", some_labels, 16},
                               {"images", "F32", "[2,1]", numbers, 8},
                               {"numbers", "F32", "[2,2]", numbers, 16}};
    struct dataset_key_source source = {.input = "fields", .array = "fields", .n_columns = 2};
    struct dataset_request r = {
        .part = "train", .data = path, .keys = &source, .n_keys = 1, .dense_input = "numbers"};
    struct dataset *d;
    save_all(t, 4);
    assert_int_equal(dataset_open(&r, &d), ST_OK);
    assert_int_equal(shape_elems(&d->sample), 2);
    dataset_destroy(d);
    r.images_name = "images"; /* a flag has precedence */
    assert_int_equal(dataset_open(&r, &d), ST_OK);
    assert_int_equal(shape_elems(&d->sample), 1);
    dataset_destroy(d);
    source.n_columns = 3;
    assert_int_equal(CAPTURE(dataset_open(&r, &d)), ST_MISMATCH);
    assert_non_null(strstr(capture_text, "reads 3 columns of keys, but here it has 2"));
    source.n_columns = 0;
    r.images_name = r.dense_input = NULL;
    r.no_dense = true;
    save_all(t, 2);
    assert_int_equal(dataset_open(&r, &d), ST_OK);
    assert_int_equal(d->n, 2);
    assert_int_equal(d->keys->input[0].n_columns, 2);
    struct job_data sum;
    assert_int_equal(fingerprint_compute(d, d, "/", 0, &sum), ST_OK);
    assert_int_equal(sum.dim[2], 1);
    dataset_destroy(d);
    const struct tensor one[] = {{"fields", "I64", "[]", some_keys, 8}, t[1]};
    save_all(one, 2);
    assert_int_equal(CAPTURE(dataset_open(&r, &d)), ST_CORRUPT);
    assert_non_null(strstr(capture_text, "array 'fields' is one number"));
}

int main(void)
{
    log_init("worker", 0, LOG_LEVEL_WARN);
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/x.safetensors", dir);
    int failed = RUN_TESTS(test_whole_numbers_are_keys, test_split_sets_have_keys,
                           test_other_arrays_are_refused, test_keys_change_fingerprint,
                           test_columns_of_csv_are_keys, test_table_without_numbers,
                           test_tables_without_numbers_that_are_refused,
                           test_sets_of_one_file_have_their_keys, test_arrays_have_names_of_inputs);
    remove(path);
    rmdir(dir);
    return failed;
}
