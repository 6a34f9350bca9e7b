/* member/job_settings.h - what all members of a job are told, as it was typed, and what it makes of
 * the job: the worker's flags and libweir's settings, the rows FOR_JOB of flags/table.inc.
 * Owns:    nothing; texts are the caller's. Threads: values.
 * Errors:  ST_INVALID, logged with the name and the fix; `dash` stands before names, "--" or "". */
#ifndef MEMBER_JOB_SETTINGS_H
#define MEMBER_JOB_SETTINGS_H
#include "base/status.h"
#include "net/wire/job.h"

/* Numbers below 0: not said. */
struct job_settings {
    int sync_mode;
    int64_t replicas, staleness;
    double compensation;
    const char *wire_dtype; /* NULL: fp32 */
    int64_t wire_step_ms, chunk_bytes;
    int shared_memory;       /* 0: auto */
    int optimizer, schedule; /* not said: adam, constant */
    int outer_optimizer;
    double learning_rate, momentum, decay, beta1, beta2, epsilon, weight_decay;
    double clip_value, clip_norm, lr_decay, outer_rate, outer_momentum;
    int64_t lr_warmup_steps, lr_decay_steps, local_steps;
    const char *lr_boundaries; /* NULL: none */
};

#define JOB_SETTINGS_DEFAULTS                                                                      \
    {                                                                                              \
        .sync_mode = -1, .staleness = -1, .wire_dtype = "fp32", .wire_step_ms = 100,               \
        .optimizer = -1, .schedule = -1, .outer_optimizer = -1, .learning_rate = -1,               \
        .momentum = -1, .decay = -1, .beta1 = -1, .beta2 = -1, .epsilon = -1, .weight_decay = -1,  \
        .lr_decay = -1, .outer_rate = -1, .outer_momentum = -1, .local_steps = 1                   \
    }

/* The optimizer, with its schedule and clipping; joins: a running job has what was left out. */
enum status job_settings_optim(const struct job_settings *s, const char *dash, int joins,
                               struct optim_config *out);
/* Of contributions and of versions, and whether the line is to say. */
enum status job_settings_dtypes(const struct job_settings *s, const char *dash,
                                struct net_job *out);
/* What is said of the servers' optimizer of rounds goes together. */
enum status job_settings_check_outer(const struct job_settings *s, const char *dash, int joins);
/* The same, where a step of the servers is a round of local steps. Nothing said: plain averaging
 * behind optimizers that have a learning rate to themselves, Nesterov's momentum behind adam and
 * its like (adaptive), plain averaging where the job has few rounds; in async and ssp a part of
 * each contribution. Of job: mode, n_workers, train_steps, not in rounds yet; 0: not said. */
void job_settings_outer(const struct job_settings *s, const struct net_job *job, int adaptive,
                        int64_t n_params, struct optim_config *out);
/* Returns the bits of enum job_outer that the settings leave out. */
int job_settings_outer_unsaid(const struct job_settings *s);
/* Refuses train_steps, as it was typed, that are no whole rounds of n. */
enum status job_settings_check_steps(int64_t train_steps, int64_t n, const char *dash);
/* Warns of a job of rounds that has too few of them for a good result. */
void job_settings_warn_few(const struct net_job *job);
/* From a job of gradients to one of rounds of n steps, by this optimizer of the servers. */
void job_settings_round(struct net_job *job, int64_t n, const struct optim_config *outer);

#endif
