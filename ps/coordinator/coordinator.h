/* ps/coordinator/coordinator.h - the decisions of ps 0 as a pure state machine: the generation
 * in force, its members, and the times of checkpoints. docs/design/coordination.md has its
 * phases and rules; coordinator_shell.h carries out its actions.
 *
 * It contains no clock, thread, lock, file, call, log line, random number or allocation: a step
 * cannot fail and does not wait. Every event is legal in every state. ps 0's own store is server
 * number 0 and reports by CONTROL, like the other servers.
 *
 * Every change is a Stop, then a plan that resumes from the last step that is complete on all
 * servers, in memory; or, if a server lost its chunks, from the newest checkpoint. The stores of
 * the last generation that all servers entered (settled) are kept until the new one is settled.
 *
 * The generation's number is a term (base/term.h), whose epoch is recorded (DISK_EPOCH) before use.
 * If a report names a generation of another ps 0 with an epoch not below that of this ps 0, then
 * this ps 0 raises its epoch and makes a plan. A ps 0 that was replaced is FENCED.
 *
 * Owns: one flat block, the caller's; no pointer leads into or out of it. Threads: one at a
 *       time. */
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
    uint64_t incarnation;        /* random number of this process, not 0 */
    const char *address;         /* address of ps 0 */
    const struct hosts *servers; /* servers of the job at its start; ps 0 first */
    int64_t save_steps, save_ms; /* intervals of checkpoints, in steps and in time; 0: none */
    int64_t worker_timeout_ms;   /* longest absence of a worker */
    int min_workers, serves;     /* min_workers 0: all must join; serves: servers outlive the job */
    int has_folder, is_claimed;  /* checkpoints are kept; this process has claimed the folder */
    uint64_t epoch;              /* epoch of that claim, else of the folder's last claim; 0: none */
    int64_t last_step;           /* step of the checkpoint to resume from; -1: none */
    int has_all_steps;           /* the checkpoint has all steps of its job */
    int64_t done_ms; /* > 0: restarted; a finished job ends if no worker joins in this time */
    struct best_evaluation best; /* best evaluation, as recorded in the folder */
};

enum coordinator_command_kind {
    COORDINATOR_CHECKPOINT,
    COORDINATOR_REMOVE_WORKER,
    COORDINATOR_DRAIN_SERVER,
    COORDINATOR_STOP_JOB, /* the job ends at its present step */
    COORDINATOR_FINISH    /* this process ends */
};

/* X(name): events. */
#define COORDINATOR_EVENTS(X)                                                                      \
    X(START)     /* first event, sent one time */                                                  \
    X(TIMER)     /* the time of wake_ns has passed */                                              \
    X(CONTROL)   /* a server's whole state; `call` waits for the reply */                          \
    X(CLOSED)    /* the server has ended `call`, so no reply can reach it */                       \
    X(JOB)       /* a first worker whose job fits asks to join; it retries */                      \
    X(WORKERS)   /* the complete list of workers */                                                \
    X(COMMAND)   /* a request of an operator, or of this process as it ends */                     \
    X(DISK)      /* the order `op` to the disk has ended */                                        \
    X(PLANNED)   /* the plan of the action PLAN `op` is in force, or could not be made */          \
    X(EVALUATED) /* a worker has evaluated the validation data or a part of them */
enum coordinator_event_kind {
#define X(name) COORDINATOR_##name,
    COORDINATOR_EVENTS(X)
#undef X
};

struct coordinator_event {
    enum coordinator_event_kind kind;
    int64_t lowest, highest; /* lowest and highest version in ps 0's own store, in every event */
    uint64_t call;           /* CONTROL, CLOSED */
    uint32_t op;             /* DISK, PLANNED */
    enum status st;          /* DISK, PLANNED */
    union {                  /* pointers are borrowed for the call of coordinator_step */
        const struct coordinator_start *start;
        const struct net_control *control;
        const struct net_evaluation *evaluation;
        struct {
            int64_t train_steps, step;               /* step: step to resume from; 0: a new job */
            int lockstep, from_checkpoint, lives_on; /* lives_on: job older than this process */
            uint64_t claim; /* generation of another ps 0 in which the worker was; 0: none */
            int n_members;
            const int *member; /* indices; NULL: 0 to n_members - 1 */
        } job;
        struct {
            uint64_t generation, claim; /* generation of ps 0's store; highest claim of a worker */
            int n;
            const struct coordinator_worker_event *worker;
        } workers;
        struct {
            enum coordinator_command_kind what;
            int index;
        } command;
        struct {
            int64_t step;   /* step of the checkpoint (FIND, MANIFEST); -1: SWEEP, OWNER */
            uint64_t epoch; /* EPOCH: recorded epoch, at least the ordered one */
        } disk;
    };
};

enum disk_task { DISK_EPOCH, DISK_FIND, DISK_MANIFEST, DISK_SWEEP, DISK_BEST, DISK_OWNER };

/* X(name): actions. */
#define COORDINATOR_ACTIONS(X)                                                                     \
    X(REPLY)     /* reply to `call` at once; coordinator_view_fill_reply fills in the reply */     \
    X(PLAN)      /* make the plan of coordinator_view_next_plan; PLANNED reports the result */     \
    X(DISK)      /* begin the order to the disk, without a wait; DISK reports its result */        \
    X(HOLD_LAST) /* ps 0's store holds back the last version (arg 1) or not (0) */                 \
    X(LINE)      /* log the line */                                                                \
    X(FAILED)    /* all workers failed: send COORDINATOR_FINISH, and exit with an error */         \
    X(FENCED)    /* another ps 0 replaced this one (arg 0), or may have (1): end this process */   \
    X(DONE)      /* the job has all its steps, and no worker is left to end it */                  \
    X(FINISHED)  /* the work that COORDINATOR_FINISH requested is done or given up */
enum coordinator_action_kind {
#define X(name) ACT_##name,
    COORDINATOR_ACTIONS(X)
#undef X
};

struct coordinator_action {
    enum coordinator_action_kind kind;
    uint32_t op;         /* PLAN, DISK */
    enum disk_task disk; /* DISK */
    uint64_t call;       /* REPLY: call to answer, never 0 */
    int server, arg;     /* server: slot (REPLY), -1: refused; arg: see the actions */
    uint64_t value;      /* EPOCH: epoch; FIND: older than this generation's checkpoint, 0: any */
    const char *text; /* REPLY: static reason of a refusal, or (arg 1) of a later retry; or NULL */
    struct coordinator_line line;
};

struct coordinator_out {
    int n;
    int64_t wake_ns; /* time of the next TIMER, at the latest; INT64_MAX: never */
    struct coordinator_action act[COORDINATOR_MAX_ACTIONS];
};

struct coordinator_state;
size_t coordinator_bytes(int max_servers, int max_workers); /* returns bytes for coordinator_init */
void coordinator_init(struct coordinator_state *c, int max_servers, int max_workers);
/* Handles one event. now_ns is monotonic. `out` is the caller's. Actions that do not fit into
 * `out` follow in the next call, which wake_ns then requests at once. */
void coordinator_step(struct coordinator_state *c, const struct coordinator_event *e,
                      int64_t now_ns, struct coordinator_out *out);
/* coordinator_view.h has the data that the actions of the last call refer to, and other queries. */

#endif
