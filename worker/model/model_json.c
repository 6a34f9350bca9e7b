/* worker/model/model_json.c - typed access to a model's JSON tree, and errors with their line. The
 * scanner here reads the text only after jansson has checked it, so the scanner must only stay
 * inside the text. The scanner does not find a key that is written with escapes. */
#include "base/log.h"
#include "worker/model/model_private.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct cursor {
    const char *p, *end;
    int line;
};

static void skip_space(struct cursor *c)
{
    for (; c->p < c->end && strchr(" \t\r\n", *c->p) && *c->p != 0; c->p++)
        c->line += *c->p == '\n';
}

/* Moves from the opening quote of a string to just after the closing quote. */
static void skip_string(struct cursor *c)
{
    if (c->p < c->end)
        c->p++;
    while (c->p < c->end && *c->p != '"')
        c->p += *c->p == '\\' && c->p + 1 < c->end ? 2 : 1;
    if (c->p < c->end)
        c->p++;
}

static void skip_value(struct cursor *c)
{
    int depth = 0;
    skip_space(c);
    while (c->p < c->end) {
        char ch = *c->p;
        if (depth == 0 && (ch == ',' || ch == ']' || ch == '}'))
            return;
        if (ch == '"') {
            skip_string(c);
            continue;
        }
        depth += ch == '[' || ch == '{';
        depth -= ch == ']' || ch == '}';
        c->line += ch == '\n';
        c->p++;
    }
}

/* Moves to the next item of an object or list; returns false at its end. */
static bool next_item(struct cursor *c)
{
    skip_value(c);
    if (c->p >= c->end || *c->p != ',')
        return false;
    c->p++;
    skip_space(c);
    return c->p < c->end;
}

/* Moves from an object to the value of `key`; *line: line of the key. */
static bool enter_member(struct cursor *c, const char *key, int *line)
{
    size_t n = strlen(key);
    skip_space(c);
    if (c->p >= c->end || *c->p != '{')
        return false;
    c->p++;
    skip_space(c);
    do {
        const char *start = c->p;
        int at = c->line;
        if (start >= c->end || *start != '"')
            return false;
        skip_string(c);
        int found = (size_t)(c->p - start) == n + 2 && memcmp(start + 1, key, n) == 0;
        skip_space(c);
        if (c->p >= c->end || *c->p != ':')
            return false;
        c->p++;
        skip_space(c);
        if (found) {
            *line = at;
            return true;
        }
    } while (next_item(c));
    return false;
}

/* Moves from a list to its element n. */
static bool enter_element(struct cursor *c, int n)
{
    if (c->p >= c->end || *c->p != '[')
        return false;
    c->p++;
    skip_space(c);
    while (n-- > 0) {
        if (!next_item(c))
            return false;
    }
    return c->p < c->end;
}

int model_json_line(const struct model_reader *r, int layer, const char *key)
{
    struct cursor c = {r->text, r->text + r->bytes, 1};
    int line = 1;
    if (layer >= 0) {
        if (!enter_member(&c, "layers", &line) || !enter_element(&c, layer))
            return line;
        line = c.line;
    } else if (r->input) {
        if (!enter_member(&c, "inputs", &line) || !enter_member(&c, r->input, &line))
            return line;
    }
    if (key)
        enter_member(&c, key, &line);
    return line;
}

const char *model_json_printable(char *dst, size_t bytes, const char *s)
{
    size_t i = 0;
    for (; s[i] && i + 1 < bytes; i++)
        dst[i] = s[i] >= ' ' && s[i] <= '~' ? s[i] : '?';
    dst[i] = 0;
    return dst;
}

enum status model_json_fail(const struct model_reader *r, const char *key, const char *fmt, ...)
{
    char what[1024], where[160] = "", inside[80] = "";
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    int line = model_json_line(r, r->layer, r->within ? r->within : key);
    if (r->layer >= 0) {
        const struct model_node *node = &r->nodes[r->layer];
        snprintf(where, sizeof where, ", layer %d%s%s%s%s%s%s", r->layer + 1,
                 *node->name ? " '" : "", node->name, *node->name ? "'" : "",
                 node->type ? " (" : "", node->type ? node->type : "", node->type ? ")" : "");
    }
    if (r->layer < 0 && r->input)
        snprintf(where, sizeof where, ", input '%s'", r->input);
    if (r->within)
        snprintf(inside, sizeof inside, "\"%s\": ", r->within);
    LOG_E("model %s, line %d%s: %s%s", r->label, line, where, inside, what);
    return ST_INVALID;
}

/* Copies the first word of a list "a b c" to `word`. Returns the remainder of the list. */
static const char *next_word(const char *list, char word[64])
{
    size_t n = strcspn(list, " ");
    snprintf(word, 64, "%.*s", (int)n, list);
    return list + n + (list[n] == ' ');
}

/* Returns Levenshtein's distance; words of more than 31 letters get a large distance from all
 * words. */
