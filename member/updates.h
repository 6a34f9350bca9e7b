/* member/updates.h - the interface by which a trainer updates parameters, of three kinds. The
 * remote kind sends contributions to the servers (net/exchange/exchange.h). The local kind, of a
 * worker alone, does the same update for each chunk in this process. For local steps, the rounds
 * kind does local updates for some steps and then sends their result to the servers. Owns: the
 * local kind owns the optimizer's slots. Threads: push, wait, version from any thread. Errors:
 * those of net/exchange/exchange.h. */
#ifndef MEMBER_UPDATES_H
#define MEMBER_UPDATES_H
#include "member/crew.h"
#include "net/exchange/exchange.h"
#include "net/exchange/waits.h"

struct updates_ops {
    /* Returns the optimizer of the local kind, so that the caller may update by itself and never
     * push. NULL: another kind. */
    const struct optim_config *(*rule)(void *ctx);
    /* Sets the threads for updates in this process, before the first push. NULL: no such updates.
     */
    void (*set_crew)(void *ctx, const struct crew *crew);
    /* Returns the segment in which gradients should be written (net_exchange_gradients). NULL, or
     * returns NULL: any memory is suitable. */
    struct segment *(*gradients)(void *ctx, enum dtype dtype);
    enum status (*start)(void *ctx, struct net_start *out);
    /* Pushes a contribution. weight 0: it counts, changes nothing, and data are not read. */
    enum status (*push)(void *ctx, int chunk, int64_t step, const float *data, float weight);
    /* Pushes data in the job's dtype of contributions. NULL: only push is supported. */
    enum status (*push_encoded)(void *ctx, int chunk, int64_t step, const void *data, float weight);
    enum status (*pull)(void *ctx, int chunk, int64_t step); /* requests full precision*/
    void (*flush)(void *ctx);
    /* Waits like net_exchange_wait_until; the local kind never waits. */
    enum status (*wait)(void *ctx, int first, int n, int64_t step, int64_t deadline_ns);
    int64_t (*version)(void *ctx, int chunk);
    int (*is_busy)(void *ctx, int chunk); /* NULL: never */
    uint64_t (*samples)(void *ctx);       /* NULL: servers do not assign samples */
    /* net_exchange_leave_soon and its poll; NULL: there are no servers. */
    enum status (*leave_soon)(void *ctx, int64_t deadline_ms);
    int (*is_leaving)(void *ctx);
    enum status (*leave)(void *ctx, int done, const char *error); /* "": without an error */
    void (*cancel)(void *ctx);
    void (*stats)(void *ctx, struct net_exchange_stats *out);
    void (*waits)(void *ctx, struct net_exchange_wait *out); /* NULL: it never waits */
    void (*destroy)(void *ctx);
};

struct updates {
    const struct updates_ops *ops;
    void *ctx;
};

/* Creates updates: the local kind if ps_hosts->n is 0, else the remote or, by job.local_steps, the
 * rounds kind. cfg: see net/exchange/exchange.h. */
enum status updates_create(const struct net_exchange_config *cfg, struct updates *out);
/* State of the local kind between two steps, from which it can resume. */
struct updates_state {
    float *params, *slots; /* the flat block; a chunk's slots lie together at n_slots * first */
    int n_slots;
    struct net_place place;
};
int updates_state(const struct updates *x, struct updates_state *out); /* 0: another kind */
/* Sets the local kind, before start, to a state that was filled with that of `step`, whose first
 * sample lies at `position`. */
void updates_resume(struct updates *x, int64_t step, uint64_t position);
/* Sets, before the pushes of a step, the factor that clips its gradients in the local kind
 * (clip.h); factor 0: the step changes nothing. Returns 0, and does nothing, for another kind. */
int updates_clip(struct updates *x, double factor);
void updates_destroy(struct updates *x); /* does nothing to a zeroed one */

#endif
