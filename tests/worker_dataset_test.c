/* tests/worker_dataset_test.c - IDX files, good and bad, and the order in which items are read. */
#include "base/log.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "tests/skip.h"
#include "worker/data/data_array.h"
#include "worker/data/dataset.h"
#include <limits.h>
#include <sys/stat.h>
#include <zlib.h>

enum { N = 50, ROWS = 5, COLUMNS = 7, IMAGE_BYTES = 16 + N * ROWS * COLUMNS, LABEL_BYTES = 8 + N };

/* A folder with a small set; each test may damage it. */
struct set {
    char dir[32];
    uint8_t images[IMAGE_BYTES + 16], labels[LABEL_BYTES + 16];
};

static void put_u32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}

static const char *set_path(const struct set *s, const char *kind, const char *ending)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/train-%s-ubyte%s", s->dir, kind, ending);
    return path;
}

static void save(const struct set *s, const char *kind, const char *ending, const void *data,
                 size_t bytes)
{
    const char *path = set_path(s, kind, ending);
    if (*ending) {
        gzFile f = gzopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(gzwrite(f, data, (unsigned)bytes), bytes);
        assert_int_equal(gzclose(f), Z_OK);
    } else {
        folder_rig_save(path, data, bytes);
    }
}

static int setup(void **state)
{
    struct set *s = calloc(1, sizeof *s);
    if (!s)
        return -1;
    folder_rig_new(s->dir);
    put_u32(s->images, 0x803);
    put_u32(s->images + 4, N);
    put_u32(s->images + 8, ROWS);
    put_u32(s->images + 12, COLUMNS);
    for (int i = 0; i < N * ROWS * COLUMNS; i++)
        s->images[16 + i] = (uint8_t)(i * 7);
    put_u32(s->labels, 0x801);
    put_u32(s->labels + 4, N);
    for (int i = 0; i < N; i++)
        s->labels[8 + i] = (uint8_t)(i % 10);
    save(s, "images-idx3", "", s->images, IMAGE_BYTES);
    save(s, "labels-idx1", "", s->labels, LABEL_BYTES);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct set *s = *state;
    static const char *const endings[] = {"", ".gz"};
    for (int i = 0; i < 2; i++) {
        unlink(set_path(s, "images-idx3", endings[i]));
        unlink(set_path(s, "labels-idx1", endings[i]));
    }
    rmdir(s->dir);
    free(s);
    return 0;
}

static enum status read_set(const char *dir, const char *part, struct dataset **out)
{
    const struct dataset_request r = {.dir = dir, .part = part};
    return dataset_open(&r, out);
}

/* Reads the set. The read must fail with the given status and one line that contains both
 * pieces. */
static void check_bad(const struct set *s, enum status want, const char *piece, const char *other)
{
    struct dataset *d = NULL;
    enum status st = CAPTURE(read_set(s->dir, "train", &d));
    if (st != want)
        fail_msg("status %s, wanted %s; said: %s", status_name(st), status_name(want),
                 capture_text);
    assert_null(d);
    assert_int_equal(capture_lines(), 1);
    if (!strstr(capture_text, piece) || !strstr(capture_text, other))
        fail_msg("no \"%s\" and \"%s\" in: %s", piece, other, capture_text);
}

static void check_good(const struct set *s)
{
    struct dataset *d = NULL;
    float sample[ROWS * COLUMNS];
    assert_int_equal(read_set(s->dir, "train", &d), ST_OK);
    assert_int_equal(d->n, N);
    assert_int_equal(d->classes, 10);
    assert_int_equal(d->sample.dim[0], 1);
    assert_int_equal(d->sample.dim[1], ROWS);
    assert_int_equal(d->sample.dim[2], COLUMNS);
    assert_memory_equal(d->bytes, s->images + 16, N * ROWS * COLUMNS);
    for (int i = 0; i < N; i++) {
        assert_int_equal(d->labels[i], s->labels[8 + i]);
        assert_int_equal(dataset_sample(d, i, sample), ST_OK);
        for (int k = 0; k < ROWS * COLUMNS; k++)
            assert_true(sample[k] == (float)s->images[16 + i * ROWS * COLUMNS + k] / 255.0f);
    }
    dataset_destroy(d);
}

static void plain_and_gzipped_are_read(void **state)
{
    struct set *s = *state;
    check_good(s);
    unlink(set_path(s, "images-idx3", ""));
    save(s, "images-idx3", ".gz", s->images, IMAGE_BYTES);
    check_good(s);
    unlink(set_path(s, "labels-idx1", ""));
    save(s, "labels-idx1", ".gz", s->labels, LABEL_BYTES);
    check_good(s);
}

