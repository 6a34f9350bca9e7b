/* tests/worker_weights_test.c - --init, --predict and --freeze: the tensors of a parameter,
 * matching shapes, floats of every width, and the error for each kind of bad file or map. The tests
 * write the files byte by byte, in the layout of PyTorch's library. */
#include "base/log.h"
#include "kernels/vector/dtype.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "worker/weights/weights.h"
#include "worker/weights/weights_map.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
static struct weights_result result; /* result of the last file */

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

/* Writes a file. header: JSON; data: the bytes after it. */
static void put_tensors(const char *header, const void *data, size_t n)
{
    char all[4096];
    uint64_t length = strlen(header);
    memcpy(all, &length, 8);
    memcpy(all + 8, header, length);
    memcpy(all + 8 + length, data, n);
    put(file, all, 8 + length + n);
}

/* Reads parameter 4's extent if `extent` is set, otherwise values. */
static enum status ask(const char *flag, const char *map_text, float *flat, uint8_t *given,
                       int64_t *extent)
{
    struct chunks *chunks = NULL;
    assert_int_equal(chunks_create(params, N_PARAMS, 65536, &chunks), ST_OK);
    if (map_text)
        put(map, map_text, strlen(map_text));
    struct weights_request q = {
        flag, file, map_text ? map : NULL, chunks, strcmp(flag, "init") != 0, NULL};
    for (int i = 0; i < N && flat; i++)
        flat[i] = -1;
    enum status st =
        extent ? weights_extent(&q, 4, extent) : weights_read(&q, flat, given, &result);
    chunks_destroy(chunks);
    return st;
}

static enum status load(const char *map_text, float *flat, uint8_t *given)
{
    return ask("init", map_text, flat, given, NULL);
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

/* A state dict fits that has PyTorch's names and layouts, a convolution without a dimension of 1,
 * four widths, and a counter that is not a parameter. */
static void test_a_state_dict_fits(void **state)
{
    float flat[N];
    uint8_t given[N_PARAMS];
    fill();
    put_tensors("{" CONV "," NORM "," FC "}", data, sizeof data);
    assert_int_equal(load(NULL, flat, given), ST_OK);
    check_all(flat, given);
    /* the name in DataParallel */
    put_tensors("{" CONV "," NORM
                ",\"module.fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[232,"
                "256]}}",
                data, sizeof data);
    assert_int_equal(load(NULL, flat, given), ST_OK);
    check_all(flat, given);
}

/* Weir's own file records the normalisation of its samples; a file of another program may have any
 * metadata. */
static void normalisation_read_from_file(void **state)
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
    fill();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(header, sizeof header, "{\"__metadata__\":{%s}," CONV "," NORM "," FC "}",
                 cases[i].metadata);
        put_tensors(header, data, sizeof data);
        result.origin.normal_known = -1;
        assert_int_equal(load(NULL, flat, given), ST_OK);
        assert_int_equal(result.origin.normal_known, cases[i].known);
        assert_int_equal(result.origin.normal.n, cases[i].n);
        assert_int_equal(result.origin.step, strstr(cases[i].metadata, "global_step") ? 5 : -1);
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
    /* a layer, or a parameter of a layer with another name, keeps its values */
    assert_int_equal(load("features.0 = a.0\nfc = -\nfeatures.1/gamma = -\r\n", flat, given),
                     ST_OK);
    assert_int_equal(given[1], 0);
    assert_int_equal(given[4], 0);
    assert_true(flat[23] == 23 && flat[24] == -1 && flat[28] == 28 && flat[N - 1] == -1);
}

