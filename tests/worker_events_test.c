/* tests/worker_events_test.c - TensorBoard's events: records, histograms and pictures, and a file
 * on a disk that is full or hangs. In test_tensorboard.py TensorBoard itself reads events. */
#include "base/clock.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "worker/events/event.h"
#include "worker/events/event_picture.h"
#include "worker/events/event_writer.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <zlib.h>

/* A full disk writes half of each buffer, and a hanging disk never answers. */
enum disk { DISK_WORKS, DISK_FULL, DISK_HANGS, DISK_HANGS_AT_END, DISK_FAILS_AT_END };
static _Atomic int disk, n_failed, n_room; /* n_room: bytes that a full disk still writes */

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    while (disk == DISK_HANGS_AT_END)
        pause();
    int err = __real_close(fd);
    errno = EDQUOT;
    return disk == DISK_FAILS_AT_END ? -1 : err;
}

ssize_t __real_pwrite(int fd, const void *data, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t at)
{
    while (disk == DISK_HANGS)
        pause();
    if (disk == DISK_FULL && n <= (size_t)n_room) {
        n_room -= (int)n;
        return __real_pwrite(fd, data, n, at);
    }
    if (disk == DISK_FULL && (n < 2 || n_room > 0)) {
        n_failed++;
        errno = ENOSPC;
        return -1;
    }
    return __real_pwrite(fd, data, disk == DISK_FULL ? n / 2 : n, at);
}

static void crc_is_masked(void **state)
{
    assert_int_equal(event_masked_crc("\x1a\x11"
                                      "CRC test, one two",
                                      19),
                     0x5794d08a);
}

static void record_has_its_bytes(void **state)
{
    uint8_t room[200];
    struct event_buf b = {room, 0, sizeof room, 0};
    struct event e = event_begin(&b, 1.0, 300);
    event_scalar(&e, "a\xe4", 2.0);
    assert_true(event_end(&e));
    static const uint8_t event[] = {
        0x09, 0,    0,    0,    0,    0,   0,    0xf0, 0x3f, /* wall_time */
        0x10, 0xac, 0x02,                                    /* step */
        0x2a, 0x92, 0x80, 0x80, 0,                           /* summary, */
        0x0a, 0x8d, 0x80, 0x80, 0,                           /* value, */
        0x0a, 0x83, 0x80, 0x80, 0,    'a', 0xc3, 0xa4,       /* tag, as UTF-8 */
        0x15, 0,    0,    0,    0x40,                        /* simple_value */
    };
    assert_int_equal(b.n, 12 + sizeof event + 4);
    assert_int_equal(room[0], sizeof event);
    assert_memory_equal(room + 12, event, sizeof event);
    uint32_t crc = event_masked_crc(room, 8);
    assert_memory_equal(room + 8, &crc, 4);
    crc = event_masked_crc(event, sizeof event);
    assert_memory_equal(room + 12 + sizeof event, &crc, 4);
}

/* A record that does not fit is omitted as a whole, whichever byte is the first that does not
 * fit. */
static void record_is_whole_or_not_there(void **state)
{
    uint8_t room[300];
    size_t before = 0, whole = 0;
    for (size_t cap = 50; cap <= sizeof room; cap++) {
        struct event_buf b = {room, 0, cap, 0};
        struct event e = event_begin(&b, 1, 1);
        event_file_version(&e);
        event_end(&e);
        before = b.n;
        e = event_begin(&b, 1, 1);
        event_markdown(&e, "tag", "some | text");
        event_hparams_end(&e, 0);
        if (event_end(&e)) {
            whole = whole ? whole : b.n;
            assert_int_equal(b.n, whole);
        } else {
            assert_int_equal(b.n, before);
            assert_int_equal(whole, 0);
        }
        assert_false(b.overflow);
    }
    assert_true(whole > before);
}

enum { N_VALUES = 5000 };

static void fill_values(float value[N_VALUES])
{
    for (int i = 0; i < N_VALUES; i++)
        value[i] = (float)sin(i * 0.7) * powf(0.999f, (float)i);
}

