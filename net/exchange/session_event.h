/* net/exchange/session_event.h - what goes into a session (session.h) and what comes out: events
 * and actions. Threads: values. */
#ifndef NET_EXCHANGE_SESSION_EVENT_H
#define NET_EXCHANGE_SESSION_EVENT_H
#include "base/status.h"
#include "net/wire/job.h"
#include <stdint.h>

enum session_event_kind {
    EVENT_START,
    EVENT_JOIN_ANSWER,  /* link, answer, generation (RETRY: 0, or the server's); if it lets this
                           member in also step, and of ps 0 place, map, n_servers, from, idle */
    EVENT_JOIN_FAILED,  /* link, st: REFUSED, PROTOCOL and NOMEM are for good */
    EVENT_STREAM_UP,    /* link */
    EVENT_STREAM_DOWN,  /* link; received */
    EVENT_BUSY,         /* link, busy */
    EVENT_FETCHED_ALL,  /* link */
    EVENT_REBASE,       /* a chunk has its last version of this generation */
    EVENT_LEAVE_SOON,   /* at the next generation */
    EVENT_LEAVE,        /* now; done; failed: for good, with an error */
    EVENT_LEAVE_ANSWER, /* link, soon, st */
    EVENT_FAIL,         /* st */
    EVENT_TIMER,
    EVENT_CLOSE,
    EVENT_N_KINDS
};

enum session_map {
    MAP_BAD,  /* does not fit chunks and servers */
    MAP_SAME, /* as this generation's */
    MAP_OTHER,
};

struct session_event {
    enum session_event_kind kind;
    int link;
    enum status st;
    enum join_answer answer;
    uint64_t generation;
    uint64_t ps0; /* who made its plan */
    int64_t step; /* lowest version there; -1: it has no values */
    struct net_place place;
    enum session_map map;
    int n_servers;
    const int *from;  /* [n_servers], borrowed for the step: each one's present number, 0 for the
                         first; -1: a new one */
    const char *idle; /* [n_servers], likewise: 1: no chunk is there; NULL: some are everywhere */
    int busy, received, soon, done, failed;
};

enum session_action_kind {
    ACTION_JOIN,        /* link, generation (newest heard of), ps0, member */
    ACTION_OPEN,        /* link, generation, rank, first: the stream */
    ACTION_CANCEL,      /* link: its call */
    ACTION_SET_SERVERS, /* the event's; from the next action on links are numbered so */
    ACTION_BEGIN,       /* START has what it wants: place */
    ACTION_OUT,         /* START ends: the next generation is without this member */
    ACTION_REBASED,     /* nothing that is under way or held counts any more */
    ACTION_FAIL,        /* st */
    ACTION_LEAVE_CALL,  /* link, soon, done */
    ACTION_LEFT,        /* st: the goodbyes are over */
    ACTION_LINE,        /* link, line, seconds */
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
    int more;        /* step again, with TIMER at the same time, when these are carried out */
    int64_t wake_ns; /* when TIMER is due; INT64_MAX: never */
    struct session_action act[SESSION_ACTIONS];
};

#endif
