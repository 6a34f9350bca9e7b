/* tests/worker_safetensors_test.c - the file's layout, read back by a parser of our own, and what
 * happens when it cannot be written. With `--write FILE` it only writes its sample, which
 * tests/python/test_safetensors.py then opens with the format's own library. */
#include "base/log.h"
#include "tests/capture.h"
#include "worker/safetensors.h"
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

enum { N_PARAMS = 3, N_ELEMS = 24 + 4 + 1 };

static const struct net_param params[N_PARAMS] = {
    {.name = "conv1/weights", .shape = {4, {2, 1, 3, 4}}, .rule = PARAM_TRAINED},
    {.name = "bn/moving_mean", .shape = {1, {4}}, .rule = PARAM_AVERAGE, .keep = 0.9f},
    {.name = "scale", .shape = {0, {0}}, .rule = PARAM_TRAINED},
};
static const char *const metadata[][2] = {{"model", "lenet5"}, {"quote", "a \"b\" \\ \n c"}};

static enum status write_sample(const char *path)
{
    float flat[N_ELEMS];
    struct chunks *chunks = NULL;
    enum status st;
    for (int i = 0; i < N_ELEMS; i++)
        flat[i] = (float)i * 0.5f - 3;
    TRY(chunks_create(params, N_PARAMS, CHUNKS_DEFAULT_BYTES, &chunks));
    TRY(safetensors_write(path, chunks, flat, metadata, 2));
done:
    chunks_destroy(chunks);
    return st;
}

static int setup(void **state)
{
    char *dir = strdup("/tmp/weir_st_XXXXXX");
    *state = dir;
    return dir && mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    int st = rmdir(*state); /* fails if a temporary file was left behind */
    free(*state);
    return st;
}

/* The value of an entry `"name":{...}` up to its closing brace; NULL if it is not there. */
static char *find_entry(const char *json, const char *name, char *dst, size_t bytes)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\":{", name);
    const char *start = strstr(json, key);
    if (!start)
        return NULL;
    start += strlen(key);
    snprintf(dst, bytes, "%.*s", (int)strcspn(start, "}"), start);
    return dst;
}

static void file_has_the_layout(void **state)
{
    static const struct {
        const char *name, *shape;
        int begin, end;
    } want[N_PARAMS] = {{"conv1/weights", "\"shape\":[2,1,3,4]", 0, 96},
                        {"bn/moving_mean", "\"shape\":[4]", 96, 112},
                        {"scale", "\"shape\":[]", 112, 116}};
    char path[64], entry[256], offsets[64];
    uint8_t data[4096];
    snprintf(path, sizeof path, "%s/out.safetensors", (char *)*state);
    assert_int_equal(write_sample(path), ST_OK);
    assert_int_equal(write_sample(path), ST_OK); /* over an old one */
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(data, 1, sizeof data, f);
    fclose(f);
    assert_true(n > 8);
    uint64_t length = 0;
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)data[i] << 8 * i;
    assert_int_equal(length % 8, 0);
    assert_int_equal(n, 8 + length + N_ELEMS * 4);
    char json[2048];
    assert_true(length < sizeof json);
    memcpy(json, data + 8, length);
    json[length] = 0;
    assert_int_equal(json[0], '{');
    for (int i = 0; i < N_PARAMS; i++) {
        assert_non_null(find_entry(json, want[i].name, entry, sizeof entry));
        assert_non_null(strstr(entry, "\"dtype\":\"F32\""));
        assert_non_null(strstr(entry, want[i].shape));
        snprintf(offsets, sizeof offsets, "\"data_offsets\":[%d,%d]", want[i].begin, want[i].end);
        assert_non_null(strstr(entry, offsets));
    }
    assert_non_null(find_entry(json, "__metadata__", entry, sizeof entry));
    assert_non_null(strstr(entry, "\"model\":\"lenet5\""));
    assert_non_null(strstr(entry, "\"quote\":\"a \\\"b\\\" \\\\ \\n c\""));
    for (int i = 0; i < N_ELEMS; i++) {
        float value;
        memcpy(&value, data + 8 + length + 4 * i, 4);
        assert_true(value == (float)i * 0.5f - 3);
    }
    unlink(path);
}

static void failures_name_the_file_and_leave_nothing(void **state)
{
    char path[64];
    snprintf(path, sizeof path, "%s/none/out.safetensors", (char *)*state);
    assert_int_equal(CAPTURE(write_sample(path)), ST_IO);
    assert_non_null(strstr(capture_text, path));
    assert_non_null(strstr(capture_text, "No such file or directory"));
    assert_int_equal(capture_lines(), 1);
    /* The target is a folder: the rename fails after all was written. */
    snprintf(path, sizeof path, "%s/folder", (char *)*state);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(CAPTURE(write_sample(path)), ST_IO);
    assert_non_null(strstr(capture_text, path));
    assert_int_equal(capture_lines(), 1);
    assert_int_equal(rmdir(path), 0);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_sample(argv[2]) == ST_OK ? 0 : 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(file_has_the_layout, setup, teardown),
        cmocka_unit_test_setup_teardown(failures_name_the_file_and_leave_nothing, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
