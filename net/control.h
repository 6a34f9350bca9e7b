/* net/control.h - what servers tell each other: server k > 0 says how things stand with it and what
 * it has seen, ps 0 answers as soon as it has something else to say (or after a while, all the
 * same). Both messages are the sender's whole state, so one that is lost is made good by the next.
 * Owns:    a control call's channel.
 * Threads: one calls, any cancels.
 * Errors:  ST_UNAVAILABLE, ST_DEADLINE, ST_CANCELLED, ST_PROTOCOL, ST_NOMEM; not logged, a sentence
 *          in `why`. */
#ifndef NET_CONTROL_H
#define NET_CONTROL_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { CONTROL_TEXT_BYTES = 256, CONTROL_N_PHASES = 5 };

struct net_plan; /* plan.h */

/* A member that was there and has no stream now. */
struct net_missing {
    int member; /* index */
    int64_t ms; /* since when */
};

struct net_control {
    int server, n_servers;            /* joining: 0 */
    uint64_t incarnation;             /* random at process start, not 0 */
    uint64_t generation;              /* that its job is in; 0: there is none */
    uint64_t seen;                    /* number of the last reply; 0: none yet */
    uint64_t wanted;                  /* checkpoints asked for here so far */
    uint64_t order;                   /* the last checkpoint order that was taken up; 0: none */
    int phase;                        /* of it: enum saver_phase, below CONTROL_N_PHASES */
    uint64_t bytes;                   /* of its file, once it is written */
    uint32_t crc32c;                  /* likewise */
    char address[CONTROL_TEXT_BYTES]; /* where the server is reached */
    int joining;                      /* it was not there when the job began */
    int leaving;                      /* it wants to hand on its chunks and go */
    uint64_t stop;                    /* the last Stop that was taken up; 0: none */
    int stopped;                      /* nothing moves here any more */
    int64_t lowest, highest;          /* versions here; -1: a chunk has none yet */
    int n_missing;
    struct net_missing *missing; /* given to the receiver */
};

struct net_control_reply {
    uint64_t number;                  /* another one whenever something below is */
    char refused[CONTROL_TEXT_BYTES]; /* not empty: the server cannot belong to the job, stop it */
    char restore[CONTROL_TEXT_BYTES]; /* the manifest's name to go on from; empty: from the start */
    uint64_t generation;              /* of the plan in force; 0: there is none yet */
    uint64_t order;                   /* the last one's number, which no other ps 0 has given */
    int64_t step;                     /* where it is to be taken; -1: it is cancelled */
    uint64_t given;                   /* wanted checkpoints that were made, or given up */
    uint64_t incarnation;             /* of ps 0 */
    int closing;                      /* no more orders will come: ps 0 is about to end */
    uint64_t stop;                    /* number of the last Stop; 0: none yet */
    int64_t stop_step;     /* no chunk goes beyond this version; -1: beyond where it is */
    struct net_plan *plan; /* in force, to a server that is not in its generation, else NULL; given
                              to the receiver */
    uint64_t settled;      /* every server is in this generation */
    int drained;           /* no chunk is the caller's any more: it can end */
    char later[CONTROL_TEXT_BYTES]; /* not sent. Not empty: no answer, the call ends with this, as
                                       if nobody was there: ST_UNAVAILABLE */
};

struct net_control_client;
enum status net_control_create(const char *addr, struct net_control_client **out);
void net_control_destroy(struct net_control_client *c); /* NULL is fine */
enum status net_control_call(struct net_control_client *c, const struct net_control *request,
                             int64_t deadline_ms, struct net_control_reply *reply,
                             char why[CONTROL_TEXT_BYTES]);
/* What the messages themselves hold; the structs are the caller's, and may be of zeros. */
void net_control_free(struct net_control *control);
void net_control_reply_free(struct net_control_reply *reply);
/* Ends the call under way with ST_CANCELLED; if there is none, the next. */
void net_control_cancel(struct net_control_client *c);

#endif
