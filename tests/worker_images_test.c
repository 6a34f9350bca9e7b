/* tests/worker_images_test.c - folders of PNG and JPEG files as data: their classes and numbers.
 * Damaged files, and files that would exhaust memory, are refused by name. */
#include "base/log.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "tests/skip.h"
#include "worker/data/data_images.h"
#include "worker/data/dataset.h"
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <zlib.h>

enum { MOST = 1 << 16 };

/* Fields of a PNG's header. */
static const struct kind {
    uint8_t depth, colours;
} grey = {8, 0}, rgb = {8, 2}, palette = {8, 3}, grey_alpha = {8, 4}, grey_1 = {1, 0},
  grey_16 = {16, 0}, rgb_alpha = {8, 6}, grey_alpha_16 = {16, 4};

struct bytes {
    uint8_t at[MOST];
    size_t n;
};

/* 10 wide, 6 high, quality 100: 200 in the left half, 40 in the right half. */
static const uint8_t grey_jpeg[] = {
    255, 216, 255, 224, 0,   16,  74,  70, 73,  70,  0,   1,   1,   0,   0,   1,   0,   1,  0, 0,
    255, 219, 0,   67,  0,   1,   1,   1,  1,   1,   1,   1,   1,   1,   1,   1,   1,   1,  1, 1,
    1,   1,   1,   1,   1,   1,   1,   1,  1,   1,   1,   1,   1,   1,   1,   1,   1,   1,  1, 1,
    1,   1,   1,   1,   1,   1,   1,   1,  1,   1,   1,   1,   1,   1,   1,   1,   1,   1,  1, 1,
    1,   1,   1,   1,   1,   1,   1,   1,  1,   255, 192, 0,   11,  8,   0,   6,   0,   10, 1, 1,
    17,  0,   255, 196, 0,   21,  0,   1,  1,   0,   0,   0,   0,   0,   0,   0,   0,   0,  0, 0,
    0,   0,   0,   7,   10,  255, 196, 0,  26,  16,  0,   2,   2,   3,   0,   0,   0,   0,  0, 0,
    0,   0,   0,   0,   0,   0,   0,   7,  6,   10,  56,  120, 183, 255, 218, 0,   8,   1,  1, 0,
    0,   63,  0,   96,  176, 198, 23,  44, 118, 130, 23,  202, 29,  100, 111, 159, 255, 217};
static const uint8_t colour_jpeg[] = {
    255, 216, 255, 224, 0,   16,  74,  70,  73,  70,  0,   1,   1,   0,   0,   1,   0,   1,   0,
    0,   255, 219, 0,   67,  0,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,
    1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,
    1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,
    1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   255, 219, 0,   67,  1,   1,
    1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,
    1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,
    1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,
    1,   1,   1,   1,   1,   1,   255, 194, 0,   17,  8,   0,   6,   0,   10,  3,   1,   17,  0,
    2,   17,  1,   3,   17,  1,   255, 196, 0,   20,  0,   1,   0,   0,   0,   0,   0,   0,   0,
    0,   0,   0,   0,   0,   0,   0,   0,   7,   255, 196, 0,   22,  1,   1,   1,   1,   0,   0,
    0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   6,   8,   9,   255, 218, 0,   12,  3,
    1,   0,   2,   16,  3,   16,  0,   0,   1,   53,  150, 116, 12,  157, 147, 239, 255, 196, 0,
    22,  16,  0,   3,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,
    5,   52,  255, 218, 0,   8,   1,   1,   0,   1,   5,   2,   123, 33,  255, 196, 0,   28,  17,
    0,   2,   0,   7,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   3,   1,
    4,   6,   17,  37,  116, 179, 255, 218, 0,   8,   1,   3,   1,   1,   63,  1,   165, 99,  144,
    118, 155, 59,  203, 151, 63,  255, 196, 0,   34,  17,  0,   1,   2,   3,   9,   0,   0,   0,
    0,   0,   0,   0,   0,   0,   0,   0,   2,   0,   1,   3,   4,   20,  6,   33,  52,  65,  81,
    83,  97,  145, 209, 255, 218, 0,   8,   1,   2,   1,   1,   63,  1,   179, 210, 225, 91,  22,
    242, 194, 158, 109, 187, 7,   133, 78,  26,  151, 109, 226, 255, 196, 0,   24,  16,  0,   2,
    3,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   2,   3,   16,  116, 179,
    255, 218, 0,   8,   1,   1,   0,   6,   63,  2,   93,  128, 205, 177, 255, 196, 0,   22,  16,
    1,   1,   1,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   1,   17,
    255, 218, 0,   8,   1,   1,   0,   1,   63,  33,  133, 120, 255, 218, 0,   12,  3,   1,   0,
    2,   0,   3,   0,   0,   0,   16,  95,  255, 196, 0,   28,  17,  0,   2,   0,   7,   0,   0,
    0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   1,   17,  49,  81,  129, 161, 177, 209,
    255, 218, 0,   8,   1,   3,   1,   1,   63,  16,  108, 165, 123, 105, 29,  22,  122, 127, 255,
    196, 0,   20,  17,  1,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,
    0,   16,  255, 218, 0,   8,   1,   2,   1,   1,   63,  16,  56,  175, 215, 255, 196, 0,   28,
    16,  0,   2,   0,   7,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   1,
    17,  49,  81,  129, 161, 177, 209, 255, 218, 0,   8,   1,   1,   0,   1,   63,  16,  92,  215,
    107, 89,  13,  94,  56,  127, 255, 217};

