/* ps/service/service.h - the server's answers to workers: it admits joiners, passes each piece (a
 * message about one chunk) to its store, sends answers back, and detects the end of the job. Plans
 * define the members; the coordinator makes plans. Each plan is a generation, and a `run` here.
 *
 * The service admits the members of the plan in force. At ps 0 any other joiner is listed and asks
 * again. A generation ends with a stop and the start of the next one. The service keeps the earlier
 * runs until all servers are in the new one (settle), since servers may fetch chunks from them.
 *
 * Owns:    the job's runs, their members, the list of joiners; a thread that logs who is awaited.
 * Threads: the handler's functions, stop, state and roster from any; begin and settle one at a
 *          time, begin blocks; create and destroy from one, destroy after the last handler
 *          returned. Callbacks run in any thread, with no lock held.
 * Errors:  ST_NOMEM. */
#ifndef PS_SERVICE_SERVICE_H
#define PS_SERVICE_SERVICE_H
#include "base/hosts.h"
#include "net/rpc/server.h"
#include "net/wire/plan.h"

struct service_config {
    int self; /* this server's number in ps_hosts; 0: ps 0 */
    /* The address and both lists of hosts are borrowed to the program's end. */
    const char *address;              /* address in plans; NULL: its entry of ps_hosts */
    const struct hosts *ps_hosts;     /* all servers of the first plan */
    const struct hosts *worker_hosts; /* hosts of workers; n = 0: any worker may join */
    int64_t max_model_bytes;          /* limit on the bytes of the parameters held here */
    int max_workers;       /* limit of members and joiners of a job; 0: JOB_MAX_WORKERS */
    int64_t first_wait_ms; /* longest wait for worker 0 to begin a job; 0: none; -1: no limit */
    bool serve;            /* another job may follow one that is done */
    bool shared_memory;    /* workers on this host may share memory with this server */
    struct thread_pool *threads; /* this field and the next: see struct store_config */
    size_t long_bytes;
    bool hold_last;                  /* handover_hold_last for each run at its start */
    int64_t straggler_ms;            /* a step that waited longer gets a log line; 0: none */
    int64_t wait_line_ms;            /* least pause between lines on awaited workers; 0: 5000 */
    bool no_ticker;                  /* true: no thread logs the lines on awaited workers */
    const struct outer_hooks *outer; /* hooks for stores at ps 0, or with gates; NULL: none */
    int region, n_regions;           /* region of the members' samples; 0, 0: no region */
    int fault_keep_chunks;           /* tests: the server refuses to hand chunks on */
    void (*started)(void *ctx);      /* a generation has begun; a callback may be NULL */
    /* Called before a generation begins: the old store has stopped, the new one does not exist. */
    enum status (*beginning)(void *ctx, const struct net_plan *plan);
    /* Called if a worker joins before the first plan (`serve`: of each job). `join` is valid for
     * the call. The worker retries, or is refused with reason `why`. NULL: the service plans. */
    enum status (*first_join)(void *ctx, const struct net_join *join, char *why, size_t why_bytes);
    void (*roster_changed)(void *ctx); /* the state or the roster changed */
    /* Callbacks with the same rules as the functions of net_server_handler. */
    void (*control)(void *ctx, struct net_server *server, const struct net_control *request,
                    uint64_t call);
    void (*control_closed)(void *ctx, uint64_t call);
    void (*gate)(void *ctx, const struct net_gate *gate, struct net_squares_reply *reply);
    void (*done)(void *ctx); /* all members have left after their last step; one call per job */
    void *ctx;
};

struct service_stats {
    int64_t steps;  /* lowest version of all chunks; -1: never started, or no chunks here */
    bool no_chunks; /* the job runs and there are no chunks here */
    int64_t began;  /* step at which this process entered the job */
    uint64_t received_bytes, sent_bytes; /* payload */
    double seconds;                      /* time from the first plan to the last leave, or to now */
};

/* Returns the number of steps that were made while this process was in the job. */
static inline int64_t service_steps_made(const struct service_stats *s)
{
    return s->steps > s->began ? s->steps - s->began : 0;
}

