/* ps/region/region.h - a group of servers that is a region: it trains with its own workers, and as
 * one member of a parent group exchanges its changes with other regions (docs/guide/regions.md).
 *
 *     gate: every `steps`-th version, and the last one
 *     held: the parent's version that the region's values are based on
 *     `overlap` versions before a gate: contribution = held - value, one for the whole region
 *     at the gate: value += the parent's next version - the contributed value
 *              or: value = overlap_mix * value + (1 - overlap_mix) * the parent's next version
 *
 * Fragments (net/wire/fragments.h) do not change that each gate is one of the parent's steps. The
 * exchange then applies to the chunks that have their turn at that step; other chunks keep the
 * region's own values, and are later compared with the parent's version since their last turn,
 * which the parent has kept.
 *
 * A gate waits for the parent (ps/store/outer.h), so that the result is a function of the job,
 * whenever answers arrive. If max_drift is set, the region makes up to so many steps beyond the
 * gate alone, and adopts the answer when it arrives. If the parent has continued without this
 * region, the region adds its own changes of that time to the parent's newest version. After the
 * last gate all regions have the same values.
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
    /* Number of fragments, one of which is exchanged at each gate; below 2: all is exchanged. */
    int fragments;
    int64_t overlap; /* steps that are computed while the exchange is in flight */
    /* Share of the region's own values that stays at a gate, 0 to 1; < 0: the changes of the
     * overlap are added instead. */
    float overlap_mix;
    int64_t max_drift; /* steps beyond a gate that are made without an answer */
    /* Kind (enum optim_kind) of the parent's servers: sgd to nesterov; < 0: by the number of
     * exchanges. */
    int outer;
    double outer_rate, outer_momentum;    /* settings of that optimizer; < 0: by the model's size */
    enum dtype push_dtype, version_dtype; /* formats of the exchange with the parent */
    bool wire_auto;                       /* the parent's job chooses the formats by all lines */
    int step_ms;                          /* duration of a step that wire_auto assumes */
    int64_t parent_timeout;               /* limit in seconds on a wait for the parent; 0: none */
    const char *folder; /* folder of checkpoints, borrowed to the program's end; NULL: none */
    /* The region cannot continue: this process is to exit with 1; logged. */
    void (*refused)(void *ctx);
    /* Called if the region waits for the parent, which has not been reached for that time; `why` is
     * one sentence; logged. complete is nonzero if all steps are made and the job ends in order;
     * otherwise the job is to be ended. */
    void (*parent_lost)(void *ctx, int complete, const char *why);
    void *ctx;
};

struct ps_region;
enum status ps_region_create(const struct ps_region_config *cfg, struct ps_region **out);
/* Returns the hooks for the service; valid until destroy. */
const struct outer_hooks *ps_region_outer(struct ps_region *r);
/* Checks a first join before it is answered: ST_INVALID, with a sentence, for a job that a region
 * cannot train. */
enum status ps_region_check(struct ps_region *r, const struct net_join *join, char *why,
                            size_t why_bytes);
/* Adopts the job of this join, which the coordinator has accepted; ps_region_check may have seen
 * other joins before. `restored` is the parent's version in the checkpoint that the job resumes
 * from. ST_NOMEM. */
enum status ps_region_take(struct ps_region *r, const struct net_join *join,
                           const struct checkpoint_parent_version *restored);
/* Returns the parent's version that a version of the region, made in that generation, is based on.
 * It is unknown if none was adopted yet, or that was long ago. Any thread may call it. */
void ps_region_parent_at(struct ps_region *r, uint64_t generation, int64_t version,
                         struct checkpoint_parent_version *out);
/* Borrows the service until stop. NULL is fine. */
enum status ps_region_start(struct ps_region *r, struct service *service);
/* Fills in the gates of a new plan. `restored` is the parent's version in its checkpoint, unknown
 * without one. */
void ps_region_plans(struct ps_region *r, struct net_plan *plan,
                     const struct checkpoint_parent_version *restored);
/* Prepares the newest plan before its store exists; the store before has stopped. ST_NOMEM. */
enum status ps_region_begin(struct ps_region *r, const struct net_plan *plan);
/* Receives a message of another server (region_server.h). Any thread may call it. */
void region_chunks_receive(struct ps_region *r, const struct net_gate *gate,
                           struct net_squares_reply *reply);
/* Waits, if all steps are made, up to 5 s for the parent to admit the region, if it has not yet,
 * and to accept the rest. The region's other servers and the node still run. NULL is fine. */
void ps_region_await_end(struct ps_region *r);
/* Writes "ps:0 of the parent group (a:1, no connection)" where the region has waited for the parent
 * group for 3 s; else the text is empty. Any thread; a NULL region waits for none. */
void ps_region_waits(struct ps_region *r, char text[STATUS_WAITING_BYTES]);
/* Wakes the region, since a generation has begun. NULL is fine. */
void ps_region_wake(struct ps_region *r);
/* Sends the leave message to the parent if the job is done, or has ended with this error (NULL:
 * none), which the parent then reports; called after await_end. NULL is fine, here and below. */
void ps_region_stop(struct ps_region *r, const char *error);
void ps_region_destroy(struct ps_region *r);

/* Returns true if the version is a gate; ps_region_gates returns the number of gates up to a
 * version. */
bool ps_region_is_gate(const struct ps_region_config *cfg, int64_t version, int64_t train_steps);
int64_t ps_region_gates(const struct ps_region_config *cfg, int64_t version, int64_t train_steps);
/* Returns the version of gate number n, from 0 (the first version) on. */
int64_t ps_region_gate_version(const struct ps_region_config *cfg, int64_t n, int64_t train_steps);

#endif
