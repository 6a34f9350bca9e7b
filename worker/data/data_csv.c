/* worker/data/data_csv.c - see the header. Each field of a row takes two bytes at least, itself and
 * what ends it, so that the file's length bounds the memory, whatever its lines say (I9). */
#include "worker/data/data_csv.h"
#include "base/log.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELD_BYTES = 64 };

struct csv {
    const char *at, *end;
    const char *label; /* the file */
    const char *wanted, *targets;
    char between;
    int64_t line, n_columns, label_column; /* line: from 1 on; the column: from 0 on, -1: none */
    int64_t n_targets;
    int64_t *target_of; /* [n_columns] which target is there; -1: none; NULL: there is a label */
};

/* Where a row's numbers go; targets NULL: it has a label. */
struct row {
    float *sample, *targets;
    int32_t *label;
};

/* The end of the line at p, its line break not included. */
static const char *line_end(const struct csv *c, const char *p)
{
    const char *end = memchr(p, '\n', (size_t)(c->end - p));
    end = end ? end : c->end;
    return end > p && end[-1] == '\r' ? end - 1 : end;
}

static const char *next_line(const struct csv *c, const char *p)
{
    const char *end = memchr(p, '\n', (size_t)(c->end - p));
    return end ? end + 1 : c->end;
}

/* The field at *p, blanks and one pair of quotes around it taken off; *p: behind what ends it. */
static const char *take_field(const struct csv *c, const char **p, const char *end, size_t *n)
{
    const char *from = *p, *to = memchr(from, c->between, (size_t)(end - from));
    to = to ? to : end;
    *p = to < end ? to + 1 : NULL;
    while (from < to && *from == ' ')
        from++;
    while (to > from && to[-1] == ' ')
        to--;
    if (to - from >= 2 && *from == '"' && to[-1] == '"') {
        from++;
        to--;
    }
    *n = (size_t)(to - from);
    return from;
}

static int read_number(const char *field, size_t n, double *out)
{
    char text[FIELD_BYTES], *rest;
    if (n == 0 || n >= sizeof text)
        return 0;
    int digits = n <= 9;
    double value = 0;
    for (size_t i = 0; i < n; i++) {
        if (!strchr("0123456789+-.eE", field[i]) || !field[i])
            return 0;
        digits &= field[i] >= '0' && field[i] <= '9';
        value = value * 10 + (field[i] - '0');
        text[i] = field[i];
    }
    text[n] = 0;
    if (!digits) {
        value = strtod(text, &rest);
        if (*rest)
            return 0;
    }
    *out = value;
    return isfinite((float)value);
}

static enum status mixed_line(const struct csv *c, int64_t column)
{
    const char *flag = c->targets ? "--target_columns" : "--label_column";
    const char *given = c->targets ? c->targets : c->wanted;
    if (given)
        LOG_E("%s: line 1: some fields are numbers, but column %lld is none; if the line names the "
              "columns, give one of its names in %s (%.100s is none), else mend the field",
              c->label, (long long)column + 1, flag, given);
    else
        LOG_E("%s: line 1: some fields are numbers, but column %lld is none; if the line names the "
              "columns, call the label's 'label' there, or name it with %s=NAME, else mend the "
              "field",
              c->label, (long long)column + 1, flag);
    return ST_CORRUPT;
}

static enum status no_column(const struct csv *c, const char *name, size_t n)
{
    LOG_E("%s: line 1: has no column '%.*s' among its %lld; name %s, by its name or its number, "
          "from 1 on",
          c->label, (int)(n < 60 ? n : 60), name, (long long)c->n_columns,
          c->targets ? "each of --target_columns" : "the label's with --label_column");
    return ST_NOT_FOUND;
}

/* The column that the first line calls so, which sets *named, or of that number. -1: there is none.
 */
static int64_t find_column(const struct csv *c, const char *name, size_t bytes, int *named)
{
    const char *end = line_end(c, c->at), *p = c->at;
    double number;
    size_t n;
    for (int64_t column = 0; p && column < c->n_columns; column++) {
        const char *field = take_field(c, &p, end, &n);
        if (n != bytes || memcmp(field, name, n) != 0 || read_number(field, n, &number))
            continue;
        *named = 1;
        return column;
    }
    if (!read_number(name, bytes, &number) || number < 1 || number > (double)c->n_columns ||
        number != floor(number))
        return -1;
    return (int64_t)number - 1;
}

