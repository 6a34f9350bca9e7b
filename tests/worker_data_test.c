/* tests/worker_data_test.c - arrays from npy, npz, safetensors and IDX of other types and ranks:
 * each format yields the same numbers, and errors name their position. */
#include "base/log.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "worker/data/data_array.h"
#include "worker/data/dataset.h"
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

enum { N = 6, C = 3, H = 4, W = 5, ELEMS = C * H * W, MOST = 1 << 16 };

struct bytes {
    uint8_t at[MOST];
    size_t n;
};

struct folder {
    char dir[32];
    struct bytes file, other;
    uint8_t pixels[N * ELEMS];
    int32_t labels[N];
};

static void put(struct bytes *b, const void *data, size_t n)
{
    assert_true(b->n + n <= MOST);
    memcpy(b->at + b->n, data, n);
    b->n += n;
}

static void put_number(struct bytes *b, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        put(b, &(uint8_t){(uint8_t)(i < 8 ? v >> (8 * i) : 0)}, 1);
}

static void put_big(struct bytes *b, uint32_t v)
{
    for (int i = 3; i >= 0; i--)
        put(b, &(uint8_t){(uint8_t)(v >> (8 * i))}, 1);
}

static void put_npy(struct bytes *b, const char *dict, const void *data, size_t n)
{
    put(b, "\x93NUMPY\1\0", 8);
    put_number(b, strlen(dict), 2);
    put(b, dict, strlen(dict));
    put(b, data, n);
}

/* A zip archive of one or two members; zip64: sizes in the extra field, as numpy may have them. */
struct zip_member {
    const char *name;
    const struct bytes *data;
    uint8_t packed[MOST];
    size_t packed_bytes, place;
};

