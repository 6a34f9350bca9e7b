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

struct net_control {
    int server, n_servers;
    uint64_t incarnation; /* random at process start, not 0 */
    uint64_t generation;  /* that its job is in; 0: there is none */
    uint64_t seen;        /* number of the last reply; 0: none yet */
    uint64_t wanted;      /* checkpoints asked for here so far */
    uint64_t order;       /* the last checkpoint order that was taken up; 0: none */
    int phase;            /* of it: enum saver_phase, below CONTROL_N_PHASES */
    uint64_t bytes;       /* of its file, once it is written */
    uint32_t crc32c;      /* likewise */
};

struct net_control_reply {
    uint64_t number;                  /* another one whenever something below is */
    char refused[CONTROL_TEXT_BYTES]; /* not empty: the server cannot belong to the job, stop it */
    char restore[CONTROL_TEXT_BYTES]; /* the manifest's name to go on from; empty: from the start */
    uint64_t generation;              /* of the first job that it goes on with */
    uint64_t order;                   /* 0: none yet */
    int64_t step;                     /* where it is to be taken; -1: it is cancelled */
    uint64_t given;                   /* wanted checkpoints that were made, or given up */
    uint64_t incarnation;             /* of ps 0 */
    int closing;                      /* no more orders will come: ps 0 is about to end */
};

struct net_control_client;
enum status net_control_create(const char *addr, struct net_control_client **out);
void net_control_destroy(struct net_control_client *c); /* NULL is fine */
enum status net_control_call(struct net_control_client *c, const struct net_control *request,
                             int64_t deadline_ms, struct net_control_reply *reply,
                             char why[CONTROL_TEXT_BYTES]);
/* Ends the call under way with ST_CANCELLED; if there is none, the next. */
void net_control_cancel(struct net_control_client *c);

#endif
