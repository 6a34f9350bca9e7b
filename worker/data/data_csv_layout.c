/* worker/data/data_csv_layout.c - finds the columns of a CSV file by the names in the training
 * file, in any order: see data_csv.h. Line 1 names the columns if it contains one of these names
 * and the name is not a number: a number could belong to a sample. If line 1 has no names, columns
 * are found by their indices. See data_csv_impl.h. */
#include "base/log.h"
#include "worker/data/data_csv_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ABSENT, AS_NUMBERS, AS_WORDS };

/* Returns AS_WORDS if line 1 contains one of these names and that name is not a number: then line 1
 * names the columns. Returns AS_NUMBERS if line 1 contains all of these names and all are
 * numbers. */
static int judge_names(const struct csv *c, const char *list)
{
    int have_all = list != NULL;
    while (list) {
        size_t n;
        double number;
        int64_t second;
        const char *name = data_csv_next_name(&list, &n);
        bool is_there = data_csv_index_find(c->names, name, n, &second) >= 0;
        if (is_there && n > 0 && !data_csv_read_number(name, n, &number))
            return AS_WORDS;
        have_all = have_all && is_there && n > 0;
    }
    return have_all ? AS_NUMBERS : ABSENT;
}

/* Sets *named to true if line 1 names the columns. ST_INVALID: line 1 may also be a sample. */
static enum status judge_line(const struct csv *c, bool *named)
{
    const struct data_csv_columns *k = c->columns;
    int features = judge_names(c, k->feature_names);
    /* columns of keys have been found already, perhaps by their names */
    *named = k->header == DATA_CSV_HEADER_YES || (c->keys && c->has_names) ||
             features == AS_WORDS || judge_names(c, k->label_names) == AS_WORDS ||
             judge_names(c, k->ignored_names) == AS_WORDS;
    if (*named || features != AS_NUMBERS)
        return ST_OK;
    LOG_E(
        "%s: line 1: its numbers are the names that the columns had in training, or a sample; set --csv_header=yes if it names the columns, --csv_header=no if it is a sample",
        c->path);
    return ST_INVALID;
}

/* Logs that this file and the training file have different numbers of columns with this name. */
static void log_count(const struct csv *c, const char *name, size_t n, const char *fix)
{
    int64_t here, trained;
    data_csv_index_count(c->names, name, n, &here, &trained);
    LOG_E("%s: line 1: has %lld column%s '%.*s', but the training file had %lld of this name; %s",
          c->path, (long long)here, here == 1 ? "" : "s", (int)(n < 60 ? n : 60), name,
          (long long)trained, fix);
}

static enum status lacks_feature(const struct csv *c, const char *name, size_t n, int64_t feature)
{
    int64_t here, trained;
    data_csv_index_count(c->names, name, n, &here, &trained);
    if (here > 0)
        log_count(c, name, n, "rename the columns as in training");
    else
        LOG_E(
            "%s: line 1: has no column '%.*s', which is feature %lld of the training file; rename the columns as in training",
            c->path, (int)(n < 60 ? n : 60), name, (long long)feature + 1);
    return ST_MISMATCH;
}

static enum status place_features(struct csv *c)
{
    const char *list = c->columns->feature_names;
    int64_t feature = 0;
    for (; list; feature++) {
        size_t n;
        const char *name = data_csv_next_name(&list, &n);
        int64_t k = data_csv_index_take(c->names, c, name, n, 'f');
        if (k < 0)
            return lacks_feature(c, name, n, feature);
        c->place[k] = feature;
    }
    c->n_features = feature;
    return ST_OK;
}

/* Assigns a role to each column in `list`. All these columns had this letter in training. The role
 * is `first`; if `first` is a target (0 or more), name i of the list gets the role first + i.
 * Returns the number of these names that the file has. */
static int64_t place_list(struct csv *c, const char *list, char letter, int64_t first,
                          int64_t *n_names)
{
    int64_t found = 0;
    for (*n_names = 0; list; ++*n_names) {
        size_t n;
        const char *name = data_csv_next_name(&list, &n);
        int64_t k = data_csv_index_take(c->names, c, name, n, letter);
        if (k < 0)
            continue;
        c->role[k] = first >= 0 ? first + *n_names : first;
        found++;
    }
    return found;
}

