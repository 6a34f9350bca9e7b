/* ps/region/region_impl.h - a region inside: region.c (the hooks, what a chunk waits for),
 * region_chunks.c (other servers), region_exchange.c (the thread that exchanges, gate by gate),
 * region_rewind.c, region_unsent.c (what was not sent of contributions), region_end.c (a parent
 * that is not reached), region_must_wait.c (its name). Threads: `lock` guards what says so; else
 * the exchanging thread, or set before it. */
#ifndef PS_REGION_REGION_IMPL_H
#define PS_REGION_REGION_IMPL_H
#include "net/exchange/exchange.h"
#include "net/exchange/status_client.h"
#include "ps/region/mail.h"
#include "ps/region/region.h"
#include "ps/region/region_piece.h"
#include "ps/service/run.h"
#include <pthread.h>

/* From that version of the region's on, its values go back to this one of the parent's. */
struct adoption {
    int64_t from;
    struct checkpoint_parent_version parent;
};
enum { N_ADOPTIONS = 64 }; /* more than are made while a checkpoint is written */
/* Since the region began, or went back to a checkpoint. */
struct adoptions {
    struct checkpoint_parent_version restored; /* what the checkpoint says */
    struct adoption list[N_ADOPTIONS];         /* the newest last */
    int n;
};

struct ps_region {
    struct ps_region_config asked; /* in steps of a worker */
    struct ps_region_config cfg;   /* in versions, once the job is known */
    int64_t steps_each;            /* steps of a worker that make a version, at least 1 */
    struct outer_hooks outer;
    struct service *service;
    struct mail *mail; /* to the region's other servers */
    uint64_t begun;    /* of the exchanging thread: the run whose first versions were sent */
    pthread_t thread, drift_thread, watch_thread;
    int has_thread, has_drift_thread, has_watch_thread;
    struct status_asker *asker; /* of watch_thread: asks ps 0 of the parent group during a wait */
    pthread_mutex_t lock;       /* guards the next */
    pthread_cond_t changed;
    int stopping, done;
    char waits_for[STATUS_WAITING_BYTES]; /* programs of the parent group; empty: none */
    struct net_exchange *x;
    struct piece *next; /* the region goes back to a checkpoint: pieces from then on; or NULL */
    struct checkpoint_parent_version next_restored; /* what the last plan's checkpoint says */
    uint64_t planned;                               /* generation of the last plan */
    int n_first, has_first; /* plans without values so far; all servers have some, since then */
    int ended;              /* the exchange has, well or not */
    int64_t silent_s; /* it was cancelled, since the parent was not reached for so long; 0: no */
    int64_t stuck_at; /* and the region's version that waited then; -1: it had no values */
    int is_alone;     /* a gate was passed without an answer: each version waits until it comes */
    int64_t due;      /* the gate that comes next; -1: not known */
    int64_t let_go;   /* the last version that a chunk was made of without the parent; 0: none */
    int64_t began_ns; /* there is a job */
    int64_t gate_since_ns;                /* all chunks adopted so far waited since then; 0: none */
    int64_t waited_ns;                    /* of that time, what workers waited for the parent */
    int64_t slots_since;                  /* the version at which the optimizer's slots were zero */
    struct adoptions taken, taken_before; /* before: of generations below `since` */
    uint64_t since;
    struct checkpoint_parent_version adopting; /* that is in base, and is being adopted */
    struct chunks *chunks;  /* NULL: no job yet; not changed once a run has begun */
    struct piece *pieces;   /* n_chunks */
    float *base;            /* the parent's version `held`; first the members' first values */
    float *before, *change; /* base as the round began; what is contributed */
    /* Of the exchanging thread: */
    struct net_job job; /* the parent's */
    int *fragment;      /* each chunk's; NULL: all go at each gate */
    int64_t train_steps;
    int64_t gate, n_gates; /* passed; of the job */
    int64_t held, step;    /* the parent's versions: that the values go back to, that is in base */
    int64_t parent_has;    /* the last version that has a contribution of the region's; 0: none */
    int64_t last_counted;  /* likewise, when it was joined last, of whatever generation */
    float weight;          /* of a contribution */
    int64_t said_ns;
    double exchange_s; /* the last round's, from contribution to answer */
};

