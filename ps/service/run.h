/* ps/service/run.h - one generation at a server: its plan, its store and its members. Each user of
 * a run holds a reference, so that the next run can replace it. The service, its stream writer and
 * the checkpoint writer share this header; it is private to them.
 * Owns:    a copy of the plan; the store.
 * Threads: create sets the fields, except those that the service's lock guards.
 * Errors:  ST_NOMEM, ST_RANGE; if a checkpoint is restored, also ST_IO and ST_CORRUPT; if chunks
 *          are fetched, also the errors of shard_fetch_run; logged. */
#ifndef PS_SERVICE_RUN_H
#define PS_SERVICE_RUN_H
#include "checkpoint/restore.h"
#include "ps/service/shard_fetch.h"
#include "ps/service/square_sender.h"
#include "ps/store/store.h"
#include <stdatomic.h>
#include <stdbool.h>

struct member {
    uint64_t incarnation; /* process that joined; 0: none in this generation */
    uint64_t previous;    /* process whose place `incarnation` got in this generation; 0: none */
    uint64_t took_back;   /* process that regained its place from a later process; 0: none */
    /* process that was this member, or waited to be, before this generation; 0: none */
    uint64_t expected;
    /* the member was, or asked to be, a member in this or an earlier generation */
    int joined;
    /* the member was in an earlier generation, and a log line has reported its first join */
    int known;
    int leaving;        /* the member will leave, or left, before the job's end */
    int failed;         /* the member left for good, with an error */
    int done;           /* the member left after its last step */
    int spoke;          /* the member sent a piece over some stream in this generation */
    int came;           /* the member was welcomed in this generation, and need only send a piece */
    uint64_t stream;    /* stream that the member last used; 0: none */
    int64_t missing_ns; /* time since which the member has no stream; 0: it has one */
    int asked; /* the member asked to join after the run stopped, or for a higher generation */
    /* time of the first request of another process for the member's place; 0: none asked */
    int64_t rival_first_ns;
    int64_t rival_last_ns;
    char peer[96];
    char address[96]; /* name by which the member calls its host; may be empty */
};

struct run {
    _Atomic int refs;
    struct net_plan *plan;
    uint64_t generation;   /* generation of the plan */
    struct net_job job;    /* job of the plan, with n_workers of the job's first member */
    struct chunks *chunks; /* chunks of the plan */
    int self;              /* this server's number in the plan; -1: it has no chunks */
    size_t n_bytes;        /* bytes of the parameters held here */
    struct store *store;
    struct square_sender *squares; /* sends sums of squares to other servers; NULL: none are sent */
    struct member *members;        /* [ranks] members; the service's lock guards them */
    _Atomic int64_t *heard_ns;     /* [ranks] time of the member's last piece; 0: none */
    bool has_chunks0;              /* ps 0 has chunks, so members send pieces to it */
    /* nonzero: all members are done; the service's lock guards this and the fields below */
    int ended;
    struct run *older; /* run before this one, while another server may need it; a reference */
    int64_t start_ns;  /* start of the job */
    int64_t began;     /* lowest step at which a generation of the job began here */
    int64_t end_ns;
};

struct run_config {
    const struct net_plan *plan;
    const char *address;       /* address of this server */
    struct store_config store; /* config of the store, without the fields that the plan sets */
    /* plan source CHECKPOINT: checkpoint with the values */
    const struct checkpoint_restore *restore;
    struct run *before; /* plan source MEMORY: this server's run of plan->before; NULL: none */
    /* plan source MEMORY: object that fetches chunks; borrowed for the call */
    struct shard_fetch *gather;
};
enum status run_create(const struct run_config *cfg, struct run **out);
struct run *run_ref(struct run *r);
void run_unref(struct run *r); /* Does not release `older`. NULL is fine. */

/* Returns the number of the first sample of the step, counted from the first pass. */
uint64_t run_position(const struct run *r, int64_t step);
/* Returns the progress that a checkpoint of the step records; its lists belong to the run. */
struct checkpoint_progress run_progress(const struct run *r, int64_t step);

#endif
