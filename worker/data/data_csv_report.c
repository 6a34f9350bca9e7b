/* worker/data/data_csv_report.c - logs the role of each column of a CSV file, and warns of features
 * that are rarely meant as features: row numbers, a column without a name, a column whose numbers
 * are a hundred times larger than all others. If no flag chose the label, its column is always
 * logged. See data_csv_impl.h. */
#include "base/log.h"
#include "worker/data/data_csv_impl.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LIST_BYTES = 400, MOST_WARNINGS = 5 };
enum { LEAST_ROWS = 10, LEAST_ROWS_WITH_GAPS = 50 };
#define MUCH_LARGER 100.0f
#define LARGEST_WHOLE 16777216.0f /* above it float32 cannot represent each whole number */

/* State of one feature over all rows. */
struct feature {
    int64_t column;   /* index of the column, from 0 */
    const char *name; /* n bytes of line 1; n 0: none */
    size_t n;
    float least, most;
    float previous;    /* value in the previous row */
    bool numbers_rows; /* each value is the value in the previous row plus 1 */
    /* rises: each value is above the value in the previous row; falls: each value is below it */
    bool rises, falls;
    bool are_whole; /* all values are whole numbers */
    /* no two rows have the same value, and few whole numbers between the values are missing */
    bool numbers_sample;
};

/* Copies a name, cut if it is long, but never inside a UTF-8 character. */
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

/* Copies the name of a column. Copies "" if the file has no names, or this name is empty. */
static const char *name_of(const struct csv *c, int64_t column, char dst[DATA_CSV_NAME_BYTES])
{
    const char *end = data_csv_line_end(c, c->line_1), *p = c->line_1, *field = "";
    size_t n = 0;
    for (int64_t i = 0; c->has_names && p && i <= column; i++)
        field = data_csv_next_field(c, &p, end, &n);
    return copy_name(field, n, dst);
}

const char *data_csv_report_column(const struct csv *c, int64_t column,
                                   char dst[DATA_CSV_COLUMN_BYTES])
{
    char name[DATA_CSV_NAME_BYTES];
    name_of(c, column, name);
    snprintf(dst, DATA_CSV_COLUMN_BYTES, "%lld%s%s%s", (long long)column + 1, *name ? " '" : "",
             name, *name ? "'" : "");
    return dst;
}

const char *data_csv_report_line_1(const struct csv *c, char dst[DATA_CSV_PLACE_BYTES])
{
    enum { MOST = 120 };
    size_t n = (size_t)(data_csv_line_end(c, c->line_1) - c->line_1), kept = n < MOST ? n : MOST;
    for (size_t i = 0; i < kept; i++)
        dst[i] = (unsigned char)c->line_1[i] < ' ' ? '?' : c->line_1[i];
    snprintf(dst + kept, DATA_CSV_PLACE_BYTES - kept, "%s", kept < n ? "..." : "");
    return dst;
}

/* Lists the columns of a role, separated by ", ". */
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
                              data_csv_report_column(c, k, text));
    }
}

static void log_columns(const struct csv *c, int64_t rows)
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

static bool warn_of_index(const struct csv *c, const struct feature *f)
{
    char text[DATA_CSV_COLUMN_BYTES], name[DATA_CSV_NAME_BYTES];
    copy_name(f->name, f->n, name);
    bool is_ordered = f->rises || f->falls, may_be_time = *name && !is_name_of_an_index(name);
    if (is_ordered ? may_be_time || !(f->numbers_rows || f->numbers_sample) : !f->numbers_sample)
        return false;
    long long number = (long long)f->column + 1;
    if (!f->numbers_rows)
        LOG_W(
            "%s: column %s has a different whole number in each row, from %g to %g, like an index; it is used as a feature: exclude it by --ignore_columns=%lld",
            c->path, data_csv_report_column(c, f->column, text), (double)f->least, (double)f->most,
            number);
    else
        LOG_W(
            "%s: column %lld %s%s%s and counts up by one from row to row, like an index; it is used as a feature: exclude it by --ignore_columns=%lld",
            c->path, number, *name ? "is called '" : "has no name", name, *name ? "'" : "", number);
    return true;
}

/* Warns of a feature that was probably not meant as one. Returns true if it warned. */
static bool warn_of_feature(const struct csv *c, const struct feature *f)
{
    if (warn_of_index(c, f))
        return true;
    if (!c->has_names || f->n > 0)
        return false;
    LOG_W(
        "%s: column %lld has no name in line 1 and is used as a feature; name it, or exclude it by --ignore_columns=%lld",
        c->path, (long long)f->column + 1, (long long)f->column + 1);
    return true;
}