static void missing_files_are_named_with_the_fix(void **state)
{
    struct set *s = *state;
    unlink(set_path(s, "labels-idx1", ""));
    check_bad(s, ST_NOT_FOUND, "train-labels-idx1-ubyte", "nor with .gz");
    unlink(set_path(s, "images-idx3", ""));
    check_bad(s, ST_NOT_FOUND, "train-images-idx3-ubyte", "apt-get install dataset-fashion-mnist");
    assert_non_null(strstr(capture_text, "MNIST (scripts/get_mnist)"));
    assert_int_equal(mkdir(set_path(s, "images-idx3", ""), 0700), 0);
    save(s, "labels-idx1", "", s->labels, LABEL_BYTES);
    check_bad(s, ST_INVALID, "train-images-idx3-ubyte", "not a regular file");
    rmdir(set_path(s, "images-idx3", ""));
}

static void lines_name_the_flag_of_the_folder(void **state)
{
    const struct set *s = *state;
    static char longest[PATH_MAX + 8];
    struct dataset_request r = {.dir = s->dir, .part = "test"};
    struct dataset *d = NULL;
    assert_int_equal(CAPTURE(dataset_open(&r, &d)), ST_NOT_FOUND);
    assert_non_null(strstr(capture_text, "with --data_dir, or the files with --test_data"));
    r.dir_flag = "validation_dir";
    assert_int_equal(CAPTURE(dataset_open(&r, &d)), ST_NOT_FOUND);
    assert_non_null(strstr(capture_text, "with --validation_dir\n"));
    assert_null(strstr(capture_text, "--test_data"));
    memset(longest, 'x', sizeof longest - 1);
    r.dir = longest;
    assert_int_equal(CAPTURE(dataset_open(&r, &d)), ST_NOT_FOUND);
    assert_non_null(strstr(capture_text, "--validation_dir=xxx"));
}

static void truncated_files_are_refused(void **state)
{
    struct set *s = *state;
    static const size_t cuts[] = {IMAGE_BYTES - 1, 17, 15, 4, 3, 1, 0};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        save(s, "images-idx3", "", s->images, cuts[i]);
        check_bad(s, ST_CORRUPT, "train-images-idx3-ubyte: ", cuts[i] ? "truncated" : "empty");
    }
    save(s, "images-idx3", "", s->images, IMAGE_BYTES);
    save(s, "labels-idx1", "", s->labels, LABEL_BYTES - 1);
    check_bad(s, ST_CORRUPT, "train-labels-idx1-ubyte: truncated", "58 bytes, but there are 57");
}

static void trailing_bytes_are_refused(void **state)
{
    struct set *s = *state;
    save(s, "images-idx3", "", s->images, IMAGE_BYTES + 1);
    check_bad(s, ST_CORRUPT, "train-images-idx3-ubyte: ", "bytes after its end");
    unlink(set_path(s, "images-idx3", ""));
    save(s, "images-idx3", ".gz", s->images, IMAGE_BYTES + 3);
    check_bad(s, ST_CORRUPT, "train-images-idx3-ubyte.gz: ", "bytes after its end");
}

static void wrong_magic_is_refused(void **state)
{
    struct set *s = *state;
    save(s, "images-idx3", "", s->labels, LABEL_BYTES);
    check_bad(s, ST_CORRUPT, "holds an array of (50), which are labels", "swapped?");
    save(s, "images-idx3", "", s->images, IMAGE_BYTES);
    save(s, "labels-idx1", "", s->images, IMAGE_BYTES);
    check_bad(s, ST_CORRUPT, "train-labels-idx1-ubyte: holds an array of (50, 5, 7)", "swapped");
    put_u32(s->labels, 0x0e01);
    save(s, "labels-idx1", "", s->labels, LABEL_BYTES);
    check_bad(s, ST_UNSUPPORTED, "byte 2, the type of its numbers, is 0x0e", "0x08 uint8");
    put_u32(s->labels, 0x0809);
    save(s, "labels-idx1", "", s->labels, LABEL_BYTES);
    check_bad(s, ST_CORRUPT, "byte 3, the number of its dimensions, is 9", "from 1 to 8");
    put_u32(s->labels, 0x89504e47);
    save(s, "labels-idx1", "", s->labels, LABEL_BYTES);
    check_bad(s, ST_UNSUPPORTED, "unknown format", "0x8950");
}

