/* ps/region/region_impl.h - the state of a region: region.c (the hooks, and the waits of chunks),
 * region_chunks.c (other servers), region_exchange.c (the thread that exchanges, gate by gate),
 * region_job.c (the jobs), region_rewind.c, region_unsent.c (unsent rests of contributions),
 * region_end.c (a parent that is not reached), region_waits.c (names the awaited program).
 * Threads: `lock` guards the fields and functions whose comments name it. The remaining fields
 *          belong to the exchanging thread, or are set before that thread starts. */
#ifndef PS_REGION_REGION_IMPL_H
#define PS_REGION_REGION_IMPL_H
#include "net/exchange/exchange.h"
#include "net/exchange/status_client.h"
#include "ps/region/mail.h"
#include "ps/region/region.h"
#include "ps/region/region_piece.h"
#include "ps/service/run.h"
#include <pthread.h>

/* From region version `from` on, a rollback restores parent version `parent`. */
struct adoption {
    int64_t from;
    struct checkpoint_parent_version parent;
};
enum { N_ADOPTIONS = 64 }; /* more than the number of adoptions while one checkpoint is written */
/* Adoptions since the region began, or went back to a checkpoint. */
struct adoptions {
    struct checkpoint_parent_version restored; /* parent's version that the checkpoint records */
    struct adoption list[N_ADOPTIONS];         /* [n], the newest last */
    int n;
};

struct ps_region {
    struct ps_region_config asked; /* config as given, in steps of a worker */
    struct ps_region_config cfg;   /* config converted to versions; valid once the job is known */
    int64_t steps_each;            /* steps of a worker that make a version, at least 1 */
    struct outer_hooks outer;
    struct service *service;
    struct mail *mail; /* letters to the region's other servers */
    uint64_t begun;    /* run that received its initial values; used by the exchanging thread */
    pthread_t thread, drift_thread, watch_thread;
    int has_thread, has_drift_thread, has_watch_thread;
    struct status_asker *asker; /* client of the parent's ps 0; only watch_thread uses it */
    pthread_mutex_t lock;       /* guards the fields below */
    pthread_cond_t changed;
    int stopping, done;
    char waits_for[STATUS_WAITING_BYTES]; /* awaited programs of the parent group; empty: none */
    struct net_exchange *x;
    struct piece *next; /* states of chunks since the region went back to a checkpoint; or NULL */
    struct checkpoint_parent_version next_restored; /* parent version of last plan's checkpoint */
    uint64_t planned;                               /* generation of the last plan */
    /* number of job starts so far; nonzero: all servers have had values since the last start */
    int n_first, has_first;
    bool ended; /* the exchange has ended, with success or not */
    /* Time without the parent after which the exchange was cancelled; 0: it was not. */
    int64_t silent_s;
    int64_t stuck_at; /* version that waited at that time; -1: the region had no values */
    /* Nonzero: a gate was passed without an answer. Each version waits for drift_thread, or for
     * the answer. */
    int is_alone;
    int64_t due;           /* next gate; -1: unknown */
    int64_t let_go;        /* last version that a chunk reached without the parent; 0: none */
    int64_t began_ns;      /* start of the job */
    int64_t gate_since_ns; /* time at which the last adopted chunk began to wait; 0: none */
    int64_t waited_ns;     /* total time that workers waited for the parent */
    int64_t slots_since;   /* version at which the optimizer's slots were zero */
    struct adoptions taken, taken_before; /* taken_before: in generations below `since` */
    uint64_t since;
    struct checkpoint_parent_version adopting; /* version in `base`, which is being adopted */
    struct chunks *chunks;  /* NULL: no job yet; not changed once a run has begun */
    struct piece *pieces;   /* [n_chunks] */
    float *base;            /* values of the parent's version `step`; at first the region's own */
    float *before, *change; /* before: `base` at the start of the round; change: contribution */
    /* The exchanging thread owns the fields below. */
    struct net_job job; /* job of the parent */
    int *fragment;      /* [n_chunks] fragment of each chunk; NULL: all have a turn at each gate */
    int64_t train_steps, gate, n_gates; /* numbers of steps, of passed gates, of the job's gates */
    int64_t held, step; /* parent's versions: basis of this region's values; value in `base` */
    struct net_contribution parent_has; /* the region's last contribution to the parent's version */
    int64_t last_counted; /* parent_has.version at the region's last join to the parent group */
    uint64_t generation;  /* present generation of the parent */
    float weight;         /* weight of a contribution */
    int64_t line_ns;
    double exchange_s; /* duration of the last round, from contribution to answer */
};

