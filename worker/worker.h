/* worker/worker.h - what a worker is made of, shared by main.c, set_up.c and shutdown.c. Private to
 * them.
 * Owns:    all of it, from set_up to main's clean_up.
 * Threads: main's, and the one that takes signals; what both read is under the lock.
 * Errors:  each part's own. */
#ifndef WORKER_WORKER_H
#define WORKER_WORKER_H
#include "checkpoint/job_over.h"
#include "member/identity.h"
#include "member/waiting.h"
#include "worker/checkpoint/alone_writer.h"
#include "worker/device/gpus.h"
#include "worker/events/events.h"
#include "worker/options/options.h"
#include "worker/place/batch_split.h"
#include "worker/place/placement.h"
#include "worker/results/monitor.h"
#include "worker/results/reporter.h"
#include "worker/results/trained_on.h"
#include "worker/results/validation.h"
#include "worker/train/trainer.h"
#include "worker/weights/weights.h"
#include <pthread.h>
#include <signal.h>

struct worker {
    struct options opt;
    char host[MEMBER_IDENTITY_HOST_BYTES];       /* this one's name */
    char address[MEMBER_IDENTITY_ADDRESS_BYTES]; /* that, and its process */
    struct net_status joined;                    /* --join: the job, as it was then */
    struct gpus gpus;
    int gpu_number[DEVICE_MAX];  /* of those, CUDA's */
    int n_cores;                 /* that it takes of this machine's */
    struct thread_pool *threads; /* for what is done with parameters beside the towers */
    const struct backend *cpu;
    struct tower_plan towers;
    struct model *model;
    struct placement *placement;
    struct batch_split *split;
    struct chunks *chunks;
    struct dataset *train, *test, *validation; /* test, validation: NULL: none */
    struct validation validated;
    struct updates watched;                /* for `waiting`: what this worker waits for */
    struct job_data data;                  /* what is told of them */
    struct job_normal normal;              /* of their samples */
    struct dataset_range range;            /* of those of the training set, if they are exported */
    struct trained_on trained_on;          /* --evaluate, --predict: what their file says */
    char *told;                            /* what checkpoints say of data and model */
    struct job_validation validation_data; /* likewise told */
    float *params;
    uint8_t *rounded; /* [n_layers] measured: what is multiplied in bf16 on the CPU; NULL: nothing
                         was */
    float *init;      /* --init: as `params`, where `given`; NULL: none */
    uint8_t *given;   /* [params] */
    struct weights_result init_result; /* what the file gave */
    struct updates updates;
    struct net_join joins_with; /* what it says to servers */
    struct job_over over;
    int is_over;                /* the job ended before this process was started */
    struct alone_writer *saver; /* --checkpoint_dir; NULL: none */
    struct sample_log *sample_log;
    struct events *events; /* --logdir; NULL: none */
    struct trainer *trainer;
    struct figures figures;
    struct waiting *waiting;   /* NULL: there are no servers */
    struct reporter *reporter; /* likewise */
    struct monitor *monitor;   /* --metrics_port; NULL: none */

    pthread_t signal_thread;
    int signal_thread_runs;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t signalled;
    int signal;           /* that was taken; 0: none */
    int ended_by;         /* signal that ended the run at once; 0: none */
    int ready;            /* trainer and exchange are there to be stopped */
    int training;         /* with servers, whom it can leave in order */
    int trained;          /* all steps are taken, or it has left: what remains ends by itself */
    bool stepped;         /* the trainer takes no more steps */
    bool stopped;         /* the job was stopped before its last step, as somebody asked for */
    _Atomic bool is_torn; /* training was stopped in the middle of a step */
    int done;             /* main needs the signal thread no more */
};

/* set_up.c: from the flags to a trainer that can start. A signal that comes meanwhile ends it
 * between two parts, with ST_CANCELLED. */
enum status set_up(struct worker *w);
/* Likewise, to what --evaluate and --predict need: the model, its devices, the test set, room for
 * parameters. */
enum status set_up_inference(struct worker *w);
/* Logs the rounds of a job with local steps; asked: steps before they were rounded up to whole
 * rounds. */
void set_up_say_rounds(const struct net_job *job, int64_t asked);
/* set_up_job.c: --join: what the job says. */
enum status set_up_job_ask(struct worker *w);
/* Likewise, what an export or a checkpoint says of data and model. */
struct trained_on_source set_up_job_source(const struct worker *w);
enum status set_up_job_trained_on(struct worker *w);
/* What the exchange asks while ps 0 does not answer: has the job ended? */
void set_up_job_over(struct worker *w, struct net_exchange_config *cfg);
/* set_up_threads.c: n_cores, and what loops over parameters run on. */
enum status set_up_threads(struct worker *w);
/* Likewise: what the bits of its sums depend on, once there are towers. */
void set_up_threads_arithmetic(const struct worker *w, char name[JOB_ARITHMETIC_BYTES]);
/* set_up_events.c: --logdir. */
enum status set_up_events(struct worker *w);
/* The file of --init, --evaluate or --predict, and what is wanted of it. */
struct weights_request set_up_weights(const struct worker *w);

/* shutdown.c */

/* SIGINT and SIGTERM, for the calling thread: SIG_BLOCK, SIG_UNBLOCK. */
sigset_t shutdown_signals(int how);
enum status shutdown_start(struct worker *w);
/* The signal that was taken, 0: none. `done`: none will be taken any more. */
int shutdown_received(struct worker *w, int done);
/* Ends the thread that shutdown_start began, if it did. */
void shutdown_end(struct worker *w);
/* Sleeps; a signal ends the sleep and the run: 1. arg: the worker. */
int shutdown_pause(void *arg, int ms);

#endif