static void mismatched_counts_are_refused(void **state)
{
    struct set *s = *state;
    put_u32(s->labels + 4, N - 1);
    save(s, "labels-idx1", "", s->labels, LABEL_BYTES - 1);
    check_bad(s, ST_MISMATCH, "has 50 samples, but", "has 49 labels");
}

static void bad_labels_and_sizes_are_refused(void **state)
{
    struct set *s = *state;
    s->labels[8 + 31] = 10;
    save(s, "labels-idx1", "", s->labels, LABEL_BYTES);
    struct dataset *d = NULL;
    assert_int_equal(read_set(s->dir, "train", &d), ST_OK);
    assert_int_equal(d->classes, 11);
    assert_int_equal(dataset_check_classes(d, 11), ST_OK);
    assert_int_equal(CAPTURE(dataset_check_classes(d, 10)), ST_MISMATCH);
    assert_non_null(strstr(capture_text, "label 31 is 10, but the model has 10 classes (0 to 9)"));
    dataset_destroy(d);
    put_u32(s->images + 4, 0);
    save(s, "images-idx3", "", s->images, 16);
    check_bad(s, ST_CORRUPT, "its header states 0 items", "from 1 to");
    put_u32(s->images + 4, UINT32_MAX);
    save(s, "images-idx3", "", s->images, IMAGE_BYTES);
    check_bad(s, ST_CORRUPT, "truncated: its header states 150323855341 bytes", "there are 1766");
    put_u32(s->images + 4, N);
    put_u32(s->images + 8, 0);
    save(s, "images-idx3", "", s->images, 16);
    check_bad(s, ST_CORRUPT, "(50, 0, 7)", "each side of a sample must be from 1 to 65536");
}

/* A header that states a petabyte allocates no memory, compressed or not. */
static void large_promises_allocate_no_memory(void **state)
{
    struct set *s = *state;
    put_u32(s->images + 4, 1 << 26);
    put_u32(s->images + 8, 4096);
    put_u32(s->images + 12, 4096);
    save(s, "images-idx3", "", s->images, IMAGE_BYTES);
    check_bad(s, ST_CORRUPT, "truncated", "1125899906842640 bytes");
    unlink(set_path(s, "images-idx3", ""));
    save(s, "images-idx3", ".gz", s->images, IMAGE_BYTES);
    check_bad(s, ST_CORRUPT, "truncated", "1125899906842640 bytes");
    unlink(set_path(s, "images-idx3", ".gz"));
    for (int i = 4; i < 16; i++)
        s->images[i] = 0xff;
    save(s, "images-idx3", "", s->images, IMAGE_BYTES);
    check_bad(s, ST_CORRUPT, "more than any file can hold", "4294967295");
}

static size_t load_gz(const struct set *s, uint8_t *data, size_t bytes)
{
    FILE *f = fopen(set_path(s, "images-idx3", ".gz"), "rb");
    assert_non_null(f);
    size_t n = fread(data, 1, bytes, f);
    fclose(f);
    return n;
}