/* PyTorch's LayerNorm over (C,H,W) and Embedding have weight and bias, named after the module. */
static void test_norms_and_embeddings_go_by_pytorchs_names(void **state)
{
    static const struct net_param some[] = {
        {.name = "words/weights", .shape = {2, {3, 2}}},
        {.name = "block.norm/gamma", .shape = {3, {2, 1, 2}}},
        {.name = "block.norm/beta", .shape = {3, {2, 1, 2}}},
    };
    static const char *const names[][3] = {
        {"words.weight", "block.norm.weight", "block.norm.bias"},
        {"module.words.weight", "module.block.norm.weight", "module.block.norm.bias"},
        {"_orig_mod.words.weight", "_orig_mod.block.norm.weight", "_orig_mod.block.norm.bias"},
        {"module._orig_mod.words.weight", "module._orig_mod.block.norm.weight",
         "module._orig_mod.block.norm.bias"},
        {"_orig_mod.module.words.weight", "_orig_mod.module.block.norm.weight",
         "_orig_mod.module.block.norm.bias"},
        {"words._orig_mod.weight", "block._orig_mod.norm.weight", "block._orig_mod.norm.bias"},
        {"_fsdp_wrapped_module.words.weight", "module.module.block.norm.weight",
         "block._checkpoint_wrapped_module.norm.bias"},
        {"words/weights", "block.norm/gamma", "block.norm/beta"},
        {"e.weight", "n.weight", "n.bias"}, /* names by a map */
        {"_orig_mod.e.weight", "_orig_mod.n.weight", "_orig_mod.n.bias"},
    };
    enum { FIRST_MAPPED = sizeof names / sizeof *names - 2 };
    float values[14], flat[14];
    uint8_t given[3];
    char header[512];
    struct chunks *chunks = NULL;
    for (int i = 0; i < 14; i++)
        values[i] = (float)i;
    assert_int_equal(chunks_create(some, 3, 65536, &chunks), ST_OK);
    put(map, "words = e\nblock.norm = n\n", 25);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        /* safetensors.torch.save_file sorts them by name */
        snprintf(
            header, sizeof header,
            "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2,1,2],\"data_offsets\":[40,56]},\"%s\":{\"dtype\":\"F32\",\"shape\":[2,1,2],\"data_offsets\":[24,40]},\"%s\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]}}",
            names[k][2], names[k][1], names[k][0]);
        put_tensors(header, values, sizeof values);
        memset(flat, 0, sizeof flat);
        const struct weights_request q = {"predict", file, k >= FIRST_MAPPED ? map : NULL,
                                          chunks,    1,    NULL};
        assert_int_equal(weights_read(&q, flat, given, &result), ST_OK);
        assert_memory_equal(flat, values, sizeof values);
        assert_int_equal(result.n_given, 3);
        assert_int_equal(result.n_unused, 0);
    }
    chunks_destroy(chunks);
}

/* --predict needs all parameters of a file. A PyTorch state dict may have more. */
static void check_predict(const char *map_text, enum status want, const char *words)
{
    float flat[N];
    uint8_t given[N_PARAMS];
    enum status st = CAPTURE(ask("predict", map_text, flat, given, NULL));
    if (st != want || !strstr(capture_text, words))
        fail_msg("status %d, not %d, or without '%s':\n%s", (int)st, (int)want, words,
                 capture_text);
}

/* The name of a wrapper is not part of a tensor's name, unless the file has both names. */
static void test_exact_name_wins_over_wrapped_one(void **state)
{
    float flat[N], wrapped[6] = {-2, -2, -2, -2, -2, -2};
    uint8_t given[N_PARAMS];
    char longer[sizeof data + sizeof wrapped];
    fill();
    memcpy(longer, data, sizeof data);
    memcpy(longer + sizeof data, wrapped, sizeof wrapped);
    put_tensors("{" CONV "," NORM "," FC ",\"_orig_mod.fc.weight\":{\"dtype\":\"F32\","
                "\"shape\":[2,3],\"data_offsets\":[256,280]}}",
                longer, sizeof longer);
    assert_int_equal(CAPTURE(load(NULL, flat, given)), ST_OK);
    check_all(flat, given);
    assert_non_null(strstr(capture_text, "unexpected: tensor '_orig_mod.fc.weight' (2x3)"));
    put_tensors("{" CONV "," NORM ",\"fc.module.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],"
                "\"data_offsets\":[232,256]}}",
                data, sizeof data);
    assert_int_equal(CAPTURE(load(NULL, flat, given)), ST_MISMATCH);
}

