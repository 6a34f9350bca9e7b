/* net/job.h - what all members of a job agree on, as plain values; and how a member introduces
 * itself. The first worker that joins a fresh server sets the job; any other must bring an equal
 * one. Threads: values. */
#ifndef NET_JOB_H
#define NET_JOB_H
#include "kernels/vector/optim.h"
#include "net/chunks.h"
#include <stdint.h>

enum { JOB_MAX_WORKERS = 4096 };
enum job_sync_mode { JOB_SYNC, JOB_ASYNC };

struct net_job {
    int n_workers;
    enum job_sync_mode sync_mode;
    struct optim_config optim;
    int64_t train_steps; /* global steps; async: updates per chunk over all workers */
    uint64_t seed;
};

struct net_join {
    int member;           /* --task_index */
    uint64_t incarnation; /* random at process start, never 0 */
    struct net_job job;
    const struct chunks *chunks; /* decoded on the server: owned by net, valid for the call */
};

enum join_answer {
    JOIN_WELCOME, /* parameters are there (or will be: wait in PULL) */
    JOIN_INIT,    /* welcome, and please send INIT for each chunk of this server */
    JOIN_REFUSED, /* never try again; `why` says what differs */
    JOIN_RETRY,   /* not now (the server still serves another job); `why` says so */
};

struct net_join_reply {
    enum join_answer answer;
    char why[512];
    uint64_t generation;
    int64_t step; /* lowest version of this server's chunks; -1 before INIT is complete */
    int *server;  /* shard map, n_chunks numbers; from ps 0 alone, else NULL; malloc'd, given
                     to the receiver of the reply */
    int n_chunks;
};

#endif
