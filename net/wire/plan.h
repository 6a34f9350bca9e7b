/* net/wire/plan.h - a generation as ps 0 lays it down: who takes part, which server has which
 * chunk, and what it goes on from. Sent whole to every server; workers learn their place in it by
 * Join.
 *
 * A generation begins at `step` and ends at a Stop, at once. The next one begins at the last step
 * that is complete everywhere, from memory (I4); where a server has lost its chunks, at the newest
 * checkpoint.
 *
 * Owns:    its lists, its table of chunks.
 * Threads: values.
 * Errors:  ST_NOMEM. */
#ifndef NET_WIRE_PLAN_H
#define NET_WIRE_PLAN_H
#include "net/wire/control.h"
#include "net/wire/job.h"

enum plan_source {
    PLAN_FIRST, /* values come from the member of rank 0, by INIT */
    PLAN_CHECKPOINT,
    PLAN_MEMORY,
    PLAN_N_SOURCES,
};

/* The last version that a member's contribution has counted for. */
struct net_contribution {
    int member;      /* its index */
    int64_t version; /* above 0 */
};

/* Of a region (ps/region/region.h): which versions wait until ps 0 has heard of other regions. */
struct net_gates {
    int64_t steps;       /* from gate to gate; 0: the group is no region */
    int64_t overlap;     /* a version so many before a gate is told to ps 0 */
    int64_t slots_since; /* the version at which the optimizer's slots were zero */
    int alone;           /* at first each version waits, until ps 0 says that it need not */
};
/* Whether that version waits: the last one does, and none so shortly before it that its exchange
 * would not be over. */
int net_plan_gates_has(const struct net_gates *g, int64_t version, int64_t train_steps);
/* How many there are up to a version. */
int64_t net_plan_gates_up_to(const struct net_gates *g, int64_t version, int64_t train_steps);
/* Of gate number n, from 0 (the first version) on. */
int64_t net_plan_gates_version(const struct net_gates *g, int64_t n, int64_t train_steps);

struct net_plan {
    uint64_t generation; /* > 0 */
    uint64_t ps0;        /* incarnation of the ps 0 that made it: one that lost its epoch may give a
                            number again; 0: no ps 0 (tests) */
    int64_t step;        /* its first version; 0 with PLAN_FIRST */
    uint64_t position;   /* of that step's first sample */
    struct net_job job;  /* n_workers: as the job's first member had it */
    struct chunks *chunks;
    int n_members, *member; /* indices, ascending; a member's rank is its place here */
    struct hosts servers;   /* a server's number is its place here; [0] is ps 0 */
    int *shard;             /* [n_chunks] number of the chunk's server */
    enum plan_source source;
    char restore[CONTROL_TEXT_BYTES]; /* CHECKPOINT: the manifest's name */
    uint64_t before;                  /* MEMORY: the generation that it goes on from, */
    struct hosts holders;             /* its servers, */
    int *held_by;                     /* and [n_chunks] each chunk's place in `holders` */
    int n_contributed;                /* Of all that have taken part up to `step`, members now or */
    struct net_contribution *contributed; /* not, by index. In lockstep alone. */
    struct net_gates gates;
};

/* A copy, malloc'd; of none NULL. */
enum status net_plan_contributions_copy(const struct net_contribution *from, int n,
                                        struct net_contribution **out);

/* A copy with lists of its own. */
enum status net_plan_copy(const struct net_plan *p, struct net_plan **out);
void net_plan_free(struct net_plan *p); /* NULL is fine */
/* -1: the member has no place in it. */
int net_plan_rank(const struct net_plan *p, int member);
/* -1: no server of it is at this address. */
int net_plan_server(const struct net_plan *p, const char *addr);
/* Of step `step`, its first sample, counted from the first of the first pass. */
uint64_t net_plan_position(const struct net_plan *p, int64_t step);
/* Lockstep: of the versions of this generation up to `step`, and those that it goes on from, the
 * last one that the member's contribution has counted for. 0: none. */
int64_t net_plan_contributed(const struct net_plan *p, int member, int64_t step);
/* The same of all, by index, as a plan has it: malloc'd. */
enum status net_plan_contributions(const struct net_plan *p, int64_t step,
                                   struct net_contribution **out, int *n);

#endif
