/* worker/data/data_csv.c - reads the rows of a CSV file into samples and labels. A field has at
 * least two bytes: its content and its separator (in an ignored column at least one byte). So the
 * file's length limits the memory, whatever the lines contain (invariant
 * I9). */
#include "base/log.h"
#include "worker/data/data_csv_impl.h"
#include "worker/data/data_csv_keys.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIELD_BYTES = 64,
    WRONG_BYTES = DATA_WORDS_TEXT_BYTES + 128,
    FIX_BYTES = 320,
    LABEL_BYTES = 160
};

/* Memory for a row's numbers; NULL: the row has no label, or no targets. */
struct row {
    float *sample, *targets;
    int32_t *label;
};

const char *data_csv_line_end(const struct csv *c, const char *p)
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

const char *data_csv_next_field(const struct csv *c, const char **p, const char *end, size_t *n)
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

/* Reads a number of any magnitude; *out may be infinite. */
static bool read_any_number(const char *field, size_t n, double *out)
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
    return 1;
}

bool data_csv_read_number(const char *field, size_t n, double *out)
{
    double value;
    if (!read_any_number(field, n, &value) || !isfinite((float)value))
        return false;
    *out = value;
    return true;
}

const char *data_csv_show(const char *field, size_t n, char dst[DATA_CSV_SHOWN_BYTES])
{
    size_t k = 0;
    for (; k < n && k < DATA_CSV_SHOWN_BYTES - 1; k++)
        dst[k] = field[k] >= ' ' && field[k] <= '~' ? field[k] : '?';
    dst[k] = 0;
    return dst;
}

/* Logs what is wrong with a field of the current line, and the fix. */
static void log_field(const struct csv *c, int64_t column, const char *wrong, const char *fix)
{
    char text[DATA_CSV_COLUMN_BYTES], place[DATA_CSV_PLACE_BYTES] = "";
    if (c->role[column] == DATA_CSV_LABEL || c->line == 1)
        data_csv_layout_label_place(c, place);
    LOG_E("%s: line %lld, column %s: %s; %s%s", c->path, (long long)c->line,
          data_csv_report_column(c, column, text), wrong, fix, place);
}

static enum status bad_label(const struct csv *c, int64_t column, const char *shown)
{
    char wrong[WRONG_BYTES], fix[FIX_BYTES] = "fix it or remove the line";
    snprintf(wrong, sizeof wrong, "'%s' is not a label, which is %s", shown,
             c->are_words ? "a word of 1 to 255 bytes without control characters"
                          : "a whole number from 0 to 65535");
    if (c->label_by_default)
        snprintf(
            fix, sizeof fix,
            "the last column%s is the label by default: name the label's column with --label_column%s",
            c->columns->ignored ? " that is not ignored" : "",
            c->are_words ? ", or fix the line" : ", or numbers to fit with --target_columns");
    else if (!c->are_words)
        snprintf(
            fix, sizeof fix,
            "fix it or remove the line, or name numbers to fit with --target_columns instead of a label");
    log_field(c, column, wrong, fix);
    return ST_CORRUPT;
}

/* Returns true if no flag chose the label's column and the current line is the first row: a word in
 * another column may then be the intended label. */
static bool may_be_label(const struct csv *c, size_t n)
{
    return c->label_by_default && n > 0 && c->line == 1 + c->has_names;
}

static enum status bad_number(const struct csv *c, int64_t column, const char *field, size_t n)
{
    char shown[DATA_CSV_SHOWN_BYTES], wrong[WRONG_BYTES], fix[FIX_BYTES], label[LABEL_BYTES] = "";
    double number;
    bool is_large = read_any_number(field, n, &number);
    const char *first = is_large ? "scale the column" : "fix it";
    snprintf(wrong, sizeof wrong, "'%s' is %s", data_csv_show(field, n, shown),
             is_large ? DATA_BEYOND_FLOAT : "no finite number");
    snprintf(fix, sizeof fix, "%s or remove the line", first);
    if (!is_large && may_be_label(c, n))
        snprintf(
            label, sizeof label,
            "name the column with --label_column=%lld if it is the label (default: the last column), otherwise ",
            (long long)column + 1);
    if (c->role[column] == DATA_CSV_FEATURE && !data_csv_has_model(c))
        snprintf(fix, sizeof fix,
                 "%s%s, remove the line, or exclude the column by --ignore_columns=%lld", label,
                 first, (long long)column + 1);
    log_field(c, column, wrong, fix);
    return ST_CORRUPT;
}

