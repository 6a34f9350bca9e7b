/* worker/data/data_csv_keys.c - makes keys of the cells of a CSV file. A key needs at least two
 * bytes of the file, its text and a separator, so the file's length limits the memory (invariant
 * I9). See data_csv_keys.h. */
#include "worker/data/data_csv_keys.h"
#include "base/log.h"
#include "base/rng.h"
#include <stdio.h>
#include <stdlib.h>

static enum status no_memory(const struct csv *c)
{
    LOG_E("%s: no memory for the keys of its columns", c->path);
    return ST_NOMEM;
}

/* Makes room for one more element in a list that doubles. */
static bool grow(void **list, size_t n, size_t *most, size_t bytes)
{
    if (n < *most)
        return true;
    size_t more = *most ? *most * 2 : 64;
    void *made = realloc(*list, more * bytes);
    if (!made)
        return false;
    *list = made;
    *most = more;
    return true;
}

enum status data_csv_keys_add(struct csv *c, int input, int64_t column, bool by_number)
{
    struct csv_keys *k = c->keys;
    void *list = k->column;
    if (k->list[input].n_columns == DATA_CSV_MAX_KEY_COLUMNS) {
        LOG_E("%s: input '%s' has more than %d columns of keys", c->path,
              c->columns->keys[input].name, DATA_CSV_MAX_KEY_COLUMNS);
        return ST_UNSUPPORTED;
    }
    if (!grow(&list, k->n_columns, &k->most_columns, sizeof *k->column))
        return no_memory(c);
    k->column = list;
    k->column[k->n_columns++] =
        (struct csv_key_column){.column = column, .input = input, .by_number = by_number};
    k->list[input].n_columns++;
    c->role[column] = DATA_CSV_KEY - input;
    c->n_features--;
    return ST_OK;
}

static enum status no_column(const struct csv *c, const struct data_csv_key_input *in,
                             const char *name, size_t n)
{
    char line[DATA_CSV_PLACE_BYTES];
    if (in->is_resolved)
        LOG_E(
            "%s: line 1: has no column '%.*s', which has keys of input '%s' in the training file; name the columns in line 1 as in training",
            c->path, (int)(n < 60 ? n : 60), name, in->name);
    else
        LOG_E(
            "%s: line 1: has no column '%.*s' among its %lld columns (%s); %s must list names of columns, or their numbers counted from 1",
            c->path, (int)(n < 60 ? n : 60), name, (long long)c->n_columns,
            data_csv_report_line_1(c, line), in->listed_by);
    return ST_NOT_FOUND;
}

/* Adds the column that an input lists by this name or number. */
static enum status add_listed(struct csv *c, int input, const char *name, size_t n)
{
    const struct data_csv_key_input *in = &c->columns->keys[input];
    int64_t column, second;
    enum status st = data_csv_columns_find(c, name, n, &column);
    if (st != ST_OK)
        return st;
    if (column < 0)
        return no_column(c, in, name, n);
    bool by_number = in->is_resolved && data_csv_index_find(c->names, name, n, &second) != column;
    if (c->role[column] == DATA_CSV_FEATURE)
        return data_csv_keys_add(c, input, column, by_number);
    LOG_E("%s: column %lld is named in %s and in %s; name it in one of them", c->path,
          (long long)column + 1, in->listed_by,
          c->role[column] == DATA_CSV_IGNORED ? "--ignore_columns" : "another entry of keys");
    return ST_INVALID;
}

static enum status two_guesses(const struct csv *c, int input)
{
    LOG_E(
        "%s: inputs '%s' and '%s' of the model list no columns of keys, but only one input can have all columns of text; list the columns of all but one in the model",
        c->path, c->columns->keys[c->keys->auto_input].name, c->columns->keys[input].name);
    return ST_INVALID;
}

enum status data_csv_keys_create(struct csv *c)
{
    enum status st = ST_OK;
    if (c->columns->n_keys == 0)
        return ST_OK;
    if (c->columns->key_separator == c->between && c->n_columns > 1) {
        LOG_E("%s: --key_separator is also the separator of its columns; choose another character",
              c->path);
        return ST_INVALID;
    }
    c->keys = calloc(1, sizeof *c->keys);
    if (!c->keys)
        return no_memory(c);
    c->keys->auto_input = -1;
    for (int i = 0; i < c->columns->n_keys; i++) {
        const char *name = c->columns->keys[i].columns;
        if (!name && c->keys->auto_input >= 0)
            return two_guesses(c, i);
        if (!name)
            c->keys->auto_input = i;
        for (const char *comma; name; name = comma ? comma + 1 : NULL) {
            comma = strchr(name, ',');
            TRY(add_listed(c, i, name, comma ? (size_t)(comma - name) : strlen(name)));
        }
    }
done:
    return st;
}