/* 2x2 pixels of cyan, magenta, yellow and black. */
static const uint8_t cmyk_jpeg[] = {
    255, 216, 255, 238, 0,  14, 65, 100, 111, 98,  101, 0,  100, 0,   0,   0,   0,   0,   255, 219,
    0,   67,  0,   3,   2,  2,  3,  2,   2,   3,   3,   3,  3,   4,   3,   3,   4,   5,   8,   5,
    5,   4,   4,   5,   10, 7,  7,  6,   8,   12,  10,  12, 12,  11,  10,  11,  11,  13,  14,  18,
    16,  13,  14,  17,  14, 11, 11, 16,  22,  16,  17,  19, 20,  21,  21,  21,  12,  15,  23,  24,
    22,  20,  24,  18,  20, 21, 20, 255, 192, 0,   20,  8,  0,   2,   0,   2,   4,   67,  17,  0,
    77,  17,  0,   89,  17, 0,  75, 17,  0,   255, 196, 0,  22,  0,   1,   1,   1,   0,   0,   0,
    0,   0,   0,   0,   0,  0,  0,  0,   0,   0,   9,   5,  8,   255, 196, 0,   20,  16,  1,   0,
    0,   0,   0,   0,   0,  0,  0,  0,   0,   0,   0,   0,  0,   0,   0,   255, 218, 0,   14,  4,
    67,  0,   77,  0,   89, 0,  75, 0,   0,   63,  0,   78, 26,  205, 76,  129, 191, 255, 217};

static void put(struct bytes *b, const void *data, size_t n)
{
    assert_true(b->n + n <= MOST);
    memcpy(b->at + b->n, data, n);
    b->n += n;
}

static void put_big(struct bytes *b, uint32_t v)
{
    for (int i = 3; i >= 0; i--)
        put(b, &(uint8_t){(uint8_t)(v >> (8 * i))}, 1);
}

static void put_chunk(struct bytes *b, const char *kind, const void *data, size_t n)
{
    put_big(b, (uint32_t)n);
    put(b, kind, 4);
    put(b, data, n);
    put_big(b, (uint32_t)crc32(0, b->at + b->n - n - 4, (uInt)n + 4));
}

/* lines: n bytes. Each line of pixels follows a byte with its filter. */
static void make_png(struct bytes *b, uint32_t width, uint32_t height, struct kind kind,
                     const uint8_t *lines, size_t n)
{
    static const uint8_t colours[] = {1, 2, 3, 250, 251, 252};
    struct bytes head = {.n = 0};
    uint8_t packed[MOST];
    uLongf packed_bytes = sizeof packed;
    assert_int_equal(compress(packed, &packed_bytes, lines, n), Z_OK);
    put_big(&head, width);
    put_big(&head, height);
    put(&head, ((uint8_t[5]){kind.depth, kind.colours}), 5);
    b->n = 0;
    put(b, "\x89PNG\r\n\x1a\n", 8);
    put_chunk(b, "IHDR", head.at, head.n);
    if (kind.colours == palette.colours)
        put_chunk(b, "PLTE", colours, sizeof colours);
    put_chunk(b, "IDAT", packed, packed_bytes);
    put_chunk(b, "IEND", "", 0);
}

