/* net/wire/job.h - the settings that all members of a job share, as plain values, and the messages
 * of joining and leaving. The first worker that joins a fresh server sets the job; every later
 * member must join with an equal job. Threads: plain values without a lock. */
#ifndef NET_WIRE_JOB_H
#define NET_WIRE_JOB_H
#include "base/hosts.h"
#include "kernels/vector/dtype.h"
#include "kernels/vector/optim.h"
#include "net/shm/segment.h"
#include "net/wire/chunks.h"
#include "net/wire/job_data.h"
#include "net/wire/job_input.h"
#include "net/wire/place.h"
#include "net/wire/rounding.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    JOB_MAX_WORKERS = 4096,
    JOB_MAX_BATCH = 1 << 30,
    JOB_MAX_MODEL_BYTES = 256 << 10,
    JOB_MAX_TRAINED_ON_BYTES = 1 << 20,
    JOB_ADDRESS_BYTES = 256,
    JOB_MAX_LOCAL_STEPS = 1 << 16,
    JOB_MAX_FRAGMENTS = 1024,
    JOB_ARITHMETIC_BYTES = 160,
};
enum job_sync_mode { JOB_SYNC, JOB_ASYNC, JOB_SSP, JOB_N_MODES };
#define JOB_SYNC_MODES "sync|async|ssp"    /* words in the order of enum job_sync_mode */
#define JOB_VECTOR_LOOPS "; vector loops " /* begins the last part of net_job.arithmetic */

/* Validation data, of which each member evaluates a part, and the schedule of evaluations. */
struct net_validation {
    struct job_validation data; /* n 0: unset */
    int64_t every, patience;    /* schedule, as in struct net_evaluation */
};

struct net_job {
    int n_workers; /* 0: a member that joins a running job leaves it unset */
    enum job_sync_mode sync_mode;
    struct optim_config optim;
    int64_t train_steps; /* global steps; async, ssp: updates per chunk by all workers; 0: unset */
    int64_t asked_steps; /* requested train_steps if the job ends earlier; or 0 */
    double epochs;       /* epochs from which a member computed train_steps; 0: none */
    uint64_t seed;
    int aggregate;     /* sync: number of contributions that complete a step, fewer than n_workers
                          (backup workers); 0: n_workers */
    int64_t staleness; /* ssp: steps that a worker may be ahead of the slowest, >= 0 */
    float delay_compensation;             /* async, ssp: DC-ASGD's lambda, >= 0; 0: none */
    enum dtype push_dtype, version_dtype; /* dtypes of contributions and of versions */
    bool wire_auto; /* both dtypes are only a member's proposal; it uses those of the servers */
    /* fraction of the training set that is held out, by the seed; below 1 */
    double validation_split;
    int batch;        /* samples of one member's contribution; 0: unset */
    int local_steps;  /* a member's own steps per contribution, which is then the change (old minus
                         new); 1 or less: the contribution is a gradient */
    int outer_unsaid; /* bits of enum job_outer (job_steps.h); only in a member's job */
    struct optim_config local; /* the member's optimizer; its total_steps counts local steps */
    int fragments;             /* number of fragments (fragments.h); below 2: no fragments */
    struct job_data data;
    struct job_normal normal;   /* applied to all samples */
    struct job_augment augment; /* applied to training samples */
    float label_smoothing;      /* replaces the model's own value; below 1; 0: the model's value */
    struct net_validation validation;
    char arithmetic[JOB_ARITHMETIC_BYTES]; /* a member's libraries, for example "oneDNN v2.6.3,
                                              AVX2, 4 threads; vector loops AVX2"; in the servers'
                                              job those of the first member; empty: unset */
    struct net_rounding rounding; /* rounding that the first member chose, for all members */
};

/* Returns "sync", "async" or "ssp"; NULL for any other value. */
const char *job_sync_mode_name(enum job_sync_mode mode);
/* Returns the number of contributions that complete a version. */
int job_aggregate(const struct net_job *job);
/* Returns true if all chunks and workers advance together (sync without backup workers). */
bool job_in_lockstep(const struct net_job *job);
int job_local_steps(const struct net_job *job); /* returns at least 1 */
/* Number of exchanges of local steps or regions below which a job's result is poor. */
enum { JOB_FEW_EXCHANGES = 5 };
/* Returns the dtype of contributions to a chunk: fp32 for averages of local steps, otherwise that
 * of chunks_dtype. */
