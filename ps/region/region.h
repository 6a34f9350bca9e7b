/* ps/region/region.h - a group of servers that is a region: it trains with its own workers, and as
 * one member of a parent group exchanges its changes with other regions (docs/guide/regions.md).
 *
 *     gate: every `steps`-th version, and the last one
 *     held: the parent's version that the region's values are based on
 *     `overlap` versions before a gate: contribution = held - value, one for the whole region
 *     at the gate: value += the parent's next version - the contributed value
 *              or: value = overlap_mix * value + (1 - overlap_mix) * the parent's next version
 *
 * If the job has fragments (net/wire/fragments.h), each gate is still one step of the parent, but
 * only the chunks that have their turn at that step are exchanged. Other chunks keep the region's
 * own values. The change that such a chunk contributes at its next turn is counted from the
 * parent's version of its last turn, which the parent has kept unchanged since.
 *
 * At a gate the region waits for the parent (ps/store/outer.h), so that the result does not depend
 * on the time at which the parent's answer arrives. If max_drift is set, the region makes up to
 * max_drift steps beyond the gate without the answer, and adopts the answer when it arrives. If the
 * parent has continued without this region, the region adds its own changes of that time to the
 * parent's newest version. After the last gate all regions have the same values.
 *
 * Owns:    a client of the parent group, two threads (with max_drift: three), three blocks of the
 *          model's size.
 * Threads: hooks and wake from any; the remaining functions from one.
 * Errors:  logged. */
#ifndef PS_REGION_REGION_H
#define PS_REGION_REGION_H
#include "base/hosts.h"
#include "checkpoint/manifest.h"
#include "net/wire/gate.h"
#include "net/wire/job.h"
#include "net/wire/plan.h"
#include "net/wire/status.h"
#include "ps/store/outer.h"
#include <stdbool.h>

struct service;

struct ps_region_config {
    const struct hosts *parents; /* the parent group's servers; borrowed to the program's end */
    const char *address;         /* address of this server; borrowed to the program's end */
    int index, n_regions;        /* 0 to n_regions - 1 */
    int64_t steps;               /* steps of a worker from gate to gate, >= 1 */
    /* Number of fragments, one of which is exchanged at each gate; below 2: each gate exchanges all
     * chunks. */
    int fragments;
    int64_t overlap; /* steps that are computed while the exchange is in flight */
    /* Weight of the region's own values, 0 to 1, in their mean with the parent's at a gate; < 0:
     * the changes of the overlap are added to the parent's values instead. */
    float overlap_mix;
    int64_t max_drift; /* most steps that are made beyond a gate without an answer */
    /* Optimizer (enum optim_kind, SGD to Nesterov) of the parent's servers; < 0: chosen by the
     * number of exchanges. */
    int outer;
    /* learning rate and momentum of that optimizer; < 0: chosen by the model's size */
    double outer_rate, outer_momentum;
    enum dtype push_dtype, version_dtype; /* formats of the exchange with the parent */
    bool wire_auto;         /* the parent's job chooses the formats by its slowest connection */
    int step_ms;            /* duration of a step that wire_auto assumes */
    int64_t parent_timeout; /* limit in seconds on a wait for the parent; 0: none */
    const char *folder;     /* folder of checkpoints, borrowed to the program's end; NULL: none */
    /* Called if the region cannot continue, which was logged: this process is to exit with 1. */
    void (*refused)(void *ctx);
    /* Called if the parent has not been reached for parent_timeout while the region waits for
     * it. `why` is one sentence, which was logged. If complete is nonzero, all steps are made,
     * and the job ends in order; otherwise the callee is to end the job. */
    void (*parent_lost)(void *ctx, int complete, const char *why);
    void *ctx;
};

struct ps_region;
enum status ps_region_create(const struct ps_region_config *cfg, struct ps_region **out);
/* Returns the hooks for the service; valid until destroy. */
const struct outer_hooks *ps_region_outer(struct ps_region *r);
/* Checks the first join of a job before the service answers it. ST_INVALID, with a sentence in
 * `why`: a region cannot train that job. */
enum status ps_region_check(struct ps_region *r, const struct net_join *join, char *why,
                            size_t why_bytes);
/* Adopts the job of this join, which the coordinator has accepted; ps_region_check may have seen
 * other joins before. `restored` is the parent's version in the checkpoint that the job resumes
 * from. ST_NOMEM. */
enum status ps_region_take(struct ps_region *r, const struct net_join *join,
                           const struct checkpoint_parent_version *restored);
/* Finds the parent's version on which `version` of the region, made in `generation`, is based.
 * out->known is false if the region had not adopted a version by then, or if that adoption is too
 * old to be recorded here. Any thread may call it. */
void ps_region_parent_at(struct ps_region *r, uint64_t generation, int64_t version,
                         struct checkpoint_parent_version *out);
/* Borrows the service until stop. NULL is fine. */
enum status ps_region_start(struct ps_region *r, struct service *service);
/* Fills in the gates of a new plan. `restored` is the parent's version in the checkpoint that the
 * plan resumes from; unknown if the plan resumes from none. */
void ps_region_plans(struct ps_region *r, struct net_plan *plan,
                     const struct checkpoint_parent_version *restored);
/* Prepares for the newest plan: the store of the plan before has stopped, and the new plan's store
 * does not exist yet. ST_NOMEM. */
enum status ps_region_begin(struct ps_region *r, const struct net_plan *plan);
/* Receives a message of another server (region_server.h). Any thread may call it. */
void region_chunks_receive(struct ps_region *r, const struct net_gate *gate,
                           struct net_squares_reply *reply);
/* Waits, if all steps are made, up to 5 s until the parent has admitted the region and accepted its
 * last changes. The caller keeps the region's other servers and the node running. NULL is fine. */
void ps_region_await_end(struct ps_region *r);
/* Writes the program of the parent group that the region waits for, such as "ps:0 of the parent
 * group (a:1, no connection)", if the wait has lasted 3 s; otherwise the text is empty. Any thread
 * may call it. NULL is fine: the text is empty. */
void ps_region_waits(struct ps_region *r, char text[STATUS_WAITING_BYTES]);
/* Wakes the region, since a generation has begun. NULL is fine. */
void ps_region_wake(struct ps_region *r);
/* Sends the parent the leave message if the job is done, or has ended with this error (NULL: no
 * error), which the parent's servers then log. Called after ps_region_await_end. NULL is fine, here
 * and below. */
void ps_region_stop(struct ps_region *r, const char *error);
void ps_region_destroy(struct ps_region *r);

/* Returns true if the version is a gate; ps_region_gates returns the number of gates up to a
 * version. */
bool ps_region_is_gate(const struct ps_region_config *cfg, int64_t version, int64_t train_steps);
int64_t ps_region_gates(const struct ps_region_config *cfg, int64_t version, int64_t train_steps);
/* Returns the version of gate number n, from 0 (the first version) on. */
int64_t ps_region_gate_version(const struct ps_region_config *cfg, int64_t n, int64_t train_steps);

#endif
