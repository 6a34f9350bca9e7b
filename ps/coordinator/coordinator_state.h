/* ps/coordinator/coordinator_state.h - the coordinator's whole state in one flat block. Private
 * to the coordinator. */
#ifndef PS_COORDINATOR_COORDINATOR_STATE_H
#define PS_COORDINATOR_COORDINATOR_STATE_H
#include "ps/coordinator/checkpoint_state.h"
#include "ps/coordinator/coordinator_view.h"
#include "ps/coordinator/evaluation_state.h"

#define MS ((int64_t)1000000) /* nanoseconds in a millisecond */

enum coordinator_phase {
    PHASE_EMPTY,    /* no job: ps 0 waits for the first worker */
    PHASE_RUNNING,  /* all servers are in the plan's generation */
    PHASE_STOPPING, /* a Stop was sent; lasts until the next plan is made */
    PHASE_BEGINNING /* the plan was sent, and servers begin it */
};

/* Work outside the state machine that a change waits for; one at a time. */
enum coordinator_pending { PENDING_NONE, PENDING_FIND, PENDING_PLAN };

enum server_life {
    LIFE_NONE,     /* a free slot */
    LIFE_EXPECTED, /* named by the plan or the first list of servers; has not called yet */
    LIFE_KNOWN     /* the server has called */
};

struct coordinator_server {
    enum server_life life;
    int number; /* number of the server in the plan in force; -1: none */
    char address[CONTROL_TEXT_BYTES];
    uint64_t incarnation; /* number of the process that called last */
    int held_number;      /* number of the server in the settled generation */
    uint64_t held; /* process that holds the server's chunks of the settled generation; 0: none */
    uint64_t generation; /* generation of this ps 0 that the server is in; 0: none */
    uint64_t claim;      /* term of another ps 0 that the server reported; 0: none */
    uint64_t unreadable; /* generation whose checkpoint the server cannot read; 0: none */
    int obeyed;          /* the server has obeyed a reply of this ps 0 */
    uint64_t call, seen; /* call: unanswered call, 0: none; seen: last reply that it received */
    uint64_t serial;     /* serial number of the server's last request */
    /* awake clock: last contact; first call, and last call, of this incarnation */
    int64_t heard, first, called;
    int64_t claimed; /* awake clock: time until which no other process may use this address */
    /* leaving: the server asked to leave; drained: an operator asked; forgotten: counts as gone */
    int leaving, drained, forgotten;
    int given_up;            /* an operator ended the wait for the server's chunks */
    uint64_t stop;           /* last Stop that the server carried out */
    int stopped;             /* the server has completed that Stop */
    int64_t lowest, highest; /* versions of the server's chunks */
    /* counts of the server's requests for a checkpoint: all, accepted, and answered (given) ones */
    uint64_t wanted, accepted, given;
    uint64_t order; /* order for a checkpoint that the server works on; `phase`: its state there */
    int phase;
    struct coordinator_file file;
    int ordered; /* number of the server in the checkpoint being made; -1: none */
};

enum worker_lot { LOT_NONE, LOT_STAYS, LOT_DONE, LOT_LATE, LOT_LEAVES, LOT_REMOVED, LOT_JOINS };

struct coordinator_worker {
    uint64_t incarnation;
    uint64_t removed; /* incarnation of the process that an operator removed */
    int8_t in_plan, waits, joined, leaving, failed, done, spoke, asked;
    int8_t wanted;     /* the worker asked to join before the plan named it */
    int8_t remove;     /* an operator asked to remove any process of this index */
    int8_t late;       /* the worker was late when the Stop was sent */
    int missed_by;     /* slot of a server that misses the worker (has no stream to it); -1: none */
    int8_t heard;      /* a server that misses the worker had contact with it in this generation */
    int8_t came;       /* the worker joined at a server that misses it, but sent nothing yet */
    int64_t joined_at; /* awake clock */
    /* awake clock: start of the worker's absence at any server; INT64_MAX: present */
    int64_t since;
    int64_t contact;   /* awake clock: last contact with ps 0, in any generation */
    int64_t left_step; /* step of a plan that left out the worker without a failure; -1: none */
    /* a worker that did not reach a server may not join for refuse_ms, until this time (awake) */
    int64_t refused_until, refuse_ms;
    uint64_t refused; /* incarnation that may not join */
    enum worker_lot lot;
    char address[COORDINATOR_ADDRESS_BYTES];
};