/* Sorts by input; the columns of an input keep their order. */
static enum status sort_columns(struct csv *c)
{
    struct csv_keys *k = c->keys;
    struct csv_key_column *to = malloc((k->n_columns + 1) * sizeof *to);
    size_t n = 0;
    k->slot = calloc((size_t)c->n_columns, sizeof *k->slot);
    if (!to || !k->slot) {
        free(to);
        return no_memory(c);
    }
    for (int i = 0; i < c->columns->n_keys; i++)
        for (size_t j = 0; j < k->n_columns; j++)
            if (k->column[j].input == i)
                to[n++] = k->column[j];
    free(k->column);
    k->column = to;
    for (size_t j = 0; j < n; j++)
        k->slot[to[j].column] = (int32_t)j;
    return ST_OK;
}

static void log_column(const struct csv *c, const struct csv_key_column *k)
{
    char text[DATA_CSV_COLUMN_BYTES], shown[DATA_CSV_SHOWN_BYTES];
    const struct data_csv_key_input *in = &c->columns->keys[k->input];
    data_csv_report_column(c, k->column, text);
    if (in->columns) {
        LOG_I("%s: column %s is keys of input '%s': %s lists it", c->path, text, in->name,
              in->listed_by);
        return;
    }
    const struct csv_seen *s = &c->keys->seen[k->column];
    LOG_I("%s: column %s is keys of input '%s': no cell is a number (line %lld: '%s')", c->path,
          text, in->name, (long long)s->text_line, data_csv_show(s->text.at, s->text.n, shown));
}

/* Logs that the columns were not listed. A column of numbers may have keys, too. */
static void log_guess(const struct csv *c)
{
    int input = c->keys->auto_input;
    if (input < 0)
        return;
    int n = c->keys->list[input].n_columns;
    LOG_I(
        "%s: --key_columns is not set: input '%s' reads the %d column%s without numbers; if columns of numbers, such as ids, are keys, list all columns of keys in --key_columns",
        c->path, c->columns->keys[input].name, n, n == 1 ? "" : "s");
}

/* Refuses a column of keys that later files could not find by its name. */
static enum status check_name(const struct csv *c, const struct csv_key_column *k)
{
    int64_t second;
    double number;
    char column[DATA_CSV_COLUMN_BYTES];
    if (k->by_number ||
        (k->name.n > 0 && !memchr(k->name.at, ',', k->name.n) &&
         !data_csv_read_number(k->name.at, k->name.n, &number) &&
         data_csv_index_find(c->names, k->name.at, k->name.n, &second) >= 0 && second < 0))
        return ST_OK;
    LOG_E(
        "%s: line 1: column %s has keys of input '%s', so it needs a name that no other column has, and that is neither a number nor contains a comma; rename the column%s",
        c->path, data_csv_report_column(c, k->column, column), c->columns->keys[k->input].name,
        c->columns->keys[k->input].columns ? "" : ", or exclude it by --ignore_columns");
    return ST_INVALID;
}

/* Refuses a column of numbers that the model would not read. */
static enum status check_features(const struct csv *c)
{
    int64_t column = 0;
    char text[DATA_CSV_COLUMN_BYTES];
    if (!c->columns->no_features || c->n_features == 0)
        return ST_OK;
    while (c->role[column] != DATA_CSV_FEATURE)
        column++;
    LOG_E(
        "%s: no input of the model reads column %s, because the model has no input of type dense; exclude the column by --ignore_columns=%lld, name it in --key_columns, or add such an input to the model",
        c->path, data_csv_report_column(c, column, text), (long long)column + 1);
    return ST_INVALID;
}

enum status data_csv_keys_begin(struct csv *c)
{
    enum status st = ST_OK;
    if (!c->keys)
        return ST_OK;
    TRY(data_csv_keys_check_guess(c));
    TRY(check_features(c));
    TRY(sort_columns(c));
    const char *end = data_csv_line_end(c, c->line_1), *p = c->line_1;
    for (int64_t k = 0; c->has_names && p && k < c->n_columns; k++) {
        struct data_csv_field name;
        name.at = data_csv_next_field(c, &p, end, &name.n);
        if (c->role[k] <= DATA_CSV_KEY)
            c->keys->column[c->keys->slot[k]].name = name;
    }
    for (size_t j = 0; j < c->keys->n_columns; j++) {
        c->keys->column[j].by_number |= !c->has_names;
        TRY(check_name(c, &c->keys->column[j]));
    }
    for (size_t j = 0; c->columns->describe && j < c->keys->n_columns; j++)
        log_column(c, &c->keys->column[j]);
    if (c->columns->describe)
        log_guess(c);
    if (c->columns->warn)
        data_csv_keys_warn_guess(c);
    if (c->columns->describe && c->columns->warn)
        data_csv_keys_log_separators(c);
done:
    return st;
}