static void put_member(struct bytes *z, struct zip_member *m, int deflated)
{
    m->place = z->n;
    memcpy(m->packed, m->data->at, m->data->n);
    m->packed_bytes = m->data->n;
    if (deflated) {
        z_stream s = {.next_in = (uint8_t *)(uintptr_t)m->data->at,
                      .avail_in = (uInt)m->data->n,
                      .next_out = m->packed,
                      .avail_out = MOST};
        assert_int_equal(deflateInit2(&s, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
        assert_int_equal(deflate(&s, Z_FINISH), Z_STREAM_END);
        m->packed_bytes = MOST - s.avail_out;
        deflateEnd(&s);
    }
    put(z, "PK\3\4", 4);
    put_number(z, 0, 22);
    put_number(z, strlen(m->name), 2);
    put_number(z, 0, 2);
    put(z, m->name, strlen(m->name));
    put(z, m->packed, m->packed_bytes);
}

static void put_entry(struct bytes *z, const struct zip_member *m, int deflated, int zip64)
{
    put(z, "PK\1\2", 4);
    put_number(z, 0, 6);
    put_number(z, deflated ? 8 : 0, 2);
    put_number(z, 0, 4);
    put_number(z, crc32(0, m->data->at, (uInt)m->data->n), 4);
    put_number(z, zip64 ? UINT32_MAX : m->packed_bytes, 4);
    put_number(z, zip64 ? UINT32_MAX : m->data->n, 4);
    put_number(z, strlen(m->name), 2);
    put_number(z, zip64 ? 20 : 0, 2);
    put_number(z, 0, 10);
    put_number(z, m->place, 4);
    put(z, m->name, strlen(m->name));
    if (zip64) {
        put_number(z, 1 | 16 << 16, 4);
        put_number(z, m->data->n, 8);
        put_number(z, m->packed_bytes, 8);
    }
}

static void put_npz(struct bytes *z, struct zip_member *m, int n, int deflated, int zip64)
{
    for (int i = 0; i < n; i++)
        put_member(z, &m[i], deflated);
    size_t list = z->n;
    for (int i = 0; i < n; i++)
        put_entry(z, &m[i], deflated, zip64);
    size_t bytes = z->n - list;
    put(z, "PK\5\6", 4);
    put_number(z, 0, 4);
    put_number(z, (uint64_t)n | (uint64_t)n << 16, 4);
    put_number(z, bytes, 4);
    put_number(z, list, 4);
    put_number(z, 0, 2);
}

static const char *path_of(const struct folder *f, const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    return path;
}

static void save(const struct folder *f, const char *name, const struct bytes *b)
{
    folder_rig_save(path_of(f, name), b->at, b->n);
}

static int setup(void **state)
{
    struct folder *f = calloc(1, sizeof *f);
    assert_non_null(f);
    folder_rig_new(f->dir);
    for (int i = 0; i < N * ELEMS; i++)
        f->pixels[i] = (uint8_t)(i * 37);
    for (int i = 0; i < N; i++)
        f->labels[i] = i * 200; /* larger than a byte */
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    static const char *const names[] = {"train-images.npy", "train-labels.npy",
                                        "train.npz",        "train.safetensors",
                                        "train-images.idx", "train-labels.idx"};
    struct folder *f = *state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(path_of(f, names[i]));
    assert_int_equal(rmdir(f->dir), 0);
    free(f);
    return 0;
}

static enum status open_set(const struct folder *f, int nhwc, struct dataset **out)
{
    const struct dataset_request r = {.dir = f->dir, .part = "train", .nhwc = nhwc};
    return dataset_open(&r, out);
}

/* Compares the folder's set with the set that setup made. has_bytes: the samples are read in
 * place. */
static void check_set(const struct folder *f, int nhwc, int has_bytes)
{
    struct dataset *d = NULL;
    float sample[ELEMS];
    assert_int_equal(open_set(f, nhwc, &d), ST_OK);
    assert_int_equal(d->n, N);
    assert_int_equal(d->sample.dim[0], C);
    assert_int_equal(d->sample.dim[1], H);
    assert_int_equal(d->sample.dim[2], W);
    assert_int_equal(d->classes, 1001);
    assert_int_equal(d->bytes != NULL, has_bytes);
    assert_false(dataset_is_bytes(d));
    for (int i = 0; i < N; i++) {
        assert_int_equal(d->labels[i], f->labels[i]);
        assert_int_equal(dataset_sample(d, i, sample), ST_OK);
        for (int k = 0; k < ELEMS; k++)
            assert_true(sample[k] == (float)f->pixels[i * ELEMS + k] / 255.0f);
    }
    dataset_destroy(d);
}

static void check_bad(const struct folder *f, enum status want, const char *piece,
                      const char *other)
{
    struct dataset *d = NULL;
    enum status st = CAPTURE(open_set(f, 0, &d));
    if (st != want || capture_lines() != 1 || !strstr(capture_text, piece) ||
        !strstr(capture_text, other))
        fail_msg("status %s, wanted %s with \"%s\" and \"%s\"; said: %s", status_name(st),
                 status_name(want), piece, other, capture_text);
    assert_null(d);
}

static const char pixels_dict[] =
    "{'descr': '|u1', 'fortran_order': False, 'shape': (6, 3, 4, 5), }          \n";
static const char labels_dict[] = "{'descr': '<i4', 'fortran_order': False, 'shape': (6,), }\n";

static void save_npy(struct folder *f, const char *dict, const void *data, size_t n)
{
    f->file.n = f->other.n = 0;
    put_npy(&f->file, dict, data, n);
    save(f, "train-images.npy", &f->file);
    put_npy(&f->other, labels_dict, f->labels, sizeof f->labels);
    save(f, "train-labels.npy", &f->other);
}

static void turned(const struct folder *f, uint8_t nhwc[N * ELEMS])
{
    for (int i = 0; i < N; i++)
        for (int c = 0; c < C; c++)
            for (int p = 0; p < H * W; p++)
                nhwc[i * ELEMS + p * C + c] = f->pixels[i * ELEMS + c * H * W + p];
}

static void npy_of_bytes_and_floats_is_read(void **state)
{
    struct folder *f = *state;
    float floats[N * ELEMS];
    uint8_t nhwc[N * ELEMS];
    save_npy(f, pixels_dict, f->pixels, sizeof f->pixels);
    check_set(f, 0, 1);
    turned(f, nhwc);
    save_npy(f, "{'descr': '|u1', 'fortran_order': False, 'shape': (6, 4, 5, 3), }", nhwc,
             sizeof nhwc);
    check_set(f, 1, 0);
    for (int i = 0; i < N * ELEMS; i++)
        floats[i] = (float)f->pixels[i] / 255.0f;
    save_npy(f, "{'shape':(6,3,4,5),\"descr\":'<f4','fortran_order':False}", floats, sizeof floats);
    check_set(f, 0, 0);
    for (int i = 0; i < N * ELEMS; i++) {
        uint32_t bits;
        memcpy(&bits, &floats[i], 4);
        bits = __builtin_bswap32(bits);
        memcpy(&floats[i], &bits, 4);
    }
    save_npy(f, "{'shape':(6,3,4,5),\"descr\":'>f4','fortran_order':False}", floats, sizeof floats);
    check_set(f, 0, 0);
}

/* The arrays that setup made, as members of an archive: "images.npy", then "labels.npy" twice. */
static struct zip_member *npz_members(const struct folder *f)
{
    static struct bytes images, labels;
    struct zip_member *m = calloc(3, sizeof *m);
    assert_non_null(m);
    images.n = labels.n = 0;
    put_npy(&images, pixels_dict, f->pixels, sizeof f->pixels);
    put_npy(&labels, labels_dict, f->labels, sizeof f->labels);
    for (int i = 0; i < 3; i++) {
        m[i].name = i == 0 ? "images.npy" : "labels.npy";
        m[i].data = i == 0 ? &images : &labels;
    }
    return m;
}

static void npz_stored_deflated_and_zip64_is_read(void **state)
{
    struct folder *f = *state;
    struct zip_member *m = npz_members(f);
    for (int form = 0; form < 4; form++) {
        f->file.n = 0;
        put_npz(&f->file, m, 2, form & 1, form & 2);
        save(f, "train.npz", &f->file);
        check_set(f, 0, 1);
    }
    f->file.at[m[0].place + 60]++; /* the last member is deflated */
    save(f, "train.npz", &f->file);
    check_bad(f, ST_CORRUPT, "train.npz: byte 0: the member does", "numpy.savez");
    f->file.n -= 1;
    save(f, "train.npz", &f->file);
    check_bad(f, ST_CORRUPT, "train.npz", "the list of members at the end of an npz is missing");
    m[1].name = "others.npy";
    f->file.n = 0;
    put_npz(&f->file, m, 2, 0, 0);
    save(f, "train.npz", &f->file);
    check_bad(f, ST_NOT_FOUND, "no member 'labels.npy' (it has: images.npy others.npy",
              "--labels_name");
    free(m);
}

/* Readers disagree on which of the two members counts; numpy.load uses the last. */
static void npz_with_a_member_twice_is_refused(void **state)
{
    struct folder *f = *state;
    struct zip_member *m = npz_members(f);
    put_npz(&f->file, m, 3, 0, 0);
    save(f, "train.npz", &f->file);
    check_bad(f, ST_CORRUPT, "train.npz: has two members 'labels.npy'", "save it again");
    free(m);
}

static void npz_with_stored_bytes_altered_is_refused(void **state)
{
    struct folder *f = *state;
    struct zip_member *m = npz_members(f);
    put_npz(&f->file, m, 2, 0, 0);
    for (int i = 0; i < 2; i++) {
        uint8_t *last = &f->file.at[m[i].place + 40 + m[i].packed_bytes - 1];
        *last ^= 1;
        save(f, "train.npz", &f->file);
        check_bad(f, ST_CORRUPT, "train.npz: byte ", "the member does not match its checksum");
        *last ^= 1;
    }
    save(f, "train.npz", &f->file);
    check_set(f, 0, 1);
    free(m);
}

static void safetensors_is_read(void **state)
{
    struct folder *f = *state;
    char head[256];
    int64_t labels[N];
    for (int i = 0; i < N; i++)
        labels[i] = f->labels[i];
    int n = snprintf(
        head, sizeof head,
        "{\"labels\":{\"dtype\":\"I64\",\"shape\":[6],\"data_offsets\":[0,48]},\"images\":{\"dtype\":\"U8\",\"shape\":[6,3,4,5],\"data_offsets\":[48,408]}}");
    put_number(&f->file, (uint64_t)n, 8);
    put(&f->file, head, (size_t)n);
    put(&f->file, labels, sizeof labels);
    put(&f->file, f->pixels, sizeof f->pixels);
    save(f, "train.safetensors", &f->file);
    check_set(f, 0, 1);
    f->file.n--;
    save(f, "train.safetensors", &f->file);
    check_bad(f, ST_CORRUPT, "train.safetensors",
              "is truncated: its header states 542 bytes in all, but there are 541");
    memcpy(strstr((char *)f->file.at + 8, "images"), "inages", 6);
    f->file.n++;
    save(f, "train.safetensors", &f->file);
    check_bad(f, ST_NOT_FOUND, "no tensor 'images' (it has: labels inages", "--images_name");
    memcpy(strstr((char *)f->file.at + 8, "inages"), "images", 6);
}

static void idx_of_other_ranks_and_types_is_read(void **state)
{
    struct folder *f = *state;
    const uint32_t dims[] = {0x00000804, N, C, H, W};
    for (int i = 0; i < 5; i++)
        put_big(&f->file, dims[i]);
    put(&f->file, f->pixels, sizeof f->pixels);
    save(f, "train-images.idx", &f->file);
    put_big(&f->other, 0x00000c01);
    put_big(&f->other, N);
    for (int i = 0; i < N; i++)
        put_big(&f->other, (uint32_t)f->labels[i]);
    save(f, "train-labels.idx", &f->other);
    check_set(f, 0, 1);
    memset(f->other.at + 8 + 3 * 4, 0xff, 4);
    save(f, "train-labels.idx", &f->other);
    check_bad(f, ST_CORRUPT, "label 3 (byte 20, int32) is -1", "from 0 to 65535");
    f->other.n = 8;
    for (int i = 0; i < N; i++)
        put_big(&f->other, (uint32_t)f->labels[i]);
    save(f, "train-labels.idx", &f->other);
    f->file.at[2] = 0xb;
    f->file.n = 20;
    for (size_t i = 0; i < sizeof f->pixels; i++)
        put(&f->file, ((uint8_t[2]){0, f->pixels[i]}), 2);
    save(f, "train-images.idx", &f->file);
    check_set(f, 0, 0);
}

/* Numbers of all sizes and both signs are divided by 255, like bytes. */
static void whole_numbers_of_any_size_are_read(void **state)
{
    static const struct {
        const char *descr;
        int bytes;
        int64_t numbers[N]; /* a number per sample */
    } kinds[] = {{"<i8", 8, {0, 1, 255, 256, 50000, 1048575}},
                 {">i4", 4, {0, -1, 255, -70000, 50000, 1048575}},
                 {"<u2", 2, {0, 1, 255, 256, 50000, 65535}},
                 {"|i1", 1, {0, -1, 127, -128, 5, 6}}};
    struct folder *f = *state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct dataset *d = NULL;
        uint8_t data[N * 8];
        char dict[100];
        float sample;
        int bytes = kinds[i].bytes;
        for (int k = 0; k < N * bytes; k++) {
            int at = kinds[i].descr[0] == '>' ? bytes - 1 - k % bytes : k % bytes;
            data[k] = (uint8_t)((uint64_t)kinds[i].numbers[k / bytes] >> (8 * at));
        }
        snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (6, 1), }",
                 kinds[i].descr);
        save_npy(f, dict, data, (size_t)(N * bytes));
        assert_int_equal(open_set(f, 0, &d), ST_OK);
        assert_null(d->bytes);
        for (int k = 0; k < N; k++) {
            assert_int_equal(dataset_sample(d, k, &sample), ST_OK);
            assert_true(sample == (float)kinds[i].numbers[k] / 255.0f);
        }
        dataset_destroy(d);
    }
}