static void save_gz(const struct set *s, const uint8_t *data, size_t bytes)
{
    FILE *f = fopen(set_path(s, "images-idx3", ".gz"), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static void damaged_gzip_is_refused(void **state)
{
    struct set *s = *state;
    uint8_t good[IMAGE_BYTES + 1024] = {0}, bad[IMAGE_BYTES + 1024];
    unlink(set_path(s, "images-idx3", ""));
    save(s, "images-idx3", ".gz", s->images, IMAGE_BYTES);
    size_t n = load_gz(s, good, sizeof good);
    assert_in_range(n, 32, IMAGE_BYTES + 100);
    memcpy(bad, good, sizeof bad);
    bad[n - 6] ^= 1; /* the checksum */
    save_gz(s, bad, n);
    check_bad(s, ST_CORRUPT, "corrupt gzip data", "incorrect data check");
    memcpy(bad, good, sizeof bad);
    bad[n / 2] ^= 0x10;
    save_gz(s, bad, n);
    check_bad(s, ST_CORRUPT, "train-images-idx3-ubyte.gz: ", "");
    for (size_t cut = n - 1; cut >= n - 8; cut--) {
        save_gz(s, good, cut);
        check_bad(s, ST_CORRUPT, "truncated", "the end of its gzip data is missing");
    }
    save_gz(s, good, n / 2);
    check_bad(s, ST_CORRUPT, "truncated", "");
    save_gz(s, good, 5);
    check_bad(s, ST_CORRUPT, "the end of its gzip data is missing", "");
    good[n] = 1;
    save_gz(s, good, n + 1);
    check_bad(s, ST_CORRUPT, "bytes after the end of its gzip data", "");
    save(s, "images-idx3", ".gz", good, n);
    check_bad(s, ST_CORRUPT, "gzipped twice", "gunzip");
    save_gz(s, good, n);
    check_good(s);
}

/* cat a.gz b.gz, and bgzip, create files of several members (RFC 1952, 2.2). Zeros may follow the
 * last member, as in gzip(1), since tapes fill their blocks with zeros. */
static void gzip_members_are_read_one_after_another(void **state)
{
    struct set *s = *state;
    uint8_t packed[2 * IMAGE_BYTES + 1024] = {0};
    enum { ROOM = sizeof packed };
    unlink(set_path(s, "images-idx3", ""));
    save(s, "images-idx3", ".gz", s->images, 20);
    size_t n = load_gz(s, packed, ROOM);
    save(s, "images-idx3", ".gz", s->images, 0); /* bgzip's last member is empty */
    n += load_gz(s, packed + n, ROOM - n);
    size_t last = n;
    save(s, "images-idx3", ".gz", s->images + 20, IMAGE_BYTES - 20);
    n += load_gz(s, packed + n, ROOM - n);
    assert_true(n + 64 < ROOM);
    save_gz(s, packed, n);
    check_good(s);
    save_gz(s, packed, n + 64);
    check_good(s);
    save_gz(s, packed, n - 1);
    check_bad(s, ST_CORRUPT, "truncated", "the end of its gzip data is missing");
    save_gz(s, packed, last + 1);
    check_bad(s, ST_CORRUPT, "bytes after the end of its gzip data", "");
    packed[last + 12] ^= 0x10;
    save_gz(s, packed, n);
    check_bad(s, ST_CORRUPT, "corrupt gzip data", "");
}

static void decoding_points_into_the_data(void **state)
{
    struct set *s = *state;
    struct data_array a = {.n_dims = 0};
    assert_int_equal(data_idx_decode(s->images, IMAGE_BYTES, "x", &a), ST_OK);
    assert_ptr_equal(a.data, s->images + 16);
    assert_int_equal(a.dim[0], N);
    assert_int_equal(a.dim[2], COLUMNS);
    assert_int_equal(a.type, DATA_U8);
    assert_int_equal(data_idx_decode(s->labels, LABEL_BYTES, "x", &a), ST_OK);
    assert_ptr_equal(a.data, s->labels + 8);
    a.data = NULL;
    assert_int_equal(CAPTURE(data_idx_decode(s->images, IMAGE_BYTES - 1, "x", &a)), ST_CORRUPT);
    assert_null(a.data);
}

static void order_is_a_permutation_of_each_pass(void **state)
{
    enum { ITEMS = 1000 };
    struct dataset_order *o = NULL, *again = NULL, *other = NULL;
    int64_t first[ITEMS];
    int moved = 0, same_as_other = 0, kept = 0;
    assert_int_equal(dataset_order_create(ITEMS, 5, &o), ST_OK);
    assert_int_equal(dataset_order_create(ITEMS, 5, &again), ST_OK);
    assert_int_equal(dataset_order_create(ITEMS, 6, &other), ST_OK);
    for (uint64_t pass = 0; pass < 3; pass++) {
        char seen[ITEMS] = {0};
        for (uint64_t i = 0; i < ITEMS; i++) {
            int64_t item = dataset_order_item(o, pass * ITEMS + i);
            assert_in_range(item, 0, ITEMS - 1);
            assert_int_equal(seen[item]++, 0);
            if (pass == 0) {
                first[i] = item;
                moved += item != (int64_t)i;
                same_as_other += item == dataset_order_item(other, i);
            } else if (pass == 1) {
                kept += item == first[i];
            }
        }
    }
    assert_true(moved > ITEMS * 9 / 10);
    assert_true(same_as_other < ITEMS / 10);
    assert_true(kept < ITEMS / 10);
    /* Positions are read back and forth over the end of a pass, and after far jumps: the order of
     * the calls does not matter. */
    for (uint64_t i = 0; i < 200; i++) {
        uint64_t position = ITEMS * 2 - 100 + (i * 37) % 200;
        int64_t want = dataset_order_item(again, position);
        assert_int_equal(dataset_order_item(o, position), want);
    }
    for (uint64_t i = 0; i < ITEMS; i++)
        assert_int_equal(dataset_order_item(o, i), first[i]);
    dataset_order_destroy(o);
    dataset_order_destroy(again);
    dataset_order_destroy(other);
    dataset_order_destroy(NULL);
    dataset_destroy(NULL);
}

static void order_of_one_and_of_none(void **state)
{
    struct dataset_order *o = NULL;
    assert_int_equal(dataset_order_create(1, 5, &o), ST_OK);
    assert_int_equal(dataset_order_item(o, 0), 0);
    assert_int_equal(dataset_order_item(o, UINT64_MAX - 1), 0);
    dataset_order_destroy(o);
    o = NULL;
    assert_int_equal(CAPTURE(dataset_order_create(0, 5, &o)), ST_INVALID);
    assert_null(o);
}

/* Each item is in one of the two sets, with its own label; only the seed decides which. */
static void split_depends_on_seed(void **state)
{
    struct set *s = *state;
    struct dataset *d[2] = {NULL, NULL}, *held[2] = {NULL, NULL};
    int seen[N] = {0}, n_other = 0;
    for (int i = 0; i < N; i++) { /* the image and its label contain the number */
        s->images[16 + i * ROWS * COLUMNS] = (uint8_t)i;
        s->labels[8 + i] = (uint8_t)(i % 10);
    }
    save(s, "images-idx3", "", s->images, IMAGE_BYTES);
    save(s, "labels-idx1", "", s->labels, LABEL_BYTES);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(read_set(s->dir, "train", &d[k]), ST_OK);
        assert_int_equal(dataset_split(d[k], 0.25, 7 + (uint64_t)k, &held[k]), ST_OK);
        assert_int_equal(held[k]->n, 12);
        assert_int_equal(d[k]->n, N - 12);
    }
    for (int k = 0; k < 2; k++) {
        const struct dataset *set = k ? held[0] : d[0];
        for (int64_t i = 0; i < set->n; i++) {
            int item = dataset_bytes(set, i)[0];
            seen[item]++;
            assert_int_equal(dataset_label(set, i), item % 10);
            if (!k && i > 0)
                assert_true(item > dataset_bytes(set, i - 1)[0]);
        }
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], 1);
    for (int i = 0; i < 12; i++)
        n_other += dataset_bytes(held[0], i)[0] != dataset_bytes(held[1], i)[0];
    assert_true(n_other > 0);
    struct dataset *none = NULL;
    assert_int_equal(CAPTURE(dataset_split(d[0], 0.001, 7, &none)), ST_INVALID);
    assert_null(none);
    for (int k = 0; k < 2; k++) {
        dataset_destroy(d[k]);
        dataset_destroy(held[k]);
    }
}

