/* worker/predictions.c - see predictions.h. */
#include "worker/predictions.h"
#include "base/log.h"
#include "files/durable.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_BYTES = 24, ROW_BYTES = 128, NPY_ALIGN = 64, NPY_MAGIC_BYTES = 10 };
enum format { FORMAT_CSV, FORMAT_JSONL, FORMAT_NPY, FORMAT_N };
static const char *const ends[FORMAT_N] = {".csv", ".jsonl", ".npy"};

struct predictions {
    struct predictions_config cfg;
    enum format format;
    struct durable file;
    int is_open;
    int64_t n; /* added */
    char *row; /* text, or bytes, of one sample */
};

static enum format format_of(const char *path)
{
    size_t n = strlen(path);
    int i = 0;
    while (i < FORMAT_N && (n <= strlen(ends[i]) || strcmp(path + n - strlen(ends[i]), ends[i])))
        i++;
    return (enum format)i;
}

int predictions_format_known(const char *path)
{
    return format_of(path) < FORMAT_N;
}

static const char *outputs_name(const struct predictions *p)
{
    return p->cfg.no_classes ? "outputs" : p->cfg.are_scores ? "scores" : "probabilities";
}

static enum status write_csv_head(struct predictions *p)
{
    char text[NUMBER_BYTES], letter = p->cfg.no_classes ? 'y' : outputs_name(p)[0];
    enum status st = durable_write(&p->file, "index,class", p->cfg.no_classes ? 5 : 11);
    for (int k = 0; k < p->cfg.classes && st == ST_OK; k++) {
        int n = snprintf(text, sizeof text, ",%c%d", letter, k);
        st = durable_write(&p->file, text, (size_t)n);
    }
    return st == ST_OK ? durable_write(&p->file, "\n", 1) : st;
}

/* Version 1.0: magic, 2 bytes of length, a Python literal padded to a multiple of 64 bytes. */
static enum status write_npy_head(struct predictions *p)
{
    char head[256];
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    int n = NPY_MAGIC_BYTES + snprintf(head + NPY_MAGIC_BYTES, sizeof head - NPY_MAGIC_BYTES,
                                       "{'descr': [('index', '<i8'), %s('%s', '<f4', (%d,))], "
                                       "'fortran_order': False, 'shape': (%" PRId64 ",), }",
                                       p->cfg.no_classes ? "" : "('class', '<i4'), ",
                                       outputs_name(p), p->cfg.classes, p->cfg.n);
    int bytes = (n + NPY_ALIGN) / NPY_ALIGN * NPY_ALIGN, rest = bytes - NPY_MAGIC_BYTES;
    memset(head + n, ' ', (size_t)(bytes - n));
    head[bytes - 1] = '\n';
    head[8] = (char)(rest & 255);
    head[9] = (char)(rest >> 8);
    return durable_write(&p->file, head, (size_t)bytes);
}

enum status predictions_create(const struct predictions_config *cfg, struct predictions **out)
{
    enum status st = ST_OK;
    struct predictions *p = calloc(1, sizeof *p);
    if (p)
        p->row = malloc(ROW_BYTES + (size_t)cfg->classes * NUMBER_BYTES);
    if (!p || !p->row) {
        LOG_E("%s: out of memory", cfg->path);
        free(p);
        return ST_NOMEM;
    }
    p->cfg = *cfg;
    p->format = format_of(cfg->path);
    TRY(durable_begin(&p->file, cfg->path));
    p->is_open = 1;
    if (p->format == FORMAT_CSV)
        TRY(write_csv_head(p));
    else if (p->format == FORMAT_NPY)
        TRY(write_npy_head(p));
done:
    if (st == ST_OK)
        *out = p;
    else
        predictions_destroy(p);
    return st;
}

static void put_number(char **to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *(*to)++ = (char)(value >> 8 * i & 255);
}

/* Little-endian, whatever the host is. Returns its bytes. */
static size_t npy_row(const struct predictions *p, const float *output, int best)
{
    char *to = p->row;
    put_number(&to, (uint64_t)p->n, 8);
    if (!p->cfg.no_classes)
        put_number(&to, (uint64_t)best, 4);
    for (int k = 0; k < p->cfg.classes; k++) {
        uint32_t bits;
        memcpy(&bits, &output[k], sizeof bits);
        put_number(&to, bits, 4);
    }
    return (size_t)(to - p->row);
}

/* Nine digits give a float back bit for bit. */
static size_t text_row(const struct predictions *p, const float *output, int best)
{
    int json = p->format == FORMAT_JSONL, n;
    n = snprintf(p->row, ROW_BYTES, json ? "{\"index\":%" PRId64 : "%" PRId64, p->n);
    if (!p->cfg.no_classes)
        n += snprintf(p->row + n, NUMBER_BYTES, json ? ",\"class\":%d" : ",%d", best);
    if (json)
        n += snprintf(p->row + n, NUMBER_BYTES, ",\"%s\":[", outputs_name(p));
    for (int k = 0; k < p->cfg.classes; k++) {
        const char *comma = json && k == 0 ? "" : ",";
        if (json && !isfinite(output[k]))
            n += snprintf(p->row + n, NUMBER_BYTES, "%snull", comma);
        else
            n += snprintf(p->row + n, NUMBER_BYTES, "%s%.9g", comma, (double)output[k]);
    }
    n += snprintf(p->row + n, NUMBER_BYTES, json ? "]}\n" : "\n");
    return (size_t)n;
}

enum status predictions_add(struct predictions *p, const float *output)
{
    int best = 0;
    for (int k = 1; k < p->cfg.classes; k++)
        best = output[k] > output[best] ? k : best;
    size_t n = p->format == FORMAT_NPY ? npy_row(p, output, best) : text_row(p, output, best);
    p->n++;
    return durable_write(&p->file, p->row, n);
}

enum status predictions_commit(struct predictions *p)
{
    CHECK(p->n == p->cfg.n);
    return durable_commit(&p->file);
}

void predictions_destroy(struct predictions *p)
{
    if (!p)
        return;
    if (p->is_open)
        durable_end(&p->file);
    free(p->row);
    free(p);
}
