/* ps/service/planner.h - how a generation's plan is made of what ps 0 has decided. Values, no
 * state.
 * Threads: any. Errors: ST_NOMEM; of a table that cannot be ST_INVALID. */
#ifndef PS_SERVICE_PLANNER_H
#define PS_SERVICE_PLANNER_H
#include "checkpoint/manifest.h"
#include "net/wire/plan.h"

/* The first of a job. members: NULL: 0 to the job's workers - 1. from: the checkpoint that it goes
 * on from; NULL: from its first step. */
struct planner_first {
    uint64_t generation;
    uint64_t ps0; /* that makes it: its incarnation */
    const struct net_join *join;
    const struct hosts *servers;
    const int *member;
    int n_members;
    const struct checkpoint_manifest *from;
    const char *restore; /* its name in the plan */
};
enum status planner_make_first(const struct planner_first *f, struct net_plan **out);

/* The one after `base`, whose stores are there unless the source says otherwise. Chunks stay where
 * they are as far as they can (chunks_reshard). */
struct planner_next {
    uint64_t generation;
    uint64_t ps0; /* as above */
    const struct net_plan *base;
    enum plan_source source;
    int64_t step;
    uint64_t position;                          /* of that step */
    const char *restore;                        /* CHECKPOINT: the manifest's name, */
    const struct net_contribution *contributed; /* and who had taken part (net_plan) */
    int n_contributed;
    const int *member; /* ascending */
    int n_members;
    const struct hosts *servers;
    int64_t train_steps; /* the job ends there, before its time; 0: it does not */
};
enum status planner_make_next(const struct planner_next *n, struct net_plan **out);

/* CHECKPOINT, where not every server can read every file of it: reads[file * servers + server] says
 * who can. A chunk whose server cannot read it goes to one that can, of those to the one that has
 * least. ST_NOT_FOUND: a chunk has none (cut otherwise, it lies in files that nobody reads both);
 * not logged. */
enum status planner_restrict(struct net_plan *p, const struct checkpoint_manifest *m,
                             const unsigned char *reads);

/* Of parameters, that the server with this number has. */
int64_t planner_bytes(const struct net_plan *p, int server);

/* What goes from server to server between two plans: bytes of parameters, and chunks, that the
 * server at this address gets (to = 1) or gives away. */
void planner_moves(const struct net_plan *from, const struct net_plan *to, const char *address,
                   int gets, int64_t *bytes, int *n_chunks);

#endif
