/* ps/coordinator/coordinator_state.h - what a coordinator knows: one flat block. Private to the
 * coordinator. */
#ifndef PS_COORDINATOR_COORDINATOR_STATE_H
#define PS_COORDINATOR_COORDINATOR_STATE_H
#include "ps/coordinator/checkpoint_state.h"
#include "ps/coordinator/coordinator_view.h"
#include "ps/coordinator/evaluation_state.h"

#define MS ((int64_t)1000000) /* in nanoseconds */

enum coordinator_phase {
    PHASE_EMPTY,    /* no job: the first worker is waited for */
    PHASE_RUNNING,  /* all servers are in the plan's generation */
    PHASE_STOPPING, /* a Stop is out; then until there is a plan for what comes next */
    PHASE_BEGINNING /* the plan is out, servers begin it */
};

/* What a change waits for outside; one at a time. */
enum coordinator_pending { PENDING_NONE, PENDING_FIND, PENDING_PLAN };

enum server_life {
    LIFE_NONE,     /* a free slot */
    LIFE_EXPECTED, /* of the plan or the first list; it has not called in this life of ps 0 */
    LIFE_KNOWN     /* it has called */
};

struct coordinator_server {
    enum server_life life;
    int number; /* in the plan in force; -1 */
    char address[CONTROL_TEXT_BYTES];
    uint64_t incarnation; /* that called last */
    int held_number;      /* in the settled generation */
    uint64_t held;        /* incarnation with its share of the settled generation; 0: none */
    uint64_t generation;  /* of ours, that it is in; 0: none */
    uint64_t claim;       /* term of another ps 0's that it knows of; 0: none */
    uint64_t unreadable;  /* generation of ours whose checkpoint it cannot read; 0: none */
    int obeyed;           /* it has heard an answer of ours, and obeyed it */
    uint64_t call, seen;  /* its call that waits, 0: none; number of the last reply it has */
    uint64_t serial;      /* of its last request */
    int64_t heard, first, called; /* on the awake clock; first: of this incarnation */
    int64_t claimed;              /* while no call waits, nobody else takes this address before */
    int leaving, drained, forgotten; /* it wants to go; an operator wants it to; and it is gone */
    int given_up;            /* an operator does not wait any longer for its chunks to come over */
    uint64_t stop;           /* the last that it carried out, */
    int stopped;             /* and is at the end of */
    int64_t lowest, highest; /* versions */
    uint64_t wanted, accepted, given; /* checkpoints that it asked for */
    uint64_t order;                   /* that it works at; of it: */
    int phase;
    struct coordinator_file file;
    int ordered; /* its number in the checkpoint being made; -1 */
};

enum worker_lot { LOT_NONE, LOT_STAYS, LOT_DONE, LOT_LATE, LOT_LEAVES, LOT_REMOVED, LOT_JOINS };

struct coordinator_worker {
    uint64_t incarnation;
    uint64_t removed; /* incarnation that an operator removed */
    int8_t in_plan, waits, joined, leaving, failed, done, spoke, asked;
    int8_t wanted;     /* it asked to join before it was planned */
    int8_t remove;     /* asked for, of whoever it is */
    int8_t late;       /* judged so when the Stop was given */
    int missed_by;     /* slot of a server that misses it; -1 */
    int8_t heard;      /* a server that misses it has heard it in this generation */
    int8_t came;       /* likewise, it has joined there and has only to speak */
    int64_t came_at;   /* awake */
    int64_t since;     /* awake time since when somebody has missed it without end; INT64_MAX */
    int64_t contact;   /* awake: ps 0 has heard of it last, in any generation */
    int64_t left_step; /* a plan that begins there left it out, and not since it failed; -1 */
    int64_t refused_until, refuse_ms; /* awake; it was dropped since it did not reach a server */
    uint64_t refused;                 /* incarnation */
    enum worker_lot lot;
    char address[COORDINATOR_ADDRESS_BYTES];
};

struct coordinator_state {
    int max_servers, max_workers;
    /* In this block: servers, workers; of the next plan its members and the slots of its servers;
     * a checkpoint's files; an evaluation's parts; by slot and index a bit: the server misses the
     * worker, has heard it. */
    size_t servers_at, workers_at, members_at, numbers_at, files_at, parts_at, missing_at, heard_at,
        bytes;
    int started, has_folder, all_steps_before, save_by_steps;
    uint64_t incarnation, epoch, recorded; /* epoch: that is to be; recorded: that plans have */
    uint64_t n, ignored;                   /* of the last plan; the last claim not believed */
    int64_t save_steps, save_ms, worker_timeout_ms, done_ms;
    int min_workers;
    int serves; /* the servers stay when the job is done */

    int64_t now, awake; /* the clock, and the clock of suspicion, which stops when we do */
    int64_t began;      /* awake: when this process was started */
    int64_t own_lowest, own_highest, moved; /* moved: awake, when they last changed */
    uint32_t ops;                           /* numbers of orders given so far */
    uint64_t number;                        /* of the state that replies tell */

    enum coordinator_phase phase;
    enum coordinator_pending pending;
    uint32_t op, epoch_op; /* of what is pending; DISK_EPOCH under way, 0: none */
    int64_t pending_since;
    enum status failed, epoch_failed; /* why the last find or plan, or epoch, came to nothing */
    int64_t not_before, epoch_at;     /* awake: the next try */

    int64_t train_steps, first_step;    /* of the job */
    int lockstep, lives_on, from_start; /* from_start: there was no checkpoint */
    uint64_t generation, settled, base; /* in force; base: settled last, 0: none */
    int n_members, n_numbers;           /* of the plan in force, or the first list */
    int64_t plan_step;
    enum plan_source plan_source;
    uint64_t stop;                    /* number of the last Stop */
    int64_t begun, stopped;           /* awake: settled; Stop given */
    int64_t entered, line;            /* awake: this phase; the next line about it */
    enum coordinator_line_id failure; /* that was said in this phase, of: */
    enum status failure_st;
    int redo;        /* a server was started anew that may have begun the generation */
    uint64_t passed; /* generation whose checkpoint the next find passes over, said; 0: none */
    int lost;        /* slot of a server whose chunks are gone, for the plan's line; -1 */

    /* The next plan, while it is pending. */
    uint64_t next_generation;
    enum plan_source next_source;
    int64_t next_step;
    int n_next_members, n_next_numbers;

    uint64_t workers_generation; /* that the last WORKERS was of */
    struct checkpoint_schedule ckpt;
    struct evaluation_state eval;
    int finishing, finished, job_done, job_failed, closing, fenced;
    int stop_asked; /* an operator or a member wants the job to end where it is */
    int64_t finish_at;
    uint64_t end_number; /* number from which on replies say that this ps 0 ends */
    int n_slots;         /* servers seen so far */
};

#endif
