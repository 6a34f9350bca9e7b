/* worker/weights/weights_map.c - reads the map and derives the names that a parameter's tensor may
 * have. */
#include "worker/weights/weights_map.h"
#include "base/log.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct line {
    const char *left, *right;
};

struct weights_map {
    char *text;
    struct line *lines;
    int n;
};

static enum status read_text(const char *path, char **out)
{
    enum status st = ST_OK;
    char *text = malloc(WEIGHTS_MAP_MAX_BYTES + 1);
    FILE *f = fopen(path, "re");
    if (!f || !text) {
        st = f ? ST_NOMEM : status_of_reading(errno);
        LOG_E("--init_map=%s: %s", path, f ? "out of memory" : status_errno_text(errno));
        goto done;
    }
    size_t n = fread(text, 1, WEIGHTS_MAP_MAX_BYTES + 1, f);
    if (ferror(f)) {
        LOG_E("--init_map=%s: %s", path, status_errno_text(errno));
        st = ST_IO;
    } else if (n > WEIGHTS_MAP_MAX_BYTES || memchr(text, 0, n)) {
        LOG_E("--init_map=%s: must be a text of at most %d bytes", path, WEIGHTS_MAP_MAX_BYTES);
        st = ST_INVALID;
    } else {
        text[n] = 0;
        *out = text;
        text = NULL;
    }
done:
    if (f)
        fclose(f);
    free(text);
    return st;
}

static char *trimmed(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t n = strlen(text);
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        text[--n] = 0;
    return text;
}

static bool is_layer_of(const char *layer, const char *param)
{
    size_t n = strlen(layer);
    return strncmp(param, layer, n) == 0 && param[n] == '/';
}

static bool names_something(const struct chunks *chunks, const char *left)
{
    for (int i = 0; i < chunks->n_params; i++)
        if (strcmp(chunks->params[i].name, left) == 0 || is_layer_of(left, chunks->params[i].name))
            return true;
    return false;
}

static enum status add_line(struct weights_map *m, const char *path, int number, char *text,
                            const struct chunks *chunks)
{
    const char *wrong = NULL;
    char *equals = strchr(text, '='), *left, *right;
    if (!equals) {
        LOG_E(
            "--init_map=%s, line %d: must be PARAMETER = TENSOR, LAYER = MODULE, or PARAMETER = - or LAYER = - to keep the initial values",
            path, number);
        return ST_INVALID;
    }
    *equals = 0;
    left = trimmed(text);
    right = trimmed(equals + 1);
    if (!*left || !*right || strlen(right) >= WEIGHTS_NAME_BYTES / 2)
        wrong = "needs a name of at most 255 bytes on both sides of the =";
    else if (!names_something(chunks, left))
        wrong = "is neither a parameter of the model nor a layer with parameters";
    for (int i = 0; i < m->n && !wrong; i++)
        if (strcmp(m->lines[i].left, left) == 0)
            wrong = "has a line already";
    if (wrong) {
        LOG_E("--init_map=%s, line %d: '%.200s' %s", path, number, left, wrong);
        return ST_INVALID;
    }
    m->lines[m->n++] = (struct line){left, strcmp(right, "-") == 0 ? NULL : right};
    return ST_OK;
}

/* Reads the lines. Each parameter and each layer may have at most one line, which limits the number
 * of lines. */
static enum status read_lines(struct weights_map *m, const char *path, const struct chunks *chunks)
{
    enum status st = ST_OK;
    int number = 0;
    for (char *at = m->text, *next; at; at = next) {
        next = strchr(at, '\n');
        if (next)
            *next++ = 0;
        char *comment = strchr(at, '#');
        if (comment)
            *comment = 0;
        char *text = trimmed(at);
        number++;
        if (*text)
            TRY(add_line(m, path, number, text, chunks));
    }
done:
    return st;
}

enum status weights_map_read(const char *path, const struct chunks *chunks,
                             struct weights_map **out)
{
    enum status st = ST_OK;
    struct weights_map *m = calloc(1, sizeof *m);
    if (m)
        m->lines = calloc(2 * (size_t)chunks->n_params + 1, sizeof *m->lines);
    if (!m || !m->lines) {
        LOG_E("--init_map: out of memory");
        TRY(ST_NOMEM);
    }
    if (path) {
        TRY(read_text(path, &m->text));
        TRY(read_lines(m, path, chunks));
    }
    *out = m;
    m = NULL;
done:
    weights_map_free(m);
    return st;
}

void weights_map_free(struct weights_map *m)
{
    if (!m)
        return;
    free(m->lines);
    free(m->text);
    free(m);
}

/* Returns PyTorch's name for the parameter with this suffix in Weir. */
static const char *torch_name(const char *suffix)
{
    static const char *const pairs[][2] = {{"weights", "weight"},
                                           {"gamma", "weight"},
                                           {"biases", "bias"},
                                           {"beta", "bias"},
                                           {"moving_mean", "running_mean"},
                                           {"moving_variance", "running_var"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (strcmp(suffix, pairs[i][0]) == 0)
            return pairs[i][1];
    return suffix;
}

void weights_map_names(const struct weights_map *m, const char *param, struct weights_names *out)
{
    const struct line *own = NULL, *layer = NULL;
    const char *slash = strrchr(param, '/'), *suffix = slash ? slash + 1 : param;
    int n = slash ? (int)(slash - param) : 0;
    *out = (struct weights_names){0};
    for (int i = 0; i < m->n; i++) {
        if (strcmp(m->lines[i].left, param) == 0)
            own = &m->lines[i];
        else if (is_layer_of(m->lines[i].left, param))
            layer = &m->lines[i];
    }
    if (own) {
        if (own->right)
            snprintf(out->name[out->n++], WEIGHTS_NAME_BYTES, "%s", own->right);
        return;
    }
    if (layer && !layer->right)
        return;
    const char *module = layer ? layer->right : param;
    n = layer ? (int)strlen(module) : n;
    snprintf(out->name[out->n++], WEIGHTS_NAME_BYTES, "%.*s/%s", n, module, suffix);
    snprintf(out->name[out->n++], WEIGHTS_NAME_BYTES, "%.*s.%s", n, module, torch_name(suffix));
}