static enum status place_labels(struct csv *c)
{
    const struct data_csv_columns *k = c->columns;
    bool unwanted = k->label && strcmp(k->label, DATA_CSV_NO_LABEL) == 0;
    int64_t n, found = place_list(c, k->label_names, k->are_targets ? 't' : 'l',
                                  unwanted         ? DATA_CSV_IGNORED
                                  : k->are_targets ? 0
                                                   : DATA_CSV_LABEL,
                                  &n);
    if (unwanted || (found == 0 && k->may_lack))
        return ST_OK;
    if (found < n) {
        LOG_E(
            "%s: line 1: has no column '%.60s', which is a label or target in the training file; add the column, or name another one with --%s",
            c->path, k->label_names, k->are_targets ? "target_columns" : "label_column");
        return ST_MISMATCH;
    }
    c->has_label = !k->are_targets;
    c->n_targets = k->are_targets ? n : 0;
    return ST_OK;
}

/* Returns true if the training file had an ignored column at this index. */
static bool was_ignored(const struct csv *c, int64_t column)
{
    const char *roles = c->columns->roles;
    return roles && strcspn(roles, ";") == (size_t)c->n_columns && roles[column] == 'i';
}

static void log_unknown(const struct csv *c, int64_t column, const char *name, size_t n)
{
    const char *list = c->columns->feature_names ? c->columns->feature_names : "";
    size_t first_n;
    const char *first = data_csv_next_name(&list, &first_n);
    int64_t here, trained;
    char fix[80];
    data_csv_index_count(c->names, name, n, &here, &trained);
    snprintf(fix, sizeof fix, "exclude the new one, for example by --ignore_columns=%lld",
             (long long)column + 1);
    if (trained > 0)
        log_count(c, name, n, fix);
    else if (c->columns->no_features)
        LOG_E("%s: line 1: column %lld, '%.*s', is not a column of the training file; %s", c->path,
              (long long)column + 1, (int)(n < 60 ? n : 60), name, fix);
    else
        LOG_E(
            "%s: line 1: column %lld, '%.*s', is not a column of the training file, whose feature 1 is '%.*s'; exclude it by --ignore_columns=%lld",
            c->path, (long long)column + 1, (int)(n < 60 ? n : 60), name,
            (int)(first_n < 60 ? first_n : 60), first, (long long)column + 1);
}

/* Refuses a column that the training file did not have. A column without a name is ignored if the
 * training file had an ignored column at the same index. */
static enum status check_rest(const struct csv *c)
{
    const char *end = data_csv_line_end(c, c->at), *p = c->at;
    size_t n;
    for (int64_t k = 0; k < c->n_columns; k++) {
        const char *field = data_csv_next_field(c, &p, end, &n);
        if (c->role[k] != DATA_CSV_FEATURE || c->place[k] >= 0)
            continue;
        if (n == 0 && was_ignored(c, k)) {
            c->role[k] = DATA_CSV_IGNORED;
            continue;
        }
        log_unknown(c, k, field, n);
        return ST_MISMATCH;
    }
    return ST_OK;
}

static enum status place_all(struct csv *c)
{
    enum status st = ST_OK;
    int64_t n;
    c->place = malloc((size_t)c->n_columns * sizeof *c->place);
    if (!c->place) {
        LOG_E("%s: no memory for its %lld columns", c->path, (long long)c->n_columns);
        return ST_NOMEM;
    }
    for (int64_t k = 0; k < c->n_columns; k++)
        c->place[k] = -1;
    c->has_names = true;
    TRY(data_csv_text_check_names(c));
    data_csv_index_train(c->names, c);
    TRY(place_features(c));
    TRY(place_labels(c));
    place_list(c, c->columns->ignored_names, 'i', DATA_CSV_IGNORED, &n);
    TRY(check_rest(c));
    data_csv_equal_warn_names(c);
done:
    return st;
}

enum status data_csv_layout_match_names(struct csv *c, bool *matched)
{
    enum status st = ST_OK;
    const struct data_csv_columns *k = c->columns;
    bool named = k->targets || (k->label && strcmp(k->label, DATA_CSV_NO_LABEL) != 0);
    *matched = false;
    bool known = k->feature_names || (k->no_features && c->has_names);
    if (!known || !k->label_names || named || k->header == DATA_CSV_HEADER_NO)
        return ST_OK;
    TRY(judge_line(c, matched));
    if (*matched)
        TRY(place_all(c));
done:
    return st;
}

static size_t count_letters(const char *roles, const char *letters)
{
    size_t n = 0;
    for (; *roles && *roles != ';'; roles++)
        n += strchr(letters, *roles) != NULL;
    return n;
}

/* Checks the role letters, because the model's file may contain any text. */
static bool are_valid(const char *roles)
{
    size_t labels = count_letters(roles, "l"), targets = count_letters(roles, "t");
    return count_letters(roles, "fltik") == strcspn(roles, ";") && count_letters(roles, "fk") > 0 &&
           labels <= 1 && (labels == 0 || targets == 0);
}

