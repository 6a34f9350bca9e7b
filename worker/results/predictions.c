/* worker/results/predictions.c - writes one row per sample in the chosen format, see
 * predictions.h. */
#include "worker/results/predictions.h"
#include "base/log.h"
#include "files/durable.h"
#include "worker/results/predictions_text.h"
#include "worker/train/evaluate.h"
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
    bool is_open;
    int64_t n;             /* number of samples that were added */
    const char *file_name; /* name of the next sample's file */
    /* [classes] start of each class name; NULL: the classes have no names */
    const char **class_name;
    char *row; /* text or bytes of one sample */
};

static enum format format_of(const char *path)
{
    size_t n = strlen(path);
    int i = 0;
    while (i < FORMAT_N && (n <= strlen(ends[i]) || strcmp(path + n - strlen(ends[i]), ends[i])))
        i++;
    return (enum format)i;
}

bool predictions_format_known(const char *path)
{
    return format_of(path) < FORMAT_N;
}

static const char *outputs_name(const struct predictions *p)
{
    return p->cfg.no_classes ? "outputs" : p->cfg.are_scores ? "scores" : "probabilities";
}

/* Returns true if the only output is the probability of class 1. */
static bool has_one(const struct predictions *p)
{
    return p->cfg.classes == 1 && !p->cfg.no_classes;
}

static enum status write_csv_head(struct predictions *p)
{
    char text[2 * NUMBER_BYTES], letter = p->cfg.no_classes ? 'y' : outputs_name(p)[0];
    int head = snprintf(text, sizeof text, "index%s%s%s", p->cfg.files ? ",file" : "",
                        p->cfg.no_classes ? "" : ",class",
                        !p->cfg.no_classes && p->cfg.class_names ? ",class_name" : "");
    enum status st = durable_write(&p->file, text, (size_t)head);
    int first = has_one(p); /* a single output belongs to class 1 */
    for (int k = 0; k < p->cfg.classes && st == ST_OK; k++) {
        int n = snprintf(text, sizeof text, ",%c%d", letter, first + k);
        st = durable_write(&p->file, text, (size_t)n);
    }
    return st == ST_OK ? durable_write(&p->file, "\n", 1) : st;
}

/* Writes the head of an npy file of version 1.0: magic, 2 bytes of length, a Python literal padded
 * to a multiple of 64 bytes. */
static enum status write_npy_head(struct predictions *p)
{
    char head[256];
    memcpy(head, "\x93NUMPY\x01\x00", 8); // NOLINT(bugprone-not-null-terminated-result)
    int n =
        NPY_MAGIC_BYTES +
        snprintf(
            head + NPY_MAGIC_BYTES, sizeof head - NPY_MAGIC_BYTES,
            "{'descr': [('index', '<i8'), %s('%s', '<f4', (%d,))], 'fortran_order': False, 'shape': (%" PRId64
            ",), }",
            p->cfg.no_classes ? "" : "('class', '<i4'), ", outputs_name(p), p->cfg.classes,
            p->cfg.n);
    int bytes = (n + NPY_ALIGN) / NPY_ALIGN * NPY_ALIGN, rest = bytes - NPY_MAGIC_BYTES;
    memset(head + n, ' ', (size_t)(bytes - n));
    head[bytes - 1] = '\n';
    head[8] = (char)(rest & 255);
    head[9] = (char)(rest >> 8);
    return durable_write(&p->file, head, (size_t)bytes);
}

static size_t class_bytes(const char *name)
{
    return name ? strcspn(name, "\n") : 0;
}

/* Allocates the buffers, and finds the start of each class name. */
static enum status make_room(struct predictions *p)
{
    const struct predictions_config *cfg = &p->cfg;
    size_t longest = 0, of_class = 0;
    const char *name = cfg->files;
    for (int64_t i = 0; name && i < cfg->n; i++, name += strlen(name) + 1)
        longest = strlen(name) > longest ? strlen(name) : longest;
    int n_names = has_one(p) ? 2 : cfg->classes;
    p->class_name = calloc((size_t)n_names, sizeof *p->class_name);
    name = cfg->class_names;
    for (int k = 0; p->class_name && name && k < n_names; k++) {
        size_t n = class_bytes(name);
        p->class_name[k] = name;
        of_class = n > of_class ? n : of_class;
        name = name[n] ? name + n + 1 : NULL;
    }
    p->row = malloc(ROW_BYTES + (size_t)cfg->classes * NUMBER_BYTES +
                    predictions_text_most(longest) + predictions_text_most(of_class));
    if (p->row && p->class_name)
        return ST_OK;
    LOG_E("%s: out of memory", cfg->path);
    return ST_NOMEM;
}

enum status predictions_create(const struct predictions_config *cfg, struct predictions **out)
{
    enum status st = ST_OK;
    struct predictions *p = calloc(1, sizeof *p);
    if (!p) {
        LOG_E("%s: out of memory", cfg->path);
        return ST_NOMEM;
    }
    p->cfg = *cfg;
    p->file_name = cfg->files;
    TRY(make_room(p));
    p->format = format_of(cfg->path);
    TRY(durable_begin(&p->file, cfg->path));
    p->is_open = true;
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

/* Writes a row of an npy file, always little-endian. Returns the length of the row. */
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

/* Writes a comma and the name; in JSON also writes the key before the name. */
static size_t put_name(const struct predictions *p, char *to, const char *key, const char *name,
                       size_t n)
{
    if (p->format != FORMAT_JSONL) {
        *to = ',';
        return 1 + predictions_text_csv(to + 1, name, n);
    }
    size_t head = (size_t)sprintf(to, ",\"%s\":", key);
    return head + predictions_text_json(to + head, name, n);
}

/* Writes a row of text. Each number has nine digits, from which a reader gets the same float
 * again. */
static size_t text_row(const struct predictions *p, const float *output, int best)
{
    int json = p->format == FORMAT_JSONL;
    size_t n = (size_t)snprintf(p->row, ROW_BYTES, json ? "{\"index\":%" PRId64 : "%" PRId64, p->n);
    if (p->file_name)
        n += put_name(p, p->row + n, "file", p->file_name, strlen(p->file_name));
    if (!p->cfg.no_classes)
        n += (size_t)snprintf(p->row + n, NUMBER_BYTES, json ? ",\"class\":%d" : ",%d", best);
    if (!p->cfg.no_classes && p->cfg.class_names)
        n += put_name(p, p->row + n, "class_name", p->class_name[best],
                      class_bytes(p->class_name[best]));
    if (json)
        n += (size_t)snprintf(p->row + n, NUMBER_BYTES, ",\"%s\":[", outputs_name(p));
    for (int k = 0; k < p->cfg.classes; k++) {
        const char *comma = json && k == 0 ? "" : ",";
        if (json && !isfinite(output[k]))
            n += (size_t)snprintf(p->row + n, NUMBER_BYTES, "%snull", comma);
        else
            n += (size_t)snprintf(p->row + n, NUMBER_BYTES, "%s%.9g", comma, (double)output[k]);
    }
    return n + (size_t)snprintf(p->row + n, NUMBER_BYTES, json ? "]}\n" : "\n");
}

enum status predictions_add(struct predictions *p, const float *output)
{
    int best = evaluate_class(output, p->cfg.classes);
    size_t n = p->format == FORMAT_NPY ? npy_row(p, output, best) : text_row(p, output, best);
    p->n++;
    if (p->file_name)
        p->file_name += strlen(p->file_name) + 1;
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
    free(p->class_name);
    free(p->row);
    free(p);
}
