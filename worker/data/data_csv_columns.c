/* worker/data/data_csv_columns.c - decides whether the first line of a CSV file names the columns,
 * and assigns their roles: see data_csv.h. The line is a sample unless it contains the name of a
 * requested column, or none of its features is a number. So a single mistyped number in the first
 * sample does not make that sample a line of names. */
#include "base/log.h"
#include "worker/data/data_csv_impl.h"
#include "worker/data/data_csv_keys.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status no_column(const struct csv *c, const char *flag, const char *name, size_t n)
{
    char line[DATA_CSV_PLACE_BYTES];
    if (data_csv_text_check_names(c) != ST_OK) /* the call has logged why the name is not found */
        return ST_CORRUPT;
    LOG_E(
        "%s: line 1: has no column '%.*s' among its %lld columns (%s); %s--%s must be a column's name, or its number counted from 1",
        c->path, (int)(n < 60 ? n : 60), name, (long long)c->n_columns,
        data_csv_report_line_1(c, line), strcmp(flag, "label_column") == 0 ? "" : "each entry of ",
        flag);
    return ST_NOT_FOUND;
}

/* Returns the first column with this name in line 1, and sets *second to the next one; -1: none. A
 * text that reads as a number is not a name, unless --csv_header=yes is given. */
static int64_t find_name(const struct csv *c, const char *name, size_t bytes, int64_t *second)
{
    enum data_csv_header header = c->columns->header;
    double number;
    *second = -1;
    if (header == DATA_CSV_HEADER_NO ||
        (header != DATA_CSV_HEADER_YES && data_csv_read_number(name, bytes, &number)))
        return -1;
    return data_csv_index_find(c->names, name, bytes, second);
}

/* Finds a column by its name (then has_names becomes true) or by its number. *out becomes -1 if
 * there is no such column. ST_INVALID: two columns have the name. */
enum status data_csv_columns_find(struct csv *c, const char *name, size_t bytes, int64_t *out)
{
    double number;
    int64_t second, column = *out = find_name(c, name, bytes, &second);
    if (column >= 0) {
        c->has_names = true;
        if (second < 0)
            return ST_OK;
        LOG_E(
            "%s: line 1: columns %lld and %lld have the same name, '%.*s'; rename one of them, or name the column by its number",
            c->path, (long long)column + 1, (long long)second + 1, (int)(bytes < 60 ? bytes : 60),
            name);
        return ST_INVALID;
    }
    if (data_csv_read_number(name, bytes, &number) && number >= 1 &&
        number <= (double)c->n_columns && number == floor(number))
        *out = (int64_t)number - 1;
    return ST_OK;
}

static enum status assign_column(struct csv *c, const char *flag, int64_t column, int64_t role)
{
    int64_t had = c->role[column];
    if ((had == DATA_CSV_IGNORED && role != DATA_CSV_IGNORED) || had <= DATA_CSV_KEY) {
        LOG_E("%s: column %lld is named in %s and in --%s; name it in one of them", c->path,
              (long long)column + 1,
              had == DATA_CSV_IGNORED ? "--ignore_columns"
                                      : c->columns->keys[DATA_CSV_KEY - had].listed_by,
              flag);
        return ST_INVALID;
    }
    if (c->role[column] != DATA_CSV_FEATURE) {
        LOG_E("%s: --%s names column %lld twice", c->path, flag, (long long)column + 1);
        return ST_INVALID;
    }
    c->role[column] = role;
    c->n_features--;
    return ST_OK;
}

/* Assigns roles to the columns "a,b,...": all get the same role, except that targets get
 * consecutive roles. */
static enum status assign_columns(struct csv *c, const char *flag, const char *names, int64_t role)
{
    enum status st = ST_OK;
    for (const char *name = names, *comma; name; name = comma ? comma + 1 : NULL) {
        comma = strchr(name, ',');
        size_t n = comma ? (size_t)(comma - name) : strlen(name);
        int64_t column;
        TRY(data_csv_columns_find(c, name, n, &column));
        if (column < 0)
            return no_column(c, flag, name, n);
        TRY(assign_column(c, flag, column, role));
        if (role >= 0)
            c->n_targets = ++role;
    }
done:
    return st;
}

