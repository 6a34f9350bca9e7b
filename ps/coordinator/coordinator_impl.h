/* ps/coordinator/coordinator_impl.h - shared by the coordinator's files: coordinator.c (events,
 * timers), server_registry.c (reports of servers), failure_detector.c (late and absent workers),
 * reconfigure.c (from one generation to the next), checkpoint_schedule.c, evaluation.c (best
 * checkpoint, early stopping), command.c, coordinator_view.c. Private to them. */
#ifndef PS_COORDINATOR_COORDINATOR_IMPL_H
#define PS_COORDINATOR_COORDINATOR_IMPL_H
#include "ps/coordinator/coordinator_state.h"
#include "ps/coordinator/coordinator_times.h"
#include <stdbool.h>

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
/* Returns row `server` of a table with one bit for each worker. */
static inline unsigned char *coordinator_bits(const struct coordinator_state *c, size_t table,
                                              int server)
{
    return (unsigned char *)c + table + (size_t)server * (size_t)((c->max_workers + 7) / 8);
}

/* Functions of coordinator.c. */
bool coordinator_add_action(struct coordinator_out *out,
                            const struct coordinator_action *a); /* false: `out` is full */
void coordinator_add_line(struct coordinator_out *out, const struct coordinator_line *line);
/* Orders work on the disk. *op becomes the number that the DISK event with the result will have. */
void coordinator_order_disk(struct coordinator_state *c, struct coordinator_out *out,
                            enum disk_task disk, uint32_t *op);
/* Raises the epoch above that of `claim`, the term of another ps 0 that a worker or server
 * reported; plans use the new epoch once it is recorded. Returns false if the claim is not
 * credible. */
bool coordinator_note_claim(struct coordinator_state *c, uint64_t claim);
/* Ends this ps 0: another one has replaced it, or (is_unsure) may have. */
void coordinator_fence(struct coordinator_state *c, int is_unsure, struct coordinator_out *out);
/* Requests a call of coordinator_step at the time when the awake clock shows `awake`. */
void coordinator_wake_at(const struct coordinator_state *c, struct coordinator_out *out,
                         int64_t awake);

/* Functions of server_registry.c. */
int server_registry_find(const struct coordinator_state *c, const char *address); /* -1: none */
int server_registry_add(struct coordinator_state *c, const char *address);        /* -1: full */
/* Records a server's report, and answers its previous call if that still waits. */
void server_registry_control(struct coordinator_state *c, const struct coordinator_event *e,
                             struct coordinator_out *out);
void server_registry_closed(struct coordinator_state *c, uint64_t call);
/* Answers the calls of servers that lack the newest state, and calls older than BEAT_MS. */
void server_registry_answer(struct coordinator_state *c, struct coordinator_out *out);
/* Returns true if the server has not called for more than ms. */
bool server_registry_is_silent(const struct coordinator_state *c,
                               const struct coordinator_server *s, int64_t ms);
bool server_registry_is_leaving(const struct coordinator_server *s);
bool server_registry_is_joining(const struct coordinator_state *c,
                                const struct coordinator_server *s);
/* Returns true if the server is in the plan in force, but no new generation waits for it. */
bool server_registry_is_gone(const struct coordinator_state *c, const struct coordinator_server *s);
/* Returns true if a server that is present has not received the news that this ps 0 ends. */
bool server_registry_has_unaware(const struct coordinator_state *c);
/* Returns the slot of a server whose chunks of the settled generation are lost, or -1. */
int server_registry_find_lost(const struct coordinator_state *c);
/* Returns the slot of a server that cannot read the checkpoint of the plan in force, or -1. */
int server_registry_find_unreadable(const struct coordinator_state *c);
/* Writes the slots of the next plan's servers, and returns their number. */
int server_registry_next(const struct coordinator_state *c, int *slot);
/* Returns the lowest (or highest) version of all servers of the plan. */
int64_t server_registry_lowest(const struct coordinator_state *c);
int64_t server_registry_highest(const struct coordinator_state *c);