static void make_grey(struct bytes *b, uint32_t width, uint8_t value)
{
    uint8_t lines[64] = {0};
    memset(lines + 1, value, width);
    make_png(b, width, 1, grey, lines, width + 1);
}

static int is_jpeg(const uint8_t *bytes)
{
    return bytes[0] == 0xff;
}

/* Decodes a copy of the exact size, so that AddressSanitizer detects reads beyond it. */
static enum status decode(const uint8_t *bytes, size_t n, struct data_images_picture *out)
{
    uint8_t *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    *out = (struct data_images_picture){.pixels = NULL};
    enum status st = is_jpeg(bytes) ? CAPTURE(data_jpeg_decode(copy, n, "x.jpg", out))
                                    : CAPTURE(data_png_decode(copy, n, "x.png", out));
    free(copy);
    if (st == ST_UNSUPPORTED && strstr(capture_text, "was built without"))
        skip_because("libpng or libjpeg was not there");
    assert_int_equal(capture_lines(), st != ST_OK);
    assert_true((st == ST_OK) == (out->pixels != NULL));
    return st;
}

static void check_picture(const struct bytes *b, const int64_t dim[3], const uint8_t *want,
                          int tolerance)
{
    struct data_images_picture p;
    if (decode(b->at, b->n, &p) != ST_OK)
        fail_msg("said: %s", capture_text);
    for (int i = 0; i < 3; i++)
        assert_int_equal(p.dim[i], dim[i]);
    for (int64_t i = 0; i < dim[0] * dim[1] * dim[2]; i++)
        if (abs(p.pixels[i] - want[i]) > tolerance)
            fail_msg("number %lld is %d, not %d", (long long)i, p.pixels[i], want[i]);
    free(p.pixels);
}

static void png_of_all_kinds_becomes_bytes(void **state)
{
    struct bytes *b = *state;
    make_png(b, 2, 2, grey, (const uint8_t[]){0, 1, 2, 0, 3, 255}, 6);
    check_picture(b, (int64_t[]){1, 2, 2}, (const uint8_t[]){1, 2, 3, 255}, 0);
    make_png(b, 2, 1, rgb, (const uint8_t[]){0, 1, 2, 3, 4, 5, 6}, 7);
    check_picture(b, (int64_t[]){3, 1, 2}, (const uint8_t[]){1, 4, 2, 5, 3, 6}, 0);
    make_png(b, 2, 1, palette, (const uint8_t[]){0, 1, 0}, 3);
    check_picture(b, (int64_t[]){3, 1, 2}, (const uint8_t[]){250, 1, 251, 2, 252, 3}, 0);
    make_png(b, 8, 1, grey_1, (const uint8_t[]){0, 0xa1}, 2);
    check_picture(b, (int64_t[]){1, 1, 8}, (const uint8_t[]){255, 0, 255, 0, 0, 0, 0, 255}, 0);
    make_png(b, 2, 1, grey_16, (const uint8_t[]){0, 128, 128, 7, 7}, 5);
    check_picture(b, (int64_t[]){1, 1, 2}, (const uint8_t[]){128, 7}, 1);
}

/* Puts a chunk of this kind before the first IDAT. */
static void insert_chunk(struct bytes *b, const char *kind, const uint8_t *data, size_t n)
{
    struct bytes whole = *b;
    size_t at = 8;
    while (memcmp(whole.at + at + 4, "IDAT", 4) != 0)
        at += 12 + ((size_t)whole.at[at + 2] << 8 | whole.at[at + 3]);
    b->n = at;
    put_chunk(b, kind, data, n);
    put(b, whole.at + at, whole.n - at);
}

/* Opaque, half and wholly transparent pixels keep their stored colours, as in PIL's convert("RGB"),
 * torchvision, OpenCV and TensorFlow. */