static float largest_value(const struct feature *f)
{
    return fmaxf(fabsf(f->least), fabsf(f->most));
}

/* Finds a feature whose numbers are so large that, without normalisation, they outweigh all other
 * features. */
static void find_scale(const struct csv *c, const struct feature *f, struct data_csv_scale *out)
{
    int64_t top = 0;
    float second = 0;
    for (int64_t i = 1; i < c->n_features; i++)
        if (largest_value(&f[i]) > largest_value(&f[top]))
            top = i;
    for (int64_t i = 0; i < c->n_features; i++)
        second = i != top ? fmaxf(second, largest_value(&f[i])) : second;
    if (second == 0 || largest_value(&f[top]) <= MUCH_LARGER * second)
        return;
    *out = (struct data_csv_scale){f[top].column + 1, largest_value(&f[top]), second, ""};
    copy_name(f[top].name, f[top].n, out->name);
}

static void find_features(const struct csv *c, struct feature *f)
{
    const char *end = data_csv_line_end(c, c->line_1), *p = c->line_1;
    int64_t at = 0;
    for (int64_t k = 0; k < c->n_columns; k++) {
        size_t n = 0;
        const char *field = p ? data_csv_next_field(c, &p, end, &n) : "";
        if (c->role[k] == DATA_CSV_FEATURE)
            f[c->place ? c->place[k] : at++] = (struct feature){.column = k,
                                                                .name = field,
                                                                .n = c->has_names ? n : 0,
                                                                .least = INFINITY,
                                                                .most = -INFINITY,
                                                                .numbers_rows = true,
                                                                .rises = true,
                                                                .falls = true,
                                                                .are_whole = true};
    }
}

static void look_at_rows(const float *samples, int64_t rows, int64_t n, struct feature *f)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < n; k++) {
            float value = samples[i * n + k];
            f[k].least = fminf(f[k].least, value);
            f[k].most = fmaxf(f[k].most, value);
            f[k].are_whole &= value == floorf(value);
            f[k].numbers_rows &= rows > 2 && (i == 0 || value == f[k].previous + 1.0f);
            f[k].rises &= i == 0 || value > f[k].previous;
            f[k].falls &= i == 0 || value < f[k].previous;
            f[k].previous = value;
        }
}

/* Sets numbers_sample if the feature has each whole number of a range exactly once. If there are
 * many rows, half of the numbers are enough, because the rows may be a part of a larger table. If
 * there are few rows, the function sets nothing, because their values may be such numbers by
 * chance. seen: memory for 2 * rows. */
static void find_index(const float *samples, int64_t rows, int64_t n, int64_t k, struct feature *f,
                       uint8_t *seen)
{
    double range = (double)f->most - (double)f->least + 1;
    double most = rows >= LEAST_ROWS_WITH_GAPS ? 2 * (double)rows : (double)rows;
    if (!f->are_whole || rows < LEAST_ROWS || range < (double)rows || range > most ||
        largest_value(f) > LARGEST_WHOLE)
        return;
    memset(seen, 0, (size_t)range);
    for (int64_t i = 0; i < rows; i++) {
        uint8_t *place = &seen[(int64_t)(samples[i * n + k] - f->least)];
        if (*place)
            return;
        *place = 1;
    }
    f->numbers_sample = true;
}

enum status data_csv_report(const struct csv *c, const float *samples, int64_t rows,
                            struct data_csv_scale *scale)
{
    enum status st = ST_OK;
    int64_t n = c->n_features, warned = 0;
    struct feature *f = calloc((size_t)n + 1, sizeof *f);
    uint8_t *seen = malloc((size_t)rows * 2);
    if (!f || !seen) {
        LOG_E("%s: no memory for its %lld columns", c->path, (long long)n);
        st = ST_NOMEM;
        goto done;
    }
    find_features(c, f);
    look_at_rows(samples, rows, n, f);
    log_columns(c, rows);
    for (int64_t k = 0; c->columns->warn && k < n && warned < MOST_WARNINGS; k++) {
        find_index(samples, rows, n, k, &f[k], seen);
        warned += warn_of_feature(c, &f[k]);
    }
    if (c->columns->warn) {
        if (c->has_names)
            data_csv_equal_warn_names(c);
        find_scale(c, f, scale);
    }
done:
    free(f);
    free(seen);
    return st;
}