static enum status bad_field(const struct csv *c, int64_t column, const char *field, size_t n)
{
    char shown[DATA_CSV_SHOWN_BYTES];
    if (c->role[column] != DATA_CSV_LABEL)
        return bad_number(c, column, field, n);
    return bad_label(c, column, data_csv_show(field, n, shown));
}

/* Refuses a label that is a word when the other labels are numbers, or the reverse: it may be
 * mistyped. */
static enum status mixed_labels(const struct csv *c, int64_t column, const char *field, size_t n)
{
    char shown[DATA_CSV_SHOWN_BYTES], wrong[WRONG_BYTES], fix[FIX_BYTES];
    snprintf(wrong, sizeof wrong, "the label '%s' is a %s, but the label of line %lld is a %s",
             data_csv_show(field, n, shown), c->are_words ? "number" : "word",
             (long long)c->first_line, c->are_words ? "word" : "number");
    snprintf(
        fix, sizeof fix, "labels must be all whole numbers or all words%s",
        c->first_line == 1
            ? ": fix it, or, if line 1 names the columns, name the label's column in --label_column"
        : c->label_by_default
            ? ": fix it, or name the label's column (default: the last one) with --label_column"
            : "");
    log_field(c, column, wrong, fix);
    return ST_CORRUPT;
}

static enum status no_class(const struct csv *c, int64_t column, const char *field, size_t n)
{
    char shown[DATA_CSV_SHOWN_BYTES], classes[DATA_WORDS_TEXT_BYTES], wrong[WRONG_BYTES];
    data_csv_show(field, n, shown);
    if (*c->columns->classes) {
        snprintf(wrong, sizeof wrong,
                 "the label '%s' is not among the classes of the training set, %s", shown,
                 data_words_text(c->columns->classes, classes));
        log_field(c, column, wrong, "fix it or remove the line");
    } else {
        snprintf(
            wrong, sizeof wrong,
            "the label '%s' is a word without a known number: the training set's labels are numbers, or the evaluated file does not name its classes",
            shown);
        log_field(c, column, wrong, "replace each word by its number in training");
    }
    return ST_MISMATCH;
}

static enum status read_word(const struct csv *c, int64_t column, const char *field, size_t n,
                             int32_t *out)
{
    int good = n > 0 && n <= DATA_WORDS_MOST_BYTES;
    for (size_t i = 0; good && i < n; i++)
        good = (unsigned char)field[i] >= ' ' && field[i] != 0x7f;
    if (!good)
        return bad_field(c, column, field, n);
    enum status st = data_csv_text_check_word(c, column, field, n);
    if (st != ST_OK)
        return st;
    st = data_words_number(c->words, field, n, out);
    if (st == ST_OK && *out < 0)
        return no_class(c, column, field, n);
    if (st == ST_UNSUPPORTED)
        log_field(c, column, "more than 65536 words are labels",
                  "name the label's column with --label_column");
    else if (st != ST_OK)
        LOG_E("%s: no memory for the words that are its labels", c->path);
    return st;
}

/* Reads a label. The first label decides whether all labels must be words. */
static enum status read_label(struct csv *c, int64_t column, const char *field, size_t n,
                              int32_t *out)
{
    double number;
    int is_number = data_csv_read_number(field, n, &number);
    if (is_number && c->columns->classes && *c->columns->classes)
        return no_class(c, column, field, n);
    if (!c->labels_known) {
        c->labels_known = 1;
        c->are_words = !is_number && n > 0;
        c->first_line = c->line;
    }
    if (c->are_words ? is_number : !is_number && n > 0)
        return mixed_labels(c, column, field, n);
    if (c->are_words)
        return read_word(c, column, field, n, out);
    if (!is_number || number < 0 || number > 65535 || number != floor(number))
        return bad_field(c, column, field, n);
    *out = (int32_t)number;
    return ST_OK;
}

