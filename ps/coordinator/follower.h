/* ps/coordinator/follower.h - a server's part in ps 0's decisions (also at ps 0 itself), as a pure
 * state machine. It reports the server's state to ps 0. When ps 0 replies, it begins plans, stops,
 * settles, and makes its part of checkpoints. follower_shell.h carries out its actions.
 *
 * Both messages contain their sender's whole state (net/wire/control.h), so a later message
 * replaces a lost one. The term fences: a follower does not obey a ps 0 of a lower epoch than it
 * has seen, and begins no plan of a lower generation than its own. If another process with the same
 * or a higher epoch is ps 0, the follower obeys it, and training stops here until its plan arrives.
 *
 * It contains no clock, lock, thread, call, log line or memory, like coordinator.h; every event
 * is legal in every state.
 * Owns:    nothing but its struct, a plain value.
 * Threads: one at a time. */
#ifndef PS_COORDINATOR_FOLLOWER_H
#define PS_COORDINATOR_FOLLOWER_H
#include "base/status.h"
#include "net/wire/control.h"
#include <stdbool.h>

enum { FOLLOWER_MAX_ACTIONS = 12 };

struct follower_start {
    uint64_t incarnation; /* random number of this process, not 0 */
    int keeps_checkpoints;
    int joins;       /* this server was added to a running job */
    int64_t done_ms; /* > 0: in a restarted process, a job that has all its steps counts as done if
                        ps 0 does not answer within this time */
};

/* State of the store. */
struct follower_store {
    uint64_t generation; /* 0: no job */
    uint64_t ps0;        /* incarnation of the ps 0 that made the plan */
    /* stopped: no step is made any more; ended: all members made all steps and left */
    int stopped, ended;
    int64_t lowest, highest;
    uint64_t unreadable; /* see struct net_control */
};

/* X(name): events. */
#define FOLLOWER_EVENTS(X)                                                                         \
    X(START)    /* first event, sent one time */                                                   \
    X(TIMER)    /* the time of wake_ns has passed */                                               \
    X(REPLY)    /* ps 0 has answered the call */                                                   \
    X(FAILED)   /* the call failed with `st`; ST_CANCELLED: this process cancelled it */           \
    X(STORE)    /* the present state of the store */                                               \
    X(SNAPSHOT) /* the progress of this server's part of a checkpoint */                           \
    X(WORKERS)  /* the list of workers missing here has changed */                                 \
    X(WANT)     /* a request for a checkpoint */                                                   \
    X(LEAVE)    /* this server must hand its chunks to other servers */                            \
    X(LOOKED)   /* LOOK has ended, with what the folder shows */
enum follower_event_kind {
#define X(name) FOLLOWER_##name,
    FOLLOWER_EVENTS(X)
#undef X
};

struct follower_event {
    enum follower_event_kind kind;
    enum status st;
    int has_all_steps, is_over, left_out; /* LOOKED: see folder_look.h */
    uint64_t generation;                  /* LOOKED: generation that LOOK named */
    union {                               /* borrowed for the call of follower_step */
        const struct follower_start *start;
        const struct net_control_reply *reply;
        const struct follower_store *store;
        const struct net_control *snapshot; /* SNAPSHOT: order, phase, bytes, crc32c */
    };
};

/* X(name): actions, carried out in this order. */
#define FOLLOWER_ACTIONS(X)                                                                        \
    X(STOP)    /* stop the store at its present step */                                            \
    X(APPLY)   /* begin the reply's plan beside the store; STORE reports when it is in force */    \
    X(SETTLE)  /* drop the stores of generations before `generation` */                            \
    X(ORDER)   /* make this server's part of checkpoint `order` of `generation` at `step` */       \
    X(CANCEL)  /* cancel the order that waits for chunks */                                        \
    X(LOOK)    /* check in the folder whether the job is over and, if the store has a generation,  \
                  whether a newer generation runs without this server */                           \
    X(REFUSED) /* this process cannot belong to the job; the reply has the reason */               \
    X(DRAINED) /* this server has no work left: the job is done (arg 1), or failed (2) */          \
    X(NEW_PS0) /* log that another process is ps 0 now */                                          \
    X(OLD_PS0) /* log that a replaced ps 0 is not obeyed */                                        \
    X(NO_FOLDER) /* log that ps 0 has sent an order, but this server keeps no checkpoints */       \
    X(MISSING)   /* log that ps 0 does not answer */                                               \
    X(DONE)      /* log that the job had all steps, and ps 0 does not answer; DRAINED follows */
enum follower_action_kind {
#define X(name) FOLLOWER_ACT_##name,
    FOLLOWER_ACTIONS(X)
#undef X
};

struct follower_action {
    enum follower_action_kind kind;
    int arg;
    uint64_t order, generation;
    int64_t step;
};

struct follower_out {
    int n;
    int call;        /* make a call to ps 0 now (follower_request); none is under way */
    int cancel;      /* cancel the call under way: the state has changed */
    int64_t wake_ns; /* time of the next TIMER; INT64_MAX: never */
    struct follower_action act[FOLLOWER_MAX_ACTIONS];
};

enum follower_call { CALL_IDLE, CALL_UNDER_WAY, CALL_CANCELLED, CALL_RESTING };

struct follower {
    struct follower_start start;
    struct follower_store store;
    int64_t now;
    uint64_t leader, epoch; /* incarnation and epoch of ps 0; 0: no reply yet */
    uint64_t seen, serial;
    /* last checkpoint order of ps 0; last order that the writer has received */
    uint64_t order, taken, order_generation;
    int64_t order_step;
    uint64_t stop, settled, applying;
    enum part_phase phase; /* state of the writer's order */
    uint64_t bytes;
    uint32_t crc32c;
    uint64_t wanted, given;
    int leaving, closing, drained, failed, refused, has_logged_no_folder;
    enum follower_call call;
    int news; /* the state differs from that in the call under way */
    int acknowledges;
    /* points in time; missed 0: ps 0 answers */
    int64_t heard, missed, rest_until, line, done_at, look_at;
};

void follower_init(struct follower *f);
void follower_step(struct follower *f, const struct follower_event *e, int64_t now_ns,
                   struct follower_out *out);
/* Writes the whole state, except for this server's address and number and the missing workers,
 * which the caller adds. */
void follower_request(const struct follower *f, struct net_control *out);
/* Returns true if this server, at its end, need not wait for ps 0 any more: ps 0 has reported all
 * that it had to report or is gone, or this server has nothing to save. */
bool follower_is_heard(const struct follower *f, int64_t now_ns);

#endif
