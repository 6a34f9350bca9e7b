/* ps/coordinator/coordinator.h - what ps 0 decides, as a pure state machine: which generation is in
 * force, who takes part in it, and when checkpoints are made. docs/design/coordination.md has its
 * phases and rules; coordinator_shell.h carries out what it says.
 *
 * Inside there is no clock, thread, lock, file, call, log line, random number or allocation: a step
 * cannot fail and does not wait. Every event is legal in every state. ps 0's own store is one of
 * the servers (number 0) and speaks for itself by CONTROL, as the others do.
 *
 * A change of any kind: a Stop (everything stops where it is), then a plan that resumes from the
 * last step that is complete on all servers, in memory; only where a server lost its chunks, from
 * the newest checkpoint. Until all servers are in the new generation (it is settled), the stores of
 * the last settled one are kept, so that a change that fails is made again from there.
 *
 * The term (base/term.h) is the generation's number. The epoch is recorded (DISK_EPOCH) before it
 * is used; it is raised, and a plan follows, when others come from a ps 0 whose epoch is not below
 * ours (which has no folder, or lost it). A ps 0 that was replaced is FENCED.
 *
 * Owns: one flat block, the caller's; nothing points into or out of it. One thread at a time. */
#ifndef PS_COORDINATOR_COORDINATOR_H
#define PS_COORDINATOR_COORDINATOR_H
#include "base/status.h"
#include "base/term.h"
#include "net/wire/evaluation.h"
#include "net/wire/plan.h"
#include "ps/coordinator/coordinator_lines.h"
#include "ps/coordinator/coordinator_values.h"
#include <stddef.h>

enum { COORDINATOR_MAX_ACTIONS = 64, COORDINATOR_ADDRESS_BYTES = 96 };

struct coordinator_start {
    uint64_t incarnation;        /* of this process, random, not 0 */
    const char *address;         /* of ps 0 */
    const struct hosts *servers; /* of the job as it begins, ps 0 first */
    int64_t save_steps, save_ms; /* 0: not by steps, not by time */
    int64_t worker_timeout_ms;   /* that a worker may be away */
    int min_workers, serves;     /* 0: one, and the job waits for all; servers stay after its end */
    int has_folder, is_claimed;  /* checkpoints are kept; this process has claimed the folder */
    uint64_t epoch;              /* of that claim, or of the last before; 0: none */
    int64_t last_step;           /* of the checkpoint to resume from; -1: there is none */
    int has_all_steps;           /* it is of its job's last step */
    int64_t done_ms; /* > 0: this process was started anew; such a job is done if nobody comes */
    struct best_evaluation best; /* of the folder */
};

enum coordinator_command_kind {
    COORDINATOR_CHECKPOINT,
    COORDINATOR_REMOVE_WORKER,
    COORDINATOR_DRAIN_SERVER,
    COORDINATOR_STOP_JOB, /* the job ends where it is */
    COORDINATOR_FINISH    /* this process ends */
};

/* X(name): what can happen. */
#define COORDINATOR_EVENTS(X)                                                                      \
    X(START)     /* first, once */                                                                 \
    X(TIMER)     /* time has passed */                                                             \
    X(CONTROL)   /* a server's whole state; `call` waits for the answer */                         \
    X(CLOSED)    /* that call hears no answer any more */                                          \
    X(JOB)       /* a first worker wants to join, and fits; it asks again */                       \
    X(WORKERS)   /* who is there, whole */                                                         \
    X(COMMAND)   /* what an operator, or the end of this process, asks for */                      \
    X(DISK)      /* the order `op` has ended */                                                    \
    X(PLANNED)   /* the plan `op` was made, or could not be */                                     \
    X(EVALUATED) /* a worker has evaluated the validation data, or a part of them */
enum coordinator_event_kind {
#define X(name) COORDINATOR_##name,
    COORDINATOR_EVENTS(X)
#undef X
};

