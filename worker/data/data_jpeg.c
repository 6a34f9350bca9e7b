/* worker/data/data_jpeg.c - JPEG by libjpeg(-turbo): see data_images.h. Errors of libjpeg return by
 * longjmp. A damaged file that libjpeg would repair by guessing is refused, too. */
#include "base/log.h"
#include "worker/data/data_images.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

enum { MOST_SCANS = 200 };
#define MOST_WORK ((int64_t)1 << 33) /* limit on the number of scans times the number of pixels */

struct reader {
    /* must be the first field, because libjpeg passes its address to the callbacks */
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    char why[JMSG_LENGTH_MAX];
    struct jpeg_decompress_struct jpeg;
    uint8_t *rows;
    int64_t dim[3];
    enum status st;
};

static void on_error(j_common_ptr jpeg)
{
    struct reader *r = (struct reader *)jpeg->err;
    jpeg->err->format_message(jpeg, r->why);
    longjmp(r->back, 1);
}

/* Refuses damaged data that libjpeg would accept with a warning. */
static void on_message(j_common_ptr jpeg, int level)
{
    if (level < 0)
        on_error(jpeg);
}

/* Limits the work: each scan covers the whole picture but may have only a few bytes, so a file with
 * many scans could need hours. */
static void on_progress(j_common_ptr jpeg)
{
    struct reader *r = (struct reader *)jpeg->err;
    int64_t n = r->jpeg.input_scan_number;
    if (n <= MOST_SCANS && n * r->dim[0] * r->dim[1] * r->dim[2] <= MOST_WORK)
        return;
    snprintf(r->why, sizeof r->why, "more than %d scans, or too many for its size", MOST_SCANS);
    longjmp(r->back, 1);
}

/* Refuses an unsupported kind of JPEG. */
static void refuse(struct reader *r, const char *why)
{
    snprintf(r->why, sizeof r->why, "%s", why);
    longjmp(r->back, 1);
}

/* Refuses arithmetic coding, which needs no bytes for a uniform picture, so decoding a small file
 * could need hours. */
static void check_kind(struct reader *r)
{
    J_COLOR_SPACE colours = r->jpeg.jpeg_color_space;
    if (r->jpeg.arith_code)
        refuse(r, "its coding is arithmetic; save it with the usual Huffman coding");
    if (colours == JCS_CMYK || colours == JCS_YCCK)
        refuse(
            r,
            "its colours are CMYK, for printing; convert it to RGB, for example by ImageMagick's mogrify -colorspace sRGB FILE...");
}

static void read_rows(struct reader *r, const uint8_t *bytes, uint64_t n, const char *label)
{
    struct jpeg_decompress_struct *j = &r->jpeg;
    jpeg_mem_src(j, bytes, (unsigned long)n);
    jpeg_read_header(j, TRUE);
    check_kind(r);
    j->out_color_space = j->jpeg_color_space == JCS_GRAYSCALE ? JCS_GRAYSCALE : JCS_RGB;
    j->dct_method = JDCT_ISLOW;
    r->dim[0] = j->out_color_space == JCS_RGB ? 3 : 1;
    r->dim[1] = j->image_height;
    r->dim[2] = j->image_width;
    r->st = data_images_picture_alloc(label, n, r->dim, &r->rows);
    if (r->st != ST_OK)
        return;
    jpeg_start_decompress(j);
    while (j->output_scanline < j->output_height) {
        JSAMPROW row = r->rows + (int64_t)j->output_scanline * r->dim[0] * r->dim[2];
        jpeg_read_scanlines(j, &row, 1);
    }
    jpeg_finish_decompress(j);
}

enum status data_jpeg_decode(const uint8_t *bytes, uint64_t n, const char *label,
                             struct data_images_picture *out)
{
    struct reader *r = calloc(1, sizeof *r);
    if (!r) {
        LOG_E("%s: no memory to read it", label);
        return ST_NOMEM;
    }
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->errors.error_exit = on_error;
    r->errors.emit_message = on_message;
    if (setjmp(r->back) == 0) {
        jpeg_create_decompress(&r->jpeg);
        r->progress.progress_monitor = on_progress;
        r->jpeg.progress = &r->progress;
        read_rows(r, bytes, n, label);
    } else {
        LOG_E("%s: cannot read this JPEG: %s%s", label, r->why,
              strchr(r->why, ';') ? "" : "; repair or remove it");
        r->st = ST_CORRUPT;
    }
    jpeg_destroy_decompress(&r->jpeg);
    enum status st = r->st;
    if (st == ST_OK) {
        st = data_images_picture_turn(label, r->dim, r->rows, out);
        r->rows = NULL;
    }
    free(r->rows);
    free(r);
    return st;
}
