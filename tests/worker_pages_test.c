/* tests/worker_pages_test.c - which pages of a data set on the disk are touched. A set that is
 * split is not copied, and a worker touches only the pages of its own samples. */
#include "base/digest.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "tests/skip.h"
#include "tests/trainer_rig.h"
#include "worker/data/dataset.h"
#include "worker/data/fingerprint.h"
#include "worker/train/device_data.h"
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A page fault also maps pages around it that are in memory: up to 64 KB by default. */
enum { EDGE = 512, PIXELS = EDGE * EDGE, AROUND = 65536, HEAD = 128 };

static char dir[64];

static void put_npy(const char *name, const char *descr, const char *shape, const void *rows,
                    size_t row_bytes, size_t stride)
{
    char path[128], head[HEAD + 1];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int n = snprintf(head + 10, sizeof head - 10,
                     "{'descr': '%s', 'fortran_order': False, 'shape': %s}", descr, shape);
    memcpy(head, "\x93NUMPY\1\0\x76\0", 10);
    memset(head + 10 + n, ' ', (size_t)(HEAD - 10 - n));
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, head, HEAD), HEAD);
    for (size_t i = 0; i < N_ITEMS; i++)
        assert_int_equal(pwrite(fd, (const uint8_t *)rows + i * row_bytes, row_bytes,
                                (off_t)(HEAD + i * stride)),
                         row_bytes);
    assert_int_equal(ftruncate(fd, (off_t)(HEAD + N_ITEMS * stride)), 0);
    assert_int_equal(close(fd), 0);
}

/* Writes samples whose first byte is their number, and whose label is its last digit. */
static int setup(void **state)
{
    uint8_t number[N_ITEMS][2] = {0}, label[N_ITEMS];
    char shape[64];
    folder_rig_new(dir);
    for (int i = 0; i < N_ITEMS; i++) {
        number[i][0] = (uint8_t)i;
        label[i] = (uint8_t)(i % 10);
    }
    snprintf(shape, sizeof shape, "(%d, %d, %d)", N_ITEMS, EDGE, EDGE);
    put_npy("train-images.npy", "|u1", shape, number, 2, PIXELS);
    snprintf(shape, sizeof shape, "(%d,)", N_ITEMS);
    put_npy("train-labels.npy", "|u1", shape, label, 1, 1);
    return 0;
}

static int teardown(void **state)
{
    char path[128];
    snprintf(path, sizeof path, "%s/train-images.npy", dir);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/train-labels.npy", dir);
    assert_int_equal(unlink(path), 0);
    return rmdir(dir);
}

static struct dataset *open_set(void)
{
    const struct dataset_request r = {.dir = dir, .part = "train"};
    struct dataset *d = NULL;
    assert_int_equal(dataset_open(&r, &d), ST_OK);
    assert_int_equal(d->n, N_ITEMS);
    assert_true(d->in_file);
    return d;
}

/* Counts the pages of these bytes in this process's page table. */
static int count_pages(const uint8_t *from, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t first = (size_t)(uintptr_t)from / page;
    size_t n = (size_t)((uintptr_t)from + bytes - 1) / page - first + 1;
    uint64_t entry;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), count = 0;
    if (fd < 0)
        skip_because("/proc/self/pagemap cannot be read");
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(pread(fd, &entry, sizeof entry, (off_t)((first + i) * sizeof entry)),
                         sizeof entry);
        count += (int)(entry >> 63);
    }
    assert_int_equal(close(fd), 0);
    return count;
}

/* Counts the pages in the middle of a row. A page fault in a neighbouring row does not map them. */
static int count_middle(const struct dataset *d, int64_t row)
{
    return count_pages(d->bytes + row * PIXELS + AROUND, PIXELS - 2 * AROUND);
}

static void split_set_stays_in_its_file(void **state)
{
    struct dataset *d = open_set(), *held = NULL, *again = NULL;
    const uint8_t *at = d->bytes;
    int seen[N_ITEMS] = {0};
    assert_int_equal(dataset_split(d, 0.25, 7, &held), ST_OK);
    assert_int_equal(dataset_split(d, 0.5, 8, &again),
                     ST_OK); /* splits the remaining samples again */
    struct dataset *sets[3] = {d, held, again};
    const int64_t n[3] = {23, 15, 22};
    for (int i = 0; i < N_ITEMS; i++)
        assert_int_equal(count_middle(d, i), 0);
    for (int s = 0; s < 3; s++) {
        assert_int_equal(sets[s]->n, n[s]);
        assert_true(sets[s]->in_file);
        for (int64_t i = 0; i < n[s]; i++) {
            int64_t row = dataset_row(sets[s], i);
            assert_true(i == 0 || row > dataset_row(sets[s], i - 1));
            assert_ptr_equal(dataset_bytes(sets[s], i), at + row * PIXELS);
            assert_int_equal(dataset_bytes(sets[s], i)[0], row);
            assert_int_equal(dataset_label(sets[s], i), row % 10);
            seen[row]++;
        }
    }
    for (int i = 0; i < N_ITEMS; i++)
        assert_int_equal(seen[i], 1);
    dataset_destroy(d); /* the files stay open for the other sets */
    dataset_destroy(held);
    assert_int_equal(dataset_bytes(again, 21)[0], dataset_row(again, 21));
    dataset_destroy(again);
}