/* Python 2 wrote the extents of a shape as long integers. */
static void npy_of_python_2_is_read(void **state)
{
    struct folder *f = *state;
    save_npy(f, "{'descr': '|u1', 'fortran_order': False, 'shape': (6L, 3L, 4L, 5L), }", f->pixels,
             sizeof f->pixels);
    check_set(f, 0, 1);
    save_npy(f, "{'descr': '|u1', 'fortran_order': False, 'shape': (6LL, 60), }", f->pixels,
             sizeof f->pixels);
    check_bad(f, ST_CORRUPT, "does not parse", "");
}

/* The numbers 0, 0.5, -2, 1, 65504 and 0.25 (bool: 0 or 1) as one sample each. */
static const float six[N] = {0, 0.5f, -2, 1, 65504, 0.25f};
static const uint16_t six_f16[N] = {0, 0x3800, 0xc000, 0x3c00, 0x7bff, 0x3400};
static const uint16_t six_bf16[N] = {0, 0x3f00, 0xc000, 0x3f80, 0x4780, 0x3e80};
static const uint8_t six_bool[N] = {0, 1, 0, 1, 1, 0};

/* Opens the set and compares it with `six`; the line about the conversion is logged once. */
static void check_six(const struct folder *f, const char *type, const char *file)
{
    struct dataset *d = NULL;
    float sample, want;
    char said[200];
    enum status st = CAPTURE(open_set(f, 0, &d));
    snprintf(said, sizeof said,
             "%s: its samples are %s, which are converted to float32 as they are read", file, type);
    if (st != ST_OK || capture_lines() != 1 || !strstr(capture_text, said))
        fail_msg("status %s, wanted one line \"%s\"; said: %s", status_name(st), said,
                 capture_text);
    assert_true(d->floats);
    assert_null(d->bytes);
    for (int i = 0; i < N; i++) {
        want = strcmp(type, "bool") == 0 ? (float)six_bool[i] : six[i];
        want = strcmp(type, "bfloat16") == 0 && i == 4 ? 65536 : want;
        assert_int_equal(dataset_sample(d, i, &sample), ST_OK);
        assert_float_equal(sample, want, 0);
    }
    dataset_destroy(d);
}