/* The values in each bucket are above the previous limit and not above its own. */
static void histogram_counts_in_its_buckets(void **state)
{
    static float value[N_VALUES];
    static double limit[EVENT_HISTOGRAM_BUCKETS], count[EVENT_HISTOGRAM_BUCKETS];
    static double counted[EVENT_HISTOGRAM_BUCKETS];
    struct event_histogram h = {0}, half = {0};
    double sum = 0, squares = 0, total = 0;
    fill_values(value);
    value[7] = NAN;
    value[8] = -INFINITY;
    event_histogram_bounds(&h, value, 2501);
    event_histogram_bounds(&half, value + 2501, N_VALUES - 2501);
    event_histogram_add_bounds(&h, &half);
    event_histogram_scale(&h);
    half.lowest = h.lowest;
    event_histogram_count(&h, value, 2501);
    event_histogram_count(&half, value + 2501, N_VALUES - 2501);
    event_histogram_add_count(&h, &half);
    int n = event_histogram_buckets(&h, limit, count);
    for (int i = 0; i < N_VALUES; i++) {
        int k = 0;
        if (!isfinite(value[i]))
            continue;
        sum += (double)value[i];
        squares += (double)value[i] * (double)value[i];
        while (k < n &&
               ((double)value[i] < 0 ? limit[k] < (double)value[i] : limit[k] <= (double)value[i]))
            k++;
        assert_true(k < n);
        counted[k]++;
    }
    assert_int_equal(h.n, N_VALUES - 2);
    assert_float_equal(h.sum, sum, 1e-9);
    assert_float_equal(h.sum_squares, squares, 1e-9);
    assert_true(h.min >= -1 && h.max <= 1 && h.min < -0.9 && h.max > 0.9);
    for (int k = 0; k < n; k++) {
        assert_true(k == 0 || limit[k] > limit[k - 1]);
        assert_true(counted[k] == count[k]);
        total += count[k];
    }
    assert_true(total == N_VALUES - 2 && count[0] > 0 && count[n - 1] > 0);
}

