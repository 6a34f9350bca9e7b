/* worker/data/data_csv_separator.c - finds columns of keys whose cells probably have several keys
 * each, although --key_separator is not set: most cells contain the same separator, and their parts
 * repeat more often than the whole cells. See data_csv_keys.h. */
#include "base/log.h"
#include "base/rng.h"
#include "worker/data/data_csv_keys.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 4096, MOST_PARTS = 1 << 16, MOST_HINTS = 5, N_SEPARATORS = 4 };
static const char separators[N_SEPARATORS + 1] = "|;, ";

/* Number of cells of a column that are not empty, and number of those with each separator. */
struct counts {
    int64_t cells, with[N_SEPARATORS];
};

/* Texts, by their hashes. */
struct texts {
    uint64_t *hash; /* [most] */
    size_t n, most;
};

static void add_text(struct texts *t, const char *at, size_t n)
{
    if (n > 0 && t->n < t->most)
        t->hash[t->n++] = rng_text(at, n);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Returns the number of different texts. Sorts them. */
static size_t count_different(struct texts *t)
{
    size_t n = 0;
    qsort(t->hash, t->n, sizeof *t->hash, compare);
    for (size_t i = 0; i < t->n; i++)
        n += i == 0 || t->hash[i] != t->hash[i - 1];
    return n;
}

/* Returns the next row after the line at `at`; NULL: the file has ended. */
static const char *next_row(const struct csv *c, const char *at)
{
    const char *end = memchr(at, '\n', (size_t)(c->end - at));
    return end && end + 1 < c->end ? end + 1 : NULL;
}

static const char *first_row(const struct csv *c)
{
    return c->has_names ? next_row(c, c->line_1) : c->line_1;
}

static void count_row(const struct csv *c, const char *at, struct counts *of)
{
    const char *end = data_csv_line_end(c, at), *p = at;
    for (int64_t k = 0; p && k < c->n_columns; k++) {
        size_t n;
        const char *field = data_csv_next_field(c, &p, end, &n);
        if (!field || n == 0 || c->role[k] > DATA_CSV_KEY)
            continue;
        struct counts *to = &of[c->keys->slot[k]];
        to->cells++;
        for (int s = 0; s < N_SEPARATORS; s++)
            to->with[s] += memchr(field, separators[s], n) != NULL;
    }
}

static void add_cell(const char *field, size_t n, char separator, struct texts *cells,
                     struct texts *parts)
{
    add_text(cells, field, n);
    for (const char *end = field + n, *to; field < end; field = to + 1) {
        const char *from = field;
        to = memchr(field, separator, (size_t)(end - field));
        to = to ? to : end;
        const char *last = to;
        while (from < last && *from == ' ')
            from++;
        while (last > from && last[-1] == ' ')
            last--;
        add_text(parts, from, (size_t)(last - from));
    }
}

/* Returns true if the parts of the column's cells have fewer different texts than the cells. A lack
 * of memory counts as false. */
static bool has_fewer_parts(const struct csv *c, int64_t column, char separator)
{
    struct texts cells = {malloc(MOST_ROWS * sizeof *cells.hash), 0, MOST_ROWS};
    struct texts parts = {malloc(MOST_PARTS * sizeof *parts.hash), 0, MOST_PARTS};
    bool has_fewer = false;
    if (!cells.hash || !parts.hash)
        goto done;
    const char *at = first_row(c);
    for (int row = 0; at && row < MOST_ROWS; at = next_row(c, at), row++) {
        const char *end = data_csv_line_end(c, at), *p = at, *field = NULL;
        size_t n = 0;
        for (int64_t k = 0; p && k <= column; k++)
            field = data_csv_next_field(c, &p, end, &n);
        if (field)
            add_cell(field, n, separator, &cells, &parts);
    }
    has_fewer = parts.n < MOST_PARTS && count_different(&parts) < count_different(&cells);
done:
    free(cells.hash);
    free(parts.hash);
    return has_fewer;
}

void data_csv_keys_log_separators(const struct csv *c)
{
    char text[DATA_CSV_COLUMN_BYTES];
    const struct csv_keys *keys = c->keys;
    int n_hints = 0;
    if (c->columns->key_separator || keys->n_columns == 0)
        return;
    struct counts *of = calloc(keys->n_columns, sizeof *of);
    const char *at = of ? first_row(c) : NULL;
    for (int row = 0; at && row < MOST_ROWS; at = next_row(c, at), row++)
        count_row(c, at, of);
    for (size_t j = 0; of && j < keys->n_columns && n_hints < MOST_HINTS; j++) {
        int64_t column = keys->column[j].column;
        for (int s = 0; s < N_SEPARATORS; s++) {
            if (2 * of[j].with[s] <= of[j].cells || !has_fewer_parts(c, column, separators[s]))
                continue;
            LOG_I(
                "%s: column %s: most cells contain '%c', and each whole cell is one key; set --key_separator='%c' if these cells have several keys",
                c->path, data_csv_report_column(c, column, text), separators[s], separators[s]);
            n_hints++;
            break;
        }
    }
    free(of);
}