struct coordinator_state {
    int max_servers, max_workers;
    size_t servers_at, /* the following fields are offsets of arrays in this block: servers */
        workers_at,    /* workers */
        members_at,    /* members of the next plan */
        numbers_at,    /* slots of the next plan's servers */
        files_at,      /* files of a checkpoint */
        parts_at,      /* parts of an evaluation */
        missing_at,    /* bits by slot and worker: the server misses the worker */
        contact_at,    /* bits by slot and worker: the server has had contact with the worker */
        bytes;         /* size of the block */
    int started, has_folder, all_steps_before, save_by_steps;
    /* epoch: that of the next plans, once recorded; recorded: highest one recorded in the folder */
    uint64_t incarnation, epoch, recorded;
    /* n: that of the last plan's generation epoch.n; ignored: last claim that was not credible */
    uint64_t n, ignored;
    int64_t save_steps, save_ms, worker_timeout_ms, done_ms;
    int min_workers;
    int serves; /* the servers stay after the job */

    int64_t now, awake; /* now: monotonic clock; awake: clock without pauses of this process */
    int64_t began;      /* awake clock: start of this process */
    /* versions of ps 0's own chunks; moved: time of their last change (awake clock) */
    int64_t own_lowest, own_highest, moved;
    uint32_t ops;    /* number of orders so far */
    uint64_t number; /* rises with each change of the state; replies contain it */
    enum coordinator_phase phase;
    enum coordinator_pending pending;
    uint32_t op, epoch_op; /* order to the disk of the pending work; DISK_EPOCH order; 0: none */
    int64_t pending_since;
    enum status failed, epoch_failed; /* error of the last FIND or plan; of the last DISK_EPOCH */
    /* awake clock: earliest next attempt of the pending work (not_before); of DISK_EPOCH */
    int64_t not_before, epoch_at;

    int64_t train_steps, first_step;    /* last step and first step of the job */
    int lockstep, lives_on, from_start; /* from_start: no checkpoint existed when the job began */
    /* generation: in force; settled: last settled one; base: continued by the next plan, 0: none */
    uint64_t generation, settled, base;
    /* number of members, and of servers, in the plan in force, or in the first list */
    int n_members, n_numbers;
    int64_t plan_step;
    enum plan_source plan_source;
    uint64_t stop; /* number of the last Stop */
    /* awake clock: time when the generation settled (begun); time when the Stop was sent */
    int64_t begun, stopped;
    /* awake clock: start of this phase (entered); time of the next log line about it */
    int64_t entered, line;
    enum coordinator_line_id failure; /* failure already logged in this phase, and its status */
    enum status failure_st;
    int redo;        /* a restarted server may have begun the generation before its restart */
    uint64_t passed; /* generation whose damaged checkpoint the next FIND skips; 0: none */
    int lost; /* slot of a server whose chunks are lost, for the line about the plan; -1: none */

    /* The next plan while it is pending. */
    uint64_t next_generation;
    enum plan_source next_source;
    int64_t next_step;
    int n_next_members, n_next_numbers;

    uint64_t workers_generation; /* generation in the last event WORKERS */
    struct checkpoint_schedule ckpt;
    struct evaluation_state eval;
    int finishing, finished, job_done, job_failed, closing, fenced;
    int stop_asked; /* an operator or a member asked to end the job at its present step */
    int64_t finish_at;
    uint64_t end_number; /* first reply number that reports the end of this ps 0 */
    int n_slots;         /* slots in use so far */
};

#endif
