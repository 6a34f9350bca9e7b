/* member/waiting.h - logs which program a member waits for, after the member has waited for 3 s: a
 * server that is not connected, or the workers that ps 0 names in its status.
 * Owns:    a thread.
 * Threads: create and destroy from one thread; its own thread calls `changed`.
 * Errors:  ST_NOMEM, logged. */
#ifndef MEMBER_WAITING_H
#define MEMBER_WAITING_H
#include "base/status.h"
#include "member/updates.h"
#include "net/wire/status.h"

struct waiting_config {
    const struct updates *updates; /* borrowed; if its `waits` is NULL, there are no waits */
    const char *ps0;               /* address of ps 0; borrowed */
    /* Called twice a second during a wait, with "worker 1 (never joined)" and the time waited.
     * NULL: the wait is over. */
    void (*changed)(void *ctx, const char *whom, int64_t ms);
    void *ctx;
};

struct waiting;
enum status waiting_create(const struct waiting_config *cfg, struct waiting **out);
void waiting_set_member(struct waiting *w, int member); /* sets this member's index; NULL is fine */
void waiting_destroy(struct waiting *w);                /* NULL is fine */

/* Times of a wait's lines: after 3 s, after 30 s, then after twice as long each time. If the next
 * line names another program (texts that differ only in figures are the same), it follows 3 s after
 * the previous line; this pause doubles each time, up to 60 s. */
struct waiting_lines {
    char whom[STATUS_WAITING_BYTES]; /* program in the last line; empty: no line in this wait */
    int64_t line_ms;                 /* due time of the next line */
    int64_t change_ms, gap_ms;       /* due time of a line about another program; pause before that
                                      * line */
};
/* Writes the names of other workers whose contributions servers wait for in an ordinary step:
 * "worker 2 (slower than this one)"; empty: none. */
void waiting_name_slower(const struct net_status *s, int self, char whom[STATUS_WAITING_BYTES]);
int waiting_line_is_due(struct waiting_lines *l, const char *whom, int64_t ms);

#endif
