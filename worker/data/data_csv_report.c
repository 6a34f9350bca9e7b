/* worker/data/data_csv_report.c - tells the user which columns of a CSV file became what, and warns
 * of features that a table rarely means as such: a column that numbers the rows, one without a
 * name, one whose numbers are a hundred times larger than all others. The defaults that decide
 * which column is learnt are never silent. See data_csv_impl.h. */
#include "base/log.h"
#include "worker/data/data_csv_impl.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LIST_BYTES = 400, MOST_WARNINGS = 5 };
#define MUCH_LARGER 100.0f

/* State of one feature over all rows. */
struct feature {
    int64_t column;   /* from 0 on */
    const char *name; /* n bytes of line 1; n 0: there is none */
    size_t n;
    float largest;     /* largest absolute value */
    float previous;    /* value in the row before */
    bool numbers_rows; /* each value is one more than that of the row before */
};

/* Copies a name, cut if it is long, but never within a letter of UTF-8. */
static const char *copy_name(const char *field, size_t n, char dst[DATA_CSV_NAME_BYTES])
{
    size_t k = n < DATA_CSV_NAME_BYTES ? n : DATA_CSV_NAME_BYTES - 1;
    while (k > 0 && k < n && ((unsigned char)field[k] & 0xc0) == 0x80)
        k--;
    for (size_t i = 0; i < k; i++)
        dst[i] = (unsigned char)field[i] < ' ' ? '?' : field[i];
    dst[k] = 0;
    return dst;
}

/* Copies the name of a column. "": the file has no names, or this one is empty. */
static const char *name_of(const struct csv *c, int64_t column, char dst[DATA_CSV_NAME_BYTES])
{
    const char *end = data_csv_line_end(c, c->line_1), *p = c->line_1, *field = "";
    size_t n = 0;
    for (int64_t i = 0; c->has_names && p && i <= column; i++)
        field = data_csv_take_field(c, &p, end, &n);
    return copy_name(field, n, dst);
}

const char *data_csv_column_text(const struct csv *c, int64_t column,
                                 char dst[DATA_CSV_COLUMN_BYTES])
{
    char name[DATA_CSV_NAME_BYTES];
    name_of(c, column, name);
    snprintf(dst, DATA_CSV_COLUMN_BYTES, "%lld%s%s%s", (long long)column + 1, *name ? " '" : "",
             name, *name ? "'" : "");
    return dst;
}

/* Lists the columns of a role, ", " between two of them. */
static void list_columns(const struct csv *c, int want_targets, int64_t role, char dst[LIST_BYTES])
{
    char text[DATA_CSV_COLUMN_BYTES];
    size_t n = 0;
    dst[0] = 0;
    for (int64_t k = 0; k < c->n_columns; k++) {
        if (want_targets ? c->role[k] < 0 : c->role[k] != role)
            continue;
        if (n > LIST_BYTES - 100) {
            snprintf(dst + n, LIST_BYTES - n, ", ...");
            return;
        }
        n += (size_t)snprintf(dst + n, LIST_BYTES - n, "%s%s", n ? ", " : "",
                              data_csv_column_text(c, k, text));
    }
}

static void say_columns(const struct csv *c, int64_t rows)
{
    char answer[LIST_BYTES], ignored[LIST_BYTES], label[LIST_BYTES + 80] = "no label";
    if (c->n_targets > 0) {
        list_columns(c, 1, 0, answer);
        snprintf(label, sizeof label, "%s: column %s", c->n_targets == 1 ? "target" : "targets",
                 answer);
    } else if (c->has_label) {
        list_columns(c, 0, DATA_CSV_LABEL, answer);
        snprintf(label, sizeof label, "label: column %s%s", answer,
                 c->label_by_default ? " (the last column; --label_column names another)" : "");
    }
    list_columns(c, 0, DATA_CSV_IGNORED, ignored);
    LOG_I("%s: %lld rows, %lld %s; %s; %s%s%s", c->path, (long long)rows, (long long)c->n_features,
          c->n_features == 1 ? "feature" : "features", label,
          c->has_names ? "line 1 names the columns" : "line 1 is a sample",
          *ignored ? "; ignored: column " : "", ignored);
}