static void debian_fashion_mnist_is_read(void **state)
{
    struct dataset *train = NULL, *test = NULL;
    int64_t count[10] = {0};
    if (access(DATASET_DEFAULT_DIR, R_OK) != 0)
        skip_because("the package dataset-fashion-mnist is not installed");
    assert_int_equal(read_set(DATASET_DEFAULT_DIR, "train", &train), ST_OK);
    assert_int_equal(read_set(DATASET_DEFAULT_DIR, "test", &test), ST_OK);
    assert_int_equal(train->n, 60000);
    assert_int_equal(test->n, 10000);
    assert_int_equal(shape_elems(&train->sample), 784);
    for (int64_t i = 0; i < train->n; i++)
        count[train->labels[i]]++;
    for (int i = 0; i < 10; i++)
        assert_int_equal(count[i], 6000);
    dataset_destroy(train);
    dataset_destroy(test);
}

int main(void)
{
#define WITH_SET(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_SET(plain_and_gzipped_are_read),
        WITH_SET(missing_files_are_named_with_the_fix),
        WITH_SET(lines_name_the_flag_of_the_folder),
        WITH_SET(truncated_files_are_refused),
        WITH_SET(trailing_bytes_are_refused),
        WITH_SET(wrong_magic_is_refused),
        WITH_SET(mismatched_counts_are_refused),
        WITH_SET(bad_labels_and_sizes_are_refused),
        WITH_SET(large_promises_allocate_no_memory),
        WITH_SET(damaged_gzip_is_refused),
        WITH_SET(gzip_members_are_read_one_after_another),
        WITH_SET(decoding_points_into_the_data),
        WITH_SET(split_depends_on_seed),
        cmocka_unit_test(order_is_a_permutation_of_each_pass),
        cmocka_unit_test(order_of_one_and_of_none),
        cmocka_unit_test(debian_fashion_mnist_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
