/* net/exchange/session_event.h - the events that a session (session.h) receives and the actions
 * that it returns.
 * Threads: plain values without a lock. */
#ifndef NET_EXCHANGE_SESSION_EVENT_H
#define NET_EXCHANGE_SESSION_EVENT_H
#include "base/status.h"
#include "net/wire/job.h"
#include <stdbool.h>
#include <stdint.h>

/* The comment of each kind lists the fields of struct session_event that are set. */
enum session_event_kind {
    EVENT_START,
    /* link, answer, generation (RETRY: 0, or the server's); if the server admits this member also
     * step, and in an answer of ps 0 place, map, n_servers, from, idle */
    EVENT_JOIN_ANSWER,
    EVENT_JOIN_FAILED, /* link, st: REFUSED, PROTOCOL and NOMEM are final */
    EVENT_STREAM_UP,   /* link */
    EVENT_STREAM_DOWN, /* link; received */
    EVENT_BUSY,        /* link, busy */
    EVENT_FETCHED_ALL, /* link */
    EVENT_REBASE,      /* a chunk has its last version of this generation */
    EVENT_LEAVE_SOON,  /* leave at the next generation */
    EVENT_LEAVE,       /* leave at once. done; failed: this member leaves for good, with an error */
    EVENT_LEAVE_ANSWER, /* link, soon, st */
    EVENT_FAIL,         /* st */
    EVENT_TIMER,
    EVENT_CLOSE,
    EVENT_N_KINDS
};

enum session_map {
    MAP_BAD,  /* map does not fit chunks and servers */
    MAP_SAME, /* map is that of this generation */
    MAP_OTHER,
};

struct session_event {
    enum session_event_kind kind;
    int link;
    enum status st;
    enum join_answer answer;
    uint64_t generation;
    uint64_t ps0; /* incarnation of the ps 0 that made the generation's plan */
    int64_t step; /* lowest version on the server; -1: it has no values */
    struct net_place place;
    enum session_map map;
    int n_servers;
    /* [n_servers], borrowed for the step: present index of each server's link, 0 for the first; -1:
     * a new server */
    const int *from;
    const char *idle; /* [n_servers], borrowed for the step: true if the server has no chunks;
                         NULL: every server has some */
    int busy, received, soon, done, failed;
};

/* The comment of each kind lists the fields of struct session_action that are set. */
enum session_action_kind {
    ACTION_JOIN,   /* link, generation (newest that is known), ps0, member */
    ACTION_OPEN,   /* link, generation, rank, first: open the stream */
    ACTION_CANCEL, /* link: cancel its call */
    /* use the event's servers; the following actions use their indices for links */
    ACTION_SET_SERVERS,
    ACTION_BEGIN,      /* START is complete; place */
    ACTION_OUT,        /* START ends, because the next generation excludes this member */
    ACTION_REBASED,    /* pending requests and held versions do not count any more */
    ACTION_FAIL,       /* st */
    ACTION_LEAVE_CALL, /* link, soon, done */
    ACTION_LEFT,       /* st. All leave messages are sent, or their time is over */
    ACTION_LINE,       /* link, line, seconds */
};

enum session_first { FIRST_NOTHING, FIRST_PULL, FIRST_INIT, FIRST_RENEW_AND_INIT };

enum session_line {
    LINE_LOST,
    LINE_WAITING,
    LINE_BACK,
    LINE_REFUSED,
    LINE_NO_INDEX,
    LINE_PARAMETERS_LOST,
    LINE_BAD_MAP,
};

struct session_action {
    enum session_action_kind kind;
    int link;
    enum status st;
    uint64_t generation, ps0;
    int member, rank;
    enum session_first first;
    enum session_line line;
    int64_t seconds;
    int soon, done;
};

enum { SESSION_ACTIONS = 64 };

struct session_out {
    int n;
    /* there are more actions: after these, call session_step again with TIMER at the same time */
    bool more;
    int64_t wake_ns; /* time of the next TIMER; INT64_MAX: never */
    struct session_action act[SESSION_ACTIONS];
};

#endif
