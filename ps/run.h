/* ps/run.h - one job at a server: its store and its members. Whoever works in it holds a reference,
 * so that a new job can take its place. What service.c, saver.c and the checkpoints share; private
 * to them.
 * Threads: fields are set by create, but for those that the service's lock guards.
 * Errors:  ST_NOMEM, ST_RANGE, and of a restore ST_IO, ST_CORRUPT; logged. */
#ifndef PS_RUN_H
#define PS_RUN_H
#include "ps/restore.h"
#include "ps/store.h"
#include <stdatomic.h>

struct member {
    uint64_t incarnation; /* 0: never joined */
    int gone;             /* left by name, before the job's end */
    int done;             /* left after its last step */
    uint64_t stream;      /* over which it spoke last; 0: none */
    char peer[96];
};

struct run {
    _Atomic int refs;
    uint64_t generation;
    struct net_job job;
    struct chunks *chunks;
    int *server;    /* shard map */
    size_t n_bytes; /* of the parameters held here */
    struct ps_store *store;
    struct member *members; /* guarded by the service's lock */
    int ended;              /* likewise: all members are done */
    int64_t start_ns, end_ns;
};

struct run_config {
    const struct net_join *first; /* whose job it is */
    int n_servers;
    uint64_t generation;
    struct ps_store_config store;     /* all but chunks, job, server, generation */
    const struct ps_restore *restore; /* of the same parameters; NULL: values come by INIT */
};
enum status run_create(const struct run_config *cfg, struct run **out);
struct run *run_ref(struct run *r);
void run_unref(struct run *r); /* NULL is fine */

#endif
