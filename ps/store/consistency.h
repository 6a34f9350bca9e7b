/* ps/store/consistency.h - decides on a push in each consistency mode, and how far ahead a member
 * may be. These are pure functions of values: they call nothing, lock nothing and read no clock.
 * consistency.c explains why the modes make progress.
 * Owns:    nothing.
 * Threads: any.
 * Errors:  none; an impossible push is REFUSE. */
#ifndef PS_STORE_CONSISTENCY_H
#define PS_STORE_CONSISTENCY_H
#include "net/wire/job.h"
#include <stdbool.h>
#include <stdint.h>

enum consistency_mode {
    CONSISTENCY_SYNC,   /* the contributions of all members make a version */
    CONSISTENCY_BACKUP, /* sync with backup workers: the first N contributions make a version */
    CONSISTENCY_ASYNC,  /* each contribution makes a version */
    CONSISTENCY_SSP,    /* ASYNC, but a member far ahead waits for its answer */
    CONSISTENCY_N_MODES
};
enum consistency_mode consistency_mode_of(const struct net_job *job);

/* A push, and its chunk's record of it. */
struct consistency_push {
    int64_t step; /* version that the contribution was computed on */
    int member;
    int64_t version;   /* present version of the chunk */
    int64_t last;      /* last version of the job */
    int n_counted;     /* contributions received for the next version */
    int64_t last_step; /* step of the member's last counted contribution to the chunk; -1: none */
    /* the process that sends this push also sent the contribution of last_step */
    bool same_process;
    bool awaits_answer; /* this process waits for the answer to a push of this step */
};

enum verdict_kind {
    VERDICT_COUNT,     /* the push counts, as contribution number `slot` to the next version */
    VERDICT_DUPLICATE, /* counted before: the answer is the present version */
    VERDICT_STALE,     /* too late to count: the answer is the present version */
    VERDICT_WAIT,  /* no action; the answer follows with a later version, or with the store's end */
    VERDICT_REFUSE /* computed on a version that does not exist yet */
};

struct verdict {
    enum verdict_kind kind;
    int slot; /* COUNT: number of the contribution in its version, from 0 */
};

struct verdict consistency_verdict(enum consistency_mode mode, const struct consistency_push *p);

/* Returns the largest number of contributions to a chunk with which a member still receives answers
 * in ssp. `lowest` is the smallest number among the members that have not left; INT64_MAX: all have
 * left. */
int64_t consistency_limit(int64_t lowest, int64_t staleness, int n_restarts);

#endif
