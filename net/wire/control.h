/* net/wire/control.h - messages between ps 0 and the other servers. Server k > 0 sends its state,
 * which includes the orders that it has received so far; ps 0 answers as soon as its orders change,
 * or after a while. Both messages contain the sender's whole state, so the next message replaces a
 * lost one.
 * Owns:    its lists.
 * Threads: plain values without a lock.
 * Errors:  none. */
#ifndef NET_WIRE_CONTROL_H
#define NET_WIRE_CONTROL_H
#include <stdbool.h>
#include <stdint.h>

enum {
    CONTROL_TEXT_BYTES = 256,
    CONTROL_FOLDER_BYTES = 33, /* a folder's id: 32 hex digits and a 0 */
    CONTROL_MAX_PARTS = 64,
    CONTROL_MAX_KEPT = 256
};

/* Progress of a server with its part of a checkpoint, in the order of weir.proto. */
enum part_phase {
    PART_IDLE,
    PART_ARMED,   /* waits for its chunks to reach the step */
    PART_WRITING, /* all chunks are captured and are being written */
    PART_WRITTEN,
    PART_FAILED,
    PART_PAST,     /* the chunks were beyond the step already */
    PART_DIVERGED, /* a parameter is not finite: the server writes nothing */
    PART_N_PHASES
};

struct net_plan; /* plan.h */

/* A member that has no stream to the sender now. */
struct net_missing {
    int member; /* index */
    int64_t ms; /* milliseconds without a stream */
    /* the member has joined at the sender in this generation, but has sent no frame yet */
    bool came;
};

/* A server's file of a checkpoint, in a folder that ps 0 does not share. */
struct net_part {
    uint64_t generation;
    int64_t step;
    int server, n_servers; /* server that has written the file, and number of servers */
    uint64_t bytes;
    uint32_t crc32c; /* CRC-32C of the file's header */
};

struct net_kept {
    uint64_t generation;
    int64_t step;
};

struct net_control {
    int server, n_servers; /* number of this server, and number of servers; both 0 while joining */
    uint64_t incarnation;  /* random at process start, not 0 */
    uint64_t generation;   /* generation of the server's job; 0: it has no job */
    uint64_t ps0; /* incarnation of the ps 0 that made the server's plan, see struct net_plan */
    uint64_t heard_ps0, heard_epoch; /* ps 0 that the server obeyed last; 0: none */
    uint64_t unreadable; /* generation of the plan in force if the server cannot begin it, because
                            the plan's checkpoint is damaged; 0: none */
    uint64_t seen;       /* number of the last reply; 0: none yet */
    /* number of this request; each request of a process has a higher number than the one before */
    uint64_t serial;
    uint64_t wanted; /* number of checkpoints requested at this server so far */
    uint64_t order;  /* id of the last checkpoint order that the server accepted; 0: none */
    int phase;       /* progress of that order: enum part_phase */
    uint64_t bytes;  /* size of the checkpoint's file, after it was written */
    uint32_t crc32c; /* CRC-32C of that file's header, after it was written */
    char address[CONTROL_TEXT_BYTES]; /* address of the server */
    bool joining;                     /* the server was not in the job when the job began */
    bool leaving;                     /* the server asks to hand on its chunks and leave */
    uint64_t stop;                    /* number of the Stop that the server obeyed last; 0: none */
    bool stopped;                     /* versions of the server's chunks do not change any more */
    int64_t lowest, highest;          /* range of the chunks' versions; -1: a chunk has none yet */
    int n_missing;
    struct net_missing *missing; /* the receiver becomes the owner of this list and of `parts` */
    char folder[CONTROL_FOLDER_BYTES]; /* id of the server's checkpoint folder; empty: none or
                                          unknown */
    bool knows_parts; /* the server has read its own folder, so `parts` is complete */
    int n_parts;      /* number of files in `parts`, the newest of that folder */
    struct net_part *parts;
};

struct net_control_reply {
    uint64_t number;                  /* changes whenever a field below changes */
    char refused[CONTROL_TEXT_BYTES]; /* not empty: the server cannot belong to the job and must
                                         stop */
    char restore[CONTROL_TEXT_BYTES]; /* name of the manifest to continue from; empty: from the
                                         start */
    uint64_t generation;              /* generation of the plan in force; 0: none yet */
    uint64_t order;                   /* id of the latest checkpoint order, unique across
                                         coordinators */
    int64_t step;                     /* step of that checkpoint; -1: it is cancelled */
    uint64_t given;       /* number of requested checkpoints that were completed or given up */
    uint64_t incarnation; /* incarnation of ps 0 */
    uint64_t epoch; /* epoch of ps 0; if it is below the highest epoch that the receiver has seen,
                       this ps 0 was replaced */
    bool closing;   /* ps 0 is about to exit, and sends no more orders */
    uint64_t stop;  /* number of the last Stop; 0: none yet */
    int64_t stop_step; /* highest version that a chunk may reach; -1: the chunk's present version */
    struct net_plan *plan; /* plan in force, if the receiver has not begun the plan's generation;
                              otherwise NULL; the receiver becomes its owner */
    uint64_t settled;      /* generation that every server is in */
    bool drained;          /* the caller has no chunks any more and can exit */
    bool failed;           /* closing: the job failed, because all its workers ended with an
                              error */
    char folder[CONTROL_FOLDER_BYTES]; /* id of ps 0's folder */
    bool knows_kept; /* files of checkpoints that are not in `kept` may be deleted */
    bool older_stay; /* files that are older than the last of `kept` may not be deleted */
    int n_kept;
    struct net_kept *kept;          /* newest first; the receiver becomes its owner */
    char later[CONTROL_TEXT_BYTES]; /* not sent. If it is not empty, ps 0 sends no answer: the call
                                       ends with this text and ST_UNAVAILABLE, as if ps 0 were not
                                       reached */
};

/* Frees the members of a message, not the struct, which is the caller's. The struct may contain
 * only zeros. */
void message_control_free(struct net_control *control);
void message_control_reply_free(struct net_control_reply *reply);

#endif
