/* ps/coordinator/coordinator_impl.h - what the coordinator's files share:
 * coordinator.c (events, timers), server_registry.c (what servers say), failure_detector.c (who is
 * late or gone), reconfigure.c (from one generation to the next), checkpoint_schedule.c,
 * evaluation.c (the best checkpoint, early stopping), command.c,
 * coordinator_view.c. Private to them. */
#ifndef PS_COORDINATOR_COORDINATOR_IMPL_H
#define PS_COORDINATOR_COORDINATOR_IMPL_H
#include "ps/coordinator/coordinator_state.h"
#include "ps/coordinator/coordinator_times.h"

static inline struct coord_server_state *coord_servers(const struct coord *c)
{
    return (struct coord_server_state *)((char *)c + c->servers_at);
}
static inline struct coord_worker *coord_workers(const struct coord *c)
{
    return (struct coord_worker *)((char *)c + c->workers_at);
}
static inline int *coord_ints(const struct coord *c, size_t at)
{
    return (int *)((char *)c + at);
}
static inline struct coord_file *coord_files(const struct coord *c)
{
    return (struct coord_file *)((char *)c + c->files_at);
}
static inline struct coord_part *coord_parts(const struct coord *c)
{
    return (struct coord_part *)((char *)c + c->parts_at);
}
/* Row `server` of a table of bits, by worker. */
static inline unsigned char *coord_bits(const struct coord *c, size_t table, int server)
{
    return (unsigned char *)c + table + (size_t)server * (size_t)((c->max_workers + 7) / 8);
}

/* coordinator.c */
int coord_act(struct coord_out *out, const struct coord_action *a); /* 0: no room */
void coord_say(struct coord_out *out, const struct coord_line *line);
void coord_order_disk(struct coord *c, struct coord_out *out, enum coord_disk disk, uint32_t *op);
/* Somebody knows of this term of another ps 0: as soon as a higher epoch is recorded, plans are of
 * that. 0: it is not believed. */
int coord_claim(struct coord *c, uint64_t claim);
/* Another ps 0 has taken this one's place. */
void coord_fence(struct coord *c, int is_unsure, struct coord_out *out);
/* A step is wanted when the awake clock shows this. */
void coord_due(const struct coord *c, struct coord_out *out, int64_t awake);

/* server_registry.c */
int coord_server_find(const struct coord *c, const char *address); /* -1 */
int coord_server_add(struct coord *c, const char *address);        /* -1: there is no room */
void coord_control(struct coord *c, const struct coord_event *e, struct coord_out *out);
void coord_closed(struct coord *c, uint64_t call);
void coord_answer(struct coord *c, struct coord_out *out);
int coord_server_is_silent(const struct coord *c, const struct coord_server_state *s, int64_t ms);
int coord_server_leaves(const struct coord_server_state *s);
int coord_server_joins(const struct coord *c, const struct coord_server_state *s);
/* It is in the plan, and a generation that begins does not wait for it. */
int coord_server_is_gone(const struct coord *c, const struct coord_server_state *s);
/* Some that are there have not heard that this ps 0 ends. */
int coord_servers_unaware(const struct coord *c);
/* -1, or a slot of the settled generation whose chunks are gone. */
int coord_server_lost(const struct coord *c);
/* -1, or a slot whose server does not begin the plan in force: it cannot read its checkpoint. */
int coord_server_cannot_read(const struct coord *c);
/* Slots of the next plan. */
int coord_servers_next(const struct coord *c, int *slot);
/* The lowest version of all servers of the plan, the highest. */
int64_t coord_lowest(const struct coord *c);
int64_t coord_highest(const struct coord *c);

/* failure_detector.c */
void coord_workers_note(struct coord *c, const struct coord_event *e);
/* What server `slot` says of who is missing there; n: -1: nothing yet. */
void coord_missing_note(struct coord *c, int slot, const struct net_missing *list, int n);
/* A generation begins: nobody has been heard. anew: nor is anybody missed by what was before. */
void coord_workers_begin(struct coord *c, int anew);
void coord_workers_settle(struct coord *c);
/* It speaks to ps 0, and never came to another server of its generation. */
int coord_worker_is_unreached(const struct coord *c, int worker);
struct coord_census {
    int n_gone;                                 /* that leave or were removed, and are not there */
    int n_next, n_by[LOT_JOINS + 1], unreached; /* unreached: a slot that no worker reaches; -1 */
};
/* Gives each worker its lot. */
void coord_workers_judge(struct coord *c, struct coord_out *out, struct coord_census *out_census);

/* reconfigure.c */
void coord_job(struct coord *c, const struct coord_event *e, struct coord_out *out);
void coord_planned(struct coord *c, const struct coord_event *e, struct coord_out *out);
void coord_found(struct coord *c, const struct coord_event *e);
void coord_reconfigure(struct coord *c, struct coord_out *out);
int coord_all_stopped(const struct coord *c);
/* The plan in force cannot begin any more: it is made again as soon as there are workers enough. */
int coord_plan_is_void(const struct coord *c);
int coord_all_done(const struct coord *c); /* every member has left, done */

/* checkpoint_schedule.c */
void coord_checkpoint(struct coord *c, struct coord_out *out);
void coord_checkpoint_cancel(struct coord *c); /* a Stop is out */
void coord_checkpoint_written(struct coord *c, const struct coord_event *e, struct coord_out *out);
/* A server was started anew. */
void coord_checkpoint_lost(struct coord *c, int slot, struct coord_out *out);
int coord_checkpoint_is_asked(const struct coord *c);
/* For `last_step`: one of a generation that did not know that the job ends early is not its last,
 * though it is of that step. */
int64_t coord_checkpoint_counts(const struct coord *c, uint64_t generation, int64_t step);

/* evaluation.c */
void coord_evaluated(struct coord *c, const struct coord_event *e, struct coord_out *out);
/* A job begins at this step, or goes back to it. */
void coord_evaluations_back(struct coord *c, int64_t step);
/* What comes of the evaluation that did best: before and after the checkpoints' turn. */
void coord_evaluations_follow(struct coord *c, struct coord_out *out);
/* 1: a checkpoint of *step is wanted at once, the one at which training stands. */
int coord_evaluation_wants(const struct coord *c, int64_t *step);
/* The job is to end, by a plan that says so. */
int coord_evaluation_ends(const struct coord *c);
void coord_best_recorded(struct coord *c, const struct coord_event *e, struct coord_out *out);

/* command.c */
void coord_command(struct coord *c, const struct coord_event *e);

#endif
