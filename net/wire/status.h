/* net/wire/status.h - a job's status, and operators' commands. weirctl, other programs that use
 * weir.proto, and a worker that joins send such requests to a server. A sender needs access to the
 * server's port, which is protected as a whole (docs/design/architecture.md, Security).
 * Owns:    a status owns its lists, its table of chunks and the model's text.
 * Threads: plain values without a lock. Errors: none. */
#ifndef NET_WIRE_STATUS_H
#define NET_WIRE_STATUS_H
#include "net/wire/control.h"
#include "net/wire/evaluation.h"
#include "net/wire/job.h"
#include <stdbool.h>

struct net_status_request {
    int with_model;
    size_t pad_bytes; /* padding that the reply must contain; at most STATUS_MAX_PAD_BYTES */
};

/* Numbered as in weir.proto, like all enums here. */
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
    MEMBER_EXPECTED, /* has not joined yet */
    MEMBER_TRAINING,
    MEMBER_MISSING, /* had a stream in this generation, but has none now */
    MEMBER_JOINING, /* waits until it becomes a member */
    MEMBER_LEAVING,
    MEMBER_LEFT,
    MEMBER_DONE,
    MEMBER_N_STATES
};

struct net_status_member {
    int member, rank; /* index; rank in the generation, -1: none */
    enum member_state state;
    char address[STATUS_ADDRESS_BYTES]; /* its address, or its connection's; empty: unknown */
    int64_t ms;                         /* MISSING: time without a stream */
    /* sync: steps to which it contributed last, in the job and in the last n_recent steps */
    int64_t times, recent_times;
    double seconds, recent_seconds; /* time that other members waited in these steps */
    int64_t skipped;                /* contributions that counted with weight 0, in the job */
    int awaited; /* chunks for which members wait for this one now, STATUS_AWAITED_MS or longer */
    char refused[STATUS_REFUSAL_BYTES]; /* reason why the last process for this absent worker was
                                           refused; empty: none */
    int64_t refused_ms;                 /* time since that refusal */
};

enum server_state {
    SERVER_UNKNOWN, /* not known to the server that answers */
    SERVER_HERE,
    SERVER_MISSING, /* has sent ps 0 nothing for too long */
    SERVER_JOINING,
    SERVER_LEAVING,
    SERVER_N_STATES
};

struct net_status_server {
    int server; /* number of the server; -1: not in the generation */
    enum server_state state;
    char address[CONTROL_TEXT_BYTES];
    uint64_t bytes; /* size of the server's parameters */
    int n_chunks;
    int64_t heard_ms, up_ms; /* time since its last, its first message to ps 0; -1: none */
};

struct net_status_checkpoints {
    char folder[CONTROL_TEXT_BYTES]; /* folder of checkpoints; empty: none, or the server that
                                        answers is not ps 0 */
    int64_t last, ordered;           /* steps of the last complete checkpoint, and of the one being
                                        made; -1: none */
    uint64_t wanted, given; /* checkpoints that commands requested; those made or given up */
    int64_t next_ms; /* time until the next checkpoint that is due by time; -1: none is due, one is
                        being made, or training has stopped */
    uint64_t owner;  /* incarnation of the ps 0 that answers, as in its folder's lease */
    bool is_ending;  /* ps 0 is shutting down */
};

struct net_status {
    int server;          /* number of the server that answers; -1: not in the generation */
    uint64_t generation; /* 0: no job yet */
    enum status_state state;
    int64_t first_step;    /* first step of the generation */
    int64_t step, highest; /* range of versions of the server's chunks; -1: none */
    uint64_t position;     /* position of step's first sample in all passes; if each chunk advances
                              by itself: number of samples that counted */
    double steps_per_s;    /* present speed; 0: no step was made for an unusually long time */
    int64_t up_ms;         /* time since the server was started */
    struct net_job job;    /* chunks is NULL without a job */
    struct chunks *chunks;
    char *model;                         /* JSON text; NULL: not requested, or not known */
    char model_name[STATUS_MODEL_BYTES]; /* name in that text; empty: not known */
    int hidden_units;
    int n_members, n_servers, n_tables;
    struct net_status_member *members; /* members by rank, then joiners */
    struct net_status_server *servers;
    struct net_status_table *tables; /* parts of the server that answers (table_status.h) */
    struct net_status_checkpoints checkpoints;
    struct net_best best;               /* best step, whose checkpoint is kept; only from ps 0 */
    char change[CONTROL_TEXT_BYTES];    /* change in progress; empty: none */
    char waiting[STATUS_WAITING_BYTES]; /* workers and servers that training waits for; empty: none,
                                           or not for long */
    int64_t waiting_ms;                 /* time since the last step was made */
    int n_recent;
    size_t pad_bytes; /* requested padding; not set in a received status */
};

void net_status_free(struct net_status *s); /* frees the members; zeros are fine */

/* Returns the word for a state in tables and JSON. */
const char *net_status_state_name(enum status_state state);
/* Returns "waiting" for a job that trains, but waits for a worker or a server. */
const char *net_status_state(const struct net_status *s);
/* Writes a text such as "waiting for worker 1 (never joined), 12 s". */
void net_status_waiting_text(const char *whom, int64_t ms, char text[STATUS_SENTENCE_BYTES]);
/* Copies `whom` without notes in brackets that have figures, and without text after a colon. */
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
    int index; /* number of the worker or the server */
};
enum command_answer { COMMAND_REFUSED, COMMAND_ACCEPTED, COMMAND_DONE, COMMAND_N_ANSWERS };

struct net_command_reply {
    enum command_answer answer;
    char text[CONTROL_TEXT_BYTES]; /* a sentence */
    uint64_t wanted; /* value of checkpoints.given when the requested checkpoint is complete */
};

#endif
