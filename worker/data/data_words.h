/* worker/data/data_words.h - classes that are words, each with its number: in the order of the
 * words (by their bytes), or, where a list says which there are, by their places in that.
 *     A list of names has a line break between two of them.
 * Owns:    nothing of the words that it is given: they stay where they lie.
 * Threads: one at a time.
 * Errors:  ST_UNSUPPORTED (too many), ST_NOMEM; not logged. */
#ifndef WORKER_DATA_DATA_WORDS_H
#define WORKER_DATA_DATA_WORDS_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { DATA_WORDS_MOST_BYTES = 255, DATA_WORDS_TEXT_BYTES = 300 };

struct data_words;
/* given: a list of names, which outlives this; NULL: words are collected. */
enum status data_words_create(const char *given, struct data_words **out);
void data_words_destroy(struct data_words *w); /* NULL is fine */
/* Of a list its place there, -1 if it is none of them; of collected words a number that
 * data_words_sort makes final. */
enum status data_words_number(struct data_words *w, const char *word, size_t n, int32_t *out);
/* Returns the word in that place of the sorted ones, where it was first found; NULL: there is none.
 */
const char *data_words_at(const struct data_words *w, int64_t place, size_t *n);
/* Collected words, none of which has a line break: makes these n numbers final. *names: the list,
 * malloc'd. */
enum status data_words_sort(struct data_words *w, int32_t *numbers, int64_t n, char **names);

/* A list for a line: '/' between names, its end left out if it is too long. NULL: "". */
const char *data_words_text(const char *names, char dst[DATA_WORDS_TEXT_BYTES]);

/* The name in that place, from 0 on; "": the list has none. */
const char *data_words_name(const char *names, int64_t place, char dst[DATA_WORDS_TEXT_BYTES]);

/* The first place where two lists differ, from 0 on, and what each has there, for a line; "": it
 * has no more. -1: they are the same. */
int64_t data_words_differ(const char *a, const char *b, char in_a[DATA_WORDS_TEXT_BYTES],
                          char in_b[DATA_WORDS_TEXT_BYTES]);

#endif
