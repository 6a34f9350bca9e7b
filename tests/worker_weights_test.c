/* tests/worker_weights_test.c - --init and --freeze: which tensors a parameter's may be, what fits,
 * floats of every width, and what each kind of bad file or map is answered. Files are written here
 * byte by byte, as PyTorch's library lays them out. */
#include "base/log.h"
#include "kernels/vector/dtype.h"
#include "tests/capture.h"
#include "worker/weights/weights.h"
#include "worker/weights/weights_map.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 24 + 4 + 4 + 4 + 6 };
static const struct net_param params[] = {
    {.name = "features.0/weights", .shape = {4, {4, 2, 3, 1}}},
    {.name = "features.1/gamma", .shape = {1, {4}}},
    {.name = "features.1/moving_mean", .shape = {1, {4}}, .rule = PARAM_AVERAGE, .keep = 0.9f},
    {.name = "features.1/moving_variance", .shape = {1, {4}}, .rule = PARAM_AVERAGE, .keep = 0.9f},
    {.name = "fc/weights", .shape = {2, {2, 3}}},
};
enum { N_PARAMS = sizeof params / sizeof *params };

static char file[64], map[64];
static struct weights_normal told; /* by the last file */

static int setup(void **state)
{
    snprintf(file, sizeof file, "/tmp/weir_w_%d.safetensors", (int)getpid());
    snprintf(map, sizeof map, "/tmp/weir_w_%d.map", (int)getpid());
    return 0;
}

static int teardown(void **state)
{
    unlink(file);
    unlink(map);
    return 0;
}

static void put(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* header: JSON; data: what follows it. */
static void put_tensors(const char *header, const void *data, size_t n)
{
    char all[4096];
    uint64_t length = strlen(header);
    memcpy(all, &length, 8);
    memcpy(all + 8, header, length);
    memcpy(all + 8 + length, data, n);
    put(file, all, 8 + length + n);
}

static enum status load(const char *map_text, float *flat, uint8_t *given)
{
    struct chunks *chunks = NULL;
    assert_int_equal(chunks_create(params, N_PARAMS, 65536, &chunks), ST_OK);
    if (map_text)
        put(map, map_text, strlen(map_text));
    struct weights_request q = {file, map_text ? map : NULL, chunks};
    for (int i = 0; i < N; i++)
        flat[i] = -1;
    enum status st = weights_read(&q, flat, given, &told);
    chunks_destroy(chunks);
    return st;
}

/* Values k = 0, 1, 2, ... of the tensors in the order of the file. */
#define CONV "\"features.0.weight\":{\"dtype\":\"F64\",\"shape\":[4,2,3],\"data_offsets\":[0,192]}"
#define NORM                                                                                       \
    "\"features.1.weight\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[192,200]},"          \
    "\"features.1.running_mean\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[200,208]},"   \
    "\"features.1.running_var\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[208,224]},"     \
    "\"features.1.num_batches_tracked\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[224,"    \
    "232]}"
#define FC "\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[232,256]}"

static char data[256];

static void fill(void)
{
    double conv[24];
    float some[4] = {24, 25, 26, 27}, more[4] = {28, 29, 30, 31}, var[4] = {32, 33, 34, 35};
    float fc[6] = {36, 37, 38, 39, 40, 41};
    for (int i = 0; i < 24; i++)
        conv[i] = i;
    memcpy(data, conv, 192);
    dtype_encode(DTYPE_F16, data + 192, some, 4);
    dtype_encode(DTYPE_BF16, data + 200, more, 4);
    memcpy(data + 208, var, 16);
    memset(data + 224, 7, 8);
    memcpy(data + 232, fc, 24);
}

static void check_all(const float *flat, const uint8_t *given)
{
    for (int i = 0; i < N; i++)
        assert_true(flat[i] == (float)i);
    for (int i = 0; i < N_PARAMS; i++)
        assert_int_equal(given[i], 1);
}

/* PyTorch's names and layouts, a convolution without a dimension of 1, four widths, and a counter
 * that is no parameter. */
static void test_a_state_dict_fits(void **state)
{
    float flat[N];
    uint8_t given[N_PARAMS];
    fill();
    put_tensors("{" CONV "," NORM "," FC "}", data, sizeof data);
    assert_int_equal(load(NULL, flat, given), ST_OK);
    check_all(flat, given);
    /* what DataParallel calls it */
    put_tensors("{" CONV "," NORM
                ",\"module.fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[232,"
                "256]}}",
                data, sizeof data);
    assert_int_equal(load(NULL, flat, given), ST_OK);
    check_all(flat, given);
}

/* What a file of ours says was done with its samples; another's may have any metadata. */
static void test_what_was_done_with_the_samples(void **state)
{
    static const struct {
        const char *metadata;
        int known, n;
    } cases[] = {
        {"\"format\":\"pt\"", 0, 0},
        {"\"global_step\":\"5\"", 1, 0},
        {"\"mean\":\"0.25,0.5\",\"std\":\"1,2\"", 1, 2},
        {"\"mean\":\"0.25\"", 0, 0},
        {"\"mean\":\"as usual\",\"std\":\"1\"", 0, 0},
        {"\"mean\":\"0,0\",\"std\":\"1\",\"global_step\":\"5\"", 0, 0},
        {"\"mean\":\"0\",\"std\":\"0\"", 0, 0},
    };
    float flat[N];
    uint8_t given[N_PARAMS];
    char header[2048];
    (void)state;
    fill();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(header, sizeof header, "{\"__metadata__\":{%s}," CONV "," NORM "," FC "}",
                 cases[i].metadata);
        put_tensors(header, data, sizeof data);
        told.known = -1;
        assert_int_equal(load(NULL, flat, given), ST_OK);
        assert_int_equal(told.known, cases[i].known);
        assert_int_equal(told.normal.n, cases[i].n);
    }
}

