/* worker/results/predictions_text.h - names of files and classes as fields of predictions' formats,
 * paths in summaries. They may be any bytes. Owns: nothing. Threads: any. Errors: none. */
#ifndef WORKER_RESULTS_PREDICTIONS_TEXT_H
#define WORKER_RESULTS_PREDICTIONS_TEXT_H
#include <stddef.h>

/* Bytes that n of a name become at most, in either. */
static inline size_t predictions_text_most(size_t n)
{
    return 6 * n + 2;
}

/* In quotes; what is not UTF-8 is taken for Latin-1. Return how many bytes. */
size_t predictions_text_json(char *to, const char *name, size_t n);
/* As it is, in quotes if it has a comma, a quote or a line break. */
size_t predictions_text_csv(char *to, const char *name, size_t n);

#endif