enum dtype job_push_dtype(const struct net_job *job, const struct chunks *chunks, int chunk);
/* Returns true if servers send the rounded change from one version to the next, not whole versions.
 * The last slot holds the rounding error. */
bool job_sends_changes(const struct net_job *job);
/* Returns the number of slots of a trained parameter, including the slot for the rounding error. */
int job_n_slots(const struct net_job *job);
/* Returns true if the servers scale each step's mean gradient down to the norm optim.clip_norm;
 * false: the workers scale their contributions, or there is no clipping. */
bool job_servers_clip(const struct net_job *job);
/* Returns true if the mode is sync, which promises equal bits, but members with these two jobs may
 * compute different bits, because the parts of `arithmetic` that affect the bits differ. */
bool job_arithmetic_differs(const struct net_job *a, const struct net_job *b);
/* Returns NULL, or the problem with the fields that belong to the mode (static text). */
const char *job_check_mode(const struct net_job *job);
/* Checks the job of a joining member as job_check_mode does, but allows n_workers to be unset. */
const char *job_check_asked(const struct net_job *job);

struct net_join {         /* on the server its pointers are valid until the handler returns */
    int member;           /* index of the member; -1: ps 0 must assign one (job.n_workers is 0) */
    uint64_t incarnation; /* random at process start, never 0 */
    const char *address;  /* the member's host, ASCII without spaces; NULL or empty: unset */
    struct net_job job;
    const struct chunks *chunks; /* on the server decoded, and owned by net */
    struct segment_name segment; /* segment that may contain contributions */
    struct segment_name values;  /* lent segment with the parameters, for versions */
    uint64_t generation;         /* newest generation that other servers have reported; 0: none */
    uint64_t ps0;      /* incarnation of the ps 0 that made that generation's plan, see net_plan */
    const char *model; /* the network's JSON text, at most JOB_MAX_MODEL_BYTES; NULL: unset */
    int hidden_units;  /* units of the network's first dense layer; 0: as in `model` */
    const char *trained_on; /* JSON text on data and model, see worker/results/trained_on.h, at most
                               JOB_MAX_TRAINED_ON_BYTES; NULL: unset */
};

enum { LEAVE_ERROR_BYTES = 400 };

struct net_leave {
    int member; /* index of the member */
    uint64_t incarnation;
    bool done; /* the member has made its last step */
    bool soon; /* the member continues until ps 0 makes the next generation, which excludes it */
    uint64_t generation;           /* generation of the last step; 0: the server's present one */
    char error[LEAVE_ERROR_BYTES]; /* error that ends the member for good; empty: none; printable
                                      UTF-8 when received */
};

enum join_answer {
    JOIN_WELCOME, /* the server has parameters, or will have them: the member must pull, and wait */
    JOIN_INIT,    /* WELCOME, and the member must send INIT for each chunk of this server */
    JOIN_REFUSED, /* the member must not try again; `why` contains the difference */
    JOIN_RETRY,   /* try again later (the server still serves another job); `why` contains the
                     reason */
};

struct net_join_reply {
    enum join_answer answer;
    char why[512];
    uint64_t generation; /* generation of the server; RETRY: or 0 */
    uint64_t ps0; /* incarnation of the ps 0 that made that generation's plan, see net_plan */
    int64_t step; /* lowest version of this server's chunks; -1 before INIT is complete */
    int *server;  /* shard map, n_chunks numbers; only from ps 0, otherwise NULL; malloc'd,
                     and the receiver becomes its owner */
    int n_chunks;
    struct segment_name segment; /* segment that may contain versions */
    bool values;                 /* the server has opened the member's `values` to write */
    struct net_place place;      /* WELCOME, INIT; n_members 0: every rank is the member's index */
    struct hosts servers; /* only from ps 0, otherwise n is 0; the receiver becomes its owner */
};

#endif
