/* worker/worker.h - the state of a worker, shared by main.c, set_up*.c and shutdown.c. Private to
 * them.
 * Owns:    all parts of the worker, from set_up to clean_up in main.c. Threads: the main thread,
 *          and the thread that receives signals; the lock guards the fields that both use.
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
    char host[MEMBER_IDENTITY_HOST_BYTES];       /* name of this host */
    char address[MEMBER_IDENTITY_ADDRESS_BYTES]; /* name of this host and number of this process */
    struct net_status joined; /* --join: status of the job before this worker joined */
    struct gpus gpus;
    int gpu_number[DEVICE_MAX];  /* CUDA's numbers of the chosen GPUs */
    int n_cores;                 /* number of cores that this process uses */
    struct thread_pool *threads; /* threads for loops over parameters outside the towers */
    const struct backend *cpu;
    struct tower_plan towers;
    struct model_inputs inputs; /* inputs of the model, known before the data are read */
    struct dataset_key_source keys[MODEL_MAX_KEY_INPUTS]; /* see input_keys.h */
    char *array_names;                                    /* names in --input_names */
    struct model *model;
    struct placement *placement;
    struct batch_split *split;
    struct chunks *chunks;
    struct dataset *train, *test, *validation; /* test and validation may be NULL */
    struct validation validated;
    struct updates watched;     /* copy of `updates`; the object `waiting` observes its waits */
    struct job_data data;       /* description of the data for the servers */
    struct job_normal normal;   /* normalisation of the samples */
    struct dataset_range range; /* range of the training samples' values */
    /* --evaluate, --predict: description of the training data in the file */
    struct trained_on trained_on;
    struct checkpoint_restore *begins_with; /* checkpoint of --init, --evaluate or --predict */
    char *data_text;                        /* description of data and model in checkpoints */
    struct job_validation validation_data;  /* description of the validation data for the servers */
    float *params;
    struct segment *values; /* segment that contains `params`; NULL: `params` is malloc'd */
    float *averages; /* --ema_decay: averages of `params` at the last evaluation; NULL: none */
    /* [n_layers] layers that multiply in bf16 on the CPU, as measured; NULL: not measured */
    uint8_t *rounded;
    float *init;    /* --init: initial values of `params`, where `given` is set; NULL: none */
    uint8_t *given; /* [number of parameters] 1 if the file has this parameter */
    struct weights_result init_result; /* result of reading the file of --init */
    struct updates updates;
    struct net_join joins_with; /* description of this worker for the servers */
    struct job_over over;
    bool is_over;               /* the job had ended before this process started */
    struct alone_writer *saver; /* --checkpoint_dir; NULL: none */
    struct sample_log *sample_log;
    struct events *events;            /* --logdir; NULL: none */
    struct optim_config server_optim; /* optimizer of the servers, if there are any */
    struct trainer *trainer;
    struct figures figures;
    struct waiting *waiting;   /* watches the waits for servers; NULL: no servers */
    struct reporter *reporter; /* NULL: no servers */
    struct monitor *monitor;   /* --metrics_port; NULL: none */

    pthread_t signal_thread;
    bool signal_thread_runs;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t signalled;
    int signal;           /* received signal; 0: none */
    int ended_by;         /* signal that ended training at once; 0: none */
    bool ready;           /* trainer and exchange can be stopped */
    bool training;        /* the worker trains with servers, and can leave the job in order */
    bool trained;         /* training is over: all steps are done, or the worker has left */
    bool stepped;         /* the trainer computes no further step */
    bool stopped;         /* the job was stopped on request before its last step */
    _Atomic bool is_torn; /* training was stopped within a step, so parameters are from two steps */
    bool done;            /* the main thread does not need the signal thread any more */
};

/* Builds a trainer from the flags (set_up.c). ST_CANCELLED: a signal ended the set-up. */
enum status set_up(struct worker *w);
/* Builds everything that --evaluate and --predict need: the model, its devices, the test set, and
 * memory for the parameters. */
enum status set_up_inference(struct worker *w);
/* Logs the rounds of a job with local steps. asked: number of steps before it was rounded up to
 * whole rounds. */
void set_up_log_rounds(const struct net_job *job, int64_t asked);
/* Logs this worker's place in the job and the step at which it begins, unless it begins a new job,
 * and whether --init was used (set_up_job.c). If no step is left, logs that the job had already
 * ended: otherwise it would look as if this run had trained the model. */
void set_up_job_log_start(const struct worker *w, const struct net_start *start);
/* Reads the model (set_up_model.c). The values that the model leaves to the data ("auto") depend on
 * the data sets. */
enum status set_up_model_read(struct worker *w);
/* Uses the model in the file of --evaluate or --predict, unless --model names one. */
enum status set_up_model_choose(struct worker *w);
/* Returns the request for the file of --init, --evaluate or --predict. */
struct weights_request set_up_weights(const struct worker *w);
enum status set_up_weights_open(struct worker *w); /* sets begins_with; NULL: none, or a file */
/* Requests the job's settings from the servers if --join is set (set_up_job.c). */
enum status set_up_job_ask(struct worker *w);
/* Logs the flags that a worker that joins may lack. Called after an error in reading the data. */
void set_up_job_name_flags(const struct worker *w);
/* Returns the description of data and model for an export or a checkpoint. */
struct trained_on_source set_up_job_source(const struct worker *w);
enum status set_up_job_trained_on(struct worker *w);
/* Sets the function that the exchange calls while ps 0 does not answer: it returns 1 if the job has
 * ended. */
void set_up_job_over(struct worker *w, struct net_exchange_config *cfg);
/* set_up_tables.c: reads the inputs of the model, which decide how the data are read. */
enum status set_up_tables_inputs(struct worker *w);
/* Refuses flags that cannot be combined with the model's tables. */
enum status set_up_tables_check(struct worker *w);
/* Adds the model's tables to the chunks. Called when the number of steps is known. */
enum status set_up_tables_add(struct worker *w);
void set_up_tables_log(const struct worker *w); /* a line for each table */
/* Asks ps 0, and warns if it has no folder of checkpoints for the rows of the model's tables. */
void set_up_tables_warn_lost(const struct worker *w);
/* set_up_threads.c: sets n_cores, and creates the threads for loops over parameters. */
enum status set_up_threads(struct worker *w);
/* Describes the arithmetic of the worker's sums. Called when the towers exist. */
void set_up_threads_arithmetic(const struct worker *w, char name[JOB_ARITHMETIC_BYTES]);
/* set_up_events.c: creates the events of --logdir. */
enum status set_up_events(struct worker *w);

/* shutdown.c */

/* Blocks or unblocks SIGINT and SIGTERM for the calling thread: SIG_BLOCK, SIG_UNBLOCK. */
sigset_t shutdown_signals(int how);
enum status shutdown_start(struct worker *w);
/* Returns the received signal; 0: none. done: signals that arrive later are not handled. */
int shutdown_received(struct worker *w, bool done);
/* Ends the thread of shutdown_start, if there is one. */
void shutdown_end(struct worker *w);
/* Sleeps for `ms`. Returns 1 at once if a signal arrives, which ends the run. arg: the worker. */
int shutdown_pause(void *arg, int ms);

#endif