static bool is_name_of_an_index(const char *name)
{
    static const char *const known[] = {"id",      "idx",      "index", "row", "row_id",    "rowid",
                                        "rowname", "rownames", "no",    "nr",  "unnamed: 0"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcasecmp(name, known[i]) == 0)
            return true;
    return false;
}

/* Warns of this feature, if there is a reason. */
static bool warn_of_name(const struct csv *c, const struct feature *f)
{
    char name[DATA_CSV_NAME_BYTES];
    copy_name(f->name, f->n, name);
    long long number = (long long)f->column + 1;
    if (f->numbers_rows && (!*name || is_name_of_an_index(name)))
        LOG_W(
            "%s: column %lld %s%s%s and counts up by one from row to row, as an index does; it is "
            "used as a feature: leave it out with --ignore_columns=%lld",
            c->path, number, *name ? "is called '" : "has no name", name, *name ? "'" : "", number);
    else if (c->has_names && !*name)
        LOG_W(
            "%s: column %lld has no name in line 1 and is used as a feature; name it, or leave it "
            "out with --ignore_columns=%lld",
            c->path, number, number);
    else
        return false;
    return true;
}

/* The largest feature drowns all others where nothing normalises them. */
static void warn_of_scale(const struct csv *c, const struct feature *f)
{
    int64_t top = 0;
    float second = 0;
    char name[DATA_CSV_NAME_BYTES];
    for (int64_t i = 1; i < c->n_features; i++)
        if (f[i].largest > f[top].largest)
            top = i;
    for (int64_t i = 0; i < c->n_features; i++)
        if (i != top && f[i].largest > second)
            second = f[i].largest;
    if (second == 0 || f[top].largest <= MUCH_LARGER * second)
        return;
    copy_name(f[top].name, f[top].n, name);
    LOG_W("%s: column %lld%s%s%s has numbers up to %g, all other features up to %g: it outweighs "
          "them; --standardize gives each column mean 0 and deviation 1, and --ignore_columns=%lld "
          "leaves this one out",
          c->path, (long long)f[top].column + 1, *name ? ", '" : "", name, *name ? "'," : "",
          (double)f[top].largest, (double)second, (long long)f[top].column + 1);
}

static void find_features(const struct csv *c, struct feature *f)
{
    const char *end = data_csv_line_end(c, c->line_1), *p = c->line_1;
    int64_t at = 0;
    for (int64_t k = 0; k < c->n_columns; k++) {
        size_t n = 0;
        const char *field = p ? data_csv_take_field(c, &p, end, &n) : "";
        if (c->role[k] == DATA_CSV_FEATURE)
            f[c->place ? c->place[k] : at++] = (struct feature){
                .column = k, .name = field, .n = c->has_names ? n : 0, .numbers_rows = true};
    }
}

static void look_at_rows(const float *samples, int64_t rows, int64_t n, struct feature *f)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < n; k++) {
            float value = samples[i * n + k];
            f[k].largest = fabsf(value) > f[k].largest ? fabsf(value) : f[k].largest;
            f[k].numbers_rows &= rows > 2 && (i == 0 || value == f[k].previous + 1.0f);
            f[k].previous = value;
        }
}

enum status data_csv_report(const struct csv *c, const float *samples, int64_t rows)
{
    int64_t n = c->n_features, warned = 0;
    struct feature *f = calloc((size_t)n, sizeof *f);
    if (!f) {
        LOG_E("%s: no memory for its %lld columns", c->path, (long long)n);
        return ST_NOMEM;
    }
    find_features(c, f);
    look_at_rows(samples, rows, n, f);
    say_columns(c, rows);
    for (int64_t k = 0; k < n && warned < MOST_WARNINGS; k++)
        warned += warn_of_name(c, &f[k]);
    if (!c->columns->rescaled)
        warn_of_scale(c, f);
    free(f);
    return ST_OK;
}
