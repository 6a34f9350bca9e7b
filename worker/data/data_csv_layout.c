/* worker/data/data_csv_layout.c - finds the columns of a CSV file by the names that a training file
 * gave them, in whatever order they are: see data_csv.h. A file whose first line has none of these
 * names is read by the places of its columns instead. See data_csv_impl.h. */
#include "base/log.h"
#include "worker/data/data_csv_impl.h"
#include <stdlib.h>
#include <string.h>

/* One name of a list, and the rest of the list behind it. */
static const char *next_name(const char **list, size_t *n)
{
    const char *name = *list;
    *n = strcspn(name, "\n");
    *list = name[*n] ? name + *n + 1 : NULL;
    return name;
}

static bool has_name(const struct data_csv_field *f, const char *name, size_t n)
{
    return f->n == n && memcmp(f->at, name, n) == 0;
}

/* Returns the first column from `from` on, then from the first on, that has this name and whose
 * role is open; -1 if there is none. Columns mostly have the order of the training file. */
static int64_t find_open(const struct csv *c, const struct data_csv_field *field, int64_t from,
                         const char *name, size_t n)
{
    for (int64_t i = 0; i < c->n_columns; i++) {
        int64_t k = (from + i) % c->n_columns;
        if (c->role[k] == DATA_CSV_FEATURE && c->place[k] < 0 && has_name(&field[k], name, n))
            return k;
    }
    return -1;
}

/* *found: names of features that the file has. */
static enum status place_features(struct csv *c, const struct data_csv_field *field, int64_t *found)
{
    const char *list = c->columns->feature_names, *name, *missing = NULL;
    size_t n, missing_n = 0;
    int64_t at = 0, feature = 0, missing_feature = 0;
    *found = 0;
    for (; list; feature++) {
        name = next_name(&list, &n);
        int64_t k = find_open(c, field, at, name, n);
        if (k < 0 && !missing) {
            missing = name;
            missing_n = n;
            missing_feature = feature;
        }
        if (k < 0)
            continue;
        c->place[k] = feature;
        at = k + 1;
        ++*found;
    }
    c->n_features = feature;
    if (*found == 0 || !missing)
        return ST_OK;
    LOG_E("%s: line 1: has no column '%.*s', which is feature %lld of the training file; give the "
          "columns the names that they had in training",
          c->path, (int)(missing_n < 60 ? missing_n : 60), missing, (long long)missing_feature + 1);
    return ST_MISMATCH;
}

/* Gives the columns of a list the role `first`, or of targets that and the next ones. Returns how
 * many of the names the file has. */
static int64_t place_list(struct csv *c, const struct data_csv_field *field, const char *list,
                          int64_t first, int64_t *n_names)
{
    int64_t found = 0;
    for (*n_names = 0; list; ++*n_names) {
        size_t n;
        const char *name = next_name(&list, &n);
        int64_t k = find_open(c, field, 0, name, n);
        if (k < 0)
            continue;
        c->role[k] = first >= 0 ? first + *n_names : first;
        found++;
    }
    return found;
}

static enum status place_labels(struct csv *c, const struct data_csv_field *field)
{
    const struct data_csv_columns *k = c->columns;
    bool unwanted = k->label && strcmp(k->label, DATA_CSV_NO_LABEL) == 0;
    int64_t n, found = place_list(c, field, k->label_names,
                                  unwanted         ? DATA_CSV_IGNORED
                                  : k->are_targets ? 0
                                                   : DATA_CSV_LABEL,
                                  &n);
    if (unwanted || (found == 0 && k->may_lack))
        return ST_OK;
    if (found < n) {
        LOG_E("%s: line 1: lacks the column of the label or of a target that the training file "
              "had, '%.60s'; add it, or name another with --%s",
              c->path, k->label_names, k->are_targets ? "target_columns" : "label_column");
        return ST_MISMATCH;
    }
    c->has_label = !k->are_targets;
    c->n_targets = k->are_targets ? n : 0;
    return ST_OK;
}

static enum status check_rest(const struct csv *c, const struct data_csv_field *field)
{
    const char *list = c->columns->feature_names;
    size_t n;
    for (int64_t k = 0; k < c->n_columns; k++) {
        if (c->role[k] != DATA_CSV_FEATURE || c->place[k] >= 0)
            continue;
        const char *first = next_name(&list, &n);
        LOG_E("%s: line 1: column %lld, '%.*s', is no column of the training file, whose feature 1 "
              "is '%.*s'; leave it out with --ignore_columns=%lld",
              c->path, (long long)k + 1, (int)(field[k].n < 60 ? field[k].n : 60), field[k].at,
              (int)(n < 60 ? n : 60), first, (long long)k + 1);
        return ST_MISMATCH;
    }
    return ST_OK;
}

static enum status place_all(struct csv *c, const struct data_csv_field *field, bool *matched)
{
    enum status st = ST_OK;
    int64_t found, n, n_before = c->n_features;
    TRY(place_features(c, field, &found));
    *matched = found > 0;
    if (!*matched) {
        c->n_features = n_before;
        free(c->place);
        c->place = NULL;
        return ST_OK;
    }
    c->has_names = 1;
    TRY(place_labels(c, field));
    place_list(c, field, c->columns->ignored_names, DATA_CSV_IGNORED, &n);
    TRY(check_rest(c, field));
done:
    return st;
}

enum status data_csv_match_names(struct csv *c, bool *matched)
{
    const struct data_csv_columns *k = c->columns;
    bool named = k->targets || (k->label && strcmp(k->label, DATA_CSV_NO_LABEL) != 0);
    *matched = false;
    if (!k->feature_names || !k->label_names || named || k->header == DATA_CSV_HEADER_NO)
        return ST_OK;
    struct data_csv_field *field = malloc((size_t)c->n_columns * sizeof *field);
    c->place = malloc((size_t)c->n_columns * sizeof *c->place);
    if (!field || !c->place) {
        LOG_E("%s: no memory for its %lld columns", c->path, (long long)c->n_columns);
        free(field);
        return ST_NOMEM;
    }
    const char *end = data_csv_line_end(c, c->at), *p = c->at;
    for (int64_t i = 0; i < c->n_columns; i++) {
        field[i].at = data_csv_take_field(c, &p, end, &field[i].n);
        c->place[i] = -1;
    }
    enum status st = place_all(c, field, matched);
    free(field);
    return st;
}