static void histogram_of_equal_and_extreme_values(void **state)
{
    const float zeros[3] = {0, 0, 0}, largest[2] = {3.4e38f, -3.4e38f}, none[1] = {NAN};
    const struct {
        const float *value;
        size_t n;
        int64_t finite;
    } cases[] = {{zeros, 3, 3}, {largest, 2, 2}, {none, 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double limit[EVENT_HISTOGRAM_BUCKETS], count[EVENT_HISTOGRAM_BUCKETS], total = 0;
        struct event_histogram h = {0};
        event_histogram_bounds(&h, cases[i].value, cases[i].n);
        event_histogram_scale(&h);
        event_histogram_count(&h, cases[i].value, cases[i].n);
        int n = event_histogram_buckets(&h, limit, count);
        assert_true(n >= 1);
        for (int k = 0; k < n; k++)
            total += count[k];
        assert_int_equal(h.n, cases[i].finite);
        assert_true(total == (double)cases[i].finite);
    }
}

static uint32_t big(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Decodes the pixels of a PNG that has one IDAT. */
static uint8_t *unpack_png(const uint8_t *png, size_t n, int width, int height)
{
    uLongf bytes = (uLongf)height * ((uLongf)width * 3 + 1);
    uint8_t *raw = malloc(bytes);
    assert_memory_equal(png, "\x89PNG\r\n\x1a\n", 8);
    for (size_t at = 8, k = 0; at < n; k++) {
        static const char *const names[] = {"IHDR", "IDAT", "IEND"};
        uint32_t length = big(png + at);
        assert_memory_equal(png + at + 4, names[k], 4);
        assert_int_equal(big(png + at + 8 + length), crc32(0, png + at + 4, length + 4));
        if (k == 0) {
            assert_int_equal(big(png + at + 8), width);
            assert_int_equal(big(png + at + 12), height);
        } else if (k == 1) {
            uLongf got = bytes;
            assert_int_equal(uncompress(raw, &got, png + at + 8, length), Z_OK);
            assert_int_equal(got, bytes);
        }
        at += length + 12;
    }
    return raw;
}

/* Frames show whether a prediction is right, a sample of one channel is grey, and a large sample is
 * reduced. */
static void picture_shows_samples(void **state)
{
    const struct shape small = {3, {1, 2, 2}}, large = {3, {3, 300, 200}}, row = {3, {1, 1, 9}},
                       narrow = {3, {1, 60, 2}};
    const float dots[4] = {0, 1, 1, 0.5f};
    struct event_picture *p;
    uint8_t *png;
    size_t n;
    assert_int_equal(event_picture_create(&row, 1, &p), ST_UNSUPPORTED);
    assert_int_equal(event_picture_create(&narrow, 1, &p), ST_OK);
    assert_int_equal(event_picture_width(p), 64); /* the text is wider than the sample */
    event_picture_destroy(p);
    assert_int_equal(event_picture_create(&small, 2, &p), ST_OK);
    event_picture_set(p, 0, dots, 7, 7);
    event_picture_set(p, 1, dots, 7, 9);
    int width = event_picture_width(p), height = event_picture_height(p);
    assert_int_equal(event_picture_png(p, &png, &n), ST_OK);
    uint8_t *raw = unpack_png(png, n, width, height), *first = raw + 1,
            *second = first + width / 2 * 3;
    size_t line = (size_t)width * 3 + 1;
    assert_true(first[1] > first[0] && second[0] > second[1]); /* green, red */
    assert_memory_equal(first + 3 * line + 9, "\0\0\0", 3);
    assert_memory_equal(first + 3 * line + (3 + 63) * 3, "\xff\xff\xff", 3);
    assert_memory_equal(first + (3 + 63) * line + (3 + 63) * 3, "\x80\x80\x80", 3);
    free(raw);
    free(png);
    event_picture_destroy(p);
    float *pixels = calloc(3 * 300 * 200, sizeof *pixels);
    pixels[300 * 200 - 1] = -7; /* the values determine the scale of the picture */
    pixels[0] = NAN;
    pixels[1] = INFINITY;
    assert_int_equal(event_picture_create(&large, 16, &p), ST_OK);
    assert_true(event_picture_width(p) < 700 && event_picture_height(p) < 400);
    for (int k = 0; k < 16; k++)
        event_picture_set(p, k, pixels, 65535, k);
    assert_int_equal(event_picture_png(p, &png, &n), ST_OK);
    free(unpack_png(png, n, event_picture_width(p), event_picture_height(p)));
    free(png);
    free(pixels);
    event_picture_destroy(p);
}

/* Returns the number of bytes of the record that begins at `at`. */
static size_t record_bytes(const char *at)
{
    const uint8_t *length = (const uint8_t *)at;
    return 12 + (length[0] | (size_t)length[1] << 8) + 4;
}

/* Reads the folder's files in the order of their names into one buffer, each without its version
 * record. */
static size_t read_folder(const char *folder, char *to, size_t most, int *n_files)
{
    struct dirent **list = NULL;
    size_t n = 0;
    int all = scandir(folder, &list, NULL, alphasort);
    *n_files = 0;
    for (int i = 0; i < all; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        FILE *f = list[i]->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (f) {
            size_t got = fread(to + n, 1, most - n, f);
            size_t version = strncmp(to + n, "later", 5) != 0 ? record_bytes(to + n) : 0;
            version = got < version ? got : version;
            memmove(to + n, to + n + version, got - version);
            n += got - version;
            fclose(f);
            ++*n_files;
        }
        free(list[i]);
    }
    free(list);
    return n;
}

static void files_follow_each_other(void **state)
{
    char folder[100], later[200], all[400];
    int n_files;
    snprintf(folder, sizeof folder, "%s/a/b", folder_rig);
    for (int i = 0; i < 3; i++) {
        struct event_writer *w;
        char digit = (char)('0' + i);
        assert_int_equal(event_writer_create(&(struct event_writer_config){folder, 0, 0}, &w),
                         ST_OK);
        assert_true(event_writer_put(w, &digit, 1));
        event_writer_destroy(w);
        if (i == 0) { /* the clock of another host is ahead */
            snprintf(later, sizeof later, "%s/events.out.tfevents.4000000000.other.1.0", folder);
            FILE *f = fopen(later, "w");
            fputs("later", f);
            fclose(f);
            snprintf(later, sizeof later, "%s/events.out.tfevents.9999999999999.x", folder);
            fclose(fopen(later, "w")); /* a name that has no successor */
        }
    }
    size_t n = read_folder(folder, all, sizeof all, &n_files);
    assert_int_equal(n_files, 5);
    assert_int_equal(n, 8);
    assert_memory_equal(all, "0later12", 8);
}

static void folder_that_cannot_be_is_an_error(void **state)
{
    char file[100], below[200];
    snprintf(file, sizeof file, "%s/file", folder_rig);
    snprintf(below, sizeof below, "%s/x", file);
    fclose(fopen(file, "w"));
    assert_int_equal(event_writer_folder(file), ENOTDIR);
    assert_int_equal(event_writer_folder(below), ENOTDIR);
    snprintf(below, sizeof below, "%s/c/d/", folder_rig);
    assert_int_equal(event_writer_folder(below), 0);
    char longest[5000];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(event_writer_folder(longest), ENAMETOOLONG);
    assert_int_equal(event_writer_folder(""), ENOENT);
}

static void put_until_full(struct event_writer *w, const char *block, size_t n, int *n_put)
{
    for (*n_put = 0; event_writer_put(w, block, n); ++*n_put)
        ;
}

/* The caller never waits, the file contains whole records only, and accepted events are written
 * when the disk has room again. */
static void full_disk_is_waited_out(void **state)
{
    enum { BLOCK = 300000 };
    static char block[BLOCK], all[8 << 20];
    char folder[100];
    struct event_writer *w;
    int n_put, n_files;
    memset(block, 'x', sizeof block);
    snprintf(folder, sizeof folder, "%s/full", folder_rig);
    assert_int_equal(event_writer_create(&(struct event_writer_config){folder, 20, 0}, &w), ST_OK);
    capture_begin();
    disk = DISK_FULL;
    n_failed = 0;
    assert_true(event_writer_put(w, "first", 5));
    while (n_failed < 2) /* until the writer retries */
        clock_sleep_ms(5);
    put_until_full(w, block, sizeof block, &n_put);
    assert_false(event_writer_put(w, block, sizeof block));
    disk = DISK_WORKS;
    event_writer_destroy(w);
    capture_end();
    assert_int_equal(n_put, EVENT_WRITER_RING_BYTES / BLOCK);
    assert_int_equal(read_folder(folder, all, sizeof all, &n_files), 5 + n_put * BLOCK);
    assert_memory_equal(all, "first", 5);
    assert_non_null(strstr(capture_text, "cannot write events to"));
    assert_non_null(strstr(capture_text, "writing events to"));
    assert_non_null(strstr(capture_text, "2 were left out, and the last 0 bytes"));
    assert_int_equal(capture_lines(), 4);
}

/* Writes the events that fit, and writes the session event when there is room in memory. */
static void full_disk_keeps_events_that_fit(void **state)
{
    enum { BLOCK = EVENT_WRITER_RING_BYTES / 8 - 4 }; /* fills the ring, with the records' sizes */
    static char block[BLOCK], all[8 << 20];
    char folder[100];
    struct event_writer *w;
    int n_put, n_files;
    memset(block, 'x', sizeof block);
    snprintf(folder, sizeof folder, "%s/fits", folder_rig);
    assert_int_equal(event_writer_create(&(struct event_writer_config){folder, 20, 0}, &w), ST_OK);
    capture_begin();
    n_failed = 0;
    disk = DISK_FULL;
    put_until_full(w, block, sizeof block, &n_put);
    event_writer_session(w, "session", 7);
    assert_false(event_writer_put(w, block, sizeof block));
    n_room = 2 * BLOCK;
    while (!event_writer_put(w, "after", 5))
        clock_sleep_ms(5);
    event_writer_destroy(w);
    disk = DISK_WORKS;
    n_room = 0;
    capture_end();
    size_t n = read_folder(folder, all, sizeof all, &n_files);
    assert_int_equal(n, BLOCK);
    assert_null(strstr(capture_text, "writing events to"));
    assert_non_null(strstr(capture_text, "bytes are not written"));
}

static void session_is_put_when_there_is_room(void **state)
{
    enum { BLOCK = EVENT_WRITER_RING_BYTES / 8 - 4 };
    static char block[BLOCK], all[8 << 20];
    char folder[100];
    struct event_writer *w;
    int n_put, n_files;
    snprintf(folder, sizeof folder, "%s/session", folder_rig);
    assert_int_equal(event_writer_create(&(struct event_writer_config){folder, 20, 0}, &w), ST_OK);
    capture_begin();
    disk = DISK_FULL;
    put_until_full(w, block, sizeof block, &n_put);
    event_writer_session(w, "session", 7);
    assert_false(event_writer_put(w, block, sizeof block));
    disk = DISK_WORKS;
    while (!event_writer_put(w, "after", 5))
        clock_sleep_ms(5);
    event_writer_destroy(w);
    capture_end();
    size_t n = read_folder(folder, all, sizeof all, &n_files);
    assert_int_equal(n, n_put * BLOCK + 12);
    assert_memory_equal(all + n - 12, "sessionafter", 12);
}

static void wait_for_bytes(const char *folder, size_t n)
{
    char all[400];
    int n_files;
    while (read_folder(folder, all, sizeof all, &n_files) != n)
        clock_sleep_ms(5);
}

/* The writer replaces a deleted or truncated file by a new file, which begins with the session
 * event. */
static void deleted_file_is_followed(void **state)
{
    char folder[100], command[200], all[400];
    struct event_writer *w;
    int n_files;
    snprintf(folder, sizeof folder, "%s/deleted", folder_rig);
    assert_int_equal(event_writer_create(&(struct event_writer_config){folder, 20, 0}, &w), ST_OK);
    capture_begin();
    event_writer_session(w, "session", 7);
    event_writer_put(w, "a", 1);
    wait_for_bytes(folder, 8);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    event_writer_put(w, "b", 1);
    wait_for_bytes(folder, 8);
    snprintf(command, sizeof command, "truncate -s 0 %s/*", folder);
    assert_int_equal(system(command), 0);
    event_writer_put(w, "c", 1);
    event_writer_destroy(w);
    capture_end();
    assert_int_equal(read_folder(folder, all, sizeof all, &n_files), 8);
    assert_memory_equal(all, "sessionc", 8);
    assert_int_equal(n_files, 2);
    assert_int_equal(capture_lines(), 2);
    assert_non_null(strstr(capture_text, "was deleted or truncated"));
}

static void close_may_fail(void **state)
{
    char folder[100];
    struct event_writer *w;
    snprintf(folder, sizeof folder, "%s/close", folder_rig);
    assert_int_equal(event_writer_create(&(struct event_writer_config){folder, 0, 0}, &w), ST_OK);
    event_writer_put(w, "a", 1);
    wait_for_bytes(folder, 1);
    capture_begin();
    disk = DISK_FAILS_AT_END;
    event_writer_destroy(w);
    disk = DISK_WORKS;
    capture_end();
    assert_non_null(strstr(capture_text, "closing it failed: "));
}

static void disk_that_stays_full_ends_nothing(void **state)
{
    char folder[100], all[100];
    struct event_writer *w;
    int n_files;
    snprintf(folder, sizeof folder, "%s/stays", folder_rig);
    assert_int_equal(event_writer_create(&(struct event_writer_config){folder, 20, 0}, &w), ST_OK);
    capture_begin();
    disk = DISK_FULL;
    assert_true(event_writer_put(w, "first", 5));
    event_writer_destroy(w);
    disk = DISK_WORKS;
    capture_end();
    assert_int_equal(read_folder(folder, all, sizeof all, &n_files), 0);
    assert_non_null(strstr(capture_text, "the last 5 bytes are not written\n"));
}

/* These tests run last: the writer's thread hangs for good. */
static void close_that_hangs_is_left(void **state)
{
    char folder[100];
    struct event_writer *w;
    snprintf(folder, sizeof folder, "%s/end", folder_rig);
    assert_int_equal(event_writer_create(&(struct event_writer_config){folder, 0, 50}, &w), ST_OK);
    event_writer_put(w, "a", 1);
    wait_for_bytes(folder, 1);
    capture_begin();
    disk = DISK_HANGS_AT_END;
    event_writer_destroy(w);
    disk = DISK_HANGS;
    capture_end();
    assert_non_null(strstr(capture_text, "the disk does not answer"));
}

static void disk_that_hangs_is_left(void **state)
{
    char folder[100];
    static char block[100000];
    struct event_writer *w;
    int n_put;
    snprintf(folder, sizeof folder, "%s/hangs", folder_rig);
    assert_int_equal(event_writer_create(&(struct event_writer_config){folder, 0, 50}, &w), ST_OK);
    disk = DISK_HANGS;
    capture_begin();
    put_until_full(w, block, sizeof block, &n_put);
    event_writer_destroy(w);
    capture_end();
    assert_true(n_put > 0);
    assert_non_null(strstr(capture_text, "the disk does not answer"));
}

int main(void)
{
    return RUN_GROUP(
        folder_rig_make, folder_rig_remove, crc_is_masked, record_has_its_bytes,
        record_is_whole_or_not_there, histogram_counts_in_its_buckets,
        histogram_of_equal_and_extreme_values, picture_shows_samples, files_follow_each_other,
        folder_that_cannot_be_is_an_error, full_disk_is_waited_out, full_disk_keeps_events_that_fit,
        session_is_put_when_there_is_room, deleted_file_is_followed, close_may_fail,
        disk_that_stays_full_ends_nothing, close_that_hangs_is_left, disk_that_hangs_is_left);
}