static void npy_of_other_floats_and_bool_converted_with_log_line(void **state)
{
    struct folder *f = *state;
    uint64_t wide[N];
    for (int i = 0; i < N; i++) {
        double v = (double)six[i];
        memcpy(&wide[i], &v, sizeof v);
    }
    save_npy(f, "{'descr': '<f8', 'fortran_order': False, 'shape': (6, 1), }", wide, sizeof wide);
    check_six(f, "float64", "train-images.npy");
    for (int i = 0; i < N; i++)
        wide[i] = __builtin_bswap64(wide[i]);
    save_npy(f, "{'descr': '>f8', 'fortran_order': False, 'shape': (6, 1), }", wide, sizeof wide);
    check_six(f, "float64", "train-images.npy");
    save_npy(f, "{'descr': '<f2', 'fortran_order': False, 'shape': (6, 1), }", six_f16,
             sizeof six_f16);
    check_six(f, "float16", "train-images.npy");
    save_npy(f, "{'descr': '|b1', 'fortran_order': False, 'shape': (6, 1), }", six_bool,
             sizeof six_bool);
    check_six(f, "bool", "train-images.npy");
}

static void safetensors_of_other_floats_and_bool_converted_with_log_line(void **state)
{
    static const struct {
        const char *dtype, *name;
        const void *data;
        int bytes;
    } kinds[] = {{"F16", "float16", six_f16, 2},
                 {"BF16", "bfloat16", six_bf16, 2},
                 {"BOOL", "bool", six_bool, 1}};
    struct folder *f = *state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char head[256];
        int end = 24 + N * kinds[i].bytes;
        int n = snprintf(
            head, sizeof head,
            "{\"labels\":{\"dtype\":\"I32\",\"shape\":[6],\"data_offsets\":[0,24]},\"images\":{\"dtype\":\"%s\",\"shape\":[6,1],\"data_offsets\":[24,%d]}}",
            kinds[i].dtype, end);
        f->file.n = 0;
        put_number(&f->file, (uint64_t)n, 8);
        put(&f->file, head, (size_t)n);
        put(&f->file, f->labels, sizeof f->labels);
        put(&f->file, kinds[i].data, (size_t)(N * kinds[i].bytes));
        save(f, "train.safetensors", &f->file);
        check_six(f, kinds[i].name, "train.safetensors");
    }
}

