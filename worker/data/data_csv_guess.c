/* worker/data/data_csv_guess.c - finds the columns of a CSV file that have only text. A column of
 * numbers never becomes one of keys, and a column with both is an error, so a mistyped number does
 * not change the meaning of its column. See data_csv_keys.h. */
#include "base/log.h"
#include "worker/data/data_csv_keys.h"
#include <stdlib.h>

static void see(struct csv_seen *s, const char *field, size_t n, int64_t line)
{
    double number;
    if (n == 0)
        return;
    bool is_number = data_csv_read_number(field, n, &number);
    int64_t *first = is_number ? &s->number_line : &s->text_line;
    if (*first > 0)
        return;
    *first = line;
    *(is_number ? &s->number : &s->text) = (struct data_csv_field){field, n};
}

static const char *see_line(struct csv_seen *seen, const struct csv *c, const char *at,
                            int64_t line)
{
    const char *end = data_csv_line_end(c, at), *p = at;
    for (int64_t k = 0; p && k < c->n_columns; k++) {
        size_t n;
        const char *field = data_csv_next_field(c, &p, end, &n);
        if (c->role[k] == DATA_CSV_FEATURE)
            see(&seen[k], field, n, line);
    }
    end = memchr(end, '\n', (size_t)(c->end - end));
    return end ? end + 1 : c->end;
}

/* Returns true if the field has digits, and otherwise only characters that numbers and dates in
 * other notations have. */
static bool looks_like_number(const struct data_csv_field *f)
{
    bool has_digit = false;
    for (size_t i = 0; i < f->n; i++) {
        if (!f->at[i] || !strchr("0123456789+-.,/:%$ eE", f->at[i]))
            return false;
        has_digit |= f->at[i] >= '0' && f->at[i] <= '9';
    }
    return has_digit;
}

void data_csv_keys_warn_guess(const struct csv *c)
{
    char text[DATA_CSV_COLUMN_BYTES], shown[DATA_CSV_SHOWN_BYTES];
    const struct csv_keys *keys = c->keys;
    for (int64_t k = 0; keys && keys->seen && k < c->n_columns; k++) {
        const struct csv_seen *s = &keys->seen[k];
        if (c->role[k] == DATA_CSV_KEY - keys->auto_input && looks_like_number(&s->text))
            LOG_W(
                "%s: column %s: '%s' (line %lld) looks like a number or a date in another notation, but each text of this column is a key; write numbers with a decimal point and without units, or name the column in --key_columns if these texts are keys",
                c->path, data_csv_report_column(c, k, text),
                data_csv_show(s->text.at, s->text.n, shown), (long long)s->text_line);
    }
}

enum status data_csv_keys_guess(struct csv *c)
{
    enum status st = ST_OK;
    struct csv_keys *keys = c->keys;
    if (!keys || keys->auto_input < 0)
        return ST_OK;
    keys->seen = calloc((size_t)c->n_columns, sizeof *keys->seen);
    if (!keys->seen) {
        LOG_E("%s: no memory for its %lld columns", c->path, (long long)c->n_columns);
        return ST_NOMEM;
    }
    const char *at = memchr(c->at, '\n', (size_t)(c->end - c->at));
    at = at ? at + 1 : c->end;
    for (int64_t line = 2; at < c->end; line++)
        at = see_line(keys->seen, c, at, line);
    for (int64_t k = 0; k < c->n_columns; k++) {
        const struct csv_seen *s = &keys->seen[k];
        if (c->role[k] == DATA_CSV_FEATURE && s->text_line > 0 && s->number_line == 0)
            TRY(data_csv_keys_add(c, keys->auto_input, k, false));
    }
done:
    return st;
}

static enum status mixed_column(const struct csv *c, int64_t column, const struct csv_seen *s)
{
    char text[DATA_CSV_COLUMN_BYTES], a[DATA_CSV_SHOWN_BYTES], b[DATA_CSV_SHOWN_BYTES];
    LOG_E(
        "%s: column %s has numbers (first in line %lld: '%s') and text (first in line %lld: '%s'): correct the wrong cells, or name the column in --key_columns if all its cells are keys",
        c->path, data_csv_report_column(c, column, text), (long long)s->number_line,
        data_csv_show(s->number.at, s->number.n, a), (long long)s->text_line,
        data_csv_show(s->text.at, s->text.n, b));
    return ST_CORRUPT;
}

/* Includes line 1 in what was seen, if it is a sample. */
static void see_line_1(const struct csv *c)
{
    const char *end = data_csv_line_end(c, c->line_1), *p = c->line_1;
    for (int64_t k = 0; p && k < c->n_columns; k++) {
        size_t n;
        const char *field = data_csv_next_field(c, &p, end, &n);
        if (c->role[k] == DATA_CSV_FEATURE || c->role[k] <= DATA_CSV_KEY)
            see(&c->keys->seen[k], field, n, 1);
    }
}

enum status data_csv_keys_check_guess(const struct csv *c)
{
    const struct csv_keys *keys = c->keys;
    if (!keys || keys->auto_input < 0)
        return ST_OK;
    const char *input = c->columns->keys[keys->auto_input].name;
    if (keys->seen && !c->has_names)
        see_line_1(c);
    for (int64_t k = 0; keys->seen && k < c->n_columns; k++)
        if (keys->seen[k].text_line > 0 && keys->seen[k].number_line > 0)
            return mixed_column(c, k, &keys->seen[k]);
    if (keys->list[keys->auto_input].n_columns > 0)
        return ST_OK;
    LOG_E(
        "%s: input '%s' of the model reads keys, but no column has only text; name its columns with --key_columns",
        c->path, input);
    return ST_CORRUPT;
}