static bool lacks_labels(const struct csv *c)
{
    const struct data_csv_columns *k = c->columns;
    const char *first = k->targets ? k->targets : k->label ? k->label : "label";
    int64_t second;
    if (!k->may_lack)
        return false;
    if (k->label && strcmp(k->label, DATA_CSV_NO_LABEL) == 0)
        return true;
    return c->n_features == k->features && find_name(c, first, strcspn(first, ","), &second) < 0;
}

static enum status label_not_known(const struct csv *c)
{
    LOG_E(
        "%s: line 1: no column is named label, and the file of the trained parameters does not record the number of features; name the label's column with --label_column=NAME or N, or set --label_column=" DATA_CSV_NO_LABEL
        " if there is no label",
        c->path);
    return ST_INVALID;
}

/* Returns true if a feature was in a column after the label in training: then the label was not in
 * the last column. */
static bool was_in_front(const struct csv *c)
{
    const char *roles = c->columns->roles, *label = roles ? strchr(roles, 'l') : NULL;
    return label && strpbrk(label, "fk");
}

static enum status label_is_elsewhere(const struct csv *c)
{
    LOG_E(
        "%s: the label was column %lld of %lld in training, but this file has other columns; name the label's column with --label_column=N",
        c->path, (long long)(strchr(c->columns->roles, 'l') - c->columns->roles) + 1,
        (long long)strcspn(c->columns->roles, ";"));
    return ST_INVALID;
}

static enum status no_label_left(const struct csv *c)
{
    LOG_E(
        "%s: all %lld columns are ignored or have keys, so none is left for the label; add a column of labels",
        c->path, (long long)c->n_columns);
    return ST_INVALID;
}

static enum status assign_label(struct csv *c)
{
    enum status st = ST_OK;
    const char *name = c->columns->label;
    int64_t column;
    TRY(data_csv_columns_find(c, name ? name : "label", name ? strlen(name) : 5, &column));
    c->label_by_default = column < 0;
    if (column < 0 && name)
        return no_column(c, "label_column", name, strlen(name));
    if (column < 0 && c->columns->may_lack && c->columns->features == 0 && !c->columns->no_features)
        return label_not_known(c);
    if (column < 0 && was_in_front(c))
        return label_is_elsewhere(c);
    c->has_label = true;
    for (int64_t k = c->n_columns - 1; column < 0 && k >= 0; k--)
        if (c->role[k] == DATA_CSV_FEATURE)
            column = k;
    if (column >= 0)
        st = assign_column(c, "label_column", column, DATA_CSV_LABEL);
    else if (c->keys)
        st = no_label_left(c);
done:
    return st;
}

/* Counts the fields of the line at p that this separator yields; stops at one above the limit. */
static int64_t count_fields(const struct csv *c, const char *p, char between)
{
    const char *end = data_csv_line_end(c, p);
    int64_t n = 1;
    while (n <= DATA_CSV_MAX_COLUMNS && (p = memchr(p, between, (size_t)(end - p)))) {
        p++;
        n++;
    }
    return n;
}

/* Returns the first line after line 1 that is not blank; the end of the text if all are blank. */
static const char *second_line(const struct csv *c)
{
    const char *p = data_csv_line_end(c, c->at);
    while (p < c->end && (*p == '\r' || *p == '\n'))
        p++;
    return p;
}

/* Chooses the separator: the first one that occurs in line 1 and yields the same number of fields
 * there as in the next line (because a name may contain another separator). If none does, chooses
 * the first separator in line 1. */
static void count_columns(struct csv *c)
{
    static const char known[] = {',', ';', '\t'};
    const char *second = second_line(c);
    c->between = '\t';
    for (int i = sizeof known - 1; i >= 0; i--)
        if (count_fields(c, c->at, known[i]) > 1)
            c->between = known[i];
    for (int i = sizeof known - 1; i >= 0 && second < c->end; i--) {
        int64_t n = count_fields(c, c->at, known[i]);
        if (n > 1 && n == count_fields(c, second, known[i]))
            c->between = known[i];
    }
    c->n_columns = count_fields(c, c->at, c->between);
    c->n_features = c->n_columns;
}

/* Refuses a file with R's row names: line 1 has no name for the column of row names, so all names
 * would belong to the column before theirs. */
