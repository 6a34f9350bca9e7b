/* member/updates.h - where a worker's contributions go: to the servers
 * (net/exchange/exchange.h), or, alone, through the same chunk-wise update in this process, or,
 * with local steps, through that for some steps and then to the servers. The trainer sees only
 * this. Owns: the local kind owns the optimizer's slots. Threads: push, wait, version from any
 * thread. Errors: those of net/exchange/exchange.h. */
#ifndef MEMBER_UPDATES_H
#define MEMBER_UPDATES_H
#include "member/crew.h"
#include "net/exchange/exchange.h"
#include "net/exchange/waits.h"

struct updates_ops {
    /* The rule of the updates where they are this process's own, so that the caller may do them
     * itself and never push; NULL: they are not. */
    const struct optim_config *(*rule)(void *ctx);
    /* Threads for updates that are this process's own; before the first push. NULL: none are. */
    void (*set_crew)(void *ctx, const struct crew *crew);
    /* Where gradients are best made (net_exchange_gradients); NULL, or returns NULL: nowhere. */
    struct segment *(*gradients)(void *ctx, enum dtype dtype);
    enum status (*start)(void *ctx, struct net_start *out);
    /* weight 0: it counts, moves nothing, and data are not read. */
    enum status (*push)(void *ctx, int chunk, int64_t step, const float *data, float weight);
    /* data: in the job's dtype of contributions. NULL: push alone. */
    enum status (*push_encoded)(void *ctx, int chunk, int64_t step, const void *data, float weight);
    enum status (*pull)(void *ctx, int chunk, int64_t step); /* in full precision */
    void (*flush)(void *ctx);
    /* As net_exchange_wait_until; the local kind never waits. */
    enum status (*wait)(void *ctx, int first, int n, int64_t step, int64_t deadline_ns);
    int64_t (*version)(void *ctx, int chunk);
    int (*is_busy)(void *ctx, int chunk); /* NULL: never */
    uint64_t (*samples)(void *ctx);       /* NULL: nobody says */
    /* net_exchange_leave_soon and the one behind it; NULL: there is nobody to be told. */
    enum status (*leave_soon)(void *ctx, int64_t deadline_ms);
    int (*is_leaving)(void *ctx);
    enum status (*leave)(void *ctx, int done, const char *error); /* "": without one */
    void (*cancel)(void *ctx);
    void (*stats)(void *ctx, struct net_exchange_stats *out);
    void (*waits)(void *ctx, struct net_exchange_wait *out); /* NULL: it never waits */
    void (*destroy)(void *ctx);
};

struct updates {
    const struct updates_ops *ops;
    void *ctx;
};

/* ps_hosts->n == 0 gives the local kind; else job.local_steps counts. cfg as in
 * net/exchange/exchange.h. */
enum status updates_create(const struct net_exchange_config *cfg, struct updates *out);
/* Of the local kind, between two steps: all that a step goes on from. */
struct updates_state {
    float *params, *slots; /* the flat block; a chunk's slots lie together at n_slots * first */
    int n_slots;
    struct net_place place;
};
int updates_state(const struct updates *x, struct updates_state *out); /* 0: of the other kind */
/* The local kind, before start: the state was filled with that of `step`, whose first sample lies
 * at `position`. */
void updates_resume(struct updates *x, int64_t step, uint64_t position);
/* The local kind, before the pushes of a step: its gradients are clipped by this factor (clip.h);
 * 0: the step moves nothing. 0: of the other kind, nothing is done. */
int updates_clip(struct updates *x, double factor);
void updates_destroy(struct updates *x); /* a zeroed one is fine */

#endif
