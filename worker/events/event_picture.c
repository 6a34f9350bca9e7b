/* worker/events/event_picture.c - draws samples into one picture and encodes it as PNG. */
#include "worker/events/event_picture.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { COLUMNS = 4, SIDE = 64, FRAME = 3, GAP = 2, BYTES = 3 };
enum { GLYPH_WIDTH = 3, GLYPH_HEIGHT = 5, ZOOM = 2, TEXT_HEIGHT = GLYPH_HEIGHT * ZOOM + 4 };
/* LEAST_CELL: least width of a cell, enough for the text "100/200" */
enum { TEXT_MARGIN = 2, LEAST_CELL = 64 };

struct event_picture {
    struct shape sample;
    /* factors by which a sample is enlarged or reduced; at least one of them is 1 */
    int enlarged, skipped;
    int across, down;            /* width and height in pixels of a drawn sample */
    int cell_width, cell_height; /* size of a drawn sample with frame, text and gap */
    int width, height;
    uint8_t pixel[]; /* [height][width][BYTES] */
};

/* Digits and a slash: rows from the top, each of three bits. */
static const uint8_t glyphs[11][GLYPH_HEIGHT] = {
    {7, 5, 5, 5, 7}, {2, 6, 2, 2, 7}, {7, 1, 7, 4, 7}, {7, 1, 7, 1, 7},
    {5, 5, 7, 1, 1}, {7, 4, 7, 1, 7}, {7, 4, 7, 5, 7}, {7, 1, 1, 2, 2},
    {7, 5, 7, 5, 7}, {7, 5, 7, 1, 7}, {1, 1, 2, 4, 4},
};
static const uint8_t green[BYTES] = {34, 160, 70}, red[BYTES] = {214, 48, 49},
                     gray[BYTES] = {140, 140, 140}, black[BYTES] = {20, 20, 20};

enum status event_picture_create(const struct shape *sample, int n, struct event_picture **out)
{
    int64_t height = sample->dim[1], width = sample->dim[2];
    int64_t longer = height > width ? height : width;
    if (sample->n_dims != 3 || height < 2 || width < 2)
        return ST_UNSUPPORTED;
    struct event_picture p = {.sample = *sample, .enlarged = 1, .skipped = 1};
    if (longer < SIDE)
        p.enlarged = (int)(SIDE / longer);
    p.skipped = (int)((longer + SIDE - 1) / SIDE);
    p.across = (int)((width + p.skipped - 1) / p.skipped) * p.enlarged;
    p.down = (int)((height + p.skipped - 1) / p.skipped) * p.enlarged;
    p.cell_width = p.across + 2 * FRAME + GAP;
    if (p.cell_width < LEAST_CELL)
        p.cell_width = LEAST_CELL;
    p.cell_height = p.down + 2 * FRAME + TEXT_HEIGHT + GAP;
    p.width = p.cell_width * (n < COLUMNS ? n : COLUMNS);
    p.height = p.cell_height * ((n + COLUMNS - 1) / COLUMNS);
    size_t bytes = (size_t)p.width * (size_t)p.height * BYTES;
    struct event_picture *made = malloc(sizeof *made + bytes);
    if (!made)
        return ST_NOMEM;
    *made = p;
    memset(made->pixel, 255, bytes);
    *out = made;
    return ST_OK;
}

void event_picture_destroy(struct event_picture *p)
{
    free(p);
}

static void fill(struct event_picture *p, int x, int y, const int size[2], const uint8_t *colour)
{
    for (int row = y; row < y + size[1]; row++)
        for (int column = x; column < x + size[0]; column++)
            if (row >= 0 && row < p->height && column >= 0 && column < p->width)
                memcpy(p->pixel + ((size_t)row * (size_t)p->width + (size_t)column) * BYTES, colour,
                       BYTES);
}

/* Writes as much of the text as fits in the cell. */
static void write_text(struct event_picture *p, int x, int y, const char *text)
{
    const int dot[2] = {ZOOM, ZOOM}, end = (x / p->cell_width + 1) * p->cell_width;
    for (; *text && x + GLYPH_WIDTH * ZOOM <= end; text++, x += (GLYPH_WIDTH + 1) * ZOOM) {
        const uint8_t *glyph = glyphs[*text == '/' ? 10 : *text - '0'];
        for (int row = 0; row < GLYPH_HEIGHT; row++)
            for (int column = 0; column < GLYPH_WIDTH; column++)
                if (glyph[row] >> (GLYPH_WIDTH - 1 - column) & 1)
                    fill(p, x + column * ZOOM, y + row * ZOOM, dot, black);
    }
}

