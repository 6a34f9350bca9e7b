/* tests/files_safetensors_test.c - tests safetensors files: checks the layout of a written file
 * with a parser of this test and with the reader of files/; the reader's report of each kind of
 * damage; and failed writes. Called with `--write FILE`, the program only writes its sample, which
 * tests/python/test_safetensors.py then opens with the format's own library. */
#include "base/digest.h"
#include "base/log.h"
#include "files/safetensors.h"
#include "tests/capture.h"
#include "tests/check.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_TENSORS = 3, N_ELEMS = 24 + 4 + 1, MAX_BYTES = 4096 };

static float flat[N_ELEMS];
static const struct safetensors_tensor tensors[N_TENSORS] = {
    {.name = "conv1/weights", .shape = {4, {2, 1, 3, 4}}, .data = flat},
    {.name = "bn/moving_mean", .shape = {1, {4}}, .data = flat + 24},
    {.name = "scale", .shape = {0, {0}}, .data = flat + 28},
};
static const char *const metadata[][2] = {{"model", "lenet5"}, {"quote", "a \"b\" \\ \n c"}};

static enum status write_sample(const char *path, struct safetensors_written *out)
{
    for (int i = 0; i < N_ELEMS; i++)
        flat[i] = (float)i * 0.5f - 3;
    struct safetensors_content content = {tensors, N_TENSORS, metadata, 2};
    return safetensors_write(path, &content, out);
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

static const int64_t keys[] = {-7, 0, INT64_MAX};
static const uint16_t halves[] = {0x3f80, 0xc020, 0}; /* 1, -2.5 and 0 in bf16 */

/* Adds the tensors one by one, and a tensor of whole numbers and one of bf16. The content states
 * larger bounds of three shapes. */
static enum status write_mixed(const char *path, struct safetensors_written *out)
{
    struct safetensors_tensor mixed[N_TENSORS + 2] = {
        tensors[0],
        tensors[1],
        tensors[2],
        {.name = "keys", .shape = {1, {1000}}, .dtype = SAFETENSORS_I64},
        {.name = "halves", .shape = {2, {1000, 1}}, .dtype = SAFETENSORS_BF16}};
    const struct safetensors_content content = {mixed, N_TENSORS + 2, metadata, 2};
    const struct shape of_keys = {1, {3}}, of_halves = {2, {3, 1}};
    struct safetensors_writer *w;
    for (int i = 0; i < N_ELEMS; i++)
        flat[i] = (float)i * 0.5f - 3;
    mixed[0].shape.dim[0] = 1 << 20;
    enum status st = safetensors_begin(path, &content, &w);
    if (st != ST_OK)
        return st;
    for (int i = 0; i < N_TENSORS && st == ST_OK; i++)
        st = safetensors_add(w, &tensors[i].shape, tensors[i].data);
    TRY(st);
    TRY(safetensors_add(w, &of_keys, keys));
    TRY(safetensors_add(w, &of_halves, halves));
    TRY(safetensors_commit(w, out));
done:
    safetensors_end(w);
    return st;
}

/* Copies the value of an entry `"name":{...}`, up to its closing brace, to dst and returns dst;
 * returns NULL if there is no such entry. */
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
    } want[N_TENSORS] = {{"conv1/weights", "\"shape\":[2,1,3,4]", 0, 96},
                         {"bn/moving_mean", "\"shape\":[4]", 96, 112},
                         {"scale", "\"shape\":[]", 112, 116}};
    char path[64], entry[256], offsets[64];
    uint8_t data[4096];
    snprintf(path, sizeof path, "%s/out.safetensors", (char *)*state);
    assert_int_equal(write_sample(path, NULL), ST_OK);
    assert_int_equal(write_sample(path, NULL), ST_OK); /* replaces an old file */
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
    /* the bytes that versions before safetensors_begin wrote */
    assert_int_equal(digest_crc32c(0, data, n), 0xdd341ce1);
    char json[2048];
    assert_true(length < sizeof json);
    memcpy(json, data + 8, length);
    json[length] = 0;
    assert_int_equal(json[0], '{');
    for (int i = 0; i < N_TENSORS; i++) {
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
    assert_int_equal(CAPTURE(write_sample(path, NULL)), ST_IO);
    assert_non_null(strstr(capture_text, path));
    assert_non_null(strstr(capture_text, "No such file or directory"));
    assert_int_equal(capture_lines(), 1);
    /* The target is a folder. */
    snprintf(path, sizeof path, "%s/folder", (char *)*state);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(CAPTURE(write_sample(path, NULL)), ST_IO);
    assert_non_null(strstr(capture_text, path));
    assert_int_equal(capture_lines(), 1);
    assert_int_equal(rmdir(path), 0);
}

