/* net/wire/plan.h - the plan of a generation, made by ps 0: its members, the server of each chunk,
 * and the source of its first versions. Every server receives the whole plan. A worker receives
 * only its own place, in the answer to Join.
 *
 * A generation begins at `step`. A Stop ends it at once. The next generation begins at the last
 * step that is complete on all servers, from memory (I4). If a server has lost its chunks, the next
 * generation begins at the newest checkpoint.
 *
 * Owns:    its lists, its table of chunks.
 * Threads: plain values without a lock.
 * Errors:  ST_NOMEM. */
#ifndef NET_WIRE_PLAN_H
#define NET_WIRE_PLAN_H
#include "net/wire/control.h"
#include "net/wire/job.h"
#include <stdbool.h>

enum plan_source {
    PLAN_FIRST, /* the member of rank 0 sends the initial values, by INIT */
    PLAN_CHECKPOINT,
    PLAN_MEMORY,
    PLAN_N_SOURCES,
};

/* Last version for which a member's contribution counted. Contributions to the same
 * version differ by the generation: after a checkpoint was missing or damaged, the job may make a
 * version again, and later return to the checkpoint of an older generation. */
struct net_contribution {
    int member;          /* index of the member */
    int64_t version;     /* above 0; of net_plan_contributed also 0: none */
    uint64_t generation; /* generation that made the version, or a later version that the next
                            generation dropped; 0: unknown (files of older programs) */
};

/* Gates of a region (ps/region/region.h): versions that wait until ps 0 has received the values
 * of other regions. */
struct net_gates {
    int64_t steps;       /* steps between two gates; 0: the group is not a region */
    int64_t overlap;     /* number of steps before a gate at which the gate's exchange begins */
    int64_t slots_since; /* version at which the optimizer's slots were zero */
    /* at the start, every version waits until ps 0 allows the servers to continue without the
     * parent */
    bool alone;
};
/* Returns true if the version waits at a gate. The job's last version always waits. A version
 * shortly before the last one never waits, because its exchange would not end before the exchange
 * of the last version begins. */
bool net_plan_gates_has(const struct net_gates *g, int64_t version, int64_t train_steps);
/* Returns the number of gates up to a version. */
int64_t net_plan_gates_up_to(const struct net_gates *g, int64_t version, int64_t train_steps);
/* Returns the version of gate number n, counted from 0 (the first version). */
int64_t net_plan_gates_version(const struct net_gates *g, int64_t n, int64_t train_steps);

struct net_plan {
    uint64_t generation; /* > 0 */
    /* incarnation of the ps 0 that made the plan. A ps 0 that has lost its epoch may use the number
     * of a generation again. 0: no ps 0 (tests) */
    uint64_t ps0;
    int64_t step;       /* first version of the generation; 0 with PLAN_FIRST */
    uint64_t position;  /* position of that step's first sample */
    struct net_job job; /* n_workers: value of the job's first member */
    struct chunks *chunks;
    int n_members, *member; /* indices, ascending; a member's rank is its position here */
    struct hosts servers;   /* a server's number is its position here; [0] is ps 0 */
    int *shard;             /* [n_chunks] number of the chunk's server */
    enum plan_source source;
    char restore[CONTROL_TEXT_BYTES]; /* CHECKPOINT: the manifest's name */
    uint64_t before;                  /* MEMORY: the generation that this one continues */
    struct hosts holders;             /* servers of the generation `before` */
    int *held_by;      /* [n_chunks] index in `holders` of the server that has the chunk */
    int n_contributed; /* lockstep: number of members, present or former, that
                          contributed up to `step` */
    struct net_contribution *contributed; /* [n_contributed] ascending by member */
    struct net_gates gates;
};

/* Copies a list; *out is malloc'd, or NULL for an empty list. */
enum status net_plan_contributions_copy(const struct net_contribution *from, int n,
                                        struct net_contribution **out);

/* Copies a plan together with its lists. */
enum status net_plan_copy(const struct net_plan *p, struct net_plan **out);
void net_plan_free(struct net_plan *p); /* NULL is fine */
/* Returns the member's rank; -1: it is not in the plan. */
int net_plan_rank(const struct net_plan *p, int member);
/* Returns the number of the server at this address; -1: none. */
int net_plan_server(const struct net_plan *p, const char *addr);
/* Returns the position of the first sample of `step`, counted from the first sample of the first
 * pass. */
uint64_t net_plan_position(const struct net_plan *p, int64_t step);
/* Returns, in lockstep, the last version up to `step`, in this generation or before it, for
 * which the member's contribution counted. */
struct net_contribution net_plan_contributed(const struct net_plan *p, int member, int64_t step);
/* Lists net_plan_contributed of all members, ascending by index, as struct net_plan contains the
 * list; *out is malloc'd. */
enum status net_plan_contributions(const struct net_plan *p, int64_t step,
                                   struct net_contribution **out, int *n);

#endif
