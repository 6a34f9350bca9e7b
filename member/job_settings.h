/* member/job_settings.h - the settings that must be equal in all members of a job, before they are
 * checked, and the job that follows from them. They are flags of the worker and settings of
 * libweir: the rows FOR_JOB of flags/table.inc.
 * Owns:    nothing; the caller owns the texts.
 * Threads: plain values without a lock.
 * Errors:  ST_INVALID, logged with the name and the fix; `dash` stands before names, "--" or "". */
#ifndef MEMBER_JOB_SETTINGS_H
#define MEMBER_JOB_SETTINGS_H
#include "base/status.h"
#include "net/wire/job.h"

/* A number below 0 means that the setting was not set. */
struct job_settings {
    int sync_mode;
    int64_t replicas, staleness;
    double compensation;
    const char *wire_dtype; /* NULL: fp32 */
    int64_t wire_step_ms, chunk_bytes;
    int shared_memory;       /* 0: auto */
    int optimizer, schedule; /* default: adam, constant */
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

/* Checks and returns the optimizer, with its schedule and clipping. joins: nonzero if the member
 * joins a running job; then the job's settings apply where the member's are left out. */
enum status job_settings_optim(const struct job_settings *s, const char *dash, int joins,
                               struct optim_config *out);
/* Adds the boundaries of a schedule, a text as "1000,2000" or NULL, to *out. */
enum status job_settings_boundaries(const char *text, const char *dash, struct optim_config *out);
/* Checks and returns the dtypes of contributions and of versions, and whether to log them. */
enum status job_settings_dtypes(const struct job_settings *s, const char *dash,
                                struct net_job *out);
/* Checks that the settings of the servers' optimizer for rounds (below) fit together. */
enum status job_settings_check_outer(const struct job_settings *s, const char *dash, int joins);
/* Returns the servers' optimizer for rounds: each step of the servers is a round of local steps.
 * Defaults: Nesterov's momentum for adam and similar local optimizers (adaptive), plain averaging
 * for other optimizers and for jobs with few rounds. In async and ssp the servers apply only a part
 * of each contribution. job: its mode, n_workers and train_steps (not in rounds yet) are used; 0:
 * unknown. */
void job_settings_outer(const struct job_settings *s, const struct net_job *job, int adaptive,
                        int64_t n_params, struct optim_config *out);
/* Returns the bits of enum job_outer whose settings are not set. */
int job_settings_outer_unsaid(const struct job_settings *s);
/* Checks that train_steps, the value of the setting, is a multiple of the n steps of a round. */
enum status job_settings_check_steps(int64_t train_steps, int64_t n, const char *dash);
/* Logs a warning if a job has too few rounds for a good result. */
void job_settings_warn_few(const struct net_job *job);
/* Changes a job of gradients into a job of rounds of n steps; `outer` is the servers' optimizer. */
void job_settings_round(struct net_job *job, int64_t n, const struct optim_config *outer);

#endif