/* The present run, a reference, if it has chunks here; NULL: none. */
struct run *region_run(const struct ps_region *r);
/* Under the lock: this life of the exchange is to end, or the process. */
int region_rewind_is_due(const struct ps_region *r);
/* Likewise: what the present generation's chunks are noted in. */
struct piece *region_rewind_pieces(struct ps_region *r);
/* The exchange has ended, and all is ready for the next, if there is to be one. */
int region_rewind_finish(struct ps_region *r);
/* Under the lock: counts the flags' steps in versions of this job (region_job.c). */
void region_job_count_steps(struct ps_region *r, const struct net_job *job);
/* Makes r->job, the parent's: its step is a round of the region's. */
void region_job_make(struct ps_region *r, const struct net_job *own);
/* Warns of a job that has too few exchanges for a good result. */
void region_job_warn_few(const struct ps_region *r);
/* Under the lock: the hooks of outer_hooks. */
int region_must_wait(struct ps_region *r, int64_t version, int64_t train_steps);
void region_made(struct ps_region *r, int chunk, int64_t version, int waits, struct buf *value);
void region_first(struct ps_region *r, int chunk, const struct net_payload *value);
/* What is in base, the parent's version `version`, is adopted next. */
void region_adopts(struct ps_region *r, int64_t version);
/* Under the lock: it was, from that version of the region's on. */
void region_rewind_note(struct ps_region *r, int64_t from,
                        const struct checkpoint_parent_version *parent);
/* Waits until the chunk waits with a version, and has it made; as outer_adopt, but the job's
 * last version is what base has. ST_CANCELLED. */
enum status region_adopt(struct ps_region *r, int chunk, const float *to, const float *from);
/* Waits until there is something to contribute at the next gate: *value, the chunk's, borrowed
 * until it is adopted. ST_CANCELLED. */
enum status region_contribution(struct ps_region *r, int chunk, const float **value);
/* Waits until all chunks wait, and have them do so until they are adopted. ST_CANCELLED. */
enum status region_hold(struct ps_region *r);
/* At the job's end, where the parent has rounds left: what the chunk learnt since its last
 * contribution, without the parent, is the next one, if there is any. */
void region_contribute_rest(struct ps_region *r, int chunk);
/* 1: the next gate is the last. */
int region_at_end(struct ps_region *r);
/* The gate is passed, with whatever version it was. */
void region_forget(struct ps_region *r);
/* All gates are passed. A generation of the region's may still end before all chunks have the last
 * version made: so until the region is stopped. */
void region_linger(struct ps_region *r);
void *region_exchange_main(void *r);
/* Under the lock: it waits with a version that nobody has made yet, nor is going to make without
 * the parent. */
int region_is_held(const struct ps_region *r, const struct piece *p);
/* The chunk's version that waits is made as it was computed. */
void region_make_own(struct ps_region *r, int chunk, int64_t version);
/* region_unsent.c. All chunks were pushed for the parent's version `version`, and nothing else. */
void region_unsent_keep(struct ps_region *r, int64_t version);
/* The exchange has started, `held` is known, nothing was pushed. Writes over `change`. */
void region_unsent_resume(struct ps_region *r);
/* Renews waits_for (region_must_wait.c); only the thread of region_end_watch calls it. is_stuck:
 * the region makes no version before the parent answers. */
void region_waits_update(struct ps_region *r, struct net_exchange *x, int is_stuck);
/* region_end.c: the thread that looks for a parent that is not reached. */
void *region_end_watch(void *r);
/* Goes on, or ends, without a parent that was not reached for so long; says so. Returns when this
 * process ends. */
void region_end_alone(struct ps_region *r, int64_t silent_s);
enum { REGION_NAME_BYTES = 128, REGION_TEXT_BYTES = 384 };
/* The parent's servers, or those of them for which there is room. */
void region_name_parents(const struct ps_region *r, char text[REGION_NAME_BYTES]);

#endif
