/* member/waiting.h - logs whom a member waits for, once it has waited for 3 s: a server that is
 * not connected, or the workers that ps 0 names in its status.
 * Owns:    a thread.
 * Threads: create and destroy from one; `changed` is called in its own.
 * Errors:  ST_NOMEM, logged. */
#ifndef MEMBER_WAITING_H
#define MEMBER_WAITING_H
#include "base/status.h"
#include "member/updates.h"
#include "net/wire/status.h"

struct waiting_config {
    const struct updates *updates; /* borrowed; its waits may be NULL: then nothing is waited for */
    const char *ps0;               /* address; borrowed */
    /* Called twice a second during a wait, with "worker 1 (never joined)" and the time waited.
     * NULL: the wait is over. */
    void (*changed)(void *ctx, const char *whom, int64_t ms);
    void *ctx;
};

struct waiting;
enum status waiting_create(const struct waiting_config *cfg, struct waiting **out);
void waiting_set_member(struct waiting *w, int member); /* this one's index; NULL is fine */
void waiting_destroy(struct waiting *w);                /* NULL is fine */

/* Times of a wait's lines: after 3 s, after 30 s, then after twice as long each time. A line that
 * names another program, apart from figures, comes 3 s after the line before it; this pause doubles
 * each time, up to 60 s. */
struct waiting_lines {
    char whom[STATUS_WAITING_BYTES]; /* of the last line; empty: none in this wait */
    int64_t line_ms;                 /* when the next is due */
    int64_t change_ms, gap_ms;       /* when one for another is; time from the line before to it */
};
/* Writes the other workers that servers wait for, though steps take no longer than before: "worker
 * 2 (slower than this one)"; empty: none. */
void waiting_name_slower(const struct net_status *s, int self, char whom[STATUS_WAITING_BYTES]);
int waiting_line_is_due(struct waiting_lines *l, const char *whom, int64_t ms);

#endif
