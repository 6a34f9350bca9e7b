/* ps/store/stragglers.h - records which member each step of the sync mode waited for, and how long.
 * The wait is the time between the last contribution and the one before it, at the chunk where this
 * time was longest. If there are backup workers, chunks advance independently, and only the
 * server's first chunk is observed. In every mode, the skipped contributions of each worker to the
 * server's first chunk are counted.
 * Owns:    a few numbers for each worker; no lock (every piece passes here).
 * Threads: any.
 * Errors:  ST_NOMEM. */
#ifndef PS_STORE_STRAGGLERS_H
#define PS_STORE_STRAGGLERS_H
#include "base/hosts.h"
#include <stdint.h>

enum { STRAGGLERS_RECENT = 128 };

/* A step of one chunk: `member` made the last contribution, wait_ns after the one before it. */
struct late_step {
    int64_t step;
    int member;
    int64_t wait_ns;
};

struct late_total {
    int64_t times;   /* number of steps in which this member's contribution was the last one */
    double seconds;  /* total time that other members waited for this member */
    int64_t skipped; /* contributions of weight 0, in any mode */
};

struct stragglers_config {
    int n_members;
    const int *member; /* members' indices; borrowed; NULL: 0, 1, ... */
    int n_chunks;      /* chunks of this store that make a step */
    /* Names of the workers; borrowed; NULL or too short: numbers alone. */
    const struct hosts *hosts;
    int64_t line_ms; /* wait in ms above which a step gets a log line; 0: no lines */
};

struct stragglers;
enum status stragglers_create(const struct stragglers_config *cfg, struct stragglers **out);
void stragglers_destroy(struct stragglers *s); /* NULL is fine. */
/* Notes that one chunk has made its step. Logs the step's line if it was the last chunk. */
void stragglers_note(struct stragglers *s, const struct late_step *late);
/* Notes that the member's contribution counted with weight 0. */
void stragglers_skipped(struct stragglers *s, int member);
void stragglers_total(const struct stragglers *s, int member, struct late_total *out);
/* Adds each member's figures in the last recorded steps; returns the number of these steps,
 * STRAGGLERS_RECENT at most. */
int stragglers_recent(const struct stragglers *s, struct late_total *members);
/* Logs a line for each worker that was the last in a step, and one for each worker that skipped a
 * contribution. totals[i] belongs to worker i. */
void stragglers_log(const struct late_total *totals, int n, const struct hosts *hosts);

#endif
