/* net/wire/status.h - how a job stands, and what people want done with it: asked of a running
 * server by weirctl, by any other program that speaks weir.proto, and by a worker that is to join.
 * Whoever reaches a server's port may ask and command; it is protected as the rest of the port is
 * (docs/design/architecture.md, Security).
 * Owns:    a status its lists, table of chunks and model's text.
 * Threads: values.
 * Errors:  none. */
#ifndef NET_WIRE_STATUS_H
#define NET_WIRE_STATUS_H
#include "net/wire/control.h"
#include "net/wire/evaluation.h"
#include "net/wire/job.h"
#include <stdbool.h>

struct net_status_request {
    int with_model;
    size_t pad_bytes; /* that the reply is to be longer by; STATUS_MAX_PAD_BYTES at most */
};

/* In the order of weir.proto, number for number, as all of the enums here. */
enum status_state { STATE_EMPTY, STATE_STARTING, STATE_TRAINING, STATE_STOPPED, STATE_DONE };
enum {
    STATE_N_KINDS = STATE_DONE + 1,
    STATUS_ADDRESS_BYTES = 96,
    STATUS_AWAITED_MS = 100,
    STATUS_MAX_PAD_BYTES = 1 << 20,
    STATUS_REFUSAL_BYTES = 512,
    STATUS_WAITING_BYTES = 2048,
    STATUS_MODEL_BYTES = 64,
    STATUS_SENTENCE_BYTES = STATUS_WAITING_BYTES + 64
};

enum member_state {
    MEMBER_EXPECTED, /* it has not joined yet */
    MEMBER_TRAINING,
    MEMBER_MISSING, /* it was here and has no stream now */
    MEMBER_JOINING, /* waits to be taken in */
    MEMBER_LEAVING,
    MEMBER_LEFT,
    MEMBER_DONE,
    MEMBER_N_STATES
};

struct net_status_member {
    int member, rank; /* index; place in the generation, -1: it has none */
    enum member_state state;
    char address[STATUS_ADDRESS_BYTES]; /* or where it joined from; empty: not known */
    int64_t ms;                         /* MISSING: for how long */
    int64_t times, recent_times;    /* sync: steps in which it was the last, in the job, and of the
                                       last n_recent */
    double seconds, recent_seconds; /* that the others waited for it in them */
    int64_t skipped;                /* contributions that counted with weight 0, in the job */
    int awaited; /* chunks that others wait for at present for its sake, STATUS_AWAITED_MS or
                    longer */
    char refused[STATUS_REFUSAL_BYTES]; /* why a process was that wanted to be this worker, which is
                                           not here, last; empty: none was */
    int64_t refused_ms;                 /* how long ago */
};

enum server_state {
    SERVER_UNKNOWN, /* who answers cannot say */
    SERVER_HERE,
    SERVER_MISSING, /* ps 0 has not heard of it for long */
    SERVER_JOINING,
    SERVER_LEAVING,
    SERVER_N_STATES
};

struct net_status_server {
    int server; /* its number; -1: it has no place in the generation */
    enum server_state state;
    char address[CONTROL_TEXT_BYTES];
    uint64_t bytes; /* of the parameters that it has */
    int n_chunks;
    int64_t heard_ms, up_ms; /* since ps 0 heard of it last, first; -1: it has not */
};

struct net_status_checkpoints {
    char folder[CONTROL_TEXT_BYTES]; /* empty: none are kept, or who answers is not ps 0 */
    int64_t last, ordered;           /* steps: of the last that is whole, being made; -1: none */
    uint64_t wanted, given;          /* by commands; of these, made or given up */
    int64_t next_ms; /* until the next is begun by time, whatever step was ordered; -1: not by
                        time, one is being made, or training stands */
    uint64_t owner;  /* incarnation of the ps 0 that answers, as in its folder's lease */
    bool is_ending;  /* that ps 0 is shutting down */
};

struct net_status {
    int server;          /* who answers: its number; -1: it has none in the generation */
    uint64_t generation; /* 0: there is no job yet */
    enum status_state state;
    int64_t first_step;    /* of the generation */
    int64_t step, highest; /* lowest and highest version of the server's chunks; -1 */
    uint64_t position;  /* of step's first sample, counted from the first of the first pass; where
                           chunks go each at its own pace: so many have counted for it */
    double steps_per_s; /* at present; 0: no step was made for longer than steps take */
    int64_t up_ms;      /* since the server was started */
    struct net_job job; /* of chunks; what follows is NULL without a job */
    struct chunks *chunks;
    char *model;                         /* JSON text; NULL: not asked for, or not known */
    char model_name[STATUS_MODEL_BYTES]; /* in that text; empty: not known */
    int hidden_units;
    int n_members, n_servers;
    struct net_status_member *members; /* by rank, then those that wait to be taken in */
    struct net_status_server *servers;
    struct net_status_checkpoints checkpoints;
    struct net_best best;               /* from ps 0: whose checkpoint is kept for being the best */
    char change[CONTROL_TEXT_BYTES];    /* the change under way; empty: there is none */
    char waiting[STATUS_WAITING_BYTES]; /* workers and servers that training waits for, one
                                           phrase; empty: for none, or not for long */
    int64_t waiting_ms;                 /* since the last step was made */
    int n_recent;
    size_t pad_bytes; /* as was asked for; not said of one that was received */
};

void net_status_free(struct net_status *s); /* what it points to; zeros are fine */

/* Words for people and in JSON. */
const char *net_status_state_name(enum status_state state);
/* Returns "waiting" for a job that trains, but waits for a worker or a server. */
const char *net_status_state(const struct net_status *s);
/* Writes "waiting for worker 1 (never joined), 12 s". */
void net_status_waiting_text(const char *whom, int64_t ms, char text[STATUS_SENTENCE_BYTES]);
/* Copies `whom` without notes in brackets that have figures, and without all after a colon. */
void net_status_waiting_label(const char *whom, char label[STATUS_WAITING_BYTES]);
const char *net_status_member_name(enum member_state state);
const char *net_status_server_name(enum server_state state);

enum command_kind {
    COMMAND_NONE,
    COMMAND_CHECKPOINT,
    COMMAND_REMOVE_WORKER,
    COMMAND_DRAIN_SERVER,
    COMMAND_STOP_JOB,
    COMMAND_N_KINDS
};

struct net_command {
    enum command_kind kind;
    int index; /* of the worker or the server */
};
enum command_answer { COMMAND_REFUSED, COMMAND_ACCEPTED, COMMAND_DONE, COMMAND_N_ANSWERS };

struct net_command_reply {
    enum command_answer answer;
    char text[CONTROL_TEXT_BYTES]; /* one sentence */
    uint64_t wanted; /* a checkpoint's: it is over when checkpoints.given has come to this */
};

#endif
