/* worker/results/predictions_text.h - names of files and classes as fields of predictions, and
 * paths in summaries. They may contain any bytes. Owns: nothing. Threads: any. Errors: none. */
#ifndef WORKER_RESULTS_PREDICTIONS_TEXT_H
#define WORKER_RESULTS_PREDICTIONS_TEXT_H
#include <stddef.h>

/* Returns the highest number of bytes that a name of n bytes can have in either format. */
static inline size_t predictions_text_most(size_t n)
{
    return 6 * n + 2;
}

/* Writes the name in quotes; a name that is not UTF-8 is converted as if it were Latin-1. Returns
 * the bytes written. */
size_t predictions_text_json(char *to, const char *name, size_t n);
/* Writes the name unchanged, or in quotes if it has a comma, a quote or a line break. */
size_t predictions_text_csv(char *to, const char *name, size_t n);

#endif