/* n_columns are known. */
static enum status find_targets(struct csv *c, int *has_names)
{
    c->target_of = malloc((size_t)c->n_columns * sizeof *c->target_of);
    if (!c->target_of) {
        LOG_E("%s: no memory for its %lld columns", c->label, (long long)c->n_columns);
        return ST_NOMEM;
    }
    for (int64_t k = 0; k < c->n_columns; k++)
        c->target_of[k] = -1;
    for (const char *name = c->targets, *comma; name; name = comma ? comma + 1 : NULL) {
        comma = strchr(name, ',');
        size_t n = comma ? (size_t)(comma - name) : strlen(name);
        int64_t column = find_column(c, name, n, has_names);
        if (column < 0)
            return no_column(c, name, n);
        if (c->target_of[column] >= 0) {
            LOG_E("%s: --target_columns names column %lld twice", c->label, (long long)column + 1);
            return ST_INVALID;
        }
        c->target_of[column] = c->n_targets++;
    }
    if (c->n_targets < c->n_columns)
        return ST_OK;
    LOG_E("%s: --target_columns names all %lld columns; at least one must be left for the samples",
          c->label, (long long)c->n_columns);
    return ST_INVALID;
}

/* Counts the columns, and finds the label's; *has_names: the first line is no sample, which is so
 * if it names the label's column or has no number in it. Else a number mistyped in the first sample
 * would take that sample away. */
static enum status read_first_line(struct csv *c, int *has_names)
{
    const char *end = line_end(c, c->at), *p = c->at, *name = c->wanted ? c->wanted : "label";
    double number, wanted = -1;
    int is_number = read_number(name, strlen(name), &wanted);
    int64_t n_words = 0, first_word = 0;
    size_t n;
    c->between = ',';
    if (!memchr(p, ',', (size_t)(end - p)))
        c->between = memchr(p, ';', (size_t)(end - p)) ? ';' : '\t';
    c->label_column = -1;
    for (; p && c->n_columns <= DATA_CSV_MAX_COLUMNS; c->n_columns++) {
        const char *field = take_field(c, &p, end, &n);
        if (read_number(field, n, &number))
            continue;
        if (n_words++ == 0)
            first_word = c->n_columns;
        if (!c->targets && c->label_column < 0 && n == strlen(name) && memcmp(field, name, n) == 0)
            c->label_column = c->n_columns;
    }
    if (c->n_columns < 2 || c->n_columns > DATA_CSV_MAX_COLUMNS) {
        LOG_E("%s: line 1: has %s; a line must have a label and from 1 to %d features, with commas "
              "between them",
              c->label, c->n_columns < 2 ? "one column" : "too many columns",
              DATA_CSV_MAX_COLUMNS - 1);
        return ST_CORRUPT;
    }
    *has_names = c->label_column >= 0 || n_words == c->n_columns;
    if (c->targets) {
        enum status st = find_targets(c, has_names);
        return st == ST_OK && !*has_names && n_words > 0 ? mixed_line(c, first_word) : st;
    }
    if (!*has_names && n_words > 0)
        return mixed_line(c, first_word);
    if (c->label_column < 0 && c->wanted) {
        if (!is_number || wanted < 1 || wanted > (double)c->n_columns || wanted != floor(wanted))
            return no_column(c, c->wanted, strlen(c->wanted));
        c->label_column = (int64_t)wanted - 1;
    }
    if (c->label_column < 0)
        c->label_column = c->n_columns - 1;
    return ST_OK;
}

static enum status bad_field(const struct csv *c, int64_t column, const char *field, size_t n)
{
    char shown[32];
    size_t k = 0;
    for (; k < n && k < sizeof shown - 1; k++)
        shown[k] = field[k] >= ' ' && field[k] <= '~' ? field[k] : '?';
    shown[k] = 0;
    LOG_E("%s: line %lld, column %lld: '%s' is no %s", c->label, (long long)c->line,
          (long long)column + 1, shown,
          column == c->label_column ? "label, a whole number from 0 to 65535"
                                    : "finite number; mend it or leave the line out");
    return ST_CORRUPT;
}

