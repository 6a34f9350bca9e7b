/* ps/store/stragglers.h - whom each step of the sync mode waited for, and for how long: the time
 * between the last contribution and the one before it, at the chunk where that was longest. With
 * backup workers the chunks do not go in step: there the server's first chunk stands for all. And
 * how often each worker skipped its contribution, in every mode, as that chunk saw it.
 * Owns:    a few numbers for each worker; no lock (it stands on the way of every piece).
 * Threads: any. Errors: ST_NOMEM. */
#ifndef PS_STORE_STRAGGLERS_H
#define PS_STORE_STRAGGLERS_H
#include "base/hosts.h"
#include <stdint.h>

enum { STRAGGLERS_RECENT = 128 };

/* One chunk's step: its last contribution was this member's, wait_ns after the last but one. */
struct late_step {
    int64_t step;
    int member;
    int64_t wait_ns;
};

struct late_total {
    int64_t times;   /* steps in which it was the last */
    double seconds;  /* that the others waited for it in all */
    int64_t skipped; /* contributions that it gave no weight, in any mode */
};

struct stragglers_config {
    int n_members;
    const int *member;         /* their indices; borrowed; NULL: 0, 1, ... */
    int n_chunks;              /* that make a step here */
    const struct hosts *hosts; /* of the workers, to name them; borrowed; NULL or too short: numbers
                                  alone */
    int64_t line_ms;           /* a step that waited longer gets a line; 0: none does */
};

struct stragglers;
enum status stragglers_create(const struct stragglers_config *cfg, struct stragglers **out);
void stragglers_destroy(struct stragglers *s); /* NULL is fine */
/* One chunk has made its step. Logs the step's line if it was the last of them. */
void stragglers_note(struct stragglers *s, const struct late_step *late);
/* The member's contribution counted with weight 0. */
void stragglers_skipped(struct stragglers *s, int member);
void stragglers_total(const struct stragglers *s, int member, struct late_total *out);
/* Adds, for each member, what there was of it in the last steps that were booked; returns how many
 * those are, STRAGGLERS_RECENT at most. */
int stragglers_recent(const struct stragglers *s, struct late_total *members);
/* A line for each worker that was ever waited for, or skipped a step; totals by index. */
void stragglers_log(const struct late_total *totals, int n, const struct hosts *hosts);

#endif