static void test_a_map_renames(void **state)
{
    float flat[N];
    uint8_t given[N_PARAMS];
    fill();
    put_tensors(
        "{\"a.0.weight\":{\"dtype\":\"F64\",\"shape\":[4,2,3],\"data_offsets\":[0,192]}," NORM
        ",\"head\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[232,256]}}",
        data, sizeof data);
    assert_int_equal(load("# a map\n\nfeatures.0 = a.0  # a module\n fc/weights=head", flat, given),
                     ST_OK);
    check_all(flat, given);
    /* a layer, or a parameter of a layer that is named otherwise, stays as it was */
    assert_int_equal(load("features.0 = a.0\nfc = -\nfeatures.1/gamma = -\r\n", flat, given),
                     ST_OK);
    assert_int_equal(given[1], 0);
    assert_int_equal(given[4], 0);
    assert_true(flat[23] == 23 && flat[24] == -1 && flat[28] == 28 && flat[N - 1] == -1);
}

static void check_refused(const char *map_text, enum status want, const char *words)
{
    float flat[N];
    uint8_t given[N_PARAMS];
    enum status st = CAPTURE(load(map_text, flat, given));
    if (st != want || !strstr(capture_text, words))
        fail_msg("status %d, not %d, or without '%s':\n%s", (int)st, (int)want, words,
                 capture_text);
}

static void test_what_does_not_fit_is_listed(void **state)
{
    fill();
    put_tensors("{" CONV "," NORM
                ",\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[232,256]}}",
                data, sizeof data);
    check_refused(NULL, ST_MISMATCH,
                  "other shape: 'fc/weights' is 2x3, but tensor 'fc.weight' is 3x2");
    check_refused("fc = features.1", ST_MISMATCH, "tensor 'features.1.weight' is 4");
    check_refused("fc/weights = features.1.num_batches_tracked", ST_MISMATCH, "and not of floats");
    check_refused("fc/weights = head", ST_MISMATCH,
                  "missing: 'fc/weights' (2x3: no tensor is called 'head')");
    check_refused("fc/weights = head", ST_MISMATCH, "unexpected: tensor 'fc.weight' (3x2)");
    check_refused("fc/weights = head", ST_MISMATCH, "of 5 parameters 1 are missing and 0 have");
    check_refused("fc = -\nfeatures.0 = -\nfeatures.1 = -", ST_INVALID,
                  "leaves nothing to be read");
}