static enum status read_row(const struct csv *c, struct row to)
{
    const char *end = line_end(c, c->at), *p = c->at;
    int64_t column = 0;
    double number;
    size_t n;
    for (; p && column < c->n_columns; column++) {
        const char *field = take_field(c, &p, end, &n);
        int is_label = column == c->label_column;
        if (!read_number(field, n, &number) ||
            (is_label && (number < 0 || number > 65535 || number != floor(number))))
            return bad_field(c, column, field, n);
        if (is_label)
            *to.label = (int32_t)number;
        else if (c->target_of && c->target_of[column] >= 0)
            to.targets[c->target_of[column]] = (float)number;
        else
            *to.sample++ = (float)number;
    }
    if (column == c->n_columns && !p)
        return ST_OK;
    LOG_E(
        "%s: line %lld: has %s columns than line 1, which has %lld; mend the line or leave it out",
        c->label, (long long)c->line, p ? "more" : "fewer", (long long)c->n_columns);
    return ST_CORRUPT;
}

static int is_blank(const struct csv *c)
{
    return line_end(c, c->at) == c->at;
}

/* All rows behind the names; *rows: of them. */
static enum status read_rows(struct csv *c, int has_names, struct row to, int64_t *rows)
{
    enum status st = ST_OK;
    int64_t n = 0, features = c->n_columns - (c->targets ? c->n_targets : 1);
    for (int skip = has_names; c->at < c->end; c->at = next_line(c, c->at), c->line++, skip = 0) {
        if (skip || is_blank(c))
            continue;
        const struct row row = {.sample = to.sample + n * features,
                                .targets = to.targets ? to.targets + n * c->n_targets : NULL,
                                .label = to.label ? to.label + n : NULL};
        TRY(read_row(c, row));
        n++; /* stays below what there is room for: a row that is whole has 2 bytes a column */
    }
    if (n == 0) {
        LOG_E("%s: has no samples, but names of columns alone; add a line for each sample",
              c->label);
        TRY(ST_CORRUPT);
    }
    *rows = n;
done:
    return st;
}

enum status data_csv_decode(const uint8_t *bytes, uint64_t n, const char *label,
                            const struct data_csv_columns *columns, struct data_array *samples,
                            struct data_array *labels)
{
    enum status st = ST_OK;
    struct csv c = {.at = (const char *)bytes,
                    .end = (const char *)bytes + n,
                    .label = label,
                    .wanted = columns->label,
                    .targets = columns->targets,
                    .line = 1};
    struct row to = {.sample = NULL};
    int has_names;
    int64_t rows;
    if (n >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0)
        c.at += 3; /* the mark of UTF-8 that some programs write */
    if (c.at == c.end) {
        LOG_E("%s: empty", label);
        TRY(ST_CORRUPT);
    }
    TRY(read_first_line(&c, &has_names));
    int64_t features = c.n_columns - (c.targets ? c.n_targets : 1);
    size_t most = (size_t)((n + 1) / (2 * (uint64_t)c.n_columns)) + 1;
    to.sample = malloc(most * (size_t)features * sizeof *to.sample);
    if (c.targets)
        to.targets = malloc(most * (size_t)c.n_targets * sizeof *to.targets);
    else
        to.label = malloc(most * sizeof *to.label);
    if (!to.sample || (!to.targets && !to.label)) {
        LOG_E("%s: no memory for up to %zu samples", label, most);
        TRY(ST_NOMEM);
    }
    TRY(read_rows(&c, has_names, to, &rows));
    *samples = (struct data_array){.type = DATA_F32,
                                   .n_dims = 2,
                                   .dim = {rows, features},
                                   .data = (uint8_t *)to.sample,
                                   .unpacked = to.sample};
    *labels = (struct data_array){.type = DATA_I32,
                                  .n_dims = 1,
                                  .dim = {rows},
                                  .data = (uint8_t *)to.label,
                                  .unpacked = to.label};
    if (c.targets)
        *labels = (struct data_array){.type = DATA_F32,
                                      .n_dims = 2,
                                      .dim = {rows, c.n_targets},
                                      .data = (uint8_t *)to.targets,
                                      .unpacked = to.targets};
    to = (struct row){.sample = NULL};
done:
    free(c.target_of);
    free(to.sample);
    free(to.targets);
    free(to.label);
    return st;
}
