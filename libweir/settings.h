/* libweir/settings.h - the settings of weir_set, and the job that follows from them. Private to
 * libweir/.
 * Owns:    its texts.
 * Threads: one at a time for an object.
 * Errors:  ST_INVALID, ST_NOT_FOUND (no such setting); logged with the name and the fix. */
#ifndef LIBWEIR_SETTINGS_H
#define LIBWEIR_SETTINGS_H
#include "cluster/cluster.h"
#include "member/job_settings.h"
#include "net/security/security.h"
#include "net/wire/status.h"

enum { SETTINGS_BATCH = 32 }; /* default of batch_size */

/* Unchecked values of the settings, in fields with the same names as the worker's flags. */
struct settings {
    char *ps_hosts, *worker_hosts, *address;
    int64_t n_workers, task_index, slurm_ps, slurm_port;
    int join;
    char *tls_cert, *tls_key, *tls_ca, *token_file;
    struct job_settings job; /* settings of the job; their texts are owned, too */
    int own_local_steps;
    int64_t train_steps, batch_size; /* 0: not set */
    int64_t seed;
    char *data_name, *arithmetic, *checkpoint_dir;
    int64_t data_samples, data_checksum;
};

void settings_init(struct settings *s);
void settings_free(struct settings *s);
enum status settings_set(struct settings *s, const char *name, const char *value);
/* Determines the programs of the job, and this one among them, from the settings or, if these are
 * not set, from the environment. */
enum status settings_cluster(struct settings *s, struct cluster *out);
/* Makes the job for a model of n_elems elements. joined: the running job that this member joins, or
 * NULL. */
enum status settings_job(const struct settings *s, int n_servers, int64_t n_elems,
                         const struct net_status *joined, struct net_job *out);
struct security_config settings_security(const struct settings *s);

#endif
