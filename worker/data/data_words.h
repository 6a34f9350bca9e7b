/* worker/data/data_words.h - classes that are words, each with a number: its rank in the order of
 * their bytes, or its index in a list of names. The names in a list are separated by line breaks.
 * Owns:    not the words, which stay in the caller's memory.
 * Threads: one at a time.
 * Errors:  ST_UNSUPPORTED (too many), ST_NOMEM; not logged. */
#ifndef WORKER_DATA_DATA_WORDS_H
#define WORKER_DATA_DATA_WORDS_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { DATA_WORDS_MOST_BYTES = 255, DATA_WORDS_TEXT_BYTES = 300 };

struct data_words;
/* Creates the words. given: a list of names, which must exist while the object exists; NULL: words
 * are collected as they occur. */
enum status data_words_create(const char *given, struct data_words **out);
void data_words_destroy(struct data_words *w); /* NULL is fine */
/* Returns the word's index in the given list, or -1 if the list does not contain it. If words are
 * collected, returns a number that data_words_sort replaces by the final one. */
enum status data_words_number(struct data_words *w, const char *word, size_t n, int32_t *out);
/* Returns the word of this rank, as a pointer to its first occurrence; NULL: no such rank. */
const char *data_words_at(const struct data_words *w, int64_t place, size_t *n);
/* Replaces these n numbers of collected words by the final numbers. No word may contain a line
 * break. *names: list of the words, malloc'd. */
enum status data_words_sort(struct data_words *w, int32_t *numbers, int64_t n, char **names);

/* Writes a list for a log line, with '/' between the names, and cuts it if it is too long. Writes
 * "" for NULL. */
const char *data_words_text(const char *names, char dst[DATA_WORDS_TEXT_BYTES]);

/* Returns the name at this index, from 0; "" if the list is shorter. */
const char *data_words_name(const char *names, int64_t place, char dst[DATA_WORDS_TEXT_BYTES]);

/* Returns the first index, from 0, at which two lists differ, and both names at that index for a
 * log line ("": the list is shorter). -1: the lists are equal. */
int64_t data_words_differ(const char *a, const char *b, char in_a[DATA_WORDS_TEXT_BYTES],
                          char in_b[DATA_WORDS_TEXT_BYTES]);

#endif