/* Checks that every page of these samples of `d` is mapped, and that no page of other samples
 * is. */
static void check_touched(const struct dataset *d, const int *rows, int n)
{
    int page = (int)sysconf(_SC_PAGESIZE), wanted[N_ITEMS] = {0};
    for (int i = 0; i < n; i++)
        wanted[rows[i]] = 1;
    for (int i = 0; i < N_ITEMS; i++)
        assert_in_range(count_middle(d, i), wanted[i] ? (PIXELS - 2 * AROUND) / page : 0,
                        wanted[i] ? (PIXELS - 2 * AROUND) / page + 1 : 0);
}

static void worker_touches_only_its_samples(void **state)
{
    enum { BATCH = 3, STEPS = 2 };
    struct rig r;
    struct trainer_result result;
    struct dataset *held = NULL;
    for (int split = 0; split < 2; split++) {
        struct dataset *d = open_set();
        if (split)
            assert_int_equal(dataset_split(d, 0.25, 7, &held), ST_OK);
        rig_make(&r, 1, 4, 1, BATCH);
        trainer_destroy(r.trainer);
        r.data = *d;
        r.cfg.train_steps = STEPS;
        assert_int_equal(trainer_create(&r.cfg, &r.trainer), ST_OK);
        assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
        assert_int_equal(fake.n_reads, BATCH * STEPS);
        check_touched(d, fake.reads, fake.n_reads);
        rig_free(&r);
        dataset_destroy(d);
    }
    dataset_destroy(held);
}

/* Data that are read once, at the start, use no memory of the process afterwards. */
static void pass_over_all_leaves_no_pages(void **state)
{
    struct dataset *d = open_set(), *held = NULL;
    struct job_data data;
    struct job_validation part;
    double mean, std, sum = 0, squares = 0;
    uint32_t all = 0, some = 0;
    assert_int_equal(fingerprint_compute(d, NULL, dir, 0, &data), ST_OK);
    assert_int_equal(dataset_split(d, 0.5, 7, &held), ST_OK);
    assert_int_equal(fingerprint_validation(held, &part), ST_OK);
    assert_int_equal(dataset_measure(held, &mean, &std), ST_OK);
    for (int i = 0; i < N_ITEMS; i++)
        assert_int_equal(count_middle(d, i), 0);
    for (int i = 0; i < N_ITEMS; i++)
        all = digest_crc32c(all, d->bytes + i * PIXELS, PIXELS);
    for (int64_t i = 0; i < held->n; i++) {
        double number = dataset_bytes(held, i)[0];
        some = digest_crc32c(some, dataset_bytes(held, i), PIXELS);
        sum += number;
        squares += number * number;
    }
    assert_int_equal(data.train_samples, all);
    assert_int_equal(part.samples, some);
    double n = (double)held->n * PIXELS;
    assert_float_equal(mean * 255, sum / n, 1e-12);
    assert_float_equal(std * 255, sqrt(squares / n - sum / n * sum / n), 1e-9);
    dataset_destroy(held);
    dataset_destroy(d);
}

static uint8_t first_pixels[N_ITEMS];
static int64_t n_copied;

static enum status note_copy(int device, const uint8_t *images, const uint8_t *labels, int64_t n,
                             int64_t pixels, struct backend_data **out)
{
    assert_int_equal(pixels, PIXELS);
    for (n_copied = 0; n_copied < n; n_copied++) {
        first_pixels[n_copied] = images[n_copied * pixels];
        assert_int_equal(labels[n_copied], first_pixels[n_copied] % 10);
    }
    *out = (struct backend_data *)first_pixels;
    return ST_OK;
}

static void forget_copy(struct backend_data *d)
{
    assert_ptr_equal(d, first_pixels);
}

static void device_gets_samples_of_its_part(void **state)
{
    struct backend backend = fake_backend;
    const struct tower_spec tower = {.own = {.backend = &backend}};
    const struct backend_data *copy = NULL;
    struct device_data *data = NULL;
    struct dataset *d = open_set(), *held = NULL;
    backend.data_create = note_copy;
    backend.data_destroy = forget_copy;
    assert_int_equal(dataset_split(d, 0.25, 7, &held), ST_OK);
    assert_int_equal(device_data_create(&data), ST_OK);
    assert_int_equal(device_data_get(data, &tower, held->classes, held, &copy), ST_OK);
    assert_ptr_equal(copy, first_pixels);
    assert_int_equal(n_copied, held->n);
    for (int64_t i = 0; i < held->n; i++)
        assert_int_equal(first_pixels[i], dataset_row(held, i));
    device_data_destroy(data);
    dataset_destroy(held);
    dataset_destroy(d);
}

int main(void)
{
    return RUN_GROUP(setup, teardown, split_set_stays_in_its_file, pass_over_all_leaves_no_pages,
                     device_gets_samples_of_its_part, worker_touches_only_its_samples);
}