void data_csv_keys_put(struct csv *c, int64_t column, const char *field, size_t n)
{
    c->keys->column[c->keys->slot[column]].cell = (struct data_csv_field){field, n};
}

/* Refuses a text that is not UTF-8, because another file may have it in another encoding, and a
 * part of a cell with a separator within quotes. */
static enum status check_text(const struct csv *c, const struct csv_key_column *k, const char *text,
                              size_t n)
{
    char column[DATA_CSV_COLUMN_BYTES], shown[DATA_CSV_SHOWN_BYTES];
    enum status st = data_csv_text_check_word(c, k->column, text, n);
    if (st != ST_OK || (text[0] == '"') == (text[n - 1] == '"'))
        return st;
    LOG_E(
        "%s: line %lld, column %s: '%s' has a quote at one end only: separators within quotes are not supported; write the file with another separator",
        c->path, (long long)c->line, data_csv_report_column(c, k->column, column),
        data_csv_show(text, n, shown));
    return ST_CORRUPT;
}

/* Computes the key of a text in this column. n: at least 1. */
static enum status hash_text(struct csv *c, const struct csv_key_column *k, const char *text,
                             size_t n, uint64_t *out)
{
    struct csv_keys *keys = c->keys;
    size_t name = k->name.n, need = name + n + 32;
    enum status st = check_text(c, k, text, n);
    if (st != ST_OK)
        return st;
    if (need > keys->text_bytes) {
        char *made = realloc(keys->text, need * 2);
        if (!made)
            return no_memory(c);
        keys->text = made;
        keys->text_bytes = need * 2;
    }
    if (k->by_number)
        name = (size_t)sprintf(keys->text, "%lld", (long long)k->column + 1);
    else
        memcpy(keys->text, k->name.at, name);
    keys->text[name++] = '=';
    memcpy(keys->text + name, text, n);
    *out = rng_text(keys->text, name + n);
    return ST_OK;
}

