/* ps/coordinator/coordinator_impl.h - what the coordinator's files share:
 * coordinator.c (events, timers), server_registry.c (what servers say), failure_detector.c (who is
 * late or gone), reconfigure.c (from one generation to the next), checkpoint_schedule.c,
 * evaluation.c (the best checkpoint, early stopping), command.c,
 * coordinator_view.c. Private to them. */
#ifndef PS_COORDINATOR_COORDINATOR_IMPL_H
#define PS_COORDINATOR_COORDINATOR_IMPL_H
#include "ps/coordinator/coordinator_state.h"
#include "ps/coordinator/coordinator_times.h"

static inline struct coordinator_server *coordinator_servers(const struct coordinator_state *c)
{
    return (struct coordinator_server *)((char *)c + c->servers_at);
}
static inline struct coordinator_worker *coordinator_workers(const struct coordinator_state *c)
{
    return (struct coordinator_worker *)((char *)c + c->workers_at);
}
static inline int *coordinator_ints(const struct coordinator_state *c, size_t at)
{
    return (int *)((char *)c + at);
}
static inline struct coordinator_file *coordinator_files(const struct coordinator_state *c)
{
    return (struct coordinator_file *)((char *)c + c->files_at);
}
static inline struct evaluation_part *coordinator_parts(const struct coordinator_state *c)
{
    return (struct evaluation_part *)((char *)c + c->parts_at);
}
/* Row `server` of a table of bits, by worker. */
static inline unsigned char *coordinator_bits(const struct coordinator_state *c, size_t table,
                                              int server)
{
    return (unsigned char *)c + table + (size_t)server * (size_t)((c->max_workers + 7) / 8);
}

/* coordinator.c */
int coordinator_add_action(struct coordinator_out *out,
                           const struct coordinator_action *a); /* 0: no room */
void coordinator_add_line(struct coordinator_out *out, const struct coordinator_line *line);
void coordinator_order_disk(struct coordinator_state *c, struct coordinator_out *out,
                            enum disk_task disk, uint32_t *op);
/* Somebody knows of this term of another ps 0: as soon as a higher epoch is recorded, plans are of
 * that. 0: it is not believed. */
int coordinator_note_claim(struct coordinator_state *c, uint64_t claim);
/* Another ps 0 has taken this one's place. */
void coordinator_fence(struct coordinator_state *c, int is_unsure, struct coordinator_out *out);
/* A step is wanted when the awake clock shows this. */
void coordinator_wake_at(const struct coordinator_state *c, struct coordinator_out *out,
                         int64_t awake);

/* server_registry.c */
int server_registry_find(const struct coordinator_state *c, const char *address); /* -1 */
int server_registry_add(struct coordinator_state *c,
                        const char *address); /* -1: there is no room */
void server_registry_control(struct coordinator_state *c, const struct coordinator_event *e,
                             struct coordinator_out *out);
void server_registry_closed(struct coordinator_state *c, uint64_t call);
void server_registry_answer(struct coordinator_state *c, struct coordinator_out *out);
int server_registry_is_silent(const struct coordinator_state *c, const struct coordinator_server *s,
                              int64_t ms);
int server_registry_is_leaving(const struct coordinator_server *s);
int server_registry_is_joining(const struct coordinator_state *c,
                               const struct coordinator_server *s);
/* It is in the plan, and a generation that begins does not wait for it. */
int server_registry_is_gone(const struct coordinator_state *c, const struct coordinator_server *s);
/* Some that are there have not heard that this ps 0 ends. */
int server_registry_has_unaware(const struct coordinator_state *c);
/* -1, or a slot of the settled generation whose chunks are gone. */
int server_registry_find_lost(const struct coordinator_state *c);
/* -1, or a slot whose server does not begin the plan in force: it cannot read its checkpoint. */
int server_registry_find_unreadable(const struct coordinator_state *c);
/* Slots of the next plan. */
int server_registry_next(const struct coordinator_state *c, int *slot);
/* The lowest version of all servers of the plan, the highest. */
int64_t server_registry_lowest(const struct coordinator_state *c);
int64_t server_registry_highest(const struct coordinator_state *c);

/* failure_detector.c */
void failure_detector_note_workers(struct coordinator_state *c, const struct coordinator_event *e);
/* What server `slot` says of who is missing there; n: -1: nothing yet. */
void failure_detector_note_missing(struct coordinator_state *c, int slot,
                                   const struct net_missing *list, int n);
/* A generation begins: nobody has been heard. anew: nor is anybody missed by what was before. */
void failure_detector_begin(struct coordinator_state *c, int anew);
void failure_detector_settle(struct coordinator_state *c);
/* It speaks to ps 0, and never came to another server of its generation. */
int failure_detector_is_unreached(const struct coordinator_state *c, int worker);
struct failure_detector_census {
    int n_gone;                                 /* that leave or were removed, and are not there */
    int n_next, n_by[LOT_JOINS + 1], unreached; /* unreached: a slot that no worker reaches; -1 */
};
/* Gives each worker its lot. */
void failure_detector_judge(struct coordinator_state *c, struct coordinator_out *out,
                            struct failure_detector_census *out_census);

/* reconfigure.c */
void reconfigure_on_job(struct coordinator_state *c, const struct coordinator_event *e,
                        struct coordinator_out *out);
void reconfigure_on_planned(struct coordinator_state *c, const struct coordinator_event *e,
                            struct coordinator_out *out);
void reconfigure_on_found(struct coordinator_state *c, const struct coordinator_event *e);
void reconfigure_step(struct coordinator_state *c, struct coordinator_out *out);
int reconfigure_all_stopped(const struct coordinator_state *c);
/* The plan in force cannot begin any more: it is made again as soon as there are workers enough. */
int reconfigure_plan_is_void(const struct coordinator_state *c);
int reconfigure_all_done(const struct coordinator_state *c); /* every member has left, done */

/* checkpoint_schedule.c */
void checkpoint_schedule_step(struct coordinator_state *c, struct coordinator_out *out);
void checkpoint_schedule_cancel(struct coordinator_state *c); /* a Stop is out */
void checkpoint_schedule_written(struct coordinator_state *c, const struct coordinator_event *e,
                                 struct coordinator_out *out);
/* A server was started anew. */
void checkpoint_schedule_lost(struct coordinator_state *c, int slot, struct coordinator_out *out);
int checkpoint_schedule_is_asked(const struct coordinator_state *c);
/* For `last_step`: one of a generation that did not know that the job ends early is not its last,
 * though it is of that step. */
int64_t checkpoint_schedule_counts(const struct coordinator_state *c, uint64_t generation,
                                   int64_t step);

/* evaluation.c */
void evaluation_note(struct coordinator_state *c, const struct coordinator_event *e,
                     struct coordinator_out *out);
/* A job begins at this step, or goes back to it. */
void evaluation_rewind(struct coordinator_state *c, int64_t step);
/* What comes of the evaluation that did best: before and after the checkpoints' turn. */
void evaluation_follow(struct coordinator_state *c, struct coordinator_out *out);
/* 1: a checkpoint of *step is wanted at once, the one at which training stands. */
int evaluation_wants_checkpoint(const struct coordinator_state *c, int64_t *step);
/* The job is to end, by a plan that says so. */
int evaluation_ends_job(const struct coordinator_state *c);
void evaluation_best_recorded(struct coordinator_state *c, const struct coordinator_event *e,
                              struct coordinator_out *out);

/* command.c */
void coordinator_command_begin(struct coordinator_state *c, const struct coordinator_event *e);

#endif