static enum status read_row(struct csv *c, struct row to)
{
    enum status st = ST_OK;
    const char *end = data_csv_line_end(c, c->at), *p = c->at;
    int64_t column = 0, feature = 0;
    double number;
    size_t n;
    for (; p && column < c->n_columns; column++) {
        const char *field = data_csv_next_field(c, &p, end, &n);
        int64_t role = c->role[column];
        if (role == DATA_CSV_IGNORED)
            continue;
        if (role == DATA_CSV_LABEL) {
            TRY(read_label(c, column, field, n, to.label));
            continue;
        }
        if (role <= DATA_CSV_KEY) {
            data_csv_keys_put(c, column, field, n);
            continue;
        }
        if (!data_csv_read_number(field, n, &number))
            return bad_field(c, column, field, n);
        if (role >= 0)
            to.targets[role] = (float)number;
        else
            to.sample[c->place ? c->place[column] : feature++] = (float)number;
    }
    if (column == c->n_columns && !p)
        return data_csv_keys_end_row(c);
    LOG_E("%s: line %lld: has %s columns than line 1, which has %lld; fix or remove the line",
          c->path, (long long)c->line, p ? "more" : "fewer", (long long)c->n_columns);
    st = ST_CORRUPT;
done:
    return st;
}

static bool is_blank(const struct csv *c)
{
    return data_csv_line_end(c, c->at) == c->at;
}

/* Reads all rows after the line of names; *rows: number of rows. */
static enum status read_rows(struct csv *c, struct row to, int64_t *rows)
{
    enum status st = ST_OK;
    int64_t n = 0;
    for (int skip = c->has_names; c->at < c->end;
         c->at = next_line(c, c->at), c->line++, skip = 0) {
        if (skip || is_blank(c))
            continue;
        const struct row row = {.sample = to.sample + n * c->n_features,
                                .targets = to.targets ? to.targets + n * c->n_targets : NULL,
                                .label = to.label ? to.label + n : NULL};
        TRY(read_row(c, row));
        n++; /* stays below the number of rows that allocate_rows has reserved */
    }
    if (n == 0) {
        LOG_E("%s: has names of columns, but no samples; add a line for each sample", c->path);
        TRY(ST_CORRUPT);
    }
    *rows = n;
done:
    return st;
}

/* Refuses a first sample if its label is a word that no other sample has: the line probably names
 * the columns, but its features look like numbers, and its word would become a class. */
static enum status check_first_word(const struct csv *c, const int32_t *labels, int64_t rows)
{
    int64_t same = 0;
    if (c->has_names || c->columns->classes)
        return ST_OK;
    for (int64_t i = 1; i < rows && !same; i++)
        same = labels[i] == labels[0];
    if (same || rows == 1)
        return ST_OK;
    LOG_E(
        "%s: line %lld: its label is a word that no other line has; if the line names the columns, name the label's column in --label_column, otherwise add a line of names before it",
        c->path, (long long)c->first_line);
    return ST_CORRUPT;
}

static enum status number_words(const struct csv *c, int32_t *labels, int64_t rows, char **out)
{
    enum status st = ST_OK;
    if (!c->are_words)
        return ST_OK;
    TRY(check_first_word(c, labels, rows));
    if (c->columns->classes)
        *out = strdup(c->columns->classes);
    else
        st = data_words_sort(c->words, labels, rows, out);
    if (st == ST_OK && *out && c->columns->warn && !c->columns->classes)
        st = data_csv_equal_warn_words(c, labels, rows);
    if (st != ST_OK || !*out) {
        LOG_E("%s: no memory for the words that are its labels", c->path);
        st = ST_NOMEM;
    }
done:
    return st;
}