/* Only the map decides which of two wrapped tensors is the parameter. */
static void test_two_wrapped_tensors_of_a_name_are_refused(void **state)
{
    float flat[N];
    uint8_t given[N_PARAMS];
    char longer[sizeof data + 24] = {0};
    fill();
    memcpy(longer, data, sizeof data);
    put_tensors("{" CONV "," NORM ",\"fc._orig_mod.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],"
                "\"data_offsets\":[232,256]},\"module.fc.weight\":{\"dtype\":\"F32\","
                "\"shape\":[2,3],\"data_offsets\":[256,280]}}",
                longer, sizeof longer);
    assert_int_equal(CAPTURE(load(NULL, flat, given)), ST_MISMATCH);
    assert_int_equal(capture_lines(), 1);
    assert_non_null(strstr(
        capture_text,
        "tensors 'fc._orig_mod.weight' and 'module.fc.weight' are both 'fc.weight' without the parts that PyTorch's wrappers add; choose one in --init_map=FILE (PARAMETER = TENSOR)"));
    assert_int_equal(CAPTURE(load("fc/weights = fc._orig_mod.weight", flat, given)), ST_OK);
    check_all(flat, given);
}

/* The last of these tensors is found. A search over all of them for each parameter would be too
 * slow. */
static void test_wrapped_names_of_a_large_file_are_found(void **state)
{
    enum { MANY = 20000, ENTRY = 80 };
    struct net_param *many = calloc(MANY, sizeof *many);
    char(*names)[16] = calloc(MANY, sizeof *names);
    char *header = malloc(MANY * ENTRY), *at = header + 8;
    float *flat = calloc(MANY, sizeof *flat);
    uint8_t *given = calloc(MANY, 1);
    assert_true(many && names && header && flat && given);
    for (int i = 0; i < MANY; i++) {
        int n = snprintf(names[i], sizeof names[i], "l%d/weights", i);
        assert_true(n < (int)sizeof names[i]);
        many[i] = (struct net_param){.name = names[i], .shape = {1, {1}}};
        at += sprintf(
            at,
            "%c\"module.l%d.weight\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
            i ? ',' : '{', i, 4 * i, 4 * i + 4);
    }
    *at++ = '}';
    uint64_t length = (uint64_t)(at - header - 8);
    memcpy(header, &length, sizeof length);
    FILE *f = fopen(file, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(header, 1, (size_t)(at - header), f), (size_t)(at - header));
    for (int i = 0; i < MANY; i++)
        assert_int_equal(fwrite(&(float){(float)i}, sizeof(float), 1, f), 1);
    assert_int_equal(fclose(f), 0);
    struct chunks *chunks;
    assert_int_equal(chunks_create(many, MANY, 4096, &chunks), ST_OK);
    const struct weights_request q = {"init", file, NULL, chunks, 0, NULL};
    assert_int_equal(weights_read(&q, flat, given, &result), ST_OK);
    assert_int_equal(result.n_given, MANY);
    for (int i = 0; i < MANY; i++)
        assert_float_equal(flat[i], (float)i, 0);
    chunks_destroy(chunks);
    free(many);
    free(names);
    free(header);
    free(flat);
    free(given);
}

static void missing_parameters_refused_to_predict(void **state)
{
    static const char *const extra =
        "\"more\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[256,260]}";
    char header[2048];
    float flat[N];
    uint8_t given[N_PARAMS];
    char longer[sizeof data + 4] = {0};
    fill();
    memcpy(longer, data, sizeof data);
    put_tensors("{" CONV "," NORM "," FC "}", data, sizeof data);
    assert_int_equal(ask("predict", NULL, flat, given, NULL), ST_OK);
    check_all(flat, given);
    check_predict("fc = head", ST_MISMATCH, "--predict=/tmp/weir_w_");
    check_predict("fc = head", ST_MISMATCH, "called 'head/weights' or 'head.weight')");
    check_predict(
        "fc = head", ST_MISMATCH,
        "of another model. It lacks 1 of 5 parameters, and 0 have another shape. Set --model");
    snprintf(header, sizeof header, "{" CONV "," NORM "," FC ",%s}", extra);
    put_tensors(header, longer, sizeof longer);
    check_predict(NULL, ST_OK, "unexpected: tensor 'more' (2) belongs to no parameter");
    assert_int_equal(result.n_unused, 1);
    /* a file of Weir has exactly the parameters of its model, and valid metadata */
    snprintf(header, sizeof header,
             "{\"__metadata__\":{\"global_step\":\"5\"}," CONV "," NORM "," FC ",%s}", extra);
    put_tensors(header, longer, sizeof longer);
    check_predict(NULL, ST_MISMATCH, "of another model. 1 of its tensors belong to no parameter");
    check_predict("fc = fc", ST_OK, "unexpected");
    put_tensors("{\"__metadata__\":{\"global_step\":\"5\",\"mean\":\"0\",\"std\":\"a\"}," CONV
                "," NORM "," FC "}",
                data, sizeof data);
    check_predict(NULL, ST_CORRUPT, "'mean' and 'std' must be lists of numbers");
}

