/* net/exchange/session.h - what a member of a job does about joins, generations and leaving, as a
 * pure state machine: events in, actions out. The shell around it (exchange_session.c, link.c)
 * carries the actions out and reports what became of them; it decides nothing.
 *
 * Inside there is no clock, thread, lock, log line, allocation or wait. The state is one flat block
 * without pointers: a copy is a snapshot. Links are numbered as the servers of the present
 * generation; 0 is ps 0. Each event is legal in each state; what means nothing there is ignored.
 * The generation is a term: an answer of an older one is ignored, and none is ever entered twice or
 * after a newer one.
 *
 * START wants all servers of a newer generation joined: ps 0 is asked until it tells one
 * (SET_SERVERS), then the others are joined (BEGIN); one without chunks is joined as well, but,
 * where ps 0 decides when the job is over, not waited for. A generation ends by REBASE, chunk by
 * chunk, where streams stay until nothing is under way on them; or at once, where a server is heard
 * to be in a newer one (REBASED), be it that it welcomes this member there or has it wait: after
 * that ps 0 alone is asked, until it tells that one too. A link that breaks is joined again for as
 * long as the state wants it; while one of another server is down, ps 0 is asked now and then.
 *
 * Owns:    nothing; session_bytes says how large the caller makes the block.
 * Threads: none of its own; the caller serialises.
 * Errors:  none; a session that cannot go on is FAILED. */
#ifndef NET_EXCHANGE_SESSION_H
#define NET_EXCHANGE_SESSION_H
#include "net/exchange/session_event.h"
#include <stddef.h>

enum { SESSION_MAX_BACKOFF_MS = 2000 }; /* from an answer to the next join, at most */

enum session_state {
    SESSION_NEW,
    SESSION_ASKING,  /* started: ps 0 is asked for a newer generation */
    SESSION_JOINING, /* started: the generation's servers are joined */
    SESSION_RUNNING, /* all are, or were, and come back */
    SESSION_ENDING,  /* some chunk has its last version; what is under way goes on */
    SESSION_REBASED, /* the generation is over: nothing goes on before the next START */
    SESSION_LEAVING, /* servers are told goodbye */
    SESSION_LEFT,    /* they have been */
    SESSION_FAILED,  /* ended by `st` */
    SESSION_CLOSED,
    SESSION_N_STATES
};

/* The call that a link has under way. */
enum link_phase {
    LINK_HELD, /* none, and none is wanted */
    LINK_DOWN, /* none; a join at retry_ns */
    LINK_JOINING,
    LINK_OPENING, /* of a stream */
    LINK_STREAMING,
    LINK_N_PHASES
};

enum link_progress {
    PROGRESS_NONE,    /* not joined in this generation */
    PROGRESS_JOINED,  /* it was, and is again when it comes back */
    PROGRESS_FETCHED, /* likewise, and all its chunks' values are here */
};

/* Of something to be done once: that a link's call is cancelled, that its server is told. */
enum session_do { DO_NOTHING, DO_DUE, DO_STARTED };

enum session_leave {
    LEAVE_STAYS,
    LEAVE_WANTED,    /* at the next generation; ps 0 is to be told */
    LEAVE_REPORTING, /* a call is under way */
    LEAVE_REPORTED,  /* ps 0 knows: the next generation is without this member */
};

struct session_link {
    enum link_phase phase;
    enum link_progress progress;
    enum session_do cancel; /* of the call under way */
    enum session_do tell;   /* goodbye */
    int idle;               /* its server has no chunk: nothing waits for it */
    int busy;               /* requests are under way */
    int waits;              /* its server is there, and has this member wait */
    int lost;               /* a line said that its stream was lost, and one is to say it is back */
    int answers;            /* the last join was answered, though with "ask again", */
    int64_t answers_ns;     /* and all since then */
    int64_t retry_ns, backoff_ms;
    int64_t down_ns, line_ns; /* since when it has none; when to say so next */
};

struct session_config {
    int max_servers;
    int member;            /* this member's index; -1: ps 0 is to give it one */
    int may_move;          /* it joins a running job: ps 0 may assign it another index */
    int can_renew;         /* the member can compute its first values again */
    int64_t wait_line_ms;  /* pause between lines on a missing server */
    int64_t first_line_ms; /* time until the first such line before the join; 0: 1000 */
};

struct session {
    struct session_config cfg;
    enum session_state state;
    enum session_leave leave;
    enum status st, leave_st;
    int done; /* LEAVING: after the last step */
    int n_links;
    int member;
    int has_first_values; /* the parameters are, or those of them that were not fetched yet */
    uint64_t generation;  /* 0: none yet */
    uint64_t ps0;         /* who made its plan */
    uint64_t heard;       /* the newest that a server has told, */
    uint64_t heard_ps0;   /* and who made its plan */
    struct net_place place;
    int64_t now_ns, tell_ns;    /* tell_ns: WANTED: not before */
    int64_t doubt_ns;           /* ps 0 is not asked for other servers' sake before */
    struct session_link link[]; /* [2 * max_servers]; the second half is SET_SERVERS' scratch */
};

size_t session_bytes(int max_servers);
void session_init(struct session *s, const struct session_config *cfg);
/* now_ns never falls. */
void session_step(struct session *s, const struct session_event *event, int64_t now_ns,
                  struct session_out *out);

#endif
