/* member/table_settings.h - the settings of weir_table_set, and the table that follows from them.
 * Owns:    its texts.
 * Threads: one at a time for an object.
 * Errors:  ST_INVALID, ST_NOT_FOUND (no such setting); logged with the name and the fix. */
#ifndef MEMBER_TABLE_SETTINGS_H
#define MEMBER_TABLE_SETTINGS_H
#include "net/wire/job.h"
#include "net/wire/tables.h"

/* Unchecked values of the settings. A number below 0 means that the setting was not set. */
struct table_settings {
    int64_t buckets, step_rows, admit_after, evict_after, lr_warmup_steps, lr_decay_steps;
    int optimizer, schedule, init, when_full, row_dtype;
    double learning_rate, momentum, beta1, beta2, epsilon, ftrl_beta, l1, l2;
    double clip_value, lr_decay, init_scale;
    char *lr_boundaries; /* NULL: not set */
};

void table_settings_init(struct table_settings *s);
void table_settings_free(struct table_settings *s);
enum status table_settings_set(struct table_settings *s, const char *name, const char *value);
enum { TABLE_SETTINGS_TEXT_BYTES = 400 };
/* Writes the names of all settings, "a b c". Returns dst. */
const char *table_settings_names(char dst[TABLE_SETTINGS_TEXT_BYTES]);
/* Writes which values a setting may have, such as "a number from 0 to 1". Returns dst. */
const char *table_settings_values(const char *name, char dst[TABLE_SETTINGS_TEXT_BYTES]);
/* Completes a table that has its name, dim and max_rows. Settings that were not set are those of
 * `running`, the same table of the running job that this member joins; if it is NULL, they are the
 * defaults, and the optimizer is that of the job. */
enum status table_settings_make(const struct table_settings *s, const struct net_job *job,
                                const struct net_table *running, struct net_table *t);

/* A table that a member adds to a job. */
struct table_wish {
    const char *name;
    int dim;
    int64_t max_rows;
    const struct table_settings *settings;
};
/* Adds n tables to the chunks of a job that has none. running: the chunks of the running job that
 * this member joins; NULL: none. ST_UNSUPPORTED, logged: a setting of the job cannot be combined
 * with tables. */
enum status table_settings_add(const struct table_wish *wishes, int n, const struct net_job *job,
                               const struct chunks *running, struct chunks *chunks);

#endif
