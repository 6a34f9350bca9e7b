/* ps/coordinator/follower.h - what a server does on the word of ps 0 (ps 0 itself, too), as a pure
 * state machine: it says how things stand here, and begins plans, stops, settles, takes part in
 * checkpoints as it is answered. follower_shell.h carries it out.
 *
 * Both messages are their sender's whole state (net/wire/control.h), so one that is lost is made
 * good by the next. The term fences: a ps 0 of a lower epoch than one heard before is not obeyed,
 * and no plan of a lower generation than the present one is begun. A ps 0 of another life, of the
 * same epoch or a higher one, is obeyed: what goes on here stops until its plan comes.
 *
 * As coordinator.h: no clock, lock, thread, call, log line or memory inside; every event is legal
 * in every state. Owns: nothing but its struct, a plain value. Threads: one at a time. */
#ifndef PS_COORDINATOR_FOLLOWER_H
#define PS_COORDINATOR_FOLLOWER_H
#include "base/status.h"
#include "net/wire/control.h"

enum { FOLLOWER_MAX_ACTIONS = 12 };

struct follower_start {
    uint64_t incarnation; /* of this process, random, not 0 */
    int keeps_checkpoints;
    int64_t done_ms; /* > 0: this process was started anew; a job that has all its steps is done if
                        ps 0 does not come within */
};

/* How the store stands. */
struct follower_store {
    uint64_t generation; /* 0: there is no job */
    uint64_t ps0;        /* that made its plan */
    int stopped, ended;  /* nothing moves any more; all members have left, done */
    int64_t lowest, highest;
    uint64_t unreadable; /* as in struct net_control */
};

/* X(name): what can happen. */
#define FOLLOWER_EVENTS(X)                                                                         \
    X(START)    /* first, once */                                                                  \
    X(TIMER)    /* time has passed */                                                              \
    X(REPLY)    /* ps 0 has answered the call */                                                   \
    X(FAILED)   /* the call came to nothing, `st`; ST_CANCELLED: it was ended here */              \
    X(STORE)    /* how the store stands now */                                                     \
    X(SNAPSHOT) /* how far this server's part of a checkpoint is */                                \
    X(WORKERS)  /* others than before are missing here */                                          \
    X(WANT)     /* a checkpoint is wanted */                                                       \
    X(LEAVE)    /* the chunks are to go to other servers */                                        \
    X(LOOKED)   /* LOOK has ended: has_all_steps, or left_out */
enum follower_event_kind {
#define X(name) FOLLOWER_##name,
    FOLLOWER_EVENTS(X)
#undef X
};

struct follower_event {
    enum follower_event_kind kind;
    enum status st;
    int has_all_steps, left_out; /* LOOKED */
    uint64_t generation;         /* LOOKED: that LOOK named */
    union {                      /* borrowed for the step */
        const struct follower_start *start;
        const struct net_control_reply *reply;
        const struct follower_store *store;
        const struct net_control *snapshot; /* of it order, phase, bytes, crc32c */
    };
};

/* X(name): what is to be done, in this order. */
#define FOLLOWER_ACTIONS(X)                                                                        \
    X(STOP)      /* the store, where it is */                                                      \
    X(APPLY)     /* begin the reply's plan, aside; STORE tells when it is in force */              \
    X(SETTLE)    /* generations before `generation` are not needed any more */                     \
    X(ORDER)     /* take part in the checkpoint `order` of `generation` at `step` */               \
    X(CANCEL)    /* the order that waits for chunks */                                             \
    X(LOOK)      /* does the newest checkpoint here have all steps of its job? Where the store is  \
                    in a generation: does the job go on in a newer one, without this server? */    \
    X(REFUSED)   /* this process cannot belong to the job: the reply says why */                   \
    X(DRAINED)   /* nothing is left to do here; arg 1: the job is done, 2: it has failed */        \
    X(NEW_PS0)   /* a line: another process speaks for ps 0 */                                     \
    X(OLD_PS0)   /* a line: one that was replaced is not obeyed */                                 \
    X(NO_FOLDER) /* a line: an order, but this server keeps no checkpoints */                      \
    X(MISSING)   /* a line: ps 0 does not answer */                                                \
    X(DONE)      /* a line: the job had all its steps and ps 0 does not come; DRAINED follows */
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
    int call;        /* 1: a call to ps 0 is wanted now (follower_request), none is under way */
    int cancel;      /* 1: the call under way is to be ended: there is news */
    int64_t wake_ns; /* TIMER is wanted then; INT64_MAX: never */
    struct follower_action act[FOLLOWER_MAX_ACTIONS];
};

enum follower_call { CALL_IDLE, CALL_UNDER_WAY, CALL_CANCELLED, CALL_RESTING };

struct follower {
    struct follower_start start;
    struct follower_store store;
    int64_t now;
    uint64_t leader, epoch; /* of ps 0: incarnation, epoch; 0: not heard yet */
    uint64_t seen, serial;
    uint64_t order, taken, order_generation; /* of checkpoints: the last; given to the writer */
    int64_t order_step;
    uint64_t stop, settled, applying;
    enum control_phase phase; /* of `taken` */
    uint64_t bytes;
    uint32_t crc32c;
    uint64_t wanted, given;
    int leaving, closing, drained, failed, refused, told_no_folder;
    enum follower_call call;
    int news; /* something that the call under way does not say */
    int acknowledges;
    int64_t heard, missed, rest_until, line, done_at, look_at; /* missed: 0: it is there */
};

void follower_init(struct follower *f);
void follower_step(struct follower *f, const struct follower_event *e, int64_t now_ns,
                   struct follower_out *out);
/* The whole state, but for the caller's place among the servers and who is missing. */
void follower_request(const struct follower *f, struct net_control *out);
/* At the end: 1: ps 0 has said what there was to say, or is gone; or there is nothing here to be
 * saved. */
int follower_is_heard(const struct follower *f, int64_t now_ns);

#endif