/* Sets *low, the value that is drawn as 0, and *range: low + range is drawn as 1. */
static void range_of(const struct event_picture *p, const float *pixels, float *low, float *range)
{
    int64_t n = shape_elems(&p->sample);
    float min = INFINITY, max = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(pixels[i]))
            continue;
        min = pixels[i] < min ? pixels[i] : min;
        max = pixels[i] > max ? pixels[i] : max;
    }
    int as_is = (min >= 0 && max <= 1) || max < min; /* max < min: no value is finite */
    *low = as_is ? 0 : min;
    *range = as_is || max <= min ? 1 : max - min;
}

/* Returns the shade of a value from 0 to 1. Smaller values count as 0, larger ones as 1, NaN as
 * 0. */
static uint8_t shade(float value)
{
    return value > 0 ? (uint8_t)(value < 1 ? value * 255 + 0.5f : 255) : 0;
}

static void draw(struct event_picture *p, int x, int y, const float *pixels)
{
    int64_t height = p->sample.dim[1], width = p->sample.dim[2];
    /* distance between two channels in `pixels` */
    int64_t next = p->sample.dim[0] == 3 ? height * width : 0;
    const int dot[2] = {p->enlarged, p->enlarged};
    float low, range;
    range_of(p, pixels, &low, &range);
    for (int64_t row = 0; row < height; row += p->skipped)
        for (int64_t column = 0; column < width; column += p->skipped) {
            uint8_t colour[BYTES];
            for (int k = 0; k < BYTES; k++)
                colour[k] = shade((pixels[k * next + row * width + column] - low) / range);
            fill(p, x + (int)(column / p->skipped) * p->enlarged,
                 y + (int)(row / p->skipped) * p->enlarged, dot, colour);
        }
}

void event_picture_set(struct event_picture *p, int k, const float *pixels, int named, int label)
{
    int x = k % COLUMNS * p->cell_width, y = k / COLUMNS * p->cell_height;
    const int frame[2] = {p->across + 2 * FRAME, p->down + 2 * FRAME};
    char text[32] = "";
    fill(p, x, y, frame, named < 0 || label < 0 ? gray : named == label ? green : red);
    draw(p, x + FRAME, y + FRAME, pixels);
    if (named >= 0 && label >= 0 && named != label)
        snprintf(text, sizeof text, "%d/%d", named, label);
    else if (named >= 0)
        snprintf(text, sizeof text, "%d", named);
    write_text(p, x + TEXT_MARGIN, y + frame[1] + TEXT_MARGIN, text);
}

int event_picture_width(const struct event_picture *p)
{
    return p->width;
}

int event_picture_height(const struct event_picture *p)
{
    return p->height;
}

static uint8_t *put_big(uint8_t *to, uint32_t value)
{
    for (int i = 3; i >= 0; i--)
        *to++ = (uint8_t)(value >> 8 * i);
    return to;
}

/* Writes length, name, data, and CRC-32 of both. `data` may already be stored where the chunk needs
 * it. */
static uint8_t *put_chunk(uint8_t *to, const char *name, const uint8_t *data, size_t n)
{
    uint8_t *body = put_big(to, (uint32_t)n);
    memcpy(body, name, 4);
    if (n > 0)
        memmove(body + 4, data, n);
    return put_big(body + 4 + n, (uint32_t)crc32(0, body, (uInt)n + 4));
}

enum status event_picture_png(const struct event_picture *p, uint8_t **data, size_t *n)
{
    enum { SIGNATURE = 8, HEADER = 13, CHUNK = 12, DEPTH = 8, RGB = 2 };
    enum status st = ST_NOMEM;
    size_t line = (size_t)p->width * BYTES, raw_bytes = (line + 1) * (size_t)p->height;
    uLongf packed = compressBound(raw_bytes);
    uint8_t *raw = malloc(raw_bytes), header[HEADER] = {0};
    uint8_t *png = malloc(SIGNATURE + HEADER + packed + 3 * CHUNK), *to = png, *at;
    if (!raw || !png)
        goto done;
    for (int row = 0; row < p->height; row++) {
        raw[(size_t)row * (line + 1)] = 0; /* no filter */
        memcpy(raw + (size_t)row * (line + 1) + 1, p->pixel + (size_t)row * line, line);
    }
    memcpy(to, "\x89PNG\r\n\x1a\n", SIGNATURE);
    at = put_big(put_big(header, (uint32_t)p->width), (uint32_t)p->height);
    at[0] = DEPTH;
    at[1] = RGB;
    to = put_chunk(to + SIGNATURE, "IHDR", header, HEADER);
    if (compress2(to + 8, &packed, raw, raw_bytes, 6) != Z_OK)
        goto done;
    to = put_chunk(to, "IDAT", to + 8, packed);
    to = put_chunk(to, "IEND", NULL, 0);
    *n = (size_t)(to - png);
    *data = png;
    png = NULL;
    st = ST_OK;
done:
    free(raw);
    free(png);
    return st;
}