/* Reads the whole file into data; returns its length. */
static size_t slurp(const char *path, uint8_t data[MAX_BYTES])
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(data, 1, MAX_BYTES, f);
    fclose(f);
    return n;
}

static void spill(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

/* Opens and checks the file; returns the status of the first error. */
static enum status read_all(const char *path, const struct safetensors_written *whole, char *why)
{
    struct safetensors_file *f = NULL;
    enum status st = safetensors_open(path, &f, why);
    if (st == ST_OK)
        st = safetensors_check(f, whole, why);
    safetensors_close(f);
    return st;
}

static void written_file_is_read_back(void **state)
{
    char path[64], why[SAFETENSORS_WHY_BYTES];
    struct safetensors_written written;
    struct safetensors_file *f;
    uint8_t data[MAX_BYTES];
    snprintf(path, sizeof path, "%s/out.safetensors", (char *)*state);
    assert_int_equal(write_sample(path, &written), ST_OK);
    size_t n_bytes = slurp(path, data);
    assert_int_equal(written.bytes, n_bytes);
    assert_int_equal(written.crc32c, digest_crc32c(0, data, n_bytes - N_ELEMS * sizeof(float)));
    assert_int_equal(safetensors_open(path, &f, why), ST_OK);
    assert_int_equal(safetensors_check(f, &written, why), ST_OK);
    assert_string_equal(safetensors_metadata(f, "quote"), metadata[1][1]);
    assert_null(safetensors_metadata(f, "none"));
    int n;
    const struct safetensors_entry *e = safetensors_entries(f, &n);
    assert_int_equal(n, N_TENSORS);
    for (int i = 0, at = 0; i < n; at += (int)e[i++].n_elems) {
        float values[N_ELEMS];
        assert_string_equal(e[i].name, tensors[i].name);
        assert_memory_equal(&e[i].shape, &tensors[i].shape, sizeof e[i].shape);
        assert_true(e[i].has_crc);
        assert_int_equal(safetensors_read(f, &e[i], 0, e[i].n_elems, values, why), ST_OK);
        assert_memory_equal(values, flat + at, (size_t)e[i].n_elems * sizeof *values);
        assert_int_equal(safetensors_read(f, &e[i], 0, e[i].n_elems + 1, values, why), ST_CORRUPT);
        assert_int_equal(safetensors_read(f, &e[i], -1, 1, values, why), ST_CORRUPT);
        assert_int_equal(safetensors_read(f, &e[i], INT64_MAX, 1, values, why), ST_CORRUPT);
    }
    float last;
    assert_int_equal(safetensors_read(f, &e[0], 23, 1, &last, why), ST_OK);
    assert_true(last == flat[23]);
    safetensors_close(f);
    unlink(path);
}

static void tensors_are_added_one_by_one(void **state)
{
    char path[64], why[SAFETENSORS_WHY_BYTES];
    struct safetensors_written written;
    struct safetensors_file *f;
    uint8_t data[MAX_BYTES];
    float values[N_ELEMS];
    int64_t numbers[3];
    uint16_t found[3];
    int n, at = 0;
    snprintf(path, sizeof path, "%s/out.safetensors", (char *)*state);
    assert_int_equal(write_mixed(path, &written), ST_OK);
    assert_int_equal(slurp(path, data), written.bytes);
    assert_int_equal(safetensors_open(path, &f, why), ST_UNSUPPORTED);
    assert_non_null(strstr(why, "tensor 'keys' is of dtype I64"));
    assert_int_equal(safetensors_open_any(path, &f, why), ST_OK);
    assert_int_equal(safetensors_check(f, &written, why), ST_OK);
    const struct safetensors_entry *e = safetensors_entries(f, &n);
    assert_int_equal(n, N_TENSORS + 2);
    for (int i = 0; i < N_TENSORS; at += (int)e[i++].n_elems) {
        assert_string_equal(e[i].name, tensors[i].name);
        assert_memory_equal(&e[i].shape, &tensors[i].shape, sizeof e[i].shape);
        assert_int_equal(safetensors_read(f, &e[i], 0, e[i].n_elems, values, why), ST_OK);
        assert_memory_equal(values, flat + at, (size_t)e[i].n_elems * sizeof *values);
    }
    assert_int_equal(e[n - 2].dtype, SAFETENSORS_I64);
    assert_int_equal(e[n - 2].n_elems, 3);
    assert_int_equal(safetensors_read(f, &e[n - 2], 0, 1, values, why), ST_CORRUPT);
    assert_int_equal(safetensors_read_raw(f, &e[n - 2], 0, 3, numbers, why), ST_OK);
    assert_memory_equal(numbers, keys, sizeof keys);
    assert_int_equal(e[n - 1].dtype, SAFETENSORS_BF16);
    assert_int_equal(e[n - 1].n_elems, 3);
    assert_int_equal(safetensors_read_raw(f, &e[n - 1], 0, 3, found, why), ST_OK);
    assert_memory_equal(found, halves, sizeof halves);
    safetensors_close(f);
    unlink(path);
}

/* The data need several blocks, so the first header is on the disk when the final one replaces
 * it. */
static void large_file_gets_its_header_last(void **state)
{
    enum { N = (5 << 20) / 4 + 3 };
    char path[64], why[SAFETENSORS_WHY_BYTES];
    float *values = malloc(N * sizeof *values);
    struct safetensors_tensor large = {.name = "large", .shape = {1, {N}}, .data = values};
    const struct safetensors_content content = {&large, 1, metadata, 2};
    struct safetensors_written written;
    assert_non_null(values);
    for (int i = 0; i < N; i++)
        values[i] = (float)i;
    snprintf(path, sizeof path, "%s/out.safetensors", (char *)*state);
    assert_int_equal(safetensors_write(path, &content, &written), ST_OK);
    assert_int_equal(read_all(path, &written, why), ST_OK);
    free(values);
    unlink(path);
}

/* The header of a file in place cannot be replaced, and has the same bytes. */
static void fifo_receives_the_same_bytes(void **state)
{
    char path[64], fifo[64];
    uint8_t data[MAX_BYTES], got[MAX_BYTES];
    int status;
    snprintf(path, sizeof path, "%s/out.safetensors", (char *)*state);
    snprintf(fifo, sizeof fifo, "%s/fifo", (char *)*state);
    assert_int_equal(write_sample(path, NULL), ST_OK);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(write_sample(fifo, NULL) == ST_OK ? 0 : 1);
    size_t n = slurp(fifo, got);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(n, slurp(path, data));
    assert_memory_equal(got, data, n);
    unlink(fifo);
    unlink(path);
}

/* Tensors that are added one by one cannot precede the header of a file in place. */
static void fifo_needs_all_tensors_in_memory(void **state)
{
    char fifo[64];
    const struct safetensors_tensor absent = {.name = "rows", .shape = {1, {8}}};
    const struct safetensors_content content = {.tensors = &absent, .n_tensors = 1};
    struct safetensors_writer *w = NULL;
    snprintf(fifo, sizeof fifo, "%s/fifo", (char *)*state);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    int reader = open(fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(reader >= 0);
    assert_int_equal(safetensors_begin(fifo, &content, &w), ST_UNSUPPORTED);
    assert_null(w);
    close(reader);
    unlink(fifo);
}

/* Names of classes are part of the metadata and may contain any characters. */
static void texts_may_have_brackets(void **state)
{
    char path[64], why[SAFETENSORS_WHY_BYTES], text[MAX_BYTES];
    for (int i = 0; i < MAX_BYTES; i++)
        text[i] = "[{\"\\"[i % 4];
    text[MAX_BYTES - 1] = 0;
    const char *const classes[][2] = {{"classes", text}};
    struct safetensors_content content = {tensors, N_TENSORS, classes, 1};
    struct safetensors_file *f = NULL;
    snprintf(path, sizeof path, "%s/out.safetensors", (char *)*state);
    assert_int_equal(safetensors_write(path, &content, NULL), ST_OK);
    enum status st = safetensors_open(path, &f, why);
    unlink(path);
    if (st != ST_OK)
        fail_msg("%s", why);
    assert_string_equal(safetensors_metadata(f, "classes"), text);
    safetensors_close(f);
}

static void texts_of_all_characters_are_read_back(void **state)
{
    char path[64], text[256], *end = text, why[SAFETENSORS_WHY_BYTES];
    for (char c = 1; c < 0x7f; c++)
        *end++ = c;
    snprintf(end, 16, "\x7f \xc3\xa4 \xf0\x9f\x90\xa7");
    const char *const texts[][2] = {{"a \"key\"\n", text}};
    const struct safetensors_tensor named = {.name = text, .shape = {1, {4}}, .data = flat};
    const struct safetensors_content content = {&named, 1, texts, 1};
    struct safetensors_file *f = NULL;
    int n;
    snprintf(path, sizeof path, "%s/out.safetensors", (char *)*state);
    assert_int_equal(safetensors_write(path, &content, NULL), ST_OK);
    assert_int_equal(safetensors_open(path, &f, why), ST_OK);
    unlink(path);
    assert_string_equal(safetensors_metadata(f, texts[0][0]), text);
    assert_string_equal(safetensors_entries(f, &n)->name, text);
    assert_int_equal(n, 1);
    safetensors_close(f);
}

static void texts_that_are_not_utf8_are_refused(void **state)
{
    char path[64];
    const char *const texts[][2] = {{"classes", "caf\xe9"}};
    const struct safetensors_content content = {tensors, N_TENSORS, texts, 1};
    snprintf(path, sizeof path, "%s/out.safetensors", (char *)*state);
    assert_int_equal(CAPTURE(safetensors_write(path, &content, NULL)), ST_NOMEM);
    assert_non_null(strstr(capture_text, "not UTF-8"));
    assert_int_not_equal(access(path, F_OK), 0);
}

static void header_above_the_limit_is_refused(void **state)
{
    char path[64], *text = malloc(SAFETENSORS_MAX_HEADER + 1);
    const char *const texts[][2] = {{"note", text}};
    const struct safetensors_content content = {tensors, N_TENSORS, texts, 1};
    assert_non_null(text);
    memset(text, 'x', SAFETENSORS_MAX_HEADER);
    text[SAFETENSORS_MAX_HEADER] = 0;
    snprintf(path, sizeof path, "%s/out.safetensors", (char *)*state);
    assert_int_equal(CAPTURE(safetensors_write(path, &content, NULL)), ST_UNSUPPORTED);
    assert_non_null(
        strstr(capture_text, "bytes for 3 tensors, but readers accept at most 33554432"));
    assert_int_not_equal(access(path, F_OK), 0);
    text[SAFETENSORS_MAX_HEADER - 1024] = 0; /* room for the other texts of the header */
    assert_int_equal(safetensors_write(path, &content, NULL), ST_OK);
    unlink(path);
    free(text);
}

static void damaged_byte_is_found(void **state)
{
    char path[64], why[SAFETENSORS_WHY_BYTES];
    struct safetensors_written written;
    uint8_t data[MAX_BYTES];
    snprintf(path, sizeof path, "%s/out.safetensors", (char *)*state);
    assert_int_equal(write_sample(path, &written), ST_OK);
    size_t n = slurp(path, data);
    for (size_t i = 0; i < n; i++) {
        uint8_t bit = (uint8_t)(1 << i % 8);
        data[i] ^= bit;
        spill(path, data, n);
        data[i] ^= bit;
        why[0] = 0;
        enum status st = read_all(path, &written, why);
        assert_true(st == ST_CORRUPT || st == ST_UNSUPPORTED);
        assert_true(strlen(why) > 0);
        if (i >= n - N_ELEMS * sizeof(float)) { /* damaged data: found without a manifest, too */
            assert_int_equal(read_all(path, NULL, why), ST_CORRUPT);
            assert_non_null(strstr(why, "does not match its checksum"));
        }
    }
    for (size_t cut = 0; cut < n; cut++) {
        spill(path, data, cut);
        assert_int_equal(read_all(path, NULL, why), ST_CORRUPT);
    }
    data[n] = 0;
    spill(path, data, n + 1);
    assert_int_equal(read_all(path, NULL, why), ST_CORRUPT);
    unlink(path);
    assert_int_equal(read_all(path, NULL, why), ST_NOT_FOUND);
    assert_int_equal(read_all(*state, NULL, why), ST_CORRUPT); /* a folder */
}

static void false_headers_are_refused(void **state)
{
    static const struct {
        enum status st;
        const char *json;
    } headers[] = {
        {ST_OK, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"},
        {ST_OK, "{\"a\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[0,0]},"
                "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"},
        {ST_UNSUPPORTED, "{\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}"},
        {ST_CORRUPT, "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}"},
        {ST_CORRUPT, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}"},
        {ST_CORRUPT, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}"},
        {ST_CORRUPT, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}"},
        {ST_CORRUPT, "{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[8,0]}}"},
        {ST_CORRUPT, "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905,4],"
                     "\"data_offsets\":[0,8]}}"},
        {ST_CORRUPT, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"},
        {ST_CORRUPT, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                     "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"},
        {ST_CORRUPT, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                     "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}"},
        {ST_CORRUPT, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}"},
        {ST_CORRUPT, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,2],"
                     "\"data_offsets\":[0,8]}}"},
        {ST_CORRUPT, "{\"a\":7}"},
        {ST_CORRUPT, "{}"},
        {ST_CORRUPT, "[]"},
        {ST_CORRUPT, "{\"a\":"},
    };
    char path[64], why[SAFETENSORS_WHY_BYTES];
    uint8_t file[1024];
    snprintf(path, sizeof path, "%s/lie.safetensors", (char *)*state);
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        size_t n = strlen(headers[i].json);
        uint64_t length = n;
        memcpy(file, &length, 8); /* little-endian, as all machines that this runs on */
        memcpy(file + 8, headers[i].json, n);
        memset(file + 8 + n, 0, 8);
        spill(path, file, 8 + n + 8);
        assert_int_equal(read_all(path, NULL, why), headers[i].st);
    }
    /* a valid text of this length has fewer containers: refused before it is parsed */
    size_t n = sizeof file - 8;
    uint64_t length = n;
    memcpy(file, &length, 8);
    memset(file + 8, '[', n);
    file[8] = '{';
    spill(path, file, sizeof file);
    assert_int_equal(read_all(path, NULL, why), ST_CORRUPT);
    assert_non_null(strstr(why, "not that of a safetensors file"));
    length = UINT64_MAX - 4;
    memcpy(file, &length, 8);
    spill(path, file, sizeof file);
    assert_int_equal(read_all(path, NULL, why), ST_CORRUPT);
    unlink(path);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_mixed(argv[2], NULL) == ST_OK ? 0 : 1;
    return RUN_EACH(setup, teardown, file_has_the_layout, written_file_is_read_back,
                    tensors_are_added_one_by_one, large_file_gets_its_header_last,
                    fifo_receives_the_same_bytes, fifo_needs_all_tensors_in_memory,
                    texts_may_have_brackets, texts_of_all_characters_are_read_back,
                    texts_that_are_not_utf8_are_refused, damaged_byte_is_found,
                    header_above_the_limit_is_refused, false_headers_are_refused,
                    failures_name_the_file_and_leave_nothing);
}
