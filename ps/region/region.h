/* ps/region/region.h - a group of servers that is a region: it trains with its own workers, and as
 * one member of a parent group exchanges what it has learnt with other regions
 * (docs/guide/regions.md).
 *
 *     gates: every `steps`-th version, and the last; held: the parent's version that it began with
 *     at the gate less `overlap`: contribution = held - value, one for all of the region's workers
 *     at the gate: value += the parent's next version - what the value was when it was contributed
 *              or: value = overlap_mix * value + (1 - overlap_mix) * the parent's next version
 *
 * With fragments (net/wire/fragments.h) each gate is one of the parent's steps still, and all this
 * is so of the chunks whose turn that step is; the values of others stay the region's own, and what
 * they are compared with is the parent's version since their last turn, which it has kept.
 *
 * A gate waits for the parent (ps/store/outer.h), so that what is computed is a function of the
 * job, whenever answers come; with max_drift it waits for so many steps less: the region goes on
 * alone, and takes the answer over when it is there. If the parent has gone on without this region,
 * what was learnt alone meanwhile stays on top of the parent's newest version. After the last gate
 * all regions have the same values.
 *
 * Owns:    a client of the parent group, two threads (with max_drift: three), three blocks of the
 *          model's size.
 * Threads: hooks and wake from any; the rest from one. Errors: logged. */
#ifndef PS_REGION_REGION_H
#define PS_REGION_REGION_H
#include "base/hosts.h"
#include "checkpoint/manifest.h"
#include "net/wire/gate.h"
#include "net/wire/job.h"
#include "net/wire/plan.h"
#include "net/wire/status.h"
#include "ps/store/outer.h"

struct service;

struct ps_region_config {
    const struct hosts *parents; /* the parent group's servers; borrowed for ever */
    const char *address;         /* of this server; likewise */
    int index, n_regions;        /* 0 to n_regions - 1 */
    int64_t steps;               /* of a worker, from gate to gate, >= 1 */
    int fragments;               /* of which one is exchanged at each gate; 0, 1: all is */
    int64_t overlap;             /* steps that are computed while the exchange is under way */
    float overlap_mix;           /* share of the region's own values that stays at a gate, 0 to 1;
                                    < 0: what was computed in the overlap is added instead */
    int64_t max_drift;           /* steps behind a gate that are made without an answer */
    int outer;                   /* enum optim_kind of the parent's servers: sgd to nesterov;
                                    < 0: by the number of exchanges */
    double outer_rate, outer_momentum;    /* theirs; < 0: by the model's size */
    enum dtype push_dtype, version_dtype; /* of what crosses */
    int wire_auto;                        /* or as the parent's job has it, by all lines; */
    int step_ms;                          /* then: that a step is reckoned to take */
    int64_t parent_timeout;               /* s; 0: it waits for the parent without end */
    const char *folder;                   /* of checkpoints, borrowed for ever; NULL: none */
    void (*refused)(void *ctx); /* the region cannot go on: this process is to end with 1; logged */
    /* It has waited for the parent, which was not reached for that time: `why`, one sentence;
     * logged. complete: all steps are made, the job ends in order; else it is to be ended. */
    void (*parent_lost)(void *ctx, int complete, const char *why);
    void *ctx;
};

struct ps_region;
enum status ps_region_create(const struct ps_region_config *cfg, struct ps_region **out);
/* For the service; valid until destroy. */
const struct outer_hooks *ps_region_outer(struct ps_region *r);
/* Before a first join is answered: ST_INVALID, with a sentence, for a job that a region cannot
 * train. */
enum status ps_region_check(struct ps_region *r, const struct net_join *join, char *why,
                            size_t why_bytes);
/* Takes over the job of this join, which the coordinator has accepted; ps_region_check may have
 * seen other joins before. restored: the parent's version in the checkpoint that the job resumes
 * from. ST_NOMEM. */
enum status ps_region_take(struct ps_region *r, const struct net_join *join,
                           const struct checkpoint_parent_version *restored);
/* Which of the parent's versions the values of that version, as it was made in that generation, go
 * back to; not known: none was taken over yet, or it is long ago. Any thread. */
void ps_region_parent_at(struct ps_region *r, uint64_t generation, int64_t version,
                         struct checkpoint_parent_version *out);
/* The service is borrowed until stop. NULL is fine. */
enum status ps_region_start(struct ps_region *r, struct service *service);
/* A plan is being made, whose gates it fills in; restored: what its checkpoint says, not known
 * without. */
void ps_region_plans(struct ps_region *r, struct net_plan *plan,
                     const struct checkpoint_parent_version *restored);
/* Before the newest plan's store is there; the one before has stopped. ST_NOMEM. */
enum status ps_region_begin(struct ps_region *r, const struct net_plan *plan);
/* Another server's word (region_server.h). Any thread. */
void region_chunks_receive(struct ps_region *r, const struct net_gate *gate,
                           struct net_squares_reply *reply);
/* Where all steps are made, the parent has 5 s to let the region in, if it has not yet, and to take
 * what is left. The region's other servers are there still, as is the node. NULL is fine. */
void ps_region_await_end(struct ps_region *r);
/* Writes "ps:0 of the parent group (a:1, no connection)" where the region has waited for the parent
 * group for 3 s; else the text is empty. Any thread; a NULL region waits for none. */
void ps_region_waits(struct ps_region *r, char text[STATUS_WAITING_BYTES]);
void ps_region_wake(struct ps_region *r); /* a generation has begun; NULL is fine */
/* Says goodbye to the parent where the job is done, or has ended with this error (NULL: none), of
 * which the parent then tells; after await_end. NULL is fine, here and below. */
void ps_region_stop(struct ps_region *r, const char *error);
void ps_region_destroy(struct ps_region *r);

/* Whether the version is a gate, and how many gates there are up to a version. */
int ps_region_is_gate(const struct ps_region_config *cfg, int64_t version, int64_t train_steps);
int64_t ps_region_gates(const struct ps_region_config *cfg, int64_t version, int64_t train_steps);
/* Of gate number n, from 0 (the first version) on. */
int64_t ps_region_gate_version(const struct ps_region_config *cfg, int64_t n, int64_t train_steps);

#endif