/* Functions of failure_detector.c. */
void failure_detector_note_workers(struct coordinator_state *c, const struct coordinator_event *e);
/* Records which workers server `slot` reports as missing. */
void failure_detector_note_missing(struct coordinator_state *c, int slot,
                                   const struct net_missing *list, int n);
/* Begins a generation, in which no server has had contact with any worker yet. If resets_absence is
 * set, no worker counts as absent at first. */
void failure_detector_begin(struct coordinator_state *c, bool resets_absence);
void failure_detector_settle(struct coordinator_state *c);
/* Returns true if the worker is connected to ps 0, but not yet to another server of its
 * generation. */
bool failure_detector_is_unreached(const struct coordinator_state *c, int worker);
struct failure_detector_census {
    int n_gone; /* workers that leave or were removed, and have no stream */
    int n_next, n_by[LOT_JOINS + 1], unreached; /* unreached: slot of a server, or -1: none */
};
/* Decides which workers are late, leave, or join. */
void failure_detector_judge(struct coordinator_state *c, struct coordinator_out *out,
                            struct failure_detector_census *out_census);

/* Functions of reconfigure.c. */
void reconfigure_on_job(struct coordinator_state *c, const struct coordinator_event *e,
                        struct coordinator_out *out);
void reconfigure_on_planned(struct coordinator_state *c, const struct coordinator_event *e,
                            struct coordinator_out *out);
void reconfigure_on_found(struct coordinator_state *c, const struct coordinator_event *e);
void reconfigure_step(struct coordinator_state *c, struct coordinator_out *out);
bool reconfigure_all_stopped(const struct coordinator_state *c);
/* Returns true if the plan in force can no longer begin. A new plan is made once there are enough
 * workers. */
bool reconfigure_plan_is_void(const struct coordinator_state *c);
/* Returns true if all workers made all steps and left. */
bool reconfigure_all_done(const struct coordinator_state *c);

/* Functions of checkpoint_schedule.c. */
void checkpoint_schedule_step(struct coordinator_state *c, struct coordinator_out *out);
void checkpoint_schedule_cancel(struct coordinator_state *c); /* called at a Stop */
void checkpoint_schedule_written(struct coordinator_state *c, const struct coordinator_event *e,
                                 struct coordinator_out *out);
/* Abandons a checkpoint that needs a file of server `slot`, which was restarted. */
void checkpoint_schedule_lost(struct coordinator_state *c, int slot, struct coordinator_out *out);
/* Returns true while a requested checkpoint is neither made nor given up. */
bool checkpoint_schedule_is_asked(const struct coordinator_state *c);
/* Returns the value of `last_step` after this checkpoint. A checkpoint of the last step does not
 * count as the last one if its generation began before the job's early end was decided. */
int64_t checkpoint_schedule_counts(const struct coordinator_state *c, uint64_t generation,
                                   int64_t step);

/* evaluation.c */
/* Records a part of an evaluation, and judges the evaluation once it has all parts. */
void evaluation_note(struct coordinator_state *c, const struct coordinator_event *e,
                     struct coordinator_out *out);
/* Discards evaluations after `step`, at which a job begins or to which it rolls back. */
void evaluation_rewind(struct coordinator_state *c, int64_t step);
/* Tracks the checkpoint of the best evaluation, before and after checkpoint_schedule_step. */
void evaluation_follow(struct coordinator_state *c, struct coordinator_out *out);
/* Returns true if a checkpoint of *step, where training stands, is needed at once. */
bool evaluation_wants_checkpoint(const struct coordinator_state *c, int64_t *step);
/* Returns true if the job must end early, by a plan that has no further steps. */
bool evaluation_ends_job(const struct coordinator_state *c);
void evaluation_best_recorded(struct coordinator_state *c, const struct coordinator_event *e,
                              struct coordinator_out *out);

/* Functions of command.c. */
void coordinator_command_begin(struct coordinator_state *c, const struct coordinator_event *e);

#endif
