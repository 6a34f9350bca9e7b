/* worker/data/dataset_classes.c - see the header. */
#include "worker/data/dataset_classes.h"

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
