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
struct ps_late {
    int64_t step;
    int member;
    int64_t wait_ns;
};

struct ps_late_total {
    int64_t times;   /* steps in which it was the last */
    double seconds;  /* that the others waited for it in all */
    int64_t skipped; /* contributions that it gave no weight, in any mode */
};

struct ps_stragglers_config {
    int n_members;
    const int *member;         /* their indices; borrowed; NULL: 0, 1, ... */
    int n_chunks;              /* that make a step here */
    const struct hosts *hosts; /* of the workers, to name them; borrowed; NULL or too short: numbers
                                  alone */
    int64_t line_ms;           /* a step that waited longer gets a line; 0: none does */
};

struct ps_stragglers;
enum status ps_stragglers_create(const struct ps_stragglers_config *cfg,
                                 struct ps_stragglers **out);
void ps_stragglers_destroy(struct ps_stragglers *s); /* NULL is fine */
/* One chunk has made its step. Logs the step's line if it was the last of them. */
void ps_stragglers_note(struct ps_stragglers *s, const struct ps_late *late);
/* The member's contribution counted with weight 0. */
void ps_stragglers_skipped(struct ps_stragglers *s, int member);
void ps_stragglers_total(const struct ps_stragglers *s, int member, struct ps_late_total *out);
/* Adds, for each member, what there was of it in the last steps that were booked; returns how many
 * those are, STRAGGLERS_RECENT at most. */
int ps_stragglers_recent(const struct ps_stragglers *s, struct ps_late_total *members);
/* A line for each worker that was ever waited for, or skipped a step; totals by index. */
void ps_stragglers_log(const struct ps_late_total *totals, int n, const struct hosts *hosts);

#endif