static void png_with_transparency_keeps_its_stored_colours(void **state)
{
    struct bytes *b = *state;
    make_png(b, 3, 1, grey_alpha, (const uint8_t[]){0, 90, 255, 91, 128, 92, 0}, 7);
    check_picture(b, (int64_t[]){1, 1, 3}, (const uint8_t[]){90, 91, 92}, 0);
    make_png(b, 3, 1, rgb_alpha, (const uint8_t[]){0, 1, 2, 3, 255, 40, 50, 60, 128, 70, 80, 90, 0},
             13);
    check_picture(b, (int64_t[]){3, 1, 3}, (const uint8_t[]){1, 40, 70, 2, 50, 80, 3, 60, 90}, 0);
    make_png(b, 2, 1, grey_alpha_16, (const uint8_t[]){0, 128, 128, 127, 255, 7, 7, 0, 0}, 9);
    check_picture(b, (int64_t[]){1, 1, 2}, (const uint8_t[]){128, 7}, 0);
    make_png(b, 2, 1, palette, (const uint8_t[]){0, 1, 0}, 3);
    insert_chunk(b, "tRNS", (const uint8_t[]){0, 100}, 2);
    check_picture(b, (int64_t[]){3, 1, 2}, (const uint8_t[]){250, 1, 251, 2, 252, 3}, 0);
    make_png(b, 2, 1, grey, (const uint8_t[]){0, 9, 10}, 3);
    insert_chunk(b, "tRNS", (const uint8_t[]){0, 9}, 2);
    check_picture(b, (int64_t[]){1, 1, 2}, (const uint8_t[]){9, 10}, 0);
    make_png(b, 2, 1, rgb, (const uint8_t[]){0, 1, 2, 3, 4, 5, 6}, 7);
    insert_chunk(b, "tRNS", (const uint8_t[]){0, 1, 0, 2, 0, 3}, 6);
    check_picture(b, (int64_t[]){3, 1, 2}, (const uint8_t[]){1, 4, 2, 5, 3, 6}, 0);
}

/* Other readers, which are used with exports, keep the stored numbers, too. */
static void png_with_gamma_keeps_its_stored_numbers(void **state)
{
    enum { HEAD = 8 + 12 + 13 };                         /* the signature, and IHDR */
    static const uint8_t linear[4] = {0, 1, 0x86, 0xa0}; /* 1.0, times 100000 */
    const uint8_t stored[] = {50, 100, 150, 200};
    const struct kind kinds[] = {grey, rgb, grey_16};
    struct bytes *b = *state, plain;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        uint8_t line[32] = {0}, want[3 * 4];
        int channels = kinds[i].colours == rgb.colours ? 3 : 1;
        int each = channels * kinds[i].depth / 8;
        for (int k = 0; k < 4 * each; k++)
            line[1 + k] = stored[k / each];
        for (int k = 0; k < 4 * channels; k++)
            want[k] = stored[k % 4];
        make_png(&plain, 4, 1, kinds[i], line, 1 + 4 * (size_t)each);
        b->n = 0;
        put(b, plain.at, HEAD);
        put_chunk(b, "gAMA", linear, sizeof linear);
        put(b, plain.at + HEAD, plain.n - HEAD);
        check_picture(b, (int64_t[]){channels, 1, 4}, want, kinds[i].depth == 16);
    }
}

static void jpeg_becomes_bytes(void **state)
{
    struct bytes *b = *state;
    uint8_t want[3 * 6 * 10];
    for (int y = 0; y < 6; y++)
        for (int x = 0; x < 10; x++)
            want[y * 10 + x] = x < 5 ? 200 : 40;
    b->n = 0;
    put(b, grey_jpeg, sizeof grey_jpeg);
    check_picture(b, (int64_t[]){1, 6, 10}, want, 2);
    for (int i = 0; i < 60; i++) {
        want[i] = 200;
        want[60 + i] = i % 10 < 5 ? 100 : 40;
        want[120 + i] = i < 30 ? 30 : 40;
    }
    b->n = 0;
    put(b, colour_jpeg, sizeof colour_jpeg);
    check_picture(b, (int64_t[]){3, 6, 10}, want, 3);
}

/* A truncated file is never a picture; a file with a changed byte may be one, and is read without
 * harm. */
