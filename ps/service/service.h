/* ps/service/service.h - what the server answers: who may join, which store a piece goes to, where
 * answers go back, when the job is done. Who takes part in what is laid down by plans, which others
 * make (coordinator.h, follower.h): each is a generation, and a `run` here.
 *
 * A member of the plan in force is admitted; whoever else wants to join is put on a list at ps 0
 * and asks again. A generation ends by a stop and the next one's begin; what went before is kept
 * until all servers are in the new one (settle), since they may have to fetch chunks.
 *
 * Owns:    the job's runs, their members, those who wait; one thread that names who is waited for.
 * Threads: the handler's functions, stop, state and people from any; begin and settle one at a
 *          time, begin blocks; create and destroy from one, destroy after the last handler
 *          returned. Callbacks come from any thread, with no lock held.
 * Errors:  ST_NOMEM. */
#ifndef PS_SERVICE_SERVICE_H
#define PS_SERVICE_SERVICE_H
#include "base/hosts.h"
#include "net/rpc/server.h"
#include "net/wire/plan.h"

struct service_config {
    int self;                         /* this server's number in ps_hosts; 0: it leads */
    const char *address;              /* its own in plans; NULL: ps_hosts' entry; borrowed for ever,
                                         as ps_hosts and worker_hosts */
    const struct hosts *ps_hosts;     /* all servers of the first plan */
    const struct hosts *worker_hosts; /* n = 0: whoever comes */
    int64_t max_model_bytes;          /* of parameters held here */
    int max_workers;                  /* of a job, with those that wait; 0: JOB_MAX_WORKERS */
    int64_t first_wait_ms;            /* how long others wait for worker 0, which settles a job; 0:
                                         whoever comes first does; -1: as long as it takes */
    int serve;                        /* a job that is done may be followed by another */
    int shared_memory;                /* with workers on this host */
    struct thread_pool *threads;      /* that share updates; borrowed; NULL: none */
    int hold_last;                    /* as by handover_hold_last, of each run from its start */
    int64_t straggler_ms;             /* a step that waited longer gets a line; 0: none */
    int64_t wait_line_ms;             /* how often those waited for are named; 0: 5000 */
    int no_ticker;                    /* nobody names them, and there is no thread */
    const struct outer_hooks *outer;  /* of ps 0's stores, or of plans with gates; NULL: none */
    int region, n_regions;            /* of which its members' samples are; 0, 0: no region */
    int fault_keep_chunks;            /* for tests: no other server is given any */
    void (*started)(void *ctx);       /* a generation has begun; NULL is fine, here and below */
    /* One is about to: the store before has stopped, its own is not there yet. */
    enum status (*beginning)(void *ctx, const struct net_plan *plan);
    /* Somebody wants to join and there is no plan yet (or, with `serve`, another job is to begin);
     * valid for the call. It asks again, or is refused by `why`. NULL: the service plans itself. */
    enum status (*first_join)(void *ctx, const struct net_join *join, char *why, size_t why_bytes);
    void (*roster_changed)(void *ctx); /* what state or people tell has */
    /* As of net_server_handler. */
    void (*control)(void *ctx, struct net_server *server, const struct net_control *request,
                    uint64_t call);
    void (*control_closed)(void *ctx, uint64_t call);
    void (*gate)(void *ctx, const struct net_gate *gate, struct net_squares_reply *reply);
    void (*done)(void *ctx); /* all members have left, done; once a job */
    void *ctx;
};

struct service_stats {
    int64_t steps; /* lowest version of all chunks; -1: never started, or there are none here */
    int no_chunks; /* that is so, and the job has not ended */
    int64_t began; /* the step at which this process came to the job */
    uint64_t received_bytes, sent_bytes; /* payload */
    double seconds;                      /* from the first plan to the last leave, or to now */
};

/* Steps that were made while this process took part. */
static inline int64_t service_steps_made(const struct service_stats *s)
{
    return s->steps > s->began ? s->steps - s->began : 0;
}