/* Allocates memory for as many rows as n bytes can hold. */
static enum status allocate_rows(const struct csv *c, uint64_t n, struct row *out)
{
    uint64_t n_read = (uint64_t)(c->n_features + c->n_targets + c->has_label);
    size_t most = (size_t)((n + 1) / ((uint64_t)c->n_columns + n_read)) + 1;
    struct row to = {.sample = malloc((most * (size_t)c->n_features + 1) * sizeof *to.sample)};
    if (c->n_targets > 0)
        to.targets = malloc(most * (size_t)c->n_targets * sizeof *to.targets);
    if (c->has_label)
        to.label = malloc(most * sizeof *to.label);
    *out = to;
    if (to.sample && !to.targets == !c->n_targets && !to.label == !c->has_label)
        return ST_OK;
    LOG_E("%s: no memory for up to %zu samples", c->path, most);
    return ST_NOMEM;
}

static void put_arrays(const struct csv *c, const struct row *from, int64_t rows,
                       struct data_csv *out)
{
    out->samples = (struct data_array){.type = DATA_F32,
                                       .n_dims = 2,
                                       .dim = {rows, c->n_features},
                                       .data = (uint8_t *)from->sample,
                                       .unpacked = from->sample};
    if (from->targets)
        out->labels = (struct data_array){.type = DATA_F32,
                                          .n_dims = 2,
                                          .dim = {rows, c->n_targets},
                                          .data = (uint8_t *)from->targets,
                                          .unpacked = from->targets};
    else if (from->label)
        out->labels = (struct data_array){.type = DATA_I32,
                                          .n_dims = 1,
                                          .dim = {rows},
                                          .data = (uint8_t *)from->label,
                                          .unpacked = from->label};
}

static enum status create_words(struct csv *c)
{
    enum status st = data_words_create(c->columns->classes, &c->words);
    if (st == ST_UNSUPPORTED)
        LOG_E("%s: its training had more than 65536 words as classes", c->path);
    else if (st != ST_OK)
        LOG_E("%s: no memory for the words that are its labels", c->path);
    return st;
}

void data_csv_free(struct data_csv *csv)
{
    free(csv->samples.unpacked);
    free(csv->labels.unpacked);
    free(csv->classes);
    free(csv->label_names);
    free(csv->ignored_names);
    free(csv->columns);
    free(csv->roles);
    for (int i = 0; i < DATA_CSV_MAX_KEY_INPUTS; i++) {
        free(csv->keys[i].keys);
        free(csv->keys[i].first);
        free(csv->keys[i].columns);
    }
    *csv = (struct data_csv){.classes = NULL};
}

enum status data_csv_decode(const uint8_t *bytes, uint64_t n, const char *path,
                            const struct data_csv_columns *columns, struct data_csv *out)
{
    enum status st = ST_OK;
    struct csv c = {.at = (const char *)bytes,
                    .end = (const char *)bytes + n,
                    .path = path,
                    .columns = columns,
                    .line = 1};
    struct row to = {.sample = NULL};
    struct data_csv made = {.classes = NULL};
    int64_t rows = 0;
    if (n >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0)
        c.at += 3; /* UTF-8's byte order mark, which some programs write */
    if (c.at == c.end) {
        LOG_E("%s: empty", path);
        TRY(ST_CORRUPT);
    }
    TRY(data_csv_text_check(bytes, n, path));
    c.line_1 = c.at;
    TRY(data_csv_columns_read(&c));
    if (c.has_names)
        TRY(data_csv_text_check_names(&c));
    TRY(data_csv_columns_name(&c, &made));
    TRY(data_csv_columns_log_roles(&c, &made));
    TRY(data_csv_keys_begin(&c));
    TRY(create_words(&c));
    TRY(allocate_rows(&c, n, &to));
    TRY(read_rows(&c, to, &rows));
    TRY(number_words(&c, to.label, rows, &made.classes));
    TRY(data_csv_keys_finish(&c, &made));
    if (columns->describe)
        TRY(data_csv_report(&c, to.sample, rows, &made.scale));
    put_arrays(&c, &to, rows, &made);
    *out = made;
    made = (struct data_csv){.classes = NULL};
    to = (struct row){.sample = NULL};
done:
    data_csv_free(&made);
    free(c.names);
    data_csv_keys_destroy(c.keys);
    free(c.place);
    free(c.role);
    data_words_destroy(c.words);
    free(to.sample);
    free(to.targets);
    free(to.label);
    return st;
}
