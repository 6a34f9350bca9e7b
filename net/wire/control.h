/* net/wire/control.h - what servers tell each other: server k > 0 says how things stand with it and
 * what it has seen, ps 0 answers as soon as it has something else to say (or after a while, all the
 * same). Both messages are the sender's whole state, so one that is lost is made good by the next.
 * Owns:    its lists.
 * Threads: values.
 * Errors:  none. */
#ifndef NET_WIRE_CONTROL_H
#define NET_WIRE_CONTROL_H
#include <stdint.h>

enum {
    CONTROL_TEXT_BYTES = 256,
    CONTROL_FOLDER_BYTES = 33, /* a folder's id: 32 hex digits and a 0 */
    CONTROL_MAX_PARTS = 64,
    CONTROL_MAX_KEPT = 256
};

/* How far a server is with its part of a checkpoint. In the order of weir.proto. */
enum control_phase {
    CONTROL_IDLE,
    CONTROL_ARMED,   /* waits for its chunks to come to the step */
    CONTROL_WRITING, /* all were taken */
    CONTROL_WRITTEN,
    CONTROL_FAILED,
    CONTROL_PAST,     /* the chunks were beyond the step already */
    CONTROL_DIVERGED, /* a parameter is not finite: nothing is written */
    CONTROL_N_PHASES
};

struct net_plan; /* plan.h */

/* A member that has no stream here now. */
struct net_missing {
    int member; /* index */
    int64_t ms; /* since when */
    int came;   /* it has joined here in this generation, and has only to speak */
};

/* A server's file of a checkpoint, in a folder of its own. */
struct net_part {
    uint64_t generation;
    int64_t step;
    int server, n_servers; /* whose file it is */
    uint64_t bytes;
    uint32_t crc32c; /* of its header */
};

struct net_kept {
    uint64_t generation;
    int64_t step;
};

struct net_control {
    int server, n_servers;            /* joining: 0 */
    uint64_t incarnation;             /* random at process start, not 0 */
    uint64_t generation;              /* that its job is in; 0: there is none */
    uint64_t ps0;                     /* who made its plan, as in struct net_plan */
    uint64_t heard_ps0, heard_epoch;  /* of the ps 0 that was obeyed last; 0: none yet */
    uint64_t unreadable;              /* generation of the plan in force, which does not begin here,
                                         since its checkpoint is damaged; 0: none */
    uint64_t seen;                    /* number of the last reply; 0: none yet */
    uint64_t serial;                  /* of this request; those of a process rise */
    uint64_t wanted;                  /* checkpoints asked for here so far */
    uint64_t order;                   /* the last checkpoint order that was accepted; 0: none */
    int phase;                        /* of it: enum control_phase */
    uint64_t bytes;                   /* of its file, once it is written */
    uint32_t crc32c;                  /* likewise */
    char address[CONTROL_TEXT_BYTES]; /* where the server is reached */
    int joining;                      /* it was not there when the job began */
    int leaving;                      /* it wants to hand on its chunks and go */
    uint64_t stop;                    /* the last Stop that was obeyed; 0: none */
    int stopped;                      /* nothing moves here any more */
    int64_t lowest, highest;          /* versions here; -1: a chunk has none yet */
    int n_missing;
    struct net_missing *missing;       /* given to the receiver, as `parts` */
    char folder[CONTROL_FOLDER_BYTES]; /* of checkpoints; empty: there is none, or none is known */
    int knows_parts;                   /* of a folder of its own, */
    int n_parts;                       /* the newest of which are */
    struct net_part *parts;
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
    uint64_t epoch;        /* of ps 0: a lower one than known is of one that was replaced */
    int closing;           /* no more orders will come: ps 0 is about to end */
    uint64_t stop;         /* number of the last Stop; 0: none yet */
    int64_t stop_step;     /* no chunk goes beyond this version; -1: beyond where it is */
    struct net_plan *plan; /* in force, to a server that is not in its generation, else NULL; given
                              to the receiver */
    uint64_t settled;      /* every server is in this generation */
    int drained;           /* no chunk is the caller's any more: it can end */
    int failed;            /* closing: the job has, all its workers ended with an error */
    char folder[CONTROL_FOLDER_BYTES]; /* ps 0's */
    int knows_kept;                    /* what is not kept can go, */
    int older_stay;                    /* but for what is older than the last of: */
    int n_kept;
    struct net_kept *kept;          /* newest first; given to the receiver */
    char later[CONTROL_TEXT_BYTES]; /* not sent. Not empty: no answer, the call ends with this, as
                                       if nobody was there: ST_UNAVAILABLE */
};

/* What the messages themselves hold; the structs are the caller's, and may be of zeros. */
void message_control_free(struct net_control *control);
void message_control_reply_free(struct net_control_reply *reply);

#endif