struct generation_state {
    uint64_t generation;     /* in force here; 0: none yet */
    uint64_t ps0;            /* that made its plan */
    uint64_t claim;          /* ps 0: highest generation of another ps 0 that a worker said to know
                                when this one's plan was not above it; 0: none */
    int stopped;             /* nothing moves any more */
    int64_t lowest, highest; /* versions here; lowest is -1 while a chunk has none, and train_steps
                                where there are no chunks; highest -1: there is none */
    int ended;               /* all members are done */
};

/* A member, or one who wants to be. */
struct roster_entry {
    int member; /* index */
    uint64_t incarnation;
    int64_t missing_ms; /* since when it has no stream, or has not come back; -1: it is here */
    int joined;         /* it has been here, in this generation or before */
    int leaving;        /* it wants to leave, or has left, before the job's end */
    int failed;         /* it has left for good, with an error; it is `leaving`, too */
    int done;           /* it has left after its last step */
    int spoke;          /* it has had a stream in this generation */
    int came;           /* it has joined in this generation, and has only to speak */
    int asked;          /* it is there, and asks for the next one: this generation is over */
    char address[96];   /* of its host; may be empty */
};

struct run;                /* ps/service/run.h */
struct checkpoint_restore; /* checkpoint/restore.h */
struct late_total;         /* ps/store/stragglers.h */
struct refusals;           /* ps/service/refusals.h */
struct service;
enum status service_create(const struct service_config *cfg, struct service **out);
void service_destroy(struct service *s); /* NULL is fine */
struct net_server_handler service_handler(struct service *s);

void generation_state(struct service *s, struct generation_state *out);
/* Stops the present run's store (handover_stop); does nothing if there is no run. */
void generation_stop(struct service *s);
/* The plan's generation, in force when it returns ST_OK. MEMORY: what this server held stays where
 * it is, the rest is fetched from its holders. The generation before is stopped, its members are
 * answered REBASE. restore: of a CHECKPOINT, borrowed for the call. Errors are logged; the
 * generation before stays, stopped. A server that the plan does not name has a run without chunks.
 */
enum status generation_begin(struct service *s, const struct net_plan *plan,
                             const struct checkpoint_restore *restore);
/* Ends a begin of this generation that fetches chunks, under way or still to come, with
 * ST_CANCELLED; UINT64_MAX: of every generation from now on. From any thread. */
void generation_cancel(struct service *s, uint64_t generation);
/* All servers are in the generation: those before it are released. */
void generation_settle(struct service *s, uint64_t generation);
/* The plan's members, in their order; and those who wait, heard of in the last seconds (at ps 0).
 * Both for the caller to free. ST_NOMEM. */
enum status membership_roster(struct service *s, struct roster_entry **members, int *n_members,
                              struct roster_entry **waiting, int *n_waiting);
/* Copies what the member let in last says it trains on; NULL: nothing. ST_NOMEM. */
enum status join_trained_on(struct service *s, char **out);
/* Who was refused last of the workers that are not here, for the caller to free. ST_NOMEM. */
enum status membership_refusals(struct service *s, struct refusals **out);

/* ST_OK: the process that is this member of the plan is refused from the next generation on that is
 * without it; whoever is started as that worker later is not. ST_NOT_FOUND: the plan has no such
 * member; ST_NOMEM. */
enum status membership_remove(struct service *s, int member);
/* The checkpoint that the job resumes from has all its steps: a member with local steps, as regions
 * are, does not wait for worker 0, which may have ended. Others do, wait_ms at most. */
void admission_set_all_steps(struct service *s, int64_t wait_ms);
/* It has this number format: who leaves that to the job (wire_auto) takes it. */
void admission_fix_format(struct service *s, const struct net_job *job);
/* From now on whoever joins is refused, and told why. */
void membership_close(struct service *s, const char *why);
/* How many members have not left. */
int membership_n_present(struct service *s);

/* The present run with a reference for the caller; NULL: there is none yet. */
struct run *service_run(struct service *s, int *ended);
void service_stats(struct service *s, struct service_stats *out);
/* How long each worker of the last job was waited for, by index: *n of them (0: no job), for the
 * caller to free. ST_NOMEM. */
enum status generation_lateness(struct service *s, struct late_total **out, int *n);

#endif