struct coordinator_event {
    enum coordinator_event_kind kind;
    int64_t lowest, highest; /* of every event: versions of ps 0's own store, as net_control has */
    uint64_t call;           /* CONTROL, CLOSED */
    uint32_t op;             /* DISK, PLANNED */
    enum status st;          /* likewise */
    union {                  /* what is pointed to is borrowed for the step */
        const struct coordinator_start *start;
        const struct net_control *control;
        const struct net_evaluation *evaluation;
        struct {
            int64_t train_steps, step;               /* step: where it resumes; 0: at its start */
            int lockstep, from_checkpoint, lives_on; /* lives_on: it is older than this process */
            uint64_t claim; /* generation that the worker knows of another ps 0; 0: none */
            int n_members;
            const int *member; /* NULL: 0 to n_members - 1 */
        } job;
        struct {
            uint64_t generation, claim; /* of ps 0's store; highest as above, of any worker */
            int n;
            const struct coordinator_worker_event *worker;
        } workers;
        struct {
            enum coordinator_command_kind what;
            int index;
        } command;
        struct {
            int64_t step;   /* FIND, MANIFEST: of the checkpoint; SWEEP, OWNER: -1 */
            uint64_t epoch; /* EPOCH: that was recorded, at least that which was ordered */
        } disk;
    };
};

enum disk_task { DISK_EPOCH, DISK_FIND, DISK_MANIFEST, DISK_SWEEP, DISK_BEST, DISK_OWNER };

/* X(name): what is to be done. */
#define COORDINATOR_ACTIONS(X)                                                                     \
    X(REPLY)     /* to `call`; coordinator_view_fill_reply at once */                              \
    X(PLAN)      /* make coordinator_view_next_plan's, then PLANNED; if made, it is in force */    \
    X(DISK)      /* begin the order, then DISK; nothing waits for it */                            \
    X(HOLD_LAST) /* ps 0's store: the last version is held back (arg 1), or not (0) */             \
    X(LINE)      /* log it */                                                                      \
    X(FAILED)    /* all workers ended with an error: COORDINATOR_FINISH, and end so, too */        \
    X(FENCED) /* another ps 0 has taken its place (arg 0), or may have: this process is to end */  \
    X(DONE)   /* nobody is left to end the job, which has all its steps */                         \
    X(FINISHED) /* what COORDINATOR_FINISH asked for is done, or given up */
enum coordinator_action_kind {
#define X(name) ACT_##name,
    COORDINATOR_ACTIONS(X)
#undef X
};

struct coordinator_action {
    enum coordinator_action_kind kind;
    uint32_t op;         /* PLAN, DISK */
    enum disk_task disk; /* DISK */
    uint64_t call;       /* REPLY: 0 is never given */
    int server, arg;     /* REPLY: the server's slot, -1: refused; HOLD_LAST, FENCED */
    uint64_t value;      /* DISK_EPOCH: to be recorded; DISK_FIND: older than that plan's; 0: any */
    const char *text;    /* REPLY: why it is refused, or (arg 1) to come later; static; or NULL */
    struct coordinator_line line;
};

struct coordinator_out {
    int n;
    int64_t wake_ns; /* TIMER is wanted then, at the latest; INT64_MAX: never */
    struct coordinator_action act[COORDINATOR_MAX_ACTIONS];
};

struct coordinator_state;
size_t coordinator_bytes(int max_servers, int max_workers); /* that init is given */
void coordinator_init(struct coordinator_state *c, int max_servers, int max_workers);
/* now_ns: monotonic, never falls. `out` is the caller's. Where it is full, the rest is said by the
 * next step, which wake_ns asks for at once. */
void coordinator_step(struct coordinator_state *c, const struct coordinator_event *e,
                      int64_t now_ns, struct coordinator_out *out);
/* What the actions of the last step refer to, and what others want to know: coordinator_view.h. */

#endif