/* Reads the numbers of the n targets, in the order of the file's columns, from the text after the
 * ';'. If there is no ';', the numbers are 0, 1, ... Returns false if they are not a permutation.
 * is_taken: [n], all false. */
static bool read_order(const char *roles, int64_t n, int64_t *order, bool *is_taken)
{
    const char *at = roles + strcspn(roles, ";");
    bool given = *at == ';';
    for (int64_t i = 0; i < n; i++) {
        char *end = NULL;
        order[i] = given ? strtoll(at + 1, &end, 10) : i;
        if (order[i] < 0 || order[i] >= n || is_taken[order[i]])
            return false;
        is_taken[order[i]] = true;
        if (given && (end == at + 1 || *end != (i + 1 < n ? ',' : 0)))
            return false;
        at = given ? end : at;
    }
    return n > 0 || !given;
}

/* Assigns each column its role. whole: false if the file lacks the columns of labels and
 * targets. */
static void assign_roles(struct csv *c, const char *r, bool whole, const int64_t *order)
{
    c->n_features = 0;
    for (int64_t i = 0; *r && *r != ';'; r++) {
        if (!whole && (*r == 'l' || *r == 't'))
            continue;
        if (*r != 'k') /* data_csv_keys_create has assigned it */
            c->role[i] = *r == 'l'   ? DATA_CSV_LABEL
                         : *r == 'i' ? DATA_CSV_IGNORED
                         : *r == 't' ? order[c->n_targets++]
                                     : DATA_CSV_FEATURE;
        c->has_label |= *r == 'l';
        c->n_features += *r == 'f';
        i++;
    }
}

/* Returns true if the columns of keys are those of training. */
static bool have_keys(const struct csv *c, const char *r, bool whole)
{
    for (int64_t i = 0; *r && *r != ';'; r++)
        if (whole || (*r != 'l' && *r != 't'))
            if ((c->role[i++] <= DATA_CSV_KEY) != (*r == 'k'))
                return false;
    return true;
}

static enum status keys_elsewhere(const struct csv *c)
{
    LOG_E(
        "%s: its columns of keys are not at the positions of training, whose columns were %.60s (k: keys, f: feature, l: label, t: target, i: ignored); use the order of training, or name the columns in line 1",
        c->path, c->columns->roles);
    return ST_MISMATCH;
}

enum status data_csv_layout_match_places(struct csv *c, bool *matched)
{
    const struct data_csv_columns *k = c->columns;
    const char *r = k->roles;
    int64_t second;
    size_t n = (size_t)c->n_columns;
    *matched = false;
    if (!r || !are_valid(r) || k->label || k->targets || k->ignored ||
        data_csv_index_find(c->names, "label", 5, &second) >= 0)
        return ST_OK;
    bool whole = n == strcspn(r, ";");
    if (!whole && !(k->may_lack && n == count_letters(r, "fik")))
        return ST_OK;
    if (!have_keys(c, r, whole))
        return keys_elsewhere(c);
    size_t targets = count_letters(r, "t");
    int64_t *order = malloc((targets + 1) * sizeof *order);
    bool *is_taken = calloc(targets + 1, sizeof *is_taken);
    enum status st = order && is_taken ? ST_OK : ST_NOMEM;
    if (st != ST_OK)
        LOG_E("%s: no memory for its %zu targets", c->path, targets);
    else if (read_order(r, (int64_t)targets, order, is_taken)) {
        assign_roles(c, r, whole, order);
        c->label_by_place = c->has_label;
        *matched = true;
    }
    free(order);
    free(is_taken);
    return st;
}

void data_csv_layout_warn_places(const struct csv *c)
{
    const struct data_csv_columns *k = c->columns;
    bool trained = k->feature_names || (k->no_features && k->label_names);
    if (k->roles && trained != c->has_names)
        LOG_W(
            "%s: its columns are matched by their positions, because %s has no line of names; use the order of training",
            c->path, trained ? "it" : "the training file");
}

const char *data_csv_layout_label_place(const struct csv *c, char dst[DATA_CSV_PLACE_BYTES])
{
    const char *roles = c->columns->roles;
    dst[0] = 0;
    if (c->label_by_place && !c->has_names)
        snprintf(
            dst, DATA_CSV_PLACE_BYTES,
            ", or use the order of the columns in training, whose label was column %lld of %lld (this file has no names), or set the label's column by --label_column=N",
            (long long)(strchr(roles, 'l') - roles) + 1, (long long)strlen(roles));
    return dst;
}