/* Reads a whole number from -2^63 to 2^64 - 1. */
static bool read_whole(const char *text, size_t n, uint64_t *out)
{
    bool negative = n > 0 && *text == '-';
    uint64_t value = 0, most = negative ? (uint64_t)1 << 63 : UINT64_MAX;
    for (size_t i = negative; i < n; i++) {
        uint64_t digit = (uint64_t)(unsigned char)text[i] - '0';
        if (digit > 9 || value > (most - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = negative ? 0 - value : value;
    return n > (size_t)negative;
}

static enum status no_number(const struct csv *c, const struct csv_key_column *k, const char *text,
                             size_t n)
{
    char column[DATA_CSV_COLUMN_BYTES], shown[DATA_CSV_SHOWN_BYTES];
    LOG_E(
        "%s: line %lld, column %s: '%s' is not a whole number from -2^63 to 2^64 - 1, as input '%s' needs; fix it, or let the input use text as keys",
        c->path, (long long)c->line, data_csv_report_column(c, k->column, column),
        data_csv_show(text, n, shown), c->columns->keys[k->input].name);
    return ST_CORRUPT;
}

static enum status add_key(struct csv *c, struct csv_key_column *k, const char *text, size_t n)
{
    struct csv_key_list *list = &c->keys->list[k->input];
    void *keys = list->keys;
    uint64_t key = 0;
    enum status st = ST_OK;
    if (!c->columns->keys[k->input].are_numbers)
        st = hash_text(c, k, text, n, &key);
    else if (!read_whole(text, n, &key))
        st = no_number(c, k, text, n);
    if (st != ST_OK)
        return st;
    if (!c->columns->keys[k->input].are_numbers && data_csv_equal_is_missing(text, n) &&
        k->n_missing++ == 0) {
        k->missing_line = c->line;
        k->missing = (struct data_csv_field){text, n};
    }
    if (list->n_keys >= UINT32_MAX || !grow(&keys, list->n_keys, &list->most_keys, sizeof key))
        return no_memory(c);
    list->keys = keys;
    list->keys[list->n_keys++] = key;
    return ST_OK;
}

/* Logs that a cell or the row has too many keys. */
static enum status too_many(const struct csv *c, const struct csv_key_column *k, const char *what,
                            int most)
{
    char column[DATA_CSV_COLUMN_BYTES];
    LOG_E("%s: line %lld, column %s: %s more than %d keys of input '%s'; shorten the line", c->path,
          (long long)c->line, data_csv_report_column(c, k->column, column), what, most,
          c->columns->keys[k->input].name);
    return ST_UNSUPPORTED;
}

/* Adds the keys of a cell, without the blanks around each. */
static enum status add_cell(struct csv *c, struct csv_key_column *k)
{
    enum status st = ST_OK;
    char between = c->columns->key_separator;
    size_t had = c->keys->list[k->input].n_keys;
    const char *p = k->cell.at, *end = p + k->cell.n;
    while (p && p < end && st == ST_OK) {
        const char *to = between ? memchr(p, between, (size_t)(end - p)) : NULL;
        const char *next = to ? to + 1 : end;
        for (to = to ? to : end; p < to && *p == ' ';)
            p++;
        while (to > p && to[-1] == ' ')
            to--;
        if (to > p && c->keys->list[k->input].n_keys - had == DATA_CSV_MAX_CELL_KEYS)
            return too_many(c, k, "the cell has", DATA_CSV_MAX_CELL_KEYS);
        if (to > p)
            st = add_key(c, k, p, (size_t)(to - p));
        p = next;
    }
    return st;
}

enum status data_csv_keys_end_row(struct csv *c)
{
    enum status st = ST_OK;
    struct csv_keys *keys = c->keys;
    size_t had = 0;
    for (size_t j = 0; keys && j < keys->n_columns; j++) {
        struct csv_key_column *k = &keys->column[j];
        struct csv_key_list *list = &keys->list[k->input];
        void *first = list->first;
        if (j == 0 || k[-1].input != k->input)
            had = list->n_keys;
        if (!grow(&first, list->n_cells + 1, &list->most_cells, sizeof *list->first))
            return no_memory(c);
        list->first = first;
        list->first[list->n_cells++] = (uint32_t)list->n_keys;
        TRY(add_cell(c, k));
        if (list->n_keys - had > DATA_CSV_MAX_KEYS)
            return too_many(c, k, "the line has", DATA_CSV_MAX_KEYS);
        list->is_ragged |= list->n_keys - list->first[list->n_cells - 1] != 1;
        list->first[list->n_cells] = (uint32_t)list->n_keys;
    }
done:
    return st;
}

static void warn_of_missing(const struct csv *c, const struct csv_key_column *k)
{
    char column[DATA_CSV_COLUMN_BYTES], shown[DATA_CSV_SHOWN_BYTES];
    LOG_W(
        "%s: column %s: '%s' (first in line %lld) is a key of its own, but often stands for a missing value, as do %lld key%s of this column; empty these cells unless the text is a key",
        c->path, data_csv_report_column(c, k->column, column),
        data_csv_show(k->missing.at, k->missing.n, shown), (long long)k->missing_line,
        (long long)k->n_missing, k->n_missing == 1 ? "" : "s");
}

/* Lists the columns of an input, for data_csv_key_input. */
static enum status list_columns(const struct csv *c, int input, char **out)
{
    size_t bytes = 1, n = 0;
    for (size_t j = 0; j < c->keys->n_columns; j++)
        bytes += c->keys->column[j].name.n + 24;
    char *list = malloc(bytes);
    if (!list)
        return no_memory(c);
    for (size_t j = 0; j < c->keys->n_columns; j++) {
        const struct csv_key_column *k = &c->keys->column[j];
        if (k->input != input)
            continue;
        if (n > 0)
            list[n++] = ',';
        if (k->by_number) {
            n += (size_t)sprintf(list + n, "%lld", (long long)k->column + 1);
        } else {
            memcpy(list + n, k->name.at, k->name.n);
            n += k->name.n;
        }
    }
    list[n] = 0;
    *out = list;
    return ST_OK;
}

enum status data_csv_keys_finish(struct csv *c, struct data_csv *out)
{
    enum status st = ST_OK;
    struct csv_keys *keys = c->keys;
    if (!keys)
        return ST_OK;
    for (size_t j = 0; c->columns->warn && j < keys->n_columns; j++)
        if (keys->column[j].n_missing > 0)
            warn_of_missing(c, &keys->column[j]);
    for (int i = 0; i < c->columns->n_keys; i++) {
        TRY(list_columns(c, i, &out->keys[i].columns));
        struct csv_key_list *list = &keys->list[i];
        struct data_csv_keys *to = &out->keys[i];
        to->n_columns = list->n_columns;
        to->keys = list->keys;
        to->first = list->is_ragged ? list->first : NULL;
        if (!list->is_ragged)
            free(list->first);
        list->keys = NULL;
        list->first = NULL;
    }
done:
    return st;
}

void data_csv_keys_destroy(struct csv_keys *k)
{
    if (!k)
        return;
    for (int i = 0; i < DATA_CSV_MAX_KEY_INPUTS; i++) {
        free(k->list[i].keys);
        free(k->list[i].first);
    }
    free(k->column);
    free(k->slot);
    free(k->seen);
    free(k->text);
    free(k);
}