static enum status check_second_line(const struct csv *c)
{
    const char *second = second_line(c);
    if (!c->has_names || second == c->end ||
        count_fields(c, second, c->between) != c->n_columns + 1)
        return ST_OK;
    LOG_E(
        "%s: the line after line 1 has %lld fields, more than line 1 has names; if each row begins with its own name or number, as R writes them, name this column in line 1, too, and exclude it by --ignore_columns=1",
        c->path, (long long)c->n_columns + 1);
    return ST_CORRUPT;
}

static enum status mixed_line(const struct csv *c, int64_t column)
{
    char shown[DATA_CSV_SHOWN_BYTES], place[DATA_CSV_PLACE_BYTES];
    const char *p = c->at, *end = data_csv_line_end(c, c->at), *field = "";
    size_t n = 0;
    for (int64_t k = 0; p && k <= column; k++)
        field = data_csv_next_field(c, &p, end, &n);
    data_csv_show(field, n, shown);
    const char *flag = c->columns->targets ? "--target_columns" : "--label_column";
    const char *given = c->columns->targets ? c->columns->targets : c->columns->label;
    if (data_csv_text_check_names(c) != ST_OK)
        return ST_CORRUPT;
    const char *fix = data_csv_has_model(c)
                          ? "fix the field"
                          : "fix the field, or exclude its column by --ignore_columns";
    if (given)
        LOG_E(
            "%s: line 1: some fields are numbers, but column %lld, '%s', is not; if line 1 contains the names of the columns, set %s to one of these names instead of %.100s; otherwise %s",
            c->path, (long long)column + 1, shown, flag, given, fix);
    else
        LOG_E(
            "%s: line 1: some fields are numbers, but column %lld, '%s', is not; if line 1 contains the names of the columns, rename the label's column to 'label', or name it with %s=NAME; otherwise %s%s",
            c->path, (long long)column + 1, shown, flag, fix,
            data_csv_layout_label_place(c, place));
    return ST_CORRUPT;
}

/* Returns true if the fields of line 1 are 0, 1, 2, ... or 1, 2, 3, ...: some programs write these
 * numbers if the columns have no names. A line of up to three such fields may be a sample. */
static bool counts_up(const struct csv *c)
{
    const char *end = data_csv_line_end(c, c->at), *p = c->at;
    double number, first = 0;
    size_t n;
    int counts = c->n_columns > 3;
    for (int64_t column = 0; p && counts; column++) {
        const char *field = data_csv_next_field(c, &p, end, &n);
        counts = data_csv_read_number(field, n, &number);
        if (column == 0)
            first = number;
        counts = counts && (first == 0 || first == 1) && number == first + (double)column;
    }
    return counts;
}

static enum status looks_like_names(const struct csv *c)
{
    LOG_E(
        "%s: line 1 contains only the numbers of its %lld columns (0, 1, 2, ... or 1, 2, 3, ...), so it may be a header or a sample; set --csv_header=yes if it names the columns, --csv_header=no if it is a sample",
        c->path, (long long)c->n_columns);
    return ST_INVALID;
}

/* Returns true if each row has a number in columns of this role, unless they have labels. */
static bool has_numbers(const struct csv *c, int64_t role)
{
    return role > DATA_CSV_LABEL ||
           (role <= DATA_CSV_KEY && c->columns->keys[DATA_CSV_KEY - role].are_numbers);
}

/* Returns true if the label of the second line is a number. */
static bool has_number_label(const struct csv *c)
{
    const char *p = second_line(c), *end = data_csv_line_end(c, p);
    double number;
    for (int64_t column = 0; p && column < c->n_columns; column++) {
        size_t n;
        const char *field = data_csv_next_field(c, &p, end, &n);
        if (c->role[column] == DATA_CSV_LABEL)
            return data_csv_read_number(field, n, &number);
    }
    return false;
}

static enum status looks_like_all(const struct csv *c)
{
    LOG_E(
        "%s: line 1 has no numbers, but neither have the lines after it, so it may be a header or a sample; set --csv_header=yes if it names the columns, --csv_header=no if it is a sample",
        c->path);
    return ST_INVALID;
}

/* Sets has_names if it is still unknown: true if no field is a number, false if all fields except
 * the label are numbers. Columns of text do not count. */
