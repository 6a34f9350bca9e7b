/* tests/worker_input_test.c - compares normalised samples with plain double precision: bytes,
 * floats, grey and colour, in both layouts; and measures mean and deviation. */
#include "base/log.h"
#include "base/rng.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "worker/data/dataset.h"
#include <math.h>

enum { N = 40, H = 5, W = 7, MOST = N * 3 * H * W };

/* A folder with one npy set of n samples, (C,H,W) or (H,W,C). */
struct set {
    char dir[32];
    int channels;
    uint8_t pixels[MOST]; /* (C,H,W) */
    float floats[MOST];
};

static const char *path_of(const struct set *s, const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    return path;
}

static void save_npy(const struct set *s, const char *name, const char *dict, const void *data,
                     size_t n)
{
    FILE *f = fopen(path_of(s, name), "wb");
    assert_non_null(f);
    size_t length = strlen(dict);
    const uint8_t head[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)length, 0};
    assert_int_equal(fwrite(head, 1, sizeof head, f), sizeof head);
    assert_int_equal(fwrite(dict, 1, length, f), length);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void fill(struct set *s, int channels)
{
    s->channels = channels;
    for (int i = 0; i < MOST; i++) {
        s->pixels[i] = (uint8_t)rng_below(rng_key(1, RNG_TEST, 0), (uint64_t)i, 256);
        s->floats[i] = rng_uniform(rng_key(1, RNG_TEST, 1), (uint64_t)i) * 9 - 3;
    }
}

static struct dataset *open_set(struct set *s, int is_float, int nhwc)
{
    const struct dataset_request r = {.dir = s->dir, .part = "train", .nhwc = nhwc};
    size_t elems = (size_t)s->channels * H * W, size = is_float ? 4 : 1;
    const uint8_t *from = is_float ? (const uint8_t *)s->floats : s->pixels;
    uint8_t labels[N] = {0, 1}, data[MOST * 4];
    char dict[128];
    struct dataset *d = NULL;
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < elems; k++) {
            size_t place = k % (H * W), c = k / (H * W);
            size_t to = nhwc ? place * (size_t)s->channels + c : k;
            memcpy(data + (i * elems + to) * size, from + (i * elems + k) * size, size);
        }
    snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (%d,%d,%d,%d), }",
             is_float ? "<f4" : "|u1", N, nhwc ? H : s->channels, nhwc ? W : H,
             nhwc ? s->channels : W);
    save_npy(s, "train-images.npy", dict, data, N * elems * size);
    save_npy(s, "train-labels.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (40,), }",
             labels, N);
    assert_int_equal(dataset_open(&r, &d), ST_OK);
    assert_int_equal(d->sample.dim[0], s->channels);
    return d;
}

/* Returns a sample's number in plain double precision. */
static double number_of(const struct set *s, int is_float, int at)
{
    return is_float ? (double)s->floats[at] : s->pixels[at] / 255.0;
}

static int setup(void **state)
{
    struct set *s = calloc(1, sizeof *s);
    if (!s)
        return -1;
    folder_rig_new(s->dir);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct set *s = *state;
    unlink(path_of(s, "train-images.npy"));
    unlink(path_of(s, "train-labels.npy"));
    assert_int_equal(rmdir(s->dir), 0);
    free(s);
    return 0;
}

/* Calls check() for each kind of samples. */
static void for_each_kind(struct set *s, void (*check)(struct set *, struct dataset *, int))
{
    for (int kind = 0; kind < 8; kind++) {
        fill(s, kind & 1 ? 3 : 1);
        struct dataset *d = open_set(s, kind >> 1 & 1, kind >> 2);
        check(s, d, kind >> 1 & 1);
        dataset_destroy(d);
    }
}

static void check_normal(struct set *s, struct dataset *d, int is_float)
{
    static const float mean[3] = {0.25f, -1.5f, 1e-3f}, std[3] = {0.5f, 3, 0.0625f};
    float sample[3 * H * W], plain[3 * H * W];
    int elems = s->channels * H * W;
    d->normal.n = s->channels;
    memcpy(d->normal.mean, mean, sizeof mean);
    memcpy(d->normal.std, std, sizeof std);
    assert_false(dataset_is_bytes(d)); /* a backend only divides bytes by 255 */
    for (int i = 0; i < N; i++) {
        assert_int_equal(dataset_sample(d, i, sample), ST_OK);
        assert_int_equal(dataset_plain(d, i, plain), ST_OK);
        for (int k = 0; k < elems; k++) {
            int c = k / (H * W);
            double x = number_of(s, is_float, i * elems + k);
            double want = (x - (double)mean[c]) / (double)std[c];
            assert_true(fabs((double)plain[k] - x) <= 1e-7 * fabs(x));
            assert_true(fabs((double)sample[k] - want) <= 1e-5 + 1e-6 * fabs(want));
        }
    }
}

static void samples_are_normalised(void **state)
{
    for_each_kind(*state, check_normal);
}

