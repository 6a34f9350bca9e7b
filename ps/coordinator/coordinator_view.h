/* ps/coordinator/coordinator_view.h - queries of a coordinator's state: the data that its actions
 * refer to, and reports for other parts of the program. Threads and errors: see coordinator.h. */
#ifndef PS_COORDINATOR_COORDINATOR_VIEW_H
#define PS_COORDINATOR_COORDINATOR_VIEW_H
#include "ps/coordinator/coordinator.h"
#include <stdbool.h>

/* PLAN: the plan to make. The lists belong to the state, and are valid until the next call of
 * coordinator_step. */
struct coordinator_plan_view {
    uint64_t generation;
    uint64_t base;           /* generation that this plan follows; 0: this is the first plan */
    enum plan_source source; /* MEMORY: the plan continues the stores of `base` at `step` */
    int64_t step;
    int n_members, n_servers;
    const int *member;   /* indices, ascending */
    const int *server;   /* slots, in the order of their numbers */
    int64_t train_steps; /* step at which the job ends early; 0: no early end */
};
void coordinator_view_next_plan(const struct coordinator_state *c,
                                struct coordinator_plan_view *out);
/* Writes the slots of the servers that a plan made now would have, ps 0's first; at most
 * coordinator_view_n_servers. Returns their number. */
int coordinator_view_next_servers(const struct coordinator_state *c, int *slot);

/* Data of the orders DISK_MANIFEST (step, generation, and the files by server number) and
 * DISK_SWEEP (step and generation of the last order; generation 0: no order yet). */
struct coordinator_file {
    uint64_t bytes;
    uint32_t crc32c;
};
struct coordinator_manifest_view {
    int64_t step;
    uint64_t generation;
    int n_files;
    const struct coordinator_file *file;
};
void coordinator_view_manifest(const struct coordinator_state *c,
                               struct coordinator_manifest_view *out);

/* Writes the best evaluation that DISK_BEST must record, or the evaluation that was recorded
 * last. */
void evaluation_new_best(const struct coordinator_state *c, struct best_evaluation *out);
void evaluation_best(const struct coordinator_state *c, struct best_evaluation *out);
/* ps 0's answers to the sender of an evaluation, which asks whether it may continue. */
enum evaluation_go {
    EVALUATION_GO,   /* continue: ps 0 needs nothing more */
    EVALUATION_NEW,  /* not recorded yet: the shell posts EVALUATED, and the sender asks again */
    EVALUATION_WAIT, /* the sender asks again */
};
enum evaluation_go evaluation_verdict(const struct coordinator_state *c,
                                      const struct net_evaluation *v,
                                      struct net_evaluation_reply *out);

/* Returns true while an evaluation lacks this part; *step: the evaluated step. */
bool evaluation_lacks_part(const struct coordinator_state *c, int part, int64_t *step);

/* Fills a REPLY except for its plan, which is the one in force. Returns true if the reply
 * must include the plan. server -1: a refused server; the action's `text` has the reason. */
bool coordinator_view_fill_reply(const struct coordinator_state *c, int server,
                                 struct net_control_reply *out);

/* Returns true once the job has ended and replies report that: no ps 0 continues it. */
bool coordinator_view_is_over(const struct coordinator_state *c);
const char *coordinator_view_server_address(const struct coordinator_state *c, int server);
int64_t coordinator_view_worker_timeout_ms(const struct coordinator_state *c);
const char *coordinator_view_worker_address(const struct coordinator_state *c, int worker);
/* Returns the first worker from `from` on that has not returned within the worker timeout, and that
 * is to be left out of the next generation; else -1. */
int coordinator_view_worker_late(const struct coordinator_state *c, int from);
int coordinator_view_n_servers(const struct coordinator_state *c); /* number of slots */
/* Returns the first slot from `from` on of a server in the plan that has not stopped, or has not
 * entered the generation that begins; else -1. */
int coordinator_view_server_behind(const struct coordinator_state *c, int from);

enum coordinator_server_kind {
    SERVER_PRESENT,
    SERVER_SILENT,
    SERVER_JOINS,
    SERVER_LEAVES,
    SERVER_NONE
};
struct coordinator_server_view {
    int number;                        /* number in the plan in force; -1: the plan lacks it */
    enum coordinator_server_kind kind; /* NONE: the status has no line for the server */
    /* ms since the server's last call; ms since its first call; -1: it never called */
    int64_t heard_ms, up_ms;
};
void coordinator_view_server(const struct coordinator_state *c, int server,
                             struct coordinator_server_view *out);

/* Writes the line about the reason why training, or the end of this process, waits. Returns false
 * if there is no such reason: then ps 0 waits only for time to pass, for workers' steps or for a
 * first worker. */
bool coordinator_view_waits_for(const struct coordinator_state *c, struct coordinator_line *out);
/* Returns the generation of the plan in force; 0: none. */
uint64_t coordinator_view_generation(const struct coordinator_state *c);
/* Returns the generation that settled last; 0: none. */
uint64_t coordinator_view_settled(const struct coordinator_state *c);
bool coordinator_view_is_settled(const struct coordinator_state *c);
bool coordinator_view_is_ending(const struct coordinator_state *c); /* this ps 0 is shutting down */
/* Returns the step of the last checkpoint; -1: none. */
int64_t coordinator_view_last_step(const struct coordinator_state *c);
/* Returns true if this ps 0 ends without the last checkpoint. */
bool coordinator_view_lacks_last(const struct coordinator_state *c);
/* Returns the step of the checkpoint being made; -1: none. */
int64_t coordinator_view_order_step(const struct coordinator_state *c);
/* Returns the time in ms until the next checkpoint by time begins; -1: checkpoints are not made by
 * time, a checkpoint is being made, or training stands still. */
int64_t coordinator_view_next_ms(const struct coordinator_state *c);
/* Returns the number of requests that COMMANDs have made so far; the second function returns how
 * many of these requests have ended. */
uint64_t coordinator_view_wanted(const struct coordinator_state *c);
uint64_t coordinator_view_given(const struct coordinator_state *c);
/* Returns true if a first JOB is accepted now; otherwise writes the reason to `line` (LINE_NONE:
 * the first plan is being made). */
bool coordinator_view_takes_job(const struct coordinator_state *c, struct coordinator_line *line);
/* Returns true while servers that are present have not received the news that this ps 0 ends. */
bool coordinator_view_is_unheard(const struct coordinator_state *c);
/* Returns true if a COMMAND would be carried out; writes a sentence in both cases. */
bool coordinator_command_text(const struct coordinator_state *c, enum coordinator_command_kind what,
                              int index, char *text, size_t bytes);

#endif