static void labels_of_bool_are_classes_and_of_float64_targets(void **state)
{
    struct folder *f = *state;
    struct dataset *d = NULL;
    const double targets[N] = {0, 0.5, -2, 1e-3, 4, 5};
    save_npy(f, pixels_dict, f->pixels, sizeof f->pixels);
    f->other.n = 0;
    put_npy(&f->other, "{'descr': '|b1', 'fortran_order': False, 'shape': (6,), }", six_bool, N);
    save(f, "train-labels.npy", &f->other);
    assert_int_equal(open_set(f, 0, &d), ST_OK);
    assert_int_equal(d->classes, 2);
    for (int i = 0; i < N; i++)
        assert_int_equal(d->labels[i], six_bool[i]);
    dataset_destroy(d);
    f->other.n = 0;
    put_npy(&f->other, "{'descr': '<f8', 'fortran_order': False, 'shape': (6,), }", targets,
            sizeof targets);
    save(f, "train-labels.npy", &f->other);
    assert_int_equal(CAPTURE(open_set(f, 0, &d)), ST_OK);
    assert_non_null(strstr(capture_text, "train-labels.npy: its targets are float64"));
    for (int i = 0; i < N; i++)
        assert_float_equal(d->targets[i], (float)targets[i], 0);
    dataset_destroy(d);
}