struct generation_state {
    uint64_t generation; /* generation in force here; 0: none yet */
    uint64_t ps0;        /* incarnation of the ps 0 that made the plan in force */
    /* At ps 0: highest generation of another ps 0 that a worker reported and that was not below the
     * plan of this ps 0; 0: none. */
    uint64_t claim;
    bool stopped; /* chunks do not change any more */
    /* Lowest and highest version here; lowest is -1 while a chunk has none, and train_steps if
     * there are no chunks; highest is -1 if there is no version. */
    int64_t lowest, highest;
    bool ended; /* all members are done */
};

/* A member or a joiner. The int fields from `joined` to `asked` are nonzero for yes. */
struct roster_entry {
    int member; /* index */
    uint64_t incarnation;
    int64_t missing_ms; /* ms without a stream, or since the member had to return; -1: present */
    int joined;         /* the member was in this generation or an earlier one */
    int leaving;        /* the member asked to leave, or left, before the job's end */
    int failed;         /* the member left for good, with an error; `leaving` is set, too */
    int done;           /* the member left after its last step */
    int spoke;          /* the member had a stream in this generation */
    int came;           /* the member joined in this generation, and need only send a piece */
    int asked;          /* the process asks for the next generation, because this one is over */
    char address[96];   /* address of the member's host; may be empty */
};

struct run;                /* ps/service/run.h */
struct checkpoint_restore; /* checkpoint/restore.h */
struct late_total;         /* ps/store/stragglers.h */
struct refusals;           /* ps/service/refusals.h */
struct service;
enum status service_create(const struct service_config *cfg, struct service **out);
void service_destroy(struct service *s); /* NULL is fine. */
struct net_server_handler service_handler(struct service *s);

void generation_state(struct service *s, struct generation_state *out);
void generation_stop(struct service *s);
/* Begins the plan's generation, which is in force on ST_OK. If the plan's source is MEMORY, this
 * server's own chunks stay in place, and it fetches the other chunks from their holders. The
 * previous generation is stopped, and its members receive REBASE. `restore` is needed if the source
 * is CHECKPOINT, and is borrowed for the call. After an error, which is logged, the previous
 * generation stays in place, stopped. A server that the plan does not name has no chunks. */
enum status generation_begin(struct service *s, const struct net_plan *plan,
                             const struct checkpoint_restore *restore);
/* Cancels the fetch of chunks for this generation, if generation_begin makes one now or later: it
 * then returns ST_CANCELLED. UINT64_MAX: cancels every later generation. Any thread may call it. */
void generation_cancel(struct service *s, uint64_t generation);
/* Releases the earlier runs. Called once all servers are in the generation. */
void generation_settle(struct service *s, uint64_t generation);
/* Returns copies of the plan's members, in its order, and of the joiners that asked in the last
 * seconds (at ps 0). The caller frees both. ST_NOMEM. */
enum status membership_roster(struct service *s, struct roster_entry **members, int *n_members,
                              struct roster_entry **waiting, int *n_waiting);
/* Copies the text in which the last admitted member describes its data; NULL: no text. ST_NOMEM. */
enum status join_trained_on(struct service *s, char **out);
/* Stores the text of a job's first worker (NULL: none). Called before the job has a plan. */
void join_begin_trained_on(struct service *s, const char *text);
/* Copies the refusals of workers that are not present; the caller frees them. ST_NOMEM. */
enum status membership_refusals(struct service *s, struct refusals **out);

/* Removes a member. The first generation without the member refuses its process, but not a process
 * that is started later as that worker. ST_NOT_FOUND: the plan has no such member; ST_NOMEM. */
enum status membership_remove(struct service *s, int member);
/* Notes that the job resumes from its last step: a member with local steps, such as a region, does
 * not wait for worker 0, which may have ended. Other workers wait at most wait_ms. */
void admission_set_all_steps(struct service *s, int64_t wait_ms);
/* Fixes the number format of the job for workers that leave it to the job (wire_auto). */
void admission_fix_format(struct service *s, const struct net_job *job);
void membership_close(struct service *s, const char *why); /* refuses every later join */
int membership_n_present(struct service *s);               /* members that have not left */

/* Returns a new reference to the present run; NULL: no run yet. */
struct run *service_run(struct service *s, int *ended);
void service_stats(struct service *s, struct service_stats *out);
/* Copies how long each worker of the last job was awaited, by index; *n is their number (0: no
 * job). The caller frees the array. ST_NOMEM. */
enum status generation_lateness(struct service *s, struct late_total **out, int *n);

#endif
