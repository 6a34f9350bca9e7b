/* ps/service/run.h - one generation at a server: its plan, its store and its members. Whoever works
 * in it holds a reference, so that the next can take its place. What the service, its writer and
 * the checkpoints share; private to them. Owns:    a copy of the plan; the store. Threads: fields
 * are set by create, but for those that the service's lock guards. Errors:  ST_NOMEM, ST_RANGE, of
 * a restore ST_IO, ST_CORRUPT, from memory those of shard_fetch_run; logged. */
#ifndef PS_SERVICE_RUN_H
#define PS_SERVICE_RUN_H
#include "checkpoint/restore.h"
#include "ps/service/shard_fetch.h"
#include "ps/service/square_sender.h"
#include "ps/store/store.h"
#include <stdatomic.h>

struct member {
    uint64_t incarnation;   /* that joined; 0: none has in this generation */
    uint64_t previous;      /* whose place it has taken, in this generation; 0: nobody's */
    uint64_t took_back;     /* that took its place back, once, from another; 0: none */
    uint64_t expected;      /* that was here, or waited to be, before this generation; 0: none */
    int joined;             /* in this generation or one before, or wanted to */
    int known;              /* likewise, and a line said so */
    int leaving;            /* will leave by name, or has, before the job's end */
    int failed;             /* has left for good, with an error */
    int done;               /* left after its last step */
    int spoke;              /* over some stream, in this generation */
    int came;               /* in this generation, with nothing to do before it speaks */
    uint64_t stream;        /* over which it spoke last; 0: none */
    int64_t missing_ns;     /* since when it has had none; 0: it has one */
    int asked;              /* to join, since the run stopped, or one above it */
    int64_t rival_first_ns; /* another process asks for its place, since then; 0: none has */
    int64_t rival_last_ns;
    char peer[96];
    char address[96]; /* how it names its host; may be empty */
};

struct run {
    _Atomic int refs;
    struct net_plan *plan;
    uint64_t generation;   /* the plan's, as the next two */
    struct net_job job;    /* n_workers: as the job's first member had it */
    struct chunks *chunks; /* the plan's */
    int self;              /* this server's number in the plan; -1: it has no chunks */
    size_t n_bytes;        /* of the parameters held here */
    struct store *store;
    struct square_sender *squares; /* NULL: nobody is told of norms */
    struct member *members;        /* by rank; guarded by the service's lock */
    _Atomic int64_t *heard_ns;     /* by rank: when the last piece came; 0: none has */
    int has_chunks0;               /* ps 0 has chunks, so that members speak to it */
    int ended;                     /* likewise: all members are done */
    struct run *older; /* likewise: the one before, while others may need it; a reference */
    int64_t start_ns;  /* of the job; likewise */
    int64_t began;     /* lowest step at which a generation of it began here; likewise */
    int64_t end_ns;    /* likewise */
};

struct run_config {
    const struct net_plan *plan;
    const char *address;                      /* this server's */
    struct store_config store;                /* all but what the plan says */
    const struct checkpoint_restore *restore; /* CHECKPOINT */
    struct run *before;         /* MEMORY: this server's of plan->before; NULL: none */
    struct shard_fetch *gather; /* likewise, borrowed for the call */
};
enum status run_create(const struct run_config *cfg, struct run **out);
struct run *run_ref(struct run *r);
void run_unref(struct run *r); /* NULL is fine; `older` is not its */

/* Of step `step`, its first sample, counted from the first of the first pass. */
uint64_t run_position(const struct run *r, int64_t step);
/* What a checkpoint of the step says of it; its lists are the run's. */
struct checkpoint_progress run_progress(const struct run *r, int64_t step);

#endif
