/* tests/fuzz_csv.c - libFuzzer target: CSV. The first line of the input is a setting. Its first
 * character selects which one: + --target_columns, - --ignore_columns, = the classes, separated by
 * /, ! the roles of columns, ? the number of features, and labels may be missing, & columns of keys
 * that are found, # columns of keys that are listed and whose cells are whole numbers, @ columns of
 * keys that were listed in training, of a model without a dense input. Any other line is
 * --label_column, unless it is empty. Accepted numbers must be finite and within bounds.
 * Corpus: tests/corpus/csv. */
#include "tests/fuzz.h"
#include "worker/data/data_csv.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns the number of class names. */
static int64_t n_words(const char *classes)
{
    int64_t n = classes && *classes;
    for (const char *c = classes; c && *c; c++)
        n += *c == '\n';
    return n;
}

static volatile uint64_t last_key;

static void use(const struct data_csv *csv)
{
    const struct data_array *samples = &csv->samples, *labels = &csv->labels;
    require(!csv->columns || n_words(csv->columns) <= samples->dim[1]);
    const struct data_csv_keys *k = &csv->keys[0];
    require(!k->n_columns == !k->columns);
    size_t cells = (size_t)samples->dim[0] * (size_t)k->n_columns;
    for (size_t i = 0; i < cells; i++)
        require(!k->first || k->first[i] <= k->first[i + 1]);
    for (size_t i = 0; i < (k->first ? k->first[cells] : cells); i++)
        last_key = k->keys[i];
    int64_t most = csv->classes ? n_words(csv->classes) : 65536;
    require(samples->type == DATA_F32 && samples->n_dims == 2 && samples->dim[0] > 0);
    require(samples->dim[1] >= (csv->keys[0].n_columns == 0) &&
            samples->dim[1] < DATA_CSV_MAX_COLUMNS + !labels->n_dims);
    require(!labels->n_dims || labels->dim[0] == samples->dim[0]);
    require(!labels->n_dims || labels->n_dims == 1 + (labels->type == DATA_F32));
    for (int64_t i = 0; labels->n_dims && labels->type == DATA_F32 && i < data_array_elems(labels);
         i++) {
        float number;
        data_array_floats(labels, i, 1, &number);
        require(isfinite(number));
    }
    for (int64_t i = 0; labels->n_dims && labels->type == DATA_I32 && i < labels->dim[0]; i++) {
        int64_t label = data_array_integer(labels, i);
        require(label >= 0 && label < most);
    }
    for (int64_t i = 0; i < data_array_elems(samples); i++) {
        float number;
        data_array_floats(samples, i, 1, &number);
        require(isfinite(number));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct data_csv csv;
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    if (!end)
        return 0;
    size_t name = (size_t)(end - data), n = size - name - 1;
    char *column = strndup((const char *)data, name);
    /* A copy of the exact size: AddressSanitizer detects reads beyond it. */
    uint8_t *copy = malloc(n ? n : 1);
    require(column && copy);
    memcpy(copy, end + 1, n);
    const struct data_csv_key_input keys = {
        .name = "keys",
        .columns = *column && strchr("#@", *column) ? column + 1 : NULL,
        .listed_by = "the first line",
        .are_numbers = *column == '#',
        .is_resolved = *column == '@',
    };
    const struct data_csv_columns columns = {
        .keys = &keys,
        .n_keys = *column && strchr("&#@", *column),
        .no_features = *column == '@',
        .label_names = *column == '@' ? "label" : NULL,
        .key_separator = *column == '&' ? column[1] : '|',
        .warn = *column == '&',
        .describe = *column == '&',
        .label = name && !strchr("+-=?!&#@", *column) ? column : NULL,
        .targets = name && *column == '+' ? column + 1 : NULL,
        .ignored = name && *column == '-' ? column + 1 : NULL,
        .classes = name && *column == '=' ? column + 1 : NULL,
        .roles = name && *column == '!' ? column + 1 : NULL,
        .may_lack = *column == '?',
        .features = *column == '?' ? strtol(column + 1, NULL, 10) : 0,
    };
    for (char *c = column; columns.classes && *c; c++)
        *c = *c == '/' ? '\n' : *c;
    if (data_csv_decode(copy, n, "fuzz", &columns, &csv) == ST_OK) {
        use(&csv);
        data_csv_free(&csv);
    }
    free(copy);
    free(column);
    return 0;
}
