/* worker/options/options_impl.h - functions that options*.c share.
 * Owns: nothing. Threads: none; before the first one starts. Errors: ST_INVALID, logged with the
 * flag and the fix; ST_NOMEM. */
#ifndef WORKER_OPTIONS_OPTIONS_IMPL_H
#define WORKER_OPTIONS_OPTIONS_IMPL_H
#include "worker/options/options.h"

enum { FLAGS_TEXT_BYTES = 700 };

/* Returns true if the flag whose value is in this field of *o was on the command line. */
bool options_is_given(const struct options *o, const void *field);
/* Writes a text such as "--a, --b" with those flags in `names` (separated by spaces) that were on
 * the command line. Returns false if none of them was. */
bool options_list_given(const char *names, char text[FLAGS_TEXT_BYTES]);
/* Logs `wrong` as an error and returns ST_INVALID; if it is NULL, returns ST_OK. */
enum status options_refuse(const char *wrong);

/* Finds the cluster by the flags, TF_CONFIG or a Slurm step. Sets the lists of hosts, join, and
 * typed.task_index. */
enum status options_find_cluster(struct options *o);
/* Checks all flags, when the cluster is known, and sets the fields that depend on several flags. */
enum status options_check(struct options *o);
/* Logs which of the given flags have no effect in a worker without servers, or in inference. */
void options_warn_unused(const struct options *o);

/* The following functions are also called for a worker that joins, after it has adopted settings of
 * the job. */
/* Refuses clipping that the mode or the optimizer does not support. */
enum status options_check_clipping(const struct options *o);
/* Refuses --ema_decay with number formats and local steps for which there are no averages. */
enum status options_check_average(const struct options *o);
/* Checks the rules for --local_steps. */
enum status options_check_rounds(const struct options *o);
/* Refuses --data_shard=own if this worker uses the default data set. */
enum status options_check_shard(const struct options *o);
/* Checks --mean, --std and --standardize together. */
enum status options_check_samples(const struct options *o);

/* Checks that options_check calls, in options_input.c. */
enum status options_check_inference(const struct options *o);
enum status options_check_outputs(const struct options *o);
enum status options_check_data(struct options *o);
enum status options_check_input(struct options *o);

#endif
