/* member/updates.h - the interface by which a trainer updates parameters. There are three kinds.
 * The remote kind sends contributions to the servers (net/exchange/exchange.h). The local kind, for
 * a worker alone, does the same update for each chunk in this process. The rounds kind, for local
 * steps, does local updates for some steps and then sends their result to the servers.
 * Owns:    the local kind owns the optimizer's slots.
 * Threads: any thread may push, wait and read a version.
 * Errors:  those of net/exchange/exchange.h. */
#ifndef MEMBER_UPDATES_H
#define MEMBER_UPDATES_H
#include "member/crew.h"
#include "net/exchange/rows.h"
#include "net/exchange/waits.h"

struct updates_ops {
    /* Returns the optimizer of the local kind, so that the caller may update by itself and never
     * push. NULL: another kind. */
    const struct optim_config *(*rule)(void *ctx);
    /* Sets the threads for updates in this process, before the first push. NULL: this kind makes
     * no updates in this process. */
    void (*set_crew)(void *ctx, const struct crew *crew);
    /* Returns the segment in which gradients should be written (net_exchange_gradients). If it is
     * NULL or returns NULL, any memory is suitable. */
    struct segment *(*gradients)(void *ctx, enum dtype dtype);
    enum status (*start)(void *ctx, struct net_start *out);
    /* Sets the factor of the learning rate for later pushes; at first 1. NULL: not supported. */
    void (*set_rate)(void *ctx, float rate);
    /* Pushes a contribution. weight 0: it counts, changes nothing, and data are not read. */
    enum status (*push)(void *ctx, int chunk, int64_t step, const float *data, float weight);
    /* Pushes a contribution that lacks gradients, like net_exchange_push_lacking. */
    enum status (*push_lacking)(void *ctx, int chunk, int64_t step, const float *data, float weight,
                                const uint8_t *lacking);
    /* Pushes data in the job's dtype of contributions. NULL: only push is supported. */
    enum status (*push_encoded)(void *ctx, int chunk, int64_t step, const void *data, float weight,
                                const uint8_t *lacking);
    enum status (*pull)(void *ctx, int chunk, int64_t step); /* requests full precision*/
    /* Work like net_exchange_push_rows, _pull_rows and _rows. NULL: tables are not supported. */
    enum status (*push_rows)(void *ctx, int chunk, int64_t step, const struct net_rows *rows,
                             float weight);
    enum status (*pull_rows)(void *ctx, int chunk, int64_t step, const uint64_t *reads,
                             size_t n_reads);
    const float *(*rows)(void *ctx, int chunk, const uint64_t **keys, size_t *n);
    /* Copies the averages of all parameters (optim_config.ema_decay) to a flat block; parameters
     * without an average have their value there. The caller has no push pending. averages NULL:
     * this kind keeps no averages. */
    enum status (*averages)(void *ctx, float *out);
    void (*flush)(void *ctx);
    /* Waits like net_exchange_wait_until; the local kind never waits. */
    enum status (*wait)(void *ctx, int first, int n, int64_t step, int64_t deadline_ns);
    /* Waits like net_exchange_wait_any. NULL: not supported. */
    enum status (*wait_any)(void *ctx, const uint8_t *skip, int64_t step, int *chunk);
    int64_t (*version)(void *ctx, int chunk);
    int (*is_busy)(void *ctx, int chunk); /* NULL: no chunk is ever busy */
    uint64_t (*samples)(void *ctx);       /* NULL: servers do not assign samples */
    /* Work like net_exchange_leave_soon and net_exchange_is_leaving. NULL: there are no servers. */
    enum status (*leave_soon)(void *ctx, int64_t deadline_ms);
    int (*is_leaving)(void *ctx);
    /* error "": the member leaves without an error */
    enum status (*leave)(void *ctx, int done, const char *error);
    void (*cancel)(void *ctx);
    void (*stats)(void *ctx, struct net_exchange_stats *out);
    void (*waits)(void *ctx, struct net_exchange_wait *out); /* NULL: this kind never waits */
    void (*destroy)(void *ctx);
};

struct updates {
    const struct updates_ops *ops;
    void *ctx;
};

/* Creates updates: the local kind if ps_hosts->n is 0; otherwise the rounds kind if job.local_steps
 * is above 1, or else the remote kind. cfg: see net/exchange/exchange.h. */
enum status updates_create(const struct net_exchange_config *cfg, struct updates *out);
/* State of the local kind between two steps, from which it can resume. */
struct updates_state {
    /* the flat block; a chunk's slots are stored together, from n_slots * first on */
    float *params, *slots;
    int n_slots;
    struct net_place place;
};
/* returns 0 for another kind */
int updates_state(const struct updates *x, struct updates_state *out);
/* Resumes the local kind, before start, at `step`, whose first sample is at `position`. The caller
 * has filled the arrays of updates_state() with the state at this step. */
void updates_resume(struct updates *x, int64_t step, uint64_t position);
/* Returns, for each parameter of a chunk, the number of updates of the local kind in which it had
 * no gradient; NULL: another kind. May be written before start. */
uint64_t *updates_idle(const struct updates *x, int chunk);
/* Sets, before the pushes of a step, the factor that clips its gradients in the local kind
 * (clip.h); factor 0: the step changes nothing. Returns 0, and does nothing, for another kind. */
int updates_clip(struct updates *x, double factor);
void updates_destroy(struct updates *x); /* does nothing to a struct of zeros */

#endif