static enum status judge_fields(struct csv *c)
{
    const char *end = data_csv_line_end(c, c->at), *p = c->at;
    int64_t n_words = 0, first_word = 0, n_numbers = 0;
    int label_is_number = 0;
    double number;
    size_t n;
    for (int64_t column = 0; p; column++) {
        const char *field = data_csv_next_field(c, &p, end, &n);
        int is_number = data_csv_read_number(field, n, &number);
        n_numbers += has_numbers(c, c->role[column]);
        if (c->role[column] == DATA_CSV_LABEL)
            label_is_number = is_number;
        else if (has_numbers(c, c->role[column]) && !is_number && n_words++ == 0)
            first_word = column;
    }
    bool is_open = !c->has_names && c->columns->header == DATA_CSV_HEADER_AUTO;
    if (is_open && n_numbers == 0 && !label_is_number && !has_number_label(c))
        return looks_like_all(c);
    c->has_names |= n_words == n_numbers && !label_is_number;
    if (c->columns->header != DATA_CSV_HEADER_AUTO)
        c->has_names = c->columns->header == DATA_CSV_HEADER_YES;
    else if (!c->has_names && n_words == 0 && counts_up(c))
        return looks_like_names(c);
    return c->has_names || n_words == 0 || c->columns->header == DATA_CSV_HEADER_NO
               ? ST_OK
               : mixed_line(c, first_word);
}

static enum status no_features(const struct csv *c)
{
    if (c->columns->ignored)
        LOG_E(
            "%s: --ignore_columns leaves none of its %lld columns for the samples; at least one must be left",
            c->path, (long long)c->n_columns);
    else
        LOG_E(
            "%s: --target_columns names all %lld columns; at least one must be left for the samples",
            c->path, (long long)c->n_columns);
    return ST_INVALID;
}

static enum status check_features(const struct csv *c)
{
    if (c->n_features == 0 && !c->keys)
        return no_features(c);
    if (c->columns->features == 0 || c->n_features == c->columns->features)
        return ST_OK;
    LOG_E(
        "%s: line 1: has %lld columns, of which %lld would be features, but training was on samples of %lld numbers; name the label's column with --label_column%s, and %s",
        c->path, (long long)c->n_columns, (long long)c->n_features, (long long)c->columns->features,
        c->columns->may_lack ? " (" DATA_CSV_NO_LABEL ": no label)" : "",
        c->n_features > c->columns->features ? "the unused columns with --ignore_columns"
        : c->columns->ignored
            ? "exclude by --ignore_columns only the columns that training excluded"
            : "add the missing columns");
    return ST_MISMATCH;
}

/* Finds the label or targets by the flags, or by their positions in training, and decides whether
 * line 1 names the columns. */
static enum status assign_places(struct csv *c)
{
    enum status st = ST_OK;
    bool matched;
    TRY(data_csv_layout_match_places(c, &matched));
    if (!matched && !lacks_labels(c))
        TRY(c->columns->targets ? assign_columns(c, "target_columns", c->columns->targets, 0)
                                : assign_label(c));
    if (!matched)
        TRY(data_csv_keys_guess(c));
    TRY(check_features(c));
    TRY(judge_fields(c));
    data_csv_layout_warn_places(c);
done:
    return st;
}

enum status data_csv_columns_read(struct csv *c)
{
    enum status st = ST_OK;
    count_columns(c);
    if (c->n_columns < (c->columns->may_lack ? 1 : 2) || c->n_columns > DATA_CSV_MAX_COLUMNS) {
        LOG_E(
            "%s: line 1: has %s; a line must have a label and from 1 to %d features, with commas between them",
            c->path, c->n_columns < 2 ? "one column" : "too many columns",
            DATA_CSV_MAX_COLUMNS - 1);
        return ST_CORRUPT;
    }
    c->role = malloc((size_t)c->n_columns * sizeof *c->role);
    if (!c->role) {
        LOG_E("%s: no memory for its %lld columns", c->path, (long long)c->n_columns);
        return ST_NOMEM;
    }
    for (int64_t k = 0; k < c->n_columns; k++)
        c->role[k] = DATA_CSV_FEATURE;
    TRY(data_csv_index_create(c, &c->names));
    TRY(assign_columns(c, "ignore_columns", c->columns->ignored, DATA_CSV_IGNORED));
    TRY(data_csv_keys_create(c));
    bool matched;
    TRY(data_csv_layout_match_names(c, &matched));
    if (!matched)
        TRY(assign_places(c));
    TRY(check_second_line(c));
done:
    return st;
}

