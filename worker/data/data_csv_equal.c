/* worker/data/data_csv_equal.c - warns of names and classes of a CSV file that are probably
 * mistakes: several columns with the same name, words that stand for a missing label, words that
 * differ only in case or surrounding spaces. See data_csv_impl.h. */
#include "base/log.h"
#include "worker/data/data_csv_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { MORE_BYTES = 80, MOST_WARNINGS = 5 };

/* Writes a text such as "columns 1 and 3 have the same name, 'len',". */
static const char *equal_text(const struct data_csv_equal *e, char dst[2 * DATA_CSV_COLUMN_BYTES])
{
    char between[40] = " and";
    int n = e->name.n < 60 ? (int)e->name.n : 60;
    if (e->n > 2)
        snprintf(between, sizeof between, ",");
    int at = snprintf(dst, 2 * DATA_CSV_COLUMN_BYTES, "columns %lld%s %lld",
                      (long long)e->column[0] + 1, between, (long long)e->column[1] + 1);
    if (e->n > 2)
        at += snprintf(dst + at, 40, " and %lld more", (long long)e->n - 2);
    snprintf(dst + at, 90, n ? " have the same name, '%.*s'," : " have no name%.*s", n, e->name.at);
    return dst;
}

static const char *more_text(int64_t names, char dst[MORE_BYTES])
{
    dst[0] = 0;
    if (names > 0)
        snprintf(dst, MORE_BYTES, "; %lld more name%s several columns", (long long)names,
                 names == 1 ? " belongs to" : "s belong to");
    return dst;
}

static const char *role_text(const struct csv *c, int64_t column)
{
    int64_t role = c->role[column];
    return role == DATA_CSV_FEATURE ? "a feature"
           : role == DATA_CSV_LABEL ? "the label"
           : role <= DATA_CSV_KEY   ? "keys"
                                    : "a target";
}

static void warn_of_equal(const struct csv *c, const struct data_csv_equal *e, const char *more)
{
    char text[2 * DATA_CSV_COLUMN_BYTES], fix[64] = "";
    if (e->feature >= 0)
        snprintf(fix, sizeof fix, ", or exclude one by --ignore_columns=%lld",
                 (long long)e->feature + 1);
    if (c->place && e->n == 1)
        LOG_W(
            "%s: line 1: has 1 column '%.*s', but the training file had %lld of this name; it is used as %s%s",
            c->path, (int)(e->name.n < 60 ? e->name.n : 60), e->name.at, (long long)e->n_trained,
            role_text(c, e->column[0]), more);
    else if (c->place)
        LOG_W(
            "%s: line 1: %s and are matched by their order, which must be that of the training file%s",
            c->path, equal_text(e, text), more);
    else
        LOG_W("%s: line 1: %s so --evaluate and --predict cannot distinguish them; rename them%s%s",
              c->path, equal_text(e, text), fix, more);
}

void data_csv_equal_warn_names(const struct csv *c)
{
    struct data_csv_equal first, next;
    char more[MORE_BYTES];
    int64_t at = 0, n = 0;
    if (!data_csv_index_next_equal(c->names, c, &at, &first))
        return;
    while (data_csv_index_next_equal(c->names, c, &at, &next))
        n++;
    warn_of_equal(c, &first, more_text(n, more));
}

/* One class of the labels. */
struct class
{
    const char *at; /* n bytes, without surrounding spaces */
    size_t n;
    int64_t number;
    int64_t rows;
};

static int compare_classes(const void *a, const void *b)
{
    const struct class *x = a, *y = b;
    int order = strncasecmp(x->at, y->at, x->n < y->n ? x->n : y->n);
    order = order ? order : (x->n > y->n) - (x->n < y->n);
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

bool data_csv_equal_is_missing(const char *at, size_t n)
{
    static const char *const known[] = {"nan", "na",      "n/a", "#n/a", "<na>", "null",
                                        "nil", "missing", "?",   "-",    "--",   "."};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i]) == n && strncasecmp(known[i], at, n) == 0)
            return true;
    return n == 0 || (n == 4 && memcmp(at, "None", 4) == 0);
}

/* Writes a text such as "'Cat' (first in line 2, 20 rows)". */
static const char *class_text(const struct csv *c, const struct class *k,
                              char dst[2 * DATA_CSV_COLUMN_BYTES])
{
    size_t n;
    long long line = 1;
    const char *word = data_words_at(c->words, k->number, &n);
    for (const char *p = c->line_1; (p = memchr(p, '\n', (size_t)(word - p))); p++)
        line++;
    snprintf(dst, 2 * DATA_CSV_COLUMN_BYTES, "'%.*s' (first in line %lld, %lld row%s)",
             (int)(n < 60 ? n : 60), word, line, (long long)k->rows, k->rows == 1 ? "" : "s");
    return dst;
}

static void warn_of_classes(const struct csv *c, const struct class *class, int64_t n)
{
    char a[2 * DATA_CSV_COLUMN_BYTES], b[2 * DATA_CSV_COLUMN_BYTES];
    for (int64_t i = 0, warned = 0; i < n && warned < MOST_WARNINGS; i++) {
        const struct class *k = &class[i];
        if (data_csv_equal_is_missing(k->at, k->n)) {
            LOG_W(
                "%s: the label %s is a class of its own, but often stands for a missing label; remove these lines unless it is a class",
                c->path, class_text(c, k, a));
            warned++;
        } else if (i > 0 && k->n == k[-1].n && strncasecmp(k->at, k[-1].at, k->n) == 0) {
            LOG_W(
                "%s: the labels %s and %s are two classes, but differ only in case or in spaces around them; write them in the same way if they are one class",
                c->path, class_text(c, &k[-1], a), class_text(c, k, b));
            warned++;
        }
    }
}

enum status data_csv_equal_warn_words(const struct csv *c, const int32_t *numbers, int64_t rows)
{
    int64_t n = 0;
    size_t bytes;
    while (data_words_at(c->words, n, &bytes))
        n++;
    struct class *class = calloc((size_t)n, sizeof *class);
    if (!class)
        return ST_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        struct class *k = &class[i];
        k->at = data_words_at(c->words, i, &k->n);
        k->number = i;
        for (; k->n > 0 && *k->at == ' '; k->n--)
            k->at++;
        while (k->n > 0 && k->at[k->n - 1] == ' ')
            k->n--;
    }
    for (int64_t i = 0; i < rows; i++)
        class[numbers[i]].rows++;
    qsort(class, (size_t)n, sizeof *class, compare_classes);
    warn_of_classes(c, class, n);
    free(class);
    return ST_OK;
}
