/* ps/coordinator/coordinator_view.h - looking into a coordinator's state: what its actions refer
 * to, and what others want to know of it. Threads, errors: as coordinator.h. */
#ifndef PS_COORDINATOR_COORDINATOR_VIEW_H
#define PS_COORDINATOR_COORDINATOR_VIEW_H
#include "ps/coordinator/coordinator.h"
#include <stdbool.h>

/* PLAN: what is to be made. Lists are of the state's, until the next step. */
struct coordinator_plan_view {
    uint64_t generation;
    uint64_t base;           /* generation that it comes after; 0: it is the first */
    enum plan_source source; /* MEMORY: of `base` at `step` */
    int64_t step;
    int n_members, n_servers;
    const int *member;   /* indices, ascending */
    const int *server;   /* slots, in the order of their numbers */
    int64_t train_steps; /* where the job ends before its time; 0: it does not */
};
void coordinator_view_next_plan(const struct coordinator_state *c,
                                struct coordinator_plan_view *out);
/* Slots of the servers that a plan made now would have, ps 0's first; at most
 * coordinator_view_n_servers. */
int coordinator_view_next_servers(const struct coordinator_state *c, int *slot);

/* DISK_MANIFEST: of which step and generation, and the files, by server number. DISK_SWEEP: of
 * which the last order was; generation 0: there was none. */
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

/* DISK_BEST: what is the best from now on, once that is recorded. */
void evaluation_new_best(const struct coordinator_state *c, struct best_evaluation *out);
void evaluation_best(const struct coordinator_state *c, struct best_evaluation *out);
/* Whether the sender of an evaluation may go on. */
enum evaluation_go {
    EVALUATION_GO,   /* nothing comes of it any more that it would have to wait for */
    EVALUATION_NEW,  /* ps 0 has not taken it yet: EVALUATED, then it asks again */
    EVALUATION_WAIT, /* it asks again */
};
enum evaluation_go evaluation_verdict(const struct coordinator_state *c,
                                      const struct net_evaluation *v,
                                      struct net_evaluation_reply *out);

/* Returns true while an evaluation lacks this part; *step: the step that is evaluated. */
int evaluation_lacks_part(const struct coordinator_state *c, int part, int64_t *step);

/* REPLY: everything but the plan, which is in force. 1: the plan is to go along. server: -1: of a
 * server that is refused; `text` of the action says why. */
int coordinator_view_fill_reply(const struct coordinator_state *c, int server,
                                struct net_control_reply *out);

/* Returns true once the job has ended and replies say so: no ps 0 continues it. */
bool coordinator_view_is_over(const struct coordinator_state *c);
const char *coordinator_view_server_address(const struct coordinator_state *c, int server);
/* Empty: nothing is known. */
int64_t coordinator_view_worker_timeout_ms(const struct coordinator_state *c);
const char *coordinator_view_worker_address(const struct coordinator_state *c, int worker);
int coordinator_view_n_servers(const struct coordinator_state *c); /* slots */
/* The first slot from `from` on whose server, of the plan, has not stopped, or, while a generation
 * begins, is not in it; -1. */
int coordinator_view_server_behind(const struct coordinator_state *c, int from);

enum coordinator_server_kind {
    SERVER_PRESENT,
    SERVER_SILENT,
    SERVER_JOINS,
    SERVER_LEAVES,
    SERVER_NONE
};
struct coordinator_server_view {
    int number;                        /* in the plan in force; -1: it has no place in it */
    enum coordinator_server_kind kind; /* NONE: it is not worth a line */
    int64_t heard_ms, up_ms;           /* since it was heard of last, first; -1: never */
};
void coordinator_view_server(const struct coordinator_state *c, int server,
                             struct coordinator_server_view *out);

/* What training or the end waits for; 0: for nothing but time, workers' steps, or a first worker.
 */
int coordinator_view_waits_for(const struct coordinator_state *c, struct coordinator_line *out);
uint64_t
coordinator_view_generation(const struct coordinator_state *c); /* of the plan in force; 0: none */
uint64_t
coordinator_view_settled(const struct coordinator_state *c); /* that all servers were in; 0: none */
int coordinator_view_is_settled(const struct coordinator_state *c);
bool coordinator_view_is_ending(const struct coordinator_state *c); /* this ps 0 is shutting down */
int64_t
coordinator_view_last_step(const struct coordinator_state *c); /* of the last checkpoint; -1 */
int coordinator_view_lacks_last(
    const struct coordinator_state *c); /* 1: it could not be made of the end */
int64_t
coordinator_view_order_step(const struct coordinator_state *c); /* of the one being made; -1 */
/* Until the next is begun by time, whatever step was ordered; -1: not by time, one is being made,
 * or training stands. */
int64_t coordinator_view_next_ms(const struct coordinator_state *c);
uint64_t coordinator_view_wanted(
    const struct coordinator_state *c); /* checkpoints asked for by COMMAND so far */
uint64_t coordinator_view_given(const struct coordinator_state *c); /* of these, made or given up */
/* 1: a first JOB may be given; else why not, in `line` (LINE_NONE: one is under way). */
int coordinator_view_takes_job(const struct coordinator_state *c, struct coordinator_line *line);
/* 1: servers do not know yet that this ps 0 ends, and are still there to hear it. */
int coordinator_view_is_unheard(const struct coordinator_state *c);
/* COMMAND: 1 if it will be done, 0 if it cannot be: a sentence in both cases. */
int coordinator_command_text(const struct coordinator_state *c, enum coordinator_command_kind what,
                             int index, char *text, size_t bytes);

#endif