/* Lists the columns of a role: targets in the order of their numbers, others in the order of the
 * columns. Returns the number of columns. */
static int64_t pick_columns(const struct csv *c, int64_t role, int64_t *pick)
{
    int64_t n = 0;
    for (int64_t k = 0; k < c->n_columns; k++)
        if (role == DATA_CSV_LABEL && c->role[k] >= 0)
            pick[c->role[k]] = k;
        else if (c->role[k] == role)
            pick[n++] = k;
    return role == DATA_CSV_LABEL && c->n_targets > 0 ? c->n_targets : n;
}

static enum status list_names(const struct csv *c, const struct data_csv_field *field, int64_t role,
                              char **out)
{
    size_t bytes = 1;
    for (int64_t k = 0; k < c->n_columns; k++)
        bytes += field[k].n + 1;
    char *list = malloc(bytes), *to = list;
    int64_t *pick = malloc((size_t)c->n_columns * sizeof *pick);
    int64_t n = list && pick ? pick_columns(c, role, pick) : 0;
    for (int64_t i = 0; i < n; i++) {
        if (i > 0)
            *to++ = '\n';
        for (size_t b = 0; b < field[pick[i]].n; b++)
            *to++ = field[pick[i]].at[b] ? field[pick[i]].at[b] : '?';
    }
    free(pick);
    if (!list || !pick) {
        free(list);
        LOG_E("%s: no memory for the names of its columns", c->path);
        return ST_NOMEM;
    }
    *to = 0;
    if (n > 0)
        *out = list;
    else
        free(list);
    return ST_OK;
}

static enum status name_matched(const struct csv *c, struct data_csv *out)
{
    if (!c->columns->feature_names)
        return ST_OK;
    out->columns = strdup(c->columns->feature_names);
    if (out->columns)
        return ST_OK;
    LOG_E("%s: no memory for the names of its columns", c->path);
    return ST_NOMEM;
}

enum status data_csv_columns_name(const struct csv *c, struct data_csv *out)
{
    enum status st = ST_OK;
    const char *end = data_csv_line_end(c, c->at), *p = c->at;
    if (!c->has_names)
        return ST_OK;
    if (c->place)
        return name_matched(c, out);
    struct data_csv_field *field = calloc((size_t)c->n_columns, sizeof *field);
    if (!field) {
        LOG_E("%s: no memory for the names of its columns", c->path);
        return ST_NOMEM;
    }
    for (int64_t k = 0; p && k < c->n_columns; k++)
        field[k].at = data_csv_next_field(c, &p, end, &field[k].n);
    TRY(list_names(c, field, DATA_CSV_FEATURE, &out->columns));
    TRY(list_names(c, field, DATA_CSV_LABEL, &out->label_names));
    TRY(list_names(c, field, DATA_CSV_IGNORED, &out->ignored_names));
done:
    free(field);
    return st;
}

enum { ORDER_BYTES = 6 }; /* length of a target's number with the character before it */

/* Appends the targets' numbers. */
static void write_order(const struct csv *c, char *to)
{
    char before = ';';
    for (int64_t k = 0; k < c->n_columns; k++) {
        if (c->role[k] < 0)
            continue;
        to += sprintf(to, "%c%lld", before, (long long)c->role[k]);
        before = ',';
    }
}

enum status data_csv_columns_log_roles(const struct csv *c, struct data_csv *out)
{
    size_t n = (size_t)c->n_columns;
    int64_t target = 0;
    bool in_order = true;
    if (c->place)
        return ST_OK;
    out->roles = malloc(n + (size_t)c->n_targets * ORDER_BYTES + 1);
    if (!out->roles) {
        LOG_E("%s: no memory for the roles of its columns", c->path);
        return ST_NOMEM;
    }
    for (size_t k = 0; k < n; k++) {
        out->roles[k] = c->role[k] >= 0              ? 't'
                        : c->role[k] <= DATA_CSV_KEY ? 'k'
                                                     : "fli"[-1 - c->role[k]];
        in_order = in_order && (c->role[k] < 0 || c->role[k] == target++);
    }
    out->roles[n] = 0;
    if (!in_order)
        write_order(c, out->roles + n);
    return ST_OK;
}
