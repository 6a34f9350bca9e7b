/* net/exchange/session.h - decides on a member's joins, generations and leaving as a pure state
 * machine: events in, actions out. The shell around it (exchange_session.c, link.c) carries out
 * the actions and reports their results; it decides nothing.
 *
 * The session has no clock, thread, lock, log line, allocation or wait. Its state is one flat block
 * without pointers, so a copy is a snapshot. A link's index is that of its server in the present
 * generation; 0 is ps 0. Each event is legal in each state and is ignored if it has no meaning
 * there. The generation works as a term: an answer from an older generation is ignored, and the
 * session never enters a generation twice or after a newer one.
 *
 * START (net_exchange_start) ends when all servers of a newer generation are joined. The session
 * joins ps 0 until ps 0 answers with a new generation (SET_SERVERS), and then joins the
 * generation's other servers (BEGIN). It also joins a server without chunks, but does not wait for
 * it if the job has a ps 0 that decides when the job is over. A generation ends in one of two ways:
 * by REBASE, chunk by chunk, and streams stay until no request on them is pending; or at once
 * (REBASED), when a server reports a newer generation, whether it admits this member there or makes
 * it wait. After that the session joins only ps 0, until ps 0 also answers with the newer
 * generation. A broken link is joined again for as long as the state requires it; while a link to
 * another server is down, the session also contacts ps 0 at intervals.
 *
 * Owns:    nothing; session_bytes returns the size of the block that the caller allocates.
 * Threads: none of its own; the caller serialises.
 * Errors:  none; a session that cannot continue is FAILED. */
#ifndef NET_EXCHANGE_SESSION_H
#define NET_EXCHANGE_SESSION_H
#include "net/exchange/session_event.h"
#include <stdbool.h>
#include <stddef.h>

enum { SESSION_MAX_BACKOFF_MS = 2000 }; /* longest pause between an answer and the next join */

enum session_state {
    SESSION_NEW,
    SESSION_ASKING,  /* START requests a newer generation from ps 0 */
    SESSION_JOINING, /* START joins the generation's servers */
    SESSION_RUNNING, /* all servers were joined; broken links are joined again */
    SESSION_ENDING,  /* a chunk has its last version; pending requests continue */
    SESSION_REBASED, /* the generation is over: no request until the next START */
    SESSION_LEAVING, /* sends leave messages to the servers */
    SESSION_LEFT,    /* the leave messages are sent */
    SESSION_FAILED,  /* ended by the error `st` */
    SESSION_CLOSED,
    SESSION_N_STATES
};

/* The call that a link has active. */
enum link_phase {
    LINK_HELD, /* no call, and none will start */
    LINK_DOWN, /* no call; a join starts at retry_ns */
    LINK_JOINING,
    LINK_OPENING, /* the call that opens the stream is active */
    LINK_STREAMING,
    LINK_N_PHASES
};

enum link_progress {
    PROGRESS_NONE,    /* the link has not joined in this generation */
    PROGRESS_JOINED,  /* joined in this generation; joined again after a broken link */
    PROGRESS_FETCHED, /* joined, and the values of all its chunks have arrived */
};

/* Progress of an action that happens once: cancelling a link's call, or sending its leave
 * message. */
enum session_do { DO_NOTHING, DO_DUE, DO_STARTED };

enum session_leave {
    LEAVE_STAYS,
    LEAVE_WANTED,    /* leaves at the next generation; ps 0 must be informed */
    LEAVE_REPORTING, /* a leave call to ps 0 is active */
    LEAVE_REPORTED,  /* ps 0 has acknowledged: the next generation excludes this member */
};

struct session_link {
    enum link_phase phase;
    enum link_progress progress;
    enum session_do cancel; /* cancelling the active call */
    enum session_do leave;  /* sending the leave message */
    bool idle;              /* the server has no chunks, so no caller waits for this link */
    bool busy;              /* requests are pending */
    bool waits;             /* the server answers, and makes this member wait */
    /* a log line has reported that the stream is lost; another line must report its return */
    bool lost;
    bool answers;       /* the last join was answered, even if with "retry" */
    int64_t answers_ns; /* time since which all joins were answered */
    int64_t retry_ns, backoff_ms;
    int64_t down_ns, line_ns; /* time since which the link has no stream; time of the next log line
                                 on that */
};

struct session_config {
    int max_servers;
    int member;            /* this member's index; -1: ps 0 assigns one */
    bool may_move;         /* the member joins a running job, and ps 0 may assign another index */
    bool can_renew;        /* the member can compute its initial values again */
    int64_t wait_line_ms;  /* interval between log lines about a missing server */
    int64_t first_line_ms; /* time until the first such line during the first join; 0: 1000 */
};

struct session {
    struct session_config cfg;
    enum session_state state;
    enum session_leave leave;
    enum status st, leave_st;
    bool done; /* true in SESSION_LEAVING if this member has completed the last step */
    int n_links;
    int member;
    /* params hold initial values of the chunks of which no version was fetched */
    bool has_first_values;
    uint64_t generation; /* 0: none yet */
    uint64_t ps0;        /* incarnation of the ps 0 that made this generation's plan */
    uint64_t heard;      /* newest generation that a server has reported */
    uint64_t heard_ps0;  /* incarnation of the ps 0 that made the plan of that newest generation */
    struct net_place place;
    int64_t now_ns, report_ns; /* report_ns: in LEAVE_WANTED, earliest time of the leave call */
    int64_t doubt_ns;          /* earliest time to contact ps 0 because of other servers */
    /* [2 * max_servers]; the second half is scratch memory of SET_SERVERS */
    struct session_link link[];
};

size_t session_bytes(int max_servers);
void session_init(struct session *s, const struct session_config *cfg);
/* Processes one event and appends actions to *out. now_ns never decreases. */
void session_step(struct session *s, const struct session_event *event, int64_t now_ns,
                  struct session_out *out);

#endif