/* Returns a new reference to the present run if the run has chunks on this server, or NULL. */
struct run *region_run(const struct ps_region *r);
/* Returns true if the present exchange is to end, since the region goes back to a checkpoint or
 * this process ends. The caller holds the lock. */
bool region_rewind_is_due(const struct ps_region *r);
/* Returns the states of the chunks in the present generation. The caller holds the lock. */
struct piece *region_rewind_pieces(struct ps_region *r);
/* Prepares the next exchange after this one has ended. Returns false if none is to follow. */
bool region_rewind_finish(struct ps_region *r);
/* Converts the flags' steps to versions of this job (region_job.c). The caller holds the lock. */
void region_job_count_steps(struct ps_region *r, const struct net_job *job);
/* Sets r->job, the job of the parent group, in which one step is a round of the region. */
void region_job_make(struct ps_region *r, const struct net_job *own);
/* Warns of a job that has too few exchanges for a good result. */
void region_job_warn_few(const struct ps_region *r);
/* Functions of outer_hooks, for the chunks of all servers. The caller holds the lock. */
bool region_must_wait(struct ps_region *r, int64_t version, int64_t train_steps);
void region_made(struct ps_region *r, int chunk, int64_t version, int waits, struct buf *value);
void region_first(struct ps_region *r, int chunk, const struct net_payload *value);
/* Notes that the parent's version `version`, which is in `base`, is being adopted. */
void region_adopts(struct ps_region *r, int64_t version);
/* Records an adoption from the region's version `from` on. The caller holds the lock. */
void region_rewind_note(struct ps_region *r, int64_t from,
                        const struct checkpoint_parent_version *parent);
/* Waits until a version of the chunk waits for the parent, and then makes this version
 * (outer_adopt). The job's last version becomes the value in `base`. ST_CANCELLED. */
enum status region_adopt(struct ps_region *r, int chunk, const float *to, const float *from);
/* Waits until the chunk has a contribution for the next gate. *value is borrowed until the chunk
 * adopts the answer. ST_CANCELLED. */
enum status region_contribution(struct ps_region *r, int chunk, const float **value);
/* Waits until every chunk waits for the parent's answer, and prevents steps without the parent
 * until the chunks have adopted it. ST_CANCELLED. */
enum status region_hold(struct ps_region *r);
/* Turns the chunk's changes since its last contribution, if any, into the next contribution. Called
 * at the job's end if the parent has rounds left. */
void region_contribute_rest(struct ps_region *r, int chunk);
/* Returns true if the next gate is the last. */
bool region_at_end(struct ps_region *r);
/* Notes that the gate is passed, whichever version was adopted at it. */
void region_forget(struct ps_region *r);
/* Adopts versions again after all gates are passed, until the region is stopped: a generation of
 * the region may end before all chunks have made the last version. */
void region_linger(struct ps_region *r);
void *region_exchange_main(void *r);
/* Returns true if the chunk waits with a version that is made only after the parent's answer. The
 * caller holds the lock. */
bool region_is_held(const struct ps_region *r, const struct piece *p);
/* Completes the chunk's waiting version with the value that the region itself computed for it. */
void region_make_own(struct ps_region *r, int chunk, int64_t version);
/* Keeps the unsent rests after all chunks were pushed for the parent's version `version`. */
void region_unsent_keep(struct ps_region *r, int64_t version);
/* Restores the unsent rests. Called before the first push, once `held` is set. Overwrites
 * `change`. */
void region_unsent_resume(struct ps_region *r);
/* Updates waits_for (region_waits.c); only the thread of region_end_watch calls it. is_stuck: the
 * region makes no version before the parent answers. */
void region_waits_update(struct ps_region *r, struct net_exchange *x, int is_stuck);
/* Runs the thread that detects that the parent cannot be reached (region_end.c). */
void *region_end_watch(void *r);
/* Ends the job, or the region, without the parent, which was not reached for silent_s seconds.
 * Returns when this process ends. */
void region_end_alone(struct ps_region *r, int64_t silent_s);
enum { REGION_NAME_BYTES = 128, REGION_TEXT_BYTES = 384 };
/* Writes the names of the parent's servers, as many as fit. */
void region_name_parents(const struct ps_region *r, char text[REGION_NAME_BYTES]);

#endif