static void check_damage(const uint8_t *bytes, size_t n, size_t pixels_end)
{
    struct data_images_picture p;
    uint8_t changed[4096];
    assert_true(n <= sizeof changed);
    for (size_t i = 1; i < pixels_end; i++) {
        if (decode(bytes, i, &p) != ST_CORRUPT)
            fail_msg("cut at %zu of %zu: accepted", i, n);
        assert_non_null(strstr(capture_text, is_jpeg(bytes) ? "x.jpg: " : "x.png: "));
    }
    for (size_t i = 1; i < n; i++)
        for (int bit = 0; bit < 8; bit += 3) {
            memcpy(changed, bytes, n);
            changed[i] ^= (uint8_t)(1 << bit);
            decode(changed, n, &p);
            free(p.pixels);
        }
}

static void damaged_files_are_refused(void **state)
{
    struct bytes *b = *state;
    uint8_t lines[20 * 31];
    for (size_t i = 0; i < sizeof lines; i++)
        lines[i] = i % 31 ? (uint8_t)(i * i) : 0;
    make_png(b, 10, 20, rgb, lines, sizeof lines);
    check_damage(b->at, b->n, b->n - 16);
    check_damage(grey_jpeg, sizeof grey_jpeg, sizeof grey_jpeg - 2);
    check_damage(colour_jpeg, sizeof colour_jpeg, sizeof colour_jpeg - 2);
}

static void check_refused(const struct bytes *b, const char *piece)
{
    struct data_images_picture p;
    assert_int_equal(decode(b->at, b->n, &p), ST_CORRUPT);
    if (!strstr(capture_text, piece))
        fail_msg("wanted \"%s\"; said: %s", piece, capture_text);
}

/* Small files whose headers announce large pictures are refused. */
static void png_bombs_are_refused(void **state)
{
    struct bytes *b = *state;
    make_png(b, 65536, 65536, rgb, (const uint8_t[]){0}, 1);
    check_refused(b, "x.png: a picture of 65536x65536 is larger than 2^28");
    make_png(b, 70000, 1, grey, (const uint8_t[]){0}, 1);
    check_refused(b, "x.png: the picture has 1x70000 pixels; each side");
    make_png(b, 16000, 16000, grey, (const uint8_t[]){0}, 1);
    check_refused(b, "x.png: its header states a picture of 16000x16000");
    make_png(b, 0, 5, grey, (const uint8_t[]){0}, 1);
    check_refused(b, "x.png: ");
}

static void jpeg_bombs_are_refused(void **state)
{
    struct bytes *b = *state;
    size_t size = 2 + 18 + 69 + 5; /* bytes of SOI, APP0, DQT and of SOF before its height */
    b->n = 0;
    put(b, grey_jpeg, sizeof grey_jpeg);
    memcpy(b->at + size, "\x3e\x80\x3e\x80", 4);
    check_refused(b, "x.jpg: its header states a picture of 16000x16000");
    memcpy(b->at + size, "\xff\x00\xff\x00", 4);
    check_refused(b, "x.jpg: a picture of 65280x65280 is larger than 2^28");
    size_t scan = sizeof colour_jpeg - 2;
    while (!(colour_jpeg[scan - 1] == 0xda && colour_jpeg[scan - 2] == 0xff))
        scan--;
    b->n = 0;
    put(b, colour_jpeg, sizeof colour_jpeg - 2);
    for (int i = 0; i < 1000; i++)
        put(b, colour_jpeg + scan - 2, sizeof colour_jpeg - scan);
    put(b, "\xff\xd9", 2);
    check_refused(b, "x.jpg: ");
}

/* The frame's marker shows arithmetic coding. */
static void arithmetic_coding_is_refused(void **state)
{
    struct bytes *b = *state;
    b->n = 0;
    put(b, grey_jpeg, sizeof grey_jpeg);
    uint8_t *frame = b->at + 2 + 18 + 69;
    assert_int_equal(frame[1], 0xc0);
    frame[1] = 0xc9;
    check_refused(b, "x.jpg: cannot read this JPEG: its coding is arithmetic");
}

