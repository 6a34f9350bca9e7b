/* checkpoint/job_described.h - compares the texts in which two workers of a job describe their data
 * and their model (struct net_join, trained_on). A text that is NULL, or has more values than a
 * worker writes, is not compared.
 * Owns: nothing. Threads: any. Errors: a lack of memory counts as no difference. */
#ifndef CHECKPOINT_JOB_DESCRIBED_H
#define CHECKPOINT_JOB_DESCRIBED_H
#include <stdbool.h>
#include <stddef.h>

/* Returns true if a CSV file is read in another way than the servers' worker read its file: with
 * another --key_separator, other columns of keys, or other columns of numbers. Then `why` has a
 * sentence that names the flag, both values and the fix. */
bool job_described_reading_differs(const char *had, const char *has, char *why, size_t why_bytes);
/* Returns true if the model files differ in inputs or layers, in keys that change the result and
 * that no other check compares. Then `why` has a sentence that names the first difference. */
bool job_described_model_differs(const char *had, const char *has, char *why, size_t why_bytes);

#endif
