/* ps/store/consistency.h - what becomes of a push in each consistency mode, and how far ahead a
 * member may be: pure functions of plain values, which call nobody, take no lock and read no clock.
 * Why the modes make progress is in consistency.c.
 * Owns: nothing. Threads: any. Errors: none; a push that cannot be is REFUSE. */
#ifndef PS_STORE_CONSISTENCY_H
#define PS_STORE_CONSISTENCY_H
#include "net/wire/job.h"
#include <stdint.h>

enum consistency_mode {
    CONSISTENCY_SYNC,   /* the contributions of all members make a version */
    CONSISTENCY_BACKUP, /* sync with backup workers: those of the first so many */
    CONSISTENCY_ASYNC,  /* each one does */
    CONSISTENCY_SSP,    /* likewise, and who is far ahead waits for its answer */
    CONSISTENCY_N_MODES
};
enum consistency_mode consistency_mode_of(const struct net_job *job);

/* A push, and what its chunk knows about it. */
struct consistency_push {
    int64_t step; /* the version that it was computed on */
    int member;
    int64_t version;   /* the chunk's present one */
    int64_t last;      /* the job's last version */
    int n_counted;     /* contributions to the next version that are there */
    int64_t last_step; /* of the member's last contribution here that counted; -1: none */
    int same_process;  /* that one came from the process that pushes now */
    int awaits_answer; /* this process waits for the answer to a push of this step */
};

enum verdict_kind {
    VERDICT_COUNT,     /* it is contribution number `slot` to the next version */
    VERDICT_DUPLICATE, /* it counted before: the answer is the present version */
    VERDICT_STALE,     /* it comes too late to count: likewise */
    VERDICT_WAIT,      /* nothing is to be done; its answer comes with a later version, or with the
                          store's end */
    VERDICT_REFUSE     /* it was computed on a version that is not there yet */
};

struct verdict {
    enum verdict_kind kind;
    int slot; /* of COUNT; below the number of contributions that make a version */
};

struct verdict consistency_verdict(enum consistency_mode mode, const struct consistency_push *p);

/* ssp: how many contributions to a chunk a member may have made for its answers to go out. lowest:
 * the least of any member that has not left; INT64_MAX: all have. */
int64_t consistency_limit(int64_t lowest, int64_t staleness, int n_restarts);

#endif
