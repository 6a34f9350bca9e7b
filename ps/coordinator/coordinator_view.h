/* ps/coordinator/coordinator_view.h - looking into a coordinator's state: what its actions refer
 * to, and what others want to know of it. Threads, errors: as coordinator.h. */
#ifndef PS_COORDINATOR_COORDINATOR_VIEW_H
#define PS_COORDINATOR_COORDINATOR_VIEW_H
#include "ps/coordinator/coordinator.h"
#include <stdbool.h>

/* PLAN: what is to be made. Lists are of the state's, until the next step. */
struct coord_plan_view {
    uint64_t generation;
    uint64_t base;           /* generation that it comes after; 0: it is the first */
    enum plan_source source; /* MEMORY: of `base` at `step` */
    int64_t step;
    int n_members, n_servers;
    const int *member;   /* indices, ascending */
    const int *server;   /* slots, in the order of their numbers */
    int64_t train_steps; /* where the job ends before its time; 0: it does not */
};
void coord_next_plan(const struct coord *c, struct coord_plan_view *out);
/* Slots of the servers that a plan made now would have, ps 0's first; at most coord_n_servers. */
int coord_next_servers(const struct coord *c, int *slot);

/* DISK_MANIFEST: of which step and generation, and the files, by server number. DISK_SWEEP: of
 * which the last order was; generation 0: there was none. */
struct coord_file {
    uint64_t bytes;
    uint32_t crc32c;
};
struct coord_manifest_view {
    int64_t step;
    uint64_t generation;
    int n_files;
    const struct coord_file *file;
};
void coord_manifest(const struct coord *c, struct coord_manifest_view *out);

/* DISK_BEST: what is the best from now on, once that is recorded. */
void coord_new_best(const struct coord *c, struct coord_best *out);
void coord_best(const struct coord *c, struct coord_best *out);
/* Whether the sender of an evaluation may go on. */
enum coord_verdict {
    VERDICT_GO,   /* nothing comes of it any more that it would have to wait for */
    VERDICT_NEW,  /* ps 0 has not taken it yet: EVALUATED, then it asks again */
    VERDICT_WAIT, /* it asks again */
};
enum coord_verdict coord_evaluation_verdict(const struct coord *c, const struct net_evaluation *v,
                                            struct net_evaluation_reply *out);

/* Returns true while an evaluation lacks this part; *step: the step that is evaluated. */
int coord_evaluation_lacks(const struct coord *c, int part, int64_t *step);

/* REPLY: everything but the plan, which is in force. 1: the plan is to go along. server: -1: of a
 * server that is refused; `text` of the action says why. */
int coord_fill_reply(const struct coord *c, int server, struct net_control_reply *out);

/* Returns true once the job has ended and replies say so: no ps 0 continues it. */
bool coord_is_over(const struct coord *c);
const char *coord_server_address(const struct coord *c, int server);
/* Empty: nothing is known. */
int64_t coord_worker_timeout_ms(const struct coord *c);
const char *coord_worker_address(const struct coord *c, int worker);
int coord_n_servers(const struct coord *c); /* slots */
/* The first slot from `from` on whose server, of the plan, has not stopped, or, while a generation
 * begins, is not in it; -1. */
int coord_server_behind(const struct coord *c, int from);

enum coord_server_kind { SERVER_PRESENT, SERVER_SILENT, SERVER_JOINS, SERVER_LEAVES, SERVER_NONE };
struct coord_server_view {
    int number;                  /* in the plan in force; -1: it has no place in it */
    enum coord_server_kind kind; /* NONE: it is not worth a line */
    int64_t heard_ms, up_ms;     /* since it was heard of last, first; -1: never */
};
void coord_server(const struct coord *c, int server, struct coord_server_view *out);

/* What training or the end waits for; 0: for nothing but time, workers' steps, or a first worker.
 */
int coord_waits_for(const struct coord *c, struct coord_line *out);
uint64_t coord_generation(const struct coord *c); /* of the plan in force; 0: none */
uint64_t coord_settled(const struct coord *c);    /* that all servers were in; 0: none */
int coord_is_settled(const struct coord *c);
bool coord_is_ending(const struct coord *c);     /* this ps 0 is shutting down */
int64_t coord_last_step(const struct coord *c);  /* of the last checkpoint; -1 */
int coord_lacks_last(const struct coord *c);     /* 1: it could not be made of the end */
int64_t coord_order_step(const struct coord *c); /* of the one being made; -1 */
/* Until the next is begun by time, whatever step was ordered; -1: not by time, one is being made,
 * or training stands. */
int64_t coord_next_ms(const struct coord *c);
uint64_t coord_wanted(const struct coord *c); /* checkpoints asked for by COMMAND so far */
uint64_t coord_given(const struct coord *c);  /* of these, made or given up */
/* 1: a first JOB may be given; else why not, in `line` (LINE_NONE: one is under way). */
int coord_takes_job(const struct coord *c, struct coord_line *line);
/* 1: servers do not know yet that this ps 0 ends, and are still there to hear it. */
int coord_goodbyes_missing(const struct coord *c);
/* COMMAND: 1 if it will be done, 0 if it cannot be: a sentence in both cases. */
int coord_command_text(const struct coord *c, enum coord_command what, int index, char *text,
                       size_t bytes);

#endif