static void check_measured(struct set *s, struct dataset *d, int is_float)
{
    double mean[3] = {0}, std[3] = {0}, again[6];
    int elems = s->channels * H * W;
    assert_int_equal(dataset_measure(d, mean, std), ST_OK);
    assert_int_equal(dataset_measure(d, again, again + 3), ST_OK);
    assert_memory_equal(mean, again, (size_t)s->channels * sizeof *mean);
    assert_memory_equal(std, again + 3, (size_t)s->channels * sizeof *std);
    for (int c = 0; c < s->channels; c++) {
        double sum = 0, squares = 0;
        for (int i = 0; i < N; i++)
            for (int k = c * H * W; k < (c + 1) * H * W; k++) {
                double x = number_of(s, is_float, i * elems + k);
                sum += x;
                squares += x * x;
            }
        double m = sum / (N * H * W);
        assert_true(fabs(mean[c] - m) < 1e-7);
        assert_true(fabs(std[c] - sqrt(squares / (N * H * W) - m * m)) < 1e-7);
    }
}

static void mean_and_deviation_are_measured(void **state)
{
    for_each_kind(*state, check_measured);
}

/* The measured mean and deviation normalise the samples to 0 and 1. */
static void measured_samples_are_standard(void **state)
{
    struct set *s = *state;
    double mean[3], std[3];
    float sample[3 * H * W];
    fill(s, 3);
    struct dataset *d = open_set(s, 0, 0);
    assert_int_equal(dataset_measure(d, mean, std), ST_OK);
    d->normal.n = 3;
    for (int c = 0; c < 3; c++) {
        d->normal.mean[c] = (float)mean[c];
        d->normal.std[c] = (float)std[c];
    }
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++) {
        assert_int_equal(dataset_sample(d, i, sample), ST_OK);
        for (int k = 0; k < 3 * H * W; k++) {
            sum += (double)sample[k];
            squares += (double)sample[k] * (double)sample[k];
        }
    }
    assert_true(fabs(sum / MOST) < 1e-6);
    assert_true(fabs(squares / MOST - 1) < 1e-6);
    dataset_destroy(d);
}

static void nonfinite_samples_refused(void **state)
{
    struct set *s = *state;
    float sample[H * W];
    fill(s, 1);
    s->floats[H * W + 3] = 3e38f;
    struct dataset *d = open_set(s, 1, 0);
    d->normal = (struct job_normal){.n = 1, .std = {0.1f}};
    assert_int_equal(dataset_sample(d, 0, sample), ST_OK);
    assert_int_equal(CAPTURE(dataset_sample(d, 1, sample)), ST_INVALID);
    assert_int_equal(capture_lines(), 1);
    assert_non_null(strstr(capture_text, "sample 1 has a number that is not finite after --mean"));
    dataset_destroy(d);
}

static void numbers_are_read_and_written(void **state)
{
    static const char *const bad[] = {"",     ",",   "1,",    ",1",   "1,,2", "a",    "1 2",
                                      "1, 2", "nan", "1,inf", "1e99", "0x",   "1.2.3"};
    float v[JOB_MAX_CHANNELS], again[JOB_MAX_CHANNELS];
    char text[JOB_NUMBERS_BYTES], many[4 * JOB_MAX_CHANNELS] = "1";
    assert_int_equal(job_input_numbers_parse("0.1307,-3,+1e-3", v), 3);
    assert_true(v[0] == 0.1307f && v[1] == -3 && v[2] == 1e-3f);
    assert_string_equal(job_input_numbers_text(v, 3, text), "0.1307,-3,0.001");
    assert_string_equal(job_input_numbers_text(v, 0, text), "none");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (job_input_numbers_parse(bad[i], v) != 0)
            fail_msg("taken: '%s'", bad[i]);
    for (int i = 1; i < JOB_MAX_CHANNELS; i++)
        strcat(many, ",1");
    assert_int_equal(job_input_numbers_parse(many, v), JOB_MAX_CHANNELS);
    strcat(many, ",1");
    assert_int_equal(job_input_numbers_parse(many, v), 0);
    for (int i = 0; i < JOB_MAX_CHANNELS; i++)
        v[i] = -rng_uniform(rng_key(2, RNG_TEST, 0), (uint64_t)i) * 1e-30f;
    assert_int_equal(
        job_input_numbers_parse(job_input_numbers_text(v, JOB_MAX_CHANNELS, text), again),
        JOB_MAX_CHANNELS);
    assert_memory_equal(v, again, sizeof v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(samples_are_normalised, setup, teardown),
        cmocka_unit_test_setup_teardown(mean_and_deviation_are_measured, setup, teardown),
        cmocka_unit_test_setup_teardown(measured_samples_are_standard, setup, teardown),
        cmocka_unit_test_setup_teardown(nonfinite_samples_refused, setup, teardown),
        cmocka_unit_test(numbers_are_read_and_written),
    };
    log_init("test", -1, LOG_LEVEL_INFO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
