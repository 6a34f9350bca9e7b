/* worker/data/dataset_classes.c - counts the samples of each class. */
#include "worker/data/dataset_classes.h"
#include "base/log.h"
#include "worker/data/data_words.h"
#include <stdio.h>
#include <stdlib.h>

/* Labels look like targets if they have more than MANY_VALUES different values, and on average
 * fewer than FEW_SAMPLES samples have the same value. */
enum { MANY_VALUES = 100, FEW_SAMPLES = 2 };

int dataset_classes_lacking(const struct dataset *train, const struct dataset *d, int *first)
{
    enum { TRAINED = 1, COUNTED = 2 };
    uint8_t seen[DATASET_MAX_CLASSES] = {0};
    int n = 0;
    for (int64_t i = 0; train->labels && i < train->n; i++)
        seen[dataset_label(train, i)] = TRAINED;
    for (int64_t i = 0; train->labels && d->labels && i < d->n; i++) {
        int label = dataset_label(d, i);
        if (!seen[label]) {
            *first = n == 0 || label < *first ? label : *first;
            seen[label] = COUNTED;
            n++;
        }
    }
    return n;
}

struct counts {
    int classes, present, first_missing;
    int64_t of_largest; /* number of samples that have the largest label */
};

/* Returns the number of classes: the largest label + 1, or the number of class names if that is
 * larger. */
static int classes_of(const struct dataset *d)
{
    int named = d->class_names != NULL;
    for (const char *at = d->class_names; at && *at; at++)
        named += *at == '\n';
    return named > d->classes ? named : d->classes;
}

/* Counts the samples of each class. samples: [classes_of(d)], all zero. */
static struct counts count(const struct dataset *d, int64_t *samples)
{
    struct counts c = {.classes = classes_of(d), .first_missing = -1};
    for (int64_t i = 0; i < d->n; i++)
        samples[dataset_label(d, i)]++;
    for (int k = 0; k < c.classes; k++) {
        c.present += samples[k] > 0;
        if (samples[k] == 0 && c.first_missing < 0)
            c.first_missing = k;
    }
    c.of_largest = samples[c.classes - 1];
    return c;
}

static void warn_missing(const struct dataset *d, const struct counts *c)
{
    char name[DATA_WORDS_TEXT_BYTES], quoted[DATA_WORDS_TEXT_BYTES + 8] = "";
    data_words_name(d->class_names, c->first_missing, name);
    if (*name)
        snprintf(quoted, sizeof quoted, " ('%s')", name);
    LOG_W(
        "%s: %d of its %d classes %s no training sample (the first of them: class %d%s; class %d, the last of all, has %lld); %s",
        d->labels_path, c->classes - c->present, c->classes,
        c->classes - c->present == 1 ? "has" : "have", c->first_missing, quoted, c->classes - 1,
        (long long)c->of_largest,
        d->class_names ? "fill or remove the folders that are empty"
        : c->first_missing == 0
            ? "classes count from 0, so subtract the smallest label from all"
            : "classes count from 0 to the largest label, so check whether it is a mistake, and number the classes without gaps");
}

static enum status one_class(const struct dataset *d)
{
    char name[DATA_WORDS_TEXT_BYTES], class[DATA_WORDS_TEXT_BYTES + 16];
    bool is_table = d->uses & DATASET_USES_COLUMN;
    data_words_name(d->class_names, d->classes - 1, name);
    if (*name && !is_table)
        snprintf(class, sizeof class, "the folder '%s'", name);
    else if (*name)
        snprintf(class, sizeof class, "'%s'", name);
    else
        snprintf(class, sizeof class, "%d", d->classes - 1);
    LOG_E(
        "%s: all %lld training samples are of one class, %s: a model would learn to predict it for all samples; %s",
        d->labels_path, (long long)d->n, class,
        is_table
            ? "use samples of two classes at least, or name the label's column with --label_column"
        : d->class_names
            ? "create a folder of pictures for each class, at least two"
            : "use samples of two classes at least, or name the array of the labels with --labels_name or --train_labels");
    return ST_INVALID;
}

enum status dataset_classes_check(const struct dataset *train)
{
    if (!train->labels)
        return ST_OK;
    int64_t *samples = calloc((size_t)classes_of(train), sizeof *samples);
    if (!samples) {
        LOG_E("%s: no memory to count %d classes", train->labels_path, classes_of(train));
        return ST_NOMEM;
    }
    struct counts c = count(train, samples);
    free(samples);
    if (c.present == 1)
        return one_class(train);
    if (c.present > MANY_VALUES && train->n < (int64_t)c.present * FEW_SAMPLES)
        LOG_W(
            "%s: its labels have %d different values in %lld samples, and each value becomes a class; if they are numbers to fit, name them with --target_columns (npy: save them as float32) and end the model with mean_squared_error",
            train->labels_path, c.present, (long long)train->n);
    else if (c.present < c.classes)
        warn_missing(train, &c);
    return ST_OK;
}