static int edit_distance(const char *a, const char *b)
{
    int row[32], na = (int)strnlen(a, 32), nb = (int)strnlen(b, 32);
    if (na > 31 || nb > 31)
        return 32;
    for (int j = 0; j <= nb; j++)
        row[j] = j;
    for (int i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[nb];
}

const char *model_json_suggest(const char *word, const char *list, char *dst, size_t bytes)
{
    char candidate[64], near[64] = "";
    /* highest distance of words that count as similar */
    int best = (int)strnlen(word, 32) > 5 ? 3 : 2;
    while (*list) {
        list = next_word(list, candidate);
        int d = edit_distance(word, candidate);
        bool similar = d <= best && 2 * d <= (int)strlen(candidate);
        if (similar && (d < best || !*near)) {
            best = d;
            snprintf(near, sizeof near, "%s", candidate);
        }
    }
    dst[0] = 0;
    if (*near)
        snprintf(dst, bytes, ", did you mean \"%s\"?", near);
    return dst;
}

enum status model_json_check_keys(const struct model_reader *r, const char *owner, const char *list)
{
    const char *key;
    json_t *value;
    json_object_foreach(r->obj, key, value)
    {
        char word[64], shown[64], hint[96];
        int known = 0;
        for (const char *l = list; *l && !known;) {
            l = next_word(l, word);
            known = strcmp(word, key) == 0;
        }
        if (!known)
            return model_json_fail(r, key, "unknown key \"%s\"%s (%s has: %s)",
                                   model_json_printable(shown, sizeof shown, key),
                                   model_json_suggest(key, list, hint, sizeof hint), owner, list);
    }
    return ST_OK;
}

const char *model_json_describe(const json_t *v, char *dst, size_t bytes)
{
    char shown[48];
    switch (json_typeof(v)) {
    case JSON_STRING:
        snprintf(dst, bytes, "\"%s\"",
                 model_json_printable(shown, sizeof shown, json_string_value(v)));
        break;
    case JSON_INTEGER:
        snprintf(dst, bytes, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        break;
    case JSON_REAL:
        snprintf(dst, bytes, "%g", json_real_value(v));
        break;
    case JSON_OBJECT:
        snprintf(dst, bytes, "an object");
        break;
    case JSON_ARRAY:
        snprintf(dst, bytes, "a list of %zu", json_array_size(v));
        break;
    default:
        snprintf(dst, bytes, "%s", json_is_true(v) ? "true" : json_is_false(v) ? "false" : "null");
    }
    return dst;
}

static enum status refuse_missing(const struct model_reader *r, const char *key)
{
    return model_json_fail(r, NULL, "the key \"%s\" is missing", key);
}

enum status model_json_int(const struct model_reader *r, const char *key, const int64_t bounds[2],
                           const int64_t *fallback, int64_t *out)
{
    char shown[64];
    const json_t *v = json_object_get(r->obj, key);
    if (!v && !fallback)
        return refuse_missing(r, key);
    if (v && (!json_is_integer(v) || json_integer_value(v) < bounds[0] ||
              json_integer_value(v) > bounds[1]))
        return model_json_fail(r, key, "\"%s\" is %s, but must be a whole number from %lld to %lld",
                               key, model_json_describe(v, shown, sizeof shown),
                               (long long)bounds[0], (long long)bounds[1]);
    *out = v ? json_integer_value(v) : *fallback;
    return ST_OK;
}

enum status model_json_double(const struct model_reader *r, const char *key, const double bounds[2],
                              const double *fallback, double *out)
{
    char shown[64];
    const json_t *v = json_object_get(r->obj, key);
    if (!v && !fallback)
        return refuse_missing(r, key);
    if (v && (!json_is_number(v) ||
              !(json_number_value(v) >= bounds[0] && json_number_value(v) <= bounds[1])))
        return model_json_fail(r, key, "\"%s\" is %s, but must be a number from %g to %g", key,
                               model_json_describe(v, shown, sizeof shown), bounds[0], bounds[1]);
    *out = v ? json_number_value(v) : *fallback;
    return ST_OK;
}

static int window_extent(const json_t *v, int least, int *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < least ||
        json_integer_value(v) > MODEL_MAX_WINDOW)
        return 0;
    *out = (int)json_integer_value(v);
    return 1;
}

enum status model_json_pair(const struct model_reader *r, const char *key, int least,
                            const int *fallback, int out[2])
{
    char shown[64];
    const json_t *v = json_object_get(r->obj, key);
    if (!v && !fallback)
        return refuse_missing(r, key);
    if (!v) {
        memcpy(out, fallback, 2 * sizeof *out);
        return ST_OK;
    }
    int pair = json_is_array(v) && json_array_size(v) == 2;
    if (window_extent(pair ? json_array_get(v, 0) : v, least, &out[0]) &&
        window_extent(pair ? json_array_get(v, 1) : v, least, &out[1]))
        return ST_OK;
    return model_json_fail(
        r, key,
        "\"%s\" is %s, but must be a whole number from %d to %d or a list of two such, [height, width]",
        key, model_json_describe(v, shown, sizeof shown), least, MODEL_MAX_WINDOW);
}

enum status model_json_bool(const struct model_reader *r, const char *key, bool fallback, bool *out)
{
    char shown[64];
    const json_t *v = json_object_get(r->obj, key);
    if (v && !json_is_boolean(v))
        return model_json_fail(r, key, "\"%s\" is %s, but must be true or false", key,
                               model_json_describe(v, shown, sizeof shown));
    *out = v ? json_is_true(v) : fallback;
    return ST_OK;
}

enum status model_json_string(const struct model_reader *r, const char *key, const char *fallback,
                              const char **out)
{
    char shown[64];
    const json_t *v = json_object_get(r->obj, key);
    if (!v && !fallback)
        return refuse_missing(r, key);
    if (v && !json_is_string(v))
        return model_json_fail(r, key, "\"%s\" is %s, but must be a string", key,
                               model_json_describe(v, shown, sizeof shown));
    *out = v ? json_string_value(v) : fallback;
    return ST_OK;
}