/* A byte of Adobe's segment distinguishes CMYK from YCCK. */
static void colours_of_printers_are_refused_with_the_fix(void **state)
{
    enum { TRANSFORM = 17 };
    struct bytes *b = *state;
    for (uint8_t transform = 0; transform <= 2; transform += 2) {
        b->n = 0;
        put(b, cmyk_jpeg, sizeof cmyk_jpeg);
        b->at[TRANSFORM] = transform;
        check_refused(
            b,
            "x.jpg: cannot read this JPEG: its colours are CMYK, for printing; convert it to RGB, for example by ImageMagick's mogrify -colorspace sRGB FILE...");
    }
}

/* Decodes the picture in a child process, and checks that little memory is used. */
static void check_memory(const struct bytes *b, enum status want)
{
    enum { KIB_MORE = 24 << 10, WRONG = 1, GREW = 2 };
    struct data_images_picture p = {.pixels = NULL};
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rusage before, after;
        getrusage(RUSAGE_SELF, &before);
        if (data_png_decode(b->at, b->n, "x.png", &p) != want)
            _exit(WRONG);
        free(p.pixels);
        getrusage(RUSAGE_SELF, &after);
        _exit(after.ru_maxrss - before.ru_maxrss > KIB_MORE ? GREW : 0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* The file has chunks of text, each of which expands to MOST_TEXT bytes. A chunk with a length of 1
 * GB follows, without its bytes. */
static void compressed_texts_use_no_memory(void **state)
{
    enum { MOST_TEXT = 7900000, N_TEXTS = 7, HEAD = 8 + 12 + 13 }; /* the signature, and IHDR */
    struct bytes *b = *state, *plain = calloc(1, sizeof *plain);
    uint8_t *text = malloc(MOST_TEXT), packed[16384] = "note\0";
    uLongf n = sizeof packed - 6;
    assert_non_null(plain);
    assert_non_null(text);
    memset(text, 'a', MOST_TEXT); /* libpng would keep nothing of NUL bytes */
    assert_int_equal(compress(packed + 6, &n, text, MOST_TEXT), Z_OK);
    free(text);
    make_grey(plain, 3, 9);
    b->n = 0;
    put(b, plain->at, HEAD);
    for (int i = 0; i < N_TEXTS; i++)
        put_chunk(b, "zTXt", packed, n + 6);
    put(b, plain->at + HEAD, plain->n - HEAD);
    check_picture(b, (int64_t[]){1, 1, 3}, (const uint8_t[]){9, 9, 9}, 0);
    check_memory(b, ST_OK);
    static const char *const kinds[] = {"tEXt", "tRNS", "iCCP", "PLTE"};
    for (int i = 0; i < 4; i++) {
        b->n = 0;
        put(b, plain->at, HEAD);
        put_big(b, 1 << 30);
        put(b, kinds[i], 4);
        put(b, plain->at + HEAD, plain->n - HEAD);
        check_refused(b, "x.png: cannot read this PNG");
        check_memory(b, ST_CORRUPT);
    }
    free(plain);
}

struct folder {
    char dir[32];
    struct bytes b;
};

static int set_folder_up(void **state)
{
    struct folder *f = calloc(1, sizeof *f);
    assert_non_null(f);
    folder_rig_new(f->dir);
    *state = f;
    return 0;
}

static int tear_folder_down(void **state)
{
    struct folder *f = *state;
    assert_int_equal(folder_rig_delete(f->dir), 0);
    free(f);
    return 0;
}

static void make_folder(const struct folder *f, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void save(const struct folder *f, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    folder_rig_save(path, f->b.at, f->b.n);
}

static enum status open_set(const struct folder *f, struct dataset **out)
{
    const struct dataset_request r = {.dir = f->dir, .part = "train", .nhwc = 1};
    enum status st = CAPTURE(dataset_open(&r, out));
    if (st == ST_UNSUPPORTED && strstr(capture_text, "was built without"))
        skip_because("libpng or libjpeg was not there");
    return st;
}

static void classes_are_the_folders_in_order(void **state)
{
    static const uint8_t want[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};
    struct folder *f = *state;
    struct dataset *d = NULL, *held = NULL;
    char name[32];
    make_folder(f, "train");
    make_folder(f, "train/cat");
    make_folder(f, "train/ant");
    make_folder(f, "train/bee");
    make_grey(&f->b, 3, 0);
    save(f, "train/.hidden");
    save(f, "train/cat/.hidden");
    for (int i = 17; i >= 0; i--) { /* more than the initial capacity */
        make_grey(&f->b, 3, want[i]);
        snprintf(name, sizeof name, "train/%s/%c.png", i < 2 ? "ant" : "cat", 'a' + i);
        save(f, name);
    }
    assert_int_equal(open_set(f, &d), ST_OK);
    assert_int_equal(d->n, 18);
    assert_int_equal(d->classes, 3);
    assert_int_equal(d->sample.dim[0], 1);
    assert_int_equal(d->sample.dim[1], 1);
    assert_int_equal(d->sample.dim[2], 3);
    assert_string_equal(d->class_names, "ant\nbee\ncat");
    assert_non_null(d->bytes);
    for (int i = 0; i < 18; i++) {
        assert_int_equal(d->labels[i], i < 2 ? 0 : 2);
        assert_int_equal(d->bytes[3 * i], want[i]);
    }
    assert_int_equal(dataset_split(d, 0.5, 1, &held), ST_OK);
    assert_string_equal(d->class_names, "ant\nbee\ncat");
    assert_string_equal(held->class_names, "ant\nbee\ncat");
    dataset_destroy(held);
    dataset_destroy(d);
}

static void check_bad(const struct folder *f, enum status want, const char *piece,
                      const char *other)
{
    struct dataset *d = NULL;
    enum status st = open_set(f, &d);
    if (st != want || capture_lines() != 1 || !strstr(capture_text, piece) ||
        !strstr(capture_text, other))
        fail_msg("status %s, wanted %s with \"%s\" and \"%s\"; said: %s", status_name(st),
                 status_name(want), piece, other, capture_text);
    assert_null(d);
}

static void bad_folders_are_named(void **state)
{
    struct folder *f = *state;
    make_folder(f, "train");
    check_bad(f, ST_NOT_FOUND, "train: no picture", "for each class");
    make_folder(f, "train/a");
    check_bad(f, ST_NOT_FOUND, "train: no picture", "for each class");
    make_grey(&f->b, 3, 9);
    save(f, "train/a/0.png");
    make_grey(&f->b, 4, 9);
    save(f, "train/a/1.png");
    check_bad(f, ST_MISMATCH, "a/1.png: the picture has the shape 1x1x4", "a/0.png has 1x1x3");
    check_bad(f, ST_MISMATCH, "resize all to one size", "mogrify -resize '3x1!' FILE...");
    make_png(&f->b, 3, 1, (struct kind){8, 2}, (uint8_t[10]){0}, 10);
    save(f, "train/a/1.png");
    check_bad(f, ST_MISMATCH, "a/1.png: the picture has the shape 3x1x3",
              "mogrify -colorspace Gray FILE...");
    f->b.n = 0;
    save(f, "train/a/1.png");
    check_bad(f, ST_CORRUPT, "a/1.png: neither PNG nor JPEG", "");
    make_grey(&f->b, 3, 9);
    f->b.n -= 20;
    save(f, "train/a/1.png");
    check_bad(f, ST_CORRUPT, "a/1.png: cannot read this PNG", "; repair or remove it");
    save(f, "train/aside");
    make_grey(&f->b, 3, 9);
    save(f, "train/a/1.png");
    check_bad(f, ST_INVALID, "train/aside: not a folder", "nothing else");
}

/* One run reports all bad files, so that they can be repaired together. */
static void damaged_pictures_are_named_in_one_run(void **state)
{
    enum { N_BAD = 23 };
    struct folder *f = *state;
    char name[32];
    make_folder(f, "train");
    make_folder(f, "train/a");
    make_folder(f, "train/b");
    make_grey(&f->b, 3, 9);
    save(f, "train/a/good.png");
    save(f, "train/b/good.png");
    f->b.n -= 20;
    for (int i = 0; i < N_BAD; i++) {
        snprintf(name, sizeof name, "train/%c/%02d.png", i % 2 ? 'b' : 'a', i);
        save(f, name);
    }
    struct dataset *d = NULL;
    assert_int_equal(open_set(f, &d), ST_CORRUPT);
    assert_null(d);
    assert_int_equal(capture_lines(), 21);
    assert_non_null(strstr(capture_text, "a/00.png: cannot read"));
    assert_non_null(strstr(capture_text, "b/15.png: cannot read"));
    assert_null(strstr(capture_text, "b/17.png"));
    assert_non_null(strstr(
        capture_text,
        "train: 23 of its 25 files cannot be used; the lines above name the first 20: repair or "
        "remove them"));
}

/* The size of the first good picture is that of the set. */
static void pictures_of_other_sizes_are_counted(void **state)
{
    struct folder *f = *state;
    make_folder(f, "train");
    make_folder(f, "train/a");
    save(f, "train/a/0.png");
    make_grey(&f->b, 3, 9);
    save(f, "train/a/1.png");
    make_grey(&f->b, 4, 9);
    save(f, "train/a/2.png");
    make_grey(&f->b, 5, 9);
    save(f, "train/a/3.png");
    struct dataset *d = NULL;
    assert_int_equal(open_set(f, &d), ST_CORRUPT);
    assert_null(d);
    assert_int_equal(capture_lines(), 3);
    assert_non_null(strstr(capture_text, "a/0.png: neither PNG nor JPEG"));
    assert_non_null(strstr(
        capture_text, "a/2.png: the picture has the shape 1x1x4 (channels, height, width), but "));
    assert_non_null(strstr(capture_text, "a/1.png has 1x1x3; resize all to one size"));
    assert_null(strstr(capture_text, "a/3.png"));
    assert_non_null(
        strstr(capture_text, "train: 2 of its 4 files have another size, or other colours, than "));
}

/* An export has only UTF-8: the worker warns before training that it omits the classes' names. */
static void class_names_that_are_not_utf8_are_warned_of(void **state)
{
    struct folder *f = *state;
    struct dataset *d = NULL;
    make_folder(f, "train");
    make_folder(f, "train/gr\xc3\xbcn");
    make_grey(&f->b, 3, 9);
    save(f, "train/gr\xc3\xbcn/0.png");
    assert_int_equal(open_set(f, &d), ST_OK);
    assert_string_equal(capture_text, "");
    dataset_destroy(d);
    make_folder(f, "train/s\xfc\xdf");
    make_folder(f, "train/t\xfc");
    assert_int_equal(open_set(f, &d), ST_OK);
    assert_int_equal(capture_lines(), 1);
    assert_non_null(
        strstr(capture_text,
               "train: the name of class 1, 's?\?', is not UTF-8: --export leaves the names of all "
               "classes out; rename its folder"));
    dataset_destroy(d);
}

static void labels_beside_folder_refused(void **state)
{
    struct folder *f = *state;
    const struct dataset_request r = {.part = "test", .data = f->dir, .labels = "/tmp/x"};
    struct dataset *d = NULL;
    assert_int_equal(CAPTURE(dataset_open(&r, &d)), ST_INVALID);
    assert_non_null(strstr(capture_text, "--test_labels: "));
}

static int setup(void **state)
{
    *state = calloc(1, sizeof(struct bytes));
    return *state == NULL;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

int main(void)
{
#define WITH_BYTES(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define WITH_FOLDER(f) cmocka_unit_test_setup_teardown(f, set_folder_up, tear_folder_down)
    const struct CMUnitTest tests[] = {
        WITH_BYTES(png_of_all_kinds_becomes_bytes),
        WITH_BYTES(png_with_transparency_keeps_its_stored_colours),
        WITH_BYTES(png_with_gamma_keeps_its_stored_numbers),
        WITH_BYTES(jpeg_becomes_bytes),
        WITH_BYTES(damaged_files_are_refused),
        WITH_BYTES(png_bombs_are_refused),
        WITH_BYTES(jpeg_bombs_are_refused),
        WITH_BYTES(arithmetic_coding_is_refused),
        WITH_BYTES(colours_of_printers_are_refused_with_the_fix),
        WITH_BYTES(compressed_texts_use_no_memory),
        WITH_FOLDER(classes_are_the_folders_in_order),
        WITH_FOLDER(bad_folders_are_named),
        WITH_FOLDER(damaged_pictures_are_named_in_one_run),
        WITH_FOLDER(pictures_of_other_sizes_are_counted),
        WITH_FOLDER(class_names_that_are_not_utf8_are_warned_of),
        WITH_FOLDER(labels_beside_folder_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