/* The rule of names decides which tensor is the parameter, not the order in the file. */
static void test_the_extent_of_a_parameters_tensor(void **state)
{
    static const struct {
        const char *map;
        int64_t want;
    } cases[] = {{NULL, 2}, {"fc = features.1", 4}, {"fc = none", 0}, {"fc = -", 0}};
    fill();
    put_tensors("{" CONV "," NORM "," FC "}", data, sizeof data);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t extent = -1;
        assert_int_equal(ask("predict", cases[i].map, NULL, NULL, &extent), ST_OK);
        assert_int_equal(extent, cases[i].want);
    }
    unlink(file);
    int64_t extent;
    assert_int_equal(CAPTURE(ask("predict", NULL, NULL, NULL, &extent)), ST_NOT_FOUND);
    assert_non_null(strstr(capture_text, "--predict="));
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
    check_refused(
        "fc/weights = features.1.num_batches_tracked", ST_MISMATCH,
        "tensor 'features.1.num_batches_tracked' is a scalar, of dtype I64, which is not read as a parameter");
    check_refused("fc/weights = head", ST_MISMATCH,
                  "missing: 'fc/weights' (2x3: no tensor is called 'head')");
    check_refused("fc/weights = head", ST_MISMATCH, "unexpected: tensor 'fc.weight' (3x2)");
    check_refused("fc/weights = head", ST_MISMATCH, "the file lacks 1 of 5 parameters, and 0 have");
    check_refused("fc = -\nfeatures.0 = -\nfeatures.1 = -", ST_INVALID, "leaves nothing to read");
}

/* Only the tensors of parameters must be readable. A newer dtype of another tensor is only
 * listed. */
static void unreadable_dtypes_of_unused_tensors_listed(void **state)
{
    float flat[N];
    uint8_t given[N_PARAMS];
    char longer[sizeof data + 7] = {0};
    fill();
    memcpy(longer, data, sizeof data);
    put_tensors("{" CONV "," NORM "," FC
                ",\"scales\":{\"dtype\":\"F8_E8M0\",\"shape\":[4],\"data_offsets\":[256,260]},"
                "\"packed\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[260,263]}}",
                longer, sizeof longer);
    assert_int_equal(CAPTURE(load(NULL, flat, given)), ST_OK);
    check_all(flat, given);
    assert_int_equal(capture_lines(), 2);
    assert_non_null(strstr(capture_text, "tensor 'scales' (4) belongs to no parameter"));
    assert_non_null(strstr(capture_text, "tensor 'packed' (3x2) belongs to no parameter"));
    check_refused("fc/weights = packed", ST_MISMATCH,
                  "tensor 'packed' is 3x2, of dtype F4, which is not read");
    put_tensors("{" CONV "," NORM "," FC
                ",\"scales\":{\"dtype\":\"F8_E8M0\",\"shape\":[4],\"data_offsets\":[256,264]}}",
                longer, sizeof longer);
    check_refused(NULL, ST_CORRUPT, "is truncated: its header states");
}

