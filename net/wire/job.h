/* net/wire/job.h - what all members of a job agree on, as plain values; and how a member
 * introduces itself. The first worker that joins a fresh server sets the job; any other must bring
 * an equal one. Threads: values. */
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
#define JOB_SYNC_MODES "sync|async|ssp"    /* in the order above */
#define JOB_VECTOR_LOOPS "; vector loops " /* the end of an arithmetic begins so */

/* Which validation data the members of a job evaluate, each its part, and when. */
struct net_validation {
    struct job_validation data; /* n 0: not said */
    int64_t every, patience;    /* as in struct net_evaluation */
};

struct net_job {
    int n_workers; /* 0: a member that joins a running job does not say it */
    enum job_sync_mode sync_mode;
    struct optim_config optim;
    int64_t train_steps; /* global steps; async, ssp: updates per chunk over all workers; 0: not
                            said */
    int64_t asked_steps; /* train_steps as brought to a job that ends earlier; 0: it does not */
    double epochs;       /* of a member's own data, that make its train_steps; 0: not by them */
    uint64_t seed;
    int aggregate;            /* sync: contributions that make a step, fewer than n_workers: the
                                 first so many count (backup workers); 0: n_workers */
    int64_t staleness;        /* ssp: steps that a worker may be ahead of the slowest, >= 0 */
    float delay_compensation; /* async, ssp: DC-ASGD's lambda, >= 0; 0: none */
    enum dtype push_dtype, version_dtype; /* of payloads: contributions, versions */
    int wire_auto; /* a member's: these two are what its line asks for, and it takes the job's */
    double validation_split; /* share of the training set held out, by the seed; below 1; 0: none */
    int batch;               /* samples of one member's contribution; 0: not said */
    int local_steps;         /* steps that a member makes by itself for each contribution, which is
                                what they changed (old less new); 0, 1: it is a gradient */
    int outer_unsaid;        /* a member's: bits of enum job_outer (job_steps.h) */
    struct optim_config local; /* its optimizer in them, where there are; total_steps: of these */
    int fragments;             /* of the parameters, that take turns (fragments.h); 0, 1: all go */
    struct job_data data;
    struct job_normal normal;   /* of all samples */
    struct job_augment augment; /* of training samples */
    struct net_validation validation;
    char arithmetic[JOB_ARITHMETIC_BYTES]; /* what the member computes with: "oneDNN v2.6.3, AVX2, 4
                                              threads; vector loops AVX2"; a job's: its first one's;
                                              empty: not said. Others may differ */
    struct net_rounding rounding;          /* likewise its first one's, which all have */
};

/* "sync", ...; NULL if the value is none of them. */
const char *job_sync_mode_name(enum job_sync_mode mode);
/* Contributions that make a version. */
int job_aggregate(const struct net_job *job);
/* 1: all chunks and all workers go from step to step together (sync without backup workers). */
int job_in_lockstep(const struct net_job *job);
int job_local_steps(const struct net_job *job); /* at least 1 */
/* Number of exchanges of local steps or regions below which a job's result is poor. */
enum { JOB_FEW_EXCHANGES = 5 };
/* What a contribution to a chunk is sent in: as chunks_dtype; averages of local steps as floats. */
enum dtype job_push_dtype(const struct net_job *job, const struct chunks *chunks, int chunk);
/* 1: members are sent what changed from one version to the next, rounded, and not versions. What
 * the rounding took off is one of the slots, the last. */
int job_sends_changes(const struct net_job *job);
/* Slots of a trained parameter: the optimizer's, and that one. */
int job_n_slots(const struct net_job *job);
/* 1: the servers scale each step's mean gradient down to the norm optim.clip_norm; 0: the workers
 * scale what they contribute, or nobody does. */
int job_servers_clip(const struct net_job *job);
/* 1: what the two compute cannot be expected to have the same bits, since they compute with other
 * instructions or threads; the vector loops, which have the same bits in all their forms, do not
 * count. 0 as well where the job promises no bits, or one does not say. */
int job_arithmetic_differs(const struct net_job *a, const struct net_job *b);
/* NULL, or what is wrong with the fields that belong to the mode (static text). */
const char *job_check_mode(const struct net_job *job);
/* Likewise of one that asks to join: without a number of workers any may be meant. */
const char *job_check_asked(const struct net_job *job);

struct net_join {
    int member;           /* its index: --task_index, or as ps 0 gave it; -1: ps 0 is to give it one
                             (job.n_workers is 0) */
    uint64_t incarnation; /* random at process start, never 0 */
    const char *address;  /* names its host, in printable ASCII without spaces, JOB_ADDRESS_BYTES
                             with its end; NULL or empty: not said; on the server valid for the
                             call */
    struct net_job job;
    const struct chunks *chunks; /* decoded on the server: owned by net, valid for the call */
    struct segment_name segment; /* that the contributions may lie in */
    uint64_t generation;         /* that the other servers told it; 0: none has yet */
    uint64_t ps0;                /* who made its plan, as in struct net_plan */
    const char *model; /* the network's JSON text, at most JOB_MAX_MODEL_BYTES; NULL: not said; on
                          the server valid for the call */
    int hidden_units;  /* of its first dense layer; 0: as the text says */
    const char *trained_on; /* JSON text on data and model, see worker/results/trained_on.h, at most
                               JOB_MAX_TRAINED_ON_BYTES; NULL: not said; on the server valid for
                               the call */
};

enum { LEAVE_ERROR_BYTES = 400 };

struct net_leave {
    int member; /* its index */
    uint64_t incarnation;
    int done; /* it has taken its last step */
    int soon; /* to ps 0: it goes on until the next generation, which is to begin without it */
    uint64_t generation;           /* in which it took that step; 0: not said, the server's */
    char error[LEAVE_ERROR_BYTES]; /* not empty: it ends for good, with this; printable UTF-8 where
                                      it was received */
};

enum join_answer {
    JOIN_WELCOME, /* parameters are there (or will be: wait in PULL) */
    JOIN_INIT,    /* welcome, and please send INIT for each chunk of this server */
    JOIN_REFUSED, /* never try again; `why` says what differs */
    JOIN_RETRY,   /* not now (the server still serves another job); `why` says so */
};

struct net_join_reply {
    enum join_answer answer;
    char why[512];
    uint64_t generation; /* that the server is in; RETRY: or 0 */
    uint64_t ps0;        /* who made its plan, as in struct net_plan */
    int64_t step;        /* lowest version of this server's chunks; -1 before INIT is complete */
    int *server;         /* shard map, n_chunks numbers; from ps 0 alone, else NULL; malloc'd, given
                            to the receiver of the reply */
    int n_chunks;
    struct segment_name segment; /* that versions may lie in */
    struct net_place place;      /* WELCOME, INIT; n_members 0: members go by their index */
    struct hosts servers; /* from ps 0 alone, else n is 0; given to the receiver of the reply */
};

#endif