static void test_bad_maps_are_refused(void **state)
{
    static char many[1100000];
    fill();
    put_tensors("{" CONV "," NORM "," FC "}", data, sizeof data);
    check_refused("\nfc", ST_INVALID, "line 2: must be PARAMETER = TENSOR");
    check_refused("fc =", ST_INVALID, "needs a name");
    check_refused("= fc", ST_INVALID, "needs a name");
    check_refused("fd = fc", ST_INVALID, "line 1: 'fd' is no parameter and no layer");
    check_refused("fc = a\nfc = b", ST_INVALID, "line 2: 'fc' has a line already");
    memset(many, '#', sizeof many - 1);
    check_refused(many, ST_INVALID, "must be a text of at most 1048576 bytes");
    many[600] = 0;
    memcpy(many, "fc =", 4);
    memset(many + 5, 'x', 590);
    check_refused(many, ST_INVALID, "at most 255 bytes");
}

static void test_bad_files_are_refused(void **state)
{
    double inf = 1e300; /* beyond a float */
    float nan = NAN;
    fill();
    put(file, "PK\3\4 a zip of pickles, as torch.save makes it", 44);
    check_refused(NULL, ST_UNSUPPORTED, "safetensors.torch.save_file");
    put_tensors("{" CONV "," NORM "," FC "}", data, sizeof data - 1);
    check_refused(NULL, ST_CORRUPT, "is truncated: its header promises ");
    memcpy(data + 8, &inf, 8);
    put_tensors("{" CONV "," NORM "," FC "}", data, sizeof data);
    check_refused(NULL, ST_INVALID, "has inf as its element 1; only finite");
    fill();
    memcpy(data + 232, &nan, 4);
    put_tensors("{" CONV "," NORM "," FC "}", data, sizeof data);
    check_refused(NULL, ST_INVALID, "'fc.weight' has");
    put_tensors("{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", data, 1);
    check_refused(NULL, ST_UNSUPPORTED, "is of dtype F4, which is not known");
    char longer[0x280 + 1]; /* its length begins as a pickle does */
    snprintf(longer, sizeof longer, "%-640s",
             "{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}");
    put_tensors(longer, data, 1);
    check_refused(NULL, ST_UNSUPPORTED, "is of dtype F4, which is not known");
    unlink(file);
    check_refused(NULL, ST_NOT_FOUND, "cannot be opened");
}

static void test_freeze(void **state)
{
    struct net_param p[N_PARAMS];
    memcpy(p, params, sizeof p);
    assert_int_equal(weights_freeze("features.1/mov*,*.0/weights", p, N_PARAMS), ST_OK);
    static const int frozen[] = {1, 0, 1, 1, 0};
    for (int i = 0; i < N_PARAMS; i++)
        assert_int_equal(net_param_is_frozen(&p[i]), frozen[i]);
    static const char *const bad[][2] = {
        {"*", "leaves nothing to train"},
        {"fc*,conv*", "no parameter is called 'conv*'"},
        {"fc*,", "must be patterns"},
        {"", "must be patterns"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memcpy(p, params, sizeof p);
        assert_int_equal(CAPTURE(weights_freeze(bad[i][0], p, N_PARAMS)), ST_INVALID);
        assert_non_null(strstr(capture_text, bad[i][1]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_state_dict_fits),
        cmocka_unit_test(test_a_map_renames),
        cmocka_unit_test(test_what_was_done_with_the_samples),
        cmocka_unit_test(test_what_does_not_fit_is_listed),
        cmocka_unit_test(test_bad_maps_are_refused),
        cmocka_unit_test(test_bad_files_are_refused),
        cmocka_unit_test(test_freeze),
    };
    log_init("weights", -1, LOG_LEVEL_INFO);
    return cmocka_run_group_tests(tests, setup, teardown);
}
