/* ps/service/planner.h - makes the plan of a generation from the decisions of ps 0. It consists of
 * functions over values and keeps no state.
 * Threads: any.
 * Errors:  ST_NOMEM; ST_INVALID: the list of parameters is not valid. */
#ifndef PS_SERVICE_PLANNER_H
#define PS_SERVICE_PLANNER_H
#include "checkpoint/manifest.h"
#include "net/wire/plan.h"

/* The first plan of a job. Its members are member[n_members], or 0 to n_workers - 1 of the job if
 * `member` is NULL. `from` is the checkpoint that the job resumes from; NULL: the job begins at its
 * first step. */
struct planner_first {
    uint64_t generation;
    uint64_t ps0; /* incarnation of the ps 0 that makes the plan */
    const struct net_join *join;
    const struct hosts *servers;
    const int *member;
    int n_members;
    const struct checkpoint_manifest *from;
    const char *restore; /* name of the checkpoint in the plan */
};
enum status planner_make_first(const struct planner_first *f, struct net_plan **out);

/* The plan after `base`. The stores of `base` are still in memory unless the source is a
 * checkpoint. Chunks stay on their servers as far as possible (chunks_reshard). */
struct planner_next {
    uint64_t generation;
    uint64_t ps0; /* incarnation of the ps 0 that makes the plan */
    const struct net_plan *base;
    enum plan_source source;
    int64_t step;
    uint64_t position;   /* number of the first sample of that step */
    const char *restore; /* CHECKPOINT: the manifest's name */
    /* CHECKPOINT: last contribution of each member before the step (net_plan) */
    const struct net_contribution *contributed;
    int n_contributed;
    const int *member; /* indices in ascending order */
    int n_members;
    const struct hosts *servers;
    int64_t train_steps; /* earlier end of the job; 0: unchanged */
};
enum status planner_make_next(const struct planner_next *n, struct net_plan **out);

/* Adapts a CHECKPOINT plan to servers that cannot read all files: reads[file * servers + server] is
 * nonzero if the server can read the file. A chunk whose server cannot read it moves to the server
 * with the fewest elements among those that can. Returns ST_NOT_FOUND, without a log line, if no
 * server can read all files of a chunk (a chunk that was cut differently may be in several
 * files). */
enum status planner_restrict(struct net_plan *p, const struct checkpoint_manifest *m,
                             const unsigned char *reads);

/* Returns the bytes of the parameters that the server with this number holds, and of the rows that
 * it may have to hold. */
double planner_bytes(const struct net_plan *p, int server);

struct planner_moved {
    int64_t bytes; /* bytes of the parameters */
    int n_chunks;  /* chunks of parameters */
    int n_buckets;
};
/* Counts the chunks that move between two plans: chunks that move to the server at this address if
 * `gets` is nonzero, otherwise chunks that move away from it. */
void planner_moves(const struct net_plan *from, const struct net_plan *to, const char *address,
                   int gets, struct planner_moved *out);

#endif