static void rows_of_features_are_one_row(void **state)
{
    struct folder *f = *state;
    struct dataset *d = NULL;
    save_npy(f, "{'descr': '|u1', 'fortran_order': False, 'shape': (6, 60), }", f->pixels,
             sizeof f->pixels);
    assert_int_equal(open_set(f, 0, &d), ST_OK);
    assert_int_equal(d->sample.dim[0], 1);
    assert_int_equal(d->sample.dim[1], 1);
    assert_int_equal(d->sample.dim[2], 60);
    dataset_destroy(d);
}

static void bad_npy_dtypes_are_named_with_the_fix(void **state)
{
    static const struct {
        const char *dict, *piece, *other;
    } bad[] = {
        {"{'descr': '<f16', 'fortran_order': False, 'shape': (6, 60), }", "dtype '<f16'",
         "supported are float64, float32, float16, bool and whole numbers"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (6, 15), }",
         "its values are complex numbers (dtype '<c8')", "numpy.stack([a.real, a.imag], 1)"},
        {"{'descr': [('a', '<i4'), ('b', '<f4', (2,))], 'fortran_order': False, 'shape': (6,), }",
         "rows are records of named fields (dtype [('a', '<i4'), ('b', '<f4', (2,))])",
         "numpy.lib.recfunctions.structured_to_unstructured(a), or one field, a['NAME']"},
        {"{'fortran_order': False, 'shape': (6,), 'descr': [('a name of many letters, of which not "
         "all are shown', '<i4')",
         "(dtype [('a name of many letters, of which not a", "structured_to_unstructured"},
        {"{'descr': [('\x1b', '<i4')], 'fortran_order': False, 'shape': (6,), }",
         "(dtype [('?', '<i4')])", "structured_to_unstructured"},
        {"{'descr': '<U3', 'fortran_order': False, 'shape': (6, 5), }",
         "its values are texts (dtype '<U3')", "numpy.unique(a, return_inverse=True)[1]"},
        {"{'descr': '|S12', 'fortran_order': False, 'shape': (6, 5), }",
         "its values are texts (dtype '|S12')", "numpy.unique(a, return_inverse=True)[1]"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (6, 5), }",
         "its values are Python objects (dtype '|O')", "numpy.array(a.tolist(), numpy.float32)"},
        {"{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (6, 5), }",
         "its values are times (dtype '<M8[ns]')", "a.astype(numpy.int64)"},
        {"{'descr': '|V2', 'fortran_order': False, 'shape': (6, 5), }",
         "its values are raw bytes (dtype '|V2')", "bfloat16 as a.astype(numpy.float32)"},
    };
    struct folder *f = *state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        save_npy(f, bad[i].dict, f->pixels, sizeof f->pixels);
        check_bad(f, ST_UNSUPPORTED, bad[i].piece, bad[i].other);
    }
}