static void test_bad_maps_are_refused(void **state)
{
    static char many[1100000];
    fill();
    put_tensors("{" CONV "," NORM "," FC "}", data, sizeof data);
    check_refused("\nfc", ST_INVALID, "line 2: must be PARAMETER = TENSOR");
    check_refused("fc =", ST_INVALID, "needs a name");
    check_refused("= fc", ST_INVALID, "needs a name");
    check_refused("fd = fc", ST_INVALID,
                  "line 1: 'fd' is neither a parameter of the model nor a layer");
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
    double inf = 1e300; /* larger than a float */
    float nan = NAN;
    fill();
    put(file, "PK\3\4 a zip of pickles, as torch.save makes it", 44);
    check_refused(NULL, ST_UNSUPPORTED, "safetensors.torch.save_file");
    put_tensors("{" CONV "," NORM "," FC "}", data, sizeof data - 1);
    check_refused(NULL, ST_CORRUPT, "is truncated: its header states ");
    memcpy(data + 8, &inf, 8);
    put_tensors("{" CONV "," NORM "," FC "}", data, sizeof data);
    check_refused(NULL, ST_INVALID, "has inf as its element 1; only finite");
    fill();
    memcpy(data + 232, &nan, 4);
    put_tensors("{" CONV "," NORM "," FC "}", data, sizeof data);
    check_refused(NULL, ST_INVALID, "'fc.weight' has");
    char longer[0x280 + 1]; /* the file begins with 0x80 0x02, like a pickle */
    snprintf(longer, sizeof longer, "%-640s",
             "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}");
    put_tensors(longer, data, 4);
    check_refused(NULL, ST_MISMATCH, "unexpected: tensor 'a' (1)");
    unlink(file);
    check_refused(NULL, ST_NOT_FOUND, "cannot be opened");
}

/* Writes a zip archive of one stored member without content, up to its first header. */
static void put_zip(const char *member)
{
    uint8_t head[30 + 64] = "PK\3\4";
    head[26] = (uint8_t)strlen(member);
    memcpy(head + 30, member, strlen(member));
    put(file, head, 30 + strlen(member));
}

static void test_files_of_other_programs_are_named(void **state)
{
    put_zip("archive/data.pkl");
    check_refused(NULL, ST_UNSUPPORTED, "was written by torch.save");
    put_zip("hid.npy");
    check_refused(NULL, ST_UNSUPPORTED, "is an npz archive of NumPy");
    put_zip("metadata.json");
    check_refused(NULL, ST_UNSUPPORTED, "is a zip archive, such as Keras' .keras");
    put(file, "\x89HDF\r\n\x1a\n\0\0\0\0", 12);
    check_refused(NULL, ST_UNSUPPORTED, "is an HDF5 file, such as Keras' .h5");
    put(file, "\x80\4\x95 and more", 12);
    check_refused(NULL, ST_UNSUPPORTED, "was written by torch.save or pickle");
    put(file, "GGUF\3\0\0\0 and more", 17);
    check_refused(NULL, ST_UNSUPPORTED, "is a GGUF file");
    put(file, "\x93NUMPY\1\0 and more", 17);
    check_refused(NULL, ST_UNSUPPORTED, "is a NumPy array");
}

static void test_index_of_shards_is_named(void **state)
{
    static const char text[] =
        "{\"metadata\": {\"total_size\": 16}, \"weight_map\": {\"fc.weight\": \"model-00001-of-00002.safetensors\"}}";
    char safetensors[sizeof file];
    memcpy(safetensors, file, sizeof file);
    snprintf(file, sizeof file, "/tmp/weir_w_%d.index.json", (int)getpid());
    put(file, text, sizeof text - 1);
    check_refused(NULL, ST_UNSUPPORTED, "is an index of several files");
    check_refused(NULL, ST_UNSUPPORTED, "safetensors.torch.save_file");
    put(file, "{\"a\": 1}", 8);
    check_refused(NULL, ST_CORRUPT, "is truncated, or not a checkpoint manifest");
    unlink(file);
    memcpy(file, safetensors, sizeof file);
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
        {"fc*,conv*", "no parameter has a name like 'conv*'"},
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
    log_init("weights", -1, LOG_LEVEL_INFO);
    return RUN_GROUP(
        setup, teardown, test_a_state_dict_fits, test_norms_and_embeddings_go_by_pytorchs_names,
        test_two_wrapped_tensors_of_a_name_are_refused,
        test_wrapped_names_of_a_large_file_are_found, test_exact_name_wins_over_wrapped_one,
        missing_parameters_refused_to_predict, test_the_extent_of_a_parameters_tensor,
        test_a_map_renames, normalisation_read_from_file, test_what_does_not_fit_is_listed,
        unreadable_dtypes_of_unused_tensors_listed, test_bad_maps_are_refused,
        test_bad_files_are_refused, test_files_of_other_programs_are_named,
        test_index_of_shards_is_named, test_freeze);
}