static void bad_npy_headers_are_named(void **state)
{
    static const struct {
        const char *dict;
        enum status st;
        const char *piece, *other;
    } bad[] = {
        {"{'descr': '|u1', 'fortran_order': True, 'shape': (6, 60), }", ST_UNSUPPORTED,
         "fortran_order", "ascontiguousarray"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (6, 61), }", ST_CORRUPT,
         "states (6, 61) of uint8", "truncated"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (6, 59), }", ST_CORRUPT,
         "bytes after its end", "there are"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (6, 60, }", ST_CORRUPT,
         "does not parse", ""},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (6, -60), }", ST_CORRUPT,
         "does not parse", ""},
        {"{'descr': '|u1', 'descr': '|u1', 'shape': (6, 60), }", ST_CORRUPT, "does not parse", ""},
        {"{'descr': '|u1', 'shape': (6, 60), }", ST_CORRUPT, "does not parse", ""},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (4000000000, 4000000000), }",
         ST_CORRUPT, "more than any file can hold", ""},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,), }", ST_CORRUPT,
         "does not parse", ""},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (0, 60), }", ST_CORRUPT,
         "bytes after its end", ""},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (6, 1, 1, 1, 60), }", ST_CORRUPT,
         "(6, 1, 1, 1, 60); samples are", "--data_layout"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (5, 72), }", ST_MISMATCH,
         "5 samples, but", "has 6 labels"},
    };
    struct folder *f = *state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        save_npy(f, bad[i].dict, f->pixels, sizeof f->pixels);
        check_bad(f, bad[i].st, bad[i].piece, bad[i].other);
    }
    f->file.n = 0;
    put(&f->file, "\x93NUMPY\1\0\xff\xff", 10);
    save(f, "train-images.npy", &f->file);
    check_bad(f, ST_CORRUPT, "truncated", "65535");
    f->file.at[6] = 9;
    save(f, "train-images.npy", &f->file);
    check_bad(f, ST_UNSUPPORTED, "npy version, is 9", "");
}

static void nonfinite_numbers_reported(void **state)
{
    struct folder *f = *state;
    struct dataset *d = NULL;
    float floats[N * 2] = {0}, sample[2];
    char said[256];
    floats[7] = 1.0f / 0.0f;
    save_npy(f, "{'descr': '<f4', 'fortran_order': False, 'shape': (6, 2), }", floats,
             sizeof floats);
    assert_int_equal(open_set(f, 0, &d), ST_OK);
    assert_int_equal(dataset_sample(d, 2, sample), ST_OK);
    assert_int_equal(CAPTURE(dataset_sample(d, 3, sample)), ST_CORRUPT);
    assert_non_null(strstr(capture_text, "sample 3 (from byte"));
    snprintf(said, sizeof said, "%s", strstr(capture_text, "sample 3 "));
    struct dataset *held =
        NULL; /* the subset has it at another index: the error names the position in the file */
    assert_int_equal(dataset_split(d, 0.5, 3, &held), ST_OK);
    for (int i = 0; i < N; i++) {
        const struct dataset *part = i < N / 2 ? d : held;
        enum status st = CAPTURE(dataset_sample(part, i % (N / 2), sample));
        assert_int_equal(st, dataset_row(part, i % (N / 2)) == 3 ? ST_CORRUPT : ST_OK);
        if (st != ST_OK)
            assert_string_equal(strstr(capture_text, "sample 3 "), said);
    }
    dataset_destroy(held);
    dataset_destroy(d);
}

/* Numbers of float64 beyond float32 are reported as too large, not as infinite. */
static void numbers_beyond_float32_are_named_as_such(void **state)
{
    struct folder *f = *state;
    struct dataset *d = NULL;
    double wide[N * 2] = {0};
    float sample[2];
    wide[7] = -1e300;
    save_npy(f, "{'descr': '<f8', 'fortran_order': False, 'shape': (6, 2), }", wide, sizeof wide);
    assert_int_equal(CAPTURE(open_set(f, 0, &d)), ST_OK);
    assert_int_equal(CAPTURE(dataset_sample(d, 3, sample)), ST_CORRUPT);
    assert_non_null(strstr(
        capture_text,
        "on) has the number -1e+300, which is beyond the range of float32 (up to 3.4e38); scale"));
    dataset_destroy(d);
    f->other.n = 0;
    put_npy(&f->other, "{'descr': '<f8', 'fortran_order': False, 'shape': (6, 2), }", wide,
            sizeof wide);
    save(f, "train-labels.npy", &f->other);
    assert_int_equal(CAPTURE(open_set(f, 0, &d)), ST_CORRUPT);
    assert_int_equal(capture_lines(), 1);
    assert_non_null(strstr(
        capture_text,
        "target 1 of sample 3 is -1e+300, which is beyond the range of float32 (up to 3.4e38); "
        "scale the targets"));
    wide[7] = (double)NAN;
    f->other.n = 0;
    put_npy(&f->other, "{'descr': '<f8', 'fortran_order': False, 'shape': (6, 2), }", wide,
            sizeof wide);
    save(f, "train-labels.npy", &f->other);
    assert_int_equal(CAPTURE(open_set(f, 0, &d)), ST_CORRUPT);
    assert_non_null(
        strstr(capture_text,
               "target 1 of sample 3 is nan, which is not finite; fix it or remove the sample"));
}

/* A program that reads a mapped file after it was truncated exits with 1 and a log line, not by a
 * signal. */
static void truncated_mapped_file_ends_program_in_order(void **state)
{
    struct folder *f = *state;
    char text[512] = "";
    int ends[2], status;
    save_npy(f, pixels_dict, f->pixels, sizeof f->pixels);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct dataset *d = NULL;
        float sample[ELEMS];
        dup2(ends[1], STDERR_FILENO);
        if (open_set(f, 0, &d) != ST_OK || truncate(path_of(f, "train-images.npy"), 0) != 0)
            _exit(3);
        dataset_sample(d, 0, sample);
        _exit(4);
    }
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    if (!strstr(text, "train-images.npy: cannot be read any more"))
        fail_msg("said: %s", text);
}

int main(void)
{
#define WITH_FOLDER(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        /* This test must be the first: cmocka installs its own SIGBUS handler before each test, and
         * the guard installs its handler only once. */
        WITH_FOLDER(truncated_mapped_file_ends_program_in_order),
        WITH_FOLDER(npy_of_bytes_and_floats_is_read),
        WITH_FOLDER(npy_of_python_2_is_read),
        WITH_FOLDER(npz_stored_deflated_and_zip64_is_read),
        WITH_FOLDER(npz_with_a_member_twice_is_refused),
        WITH_FOLDER(npz_with_stored_bytes_altered_is_refused),
        WITH_FOLDER(safetensors_is_read),
        WITH_FOLDER(idx_of_other_ranks_and_types_is_read),
        WITH_FOLDER(whole_numbers_of_any_size_are_read),
        WITH_FOLDER(npy_of_other_floats_and_bool_converted_with_log_line),
        WITH_FOLDER(safetensors_of_other_floats_and_bool_converted_with_log_line),
        WITH_FOLDER(labels_of_bool_are_classes_and_of_float64_targets),
        WITH_FOLDER(rows_of_features_are_one_row),
        WITH_FOLDER(bad_npy_dtypes_are_named_with_the_fix),
        WITH_FOLDER(bad_npy_headers_are_named),
        WITH_FOLDER(nonfinite_numbers_reported),
        WITH_FOLDER(numbers_beyond_float32_are_named_as_such),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
