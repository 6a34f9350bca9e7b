/* worker/options/options.h - the checked values of the worker's flags, and values derived from
 * them.
 * Owns:    the host lists. Threads: none; used before the first thread starts.
 * Errors:  ST_INVALID, logged with the flag and the fix. */
#ifndef WORKER_OPTIONS_OPTIONS_H
#define WORKER_OPTIONS_OPTIONS_H
#include "base/hosts.h"
#include "base/log.h"
#include "http/listen.h"
#include "kernels/backend.h"
#include "member/job_settings.h"
#include "net/security/security.h"
#include "net/wire/status.h"
#include "worker/data/dataset.h"
#include "worker/train/progress.h"

/* Numbers of --mean or --std. */
struct options_list {
    int n;         /* 0: not given, or measured */
    bool measured; /* values are computed from the training samples */
    float value[JOB_MAX_CHANNELS];
};

/* Values, as typed, of the flags that the checks convert to other fields. A text is NULL if the
 * flag was not given. */
struct options_typed {
    const char *ps_hosts, *worker_hosts, *job_name;
    int64_t task_index; /* -1: not given */
    int sync_replicas;  /* -1: not given */
    const char *train_data, *train_labels, *test_data, *test_labels, *images_name, *labels_name;
    const char *label_column, *target_columns, *ignore_columns;
    const char *key_columns, *key_separator, *input_names;
    int csv_header;  /* enum data_csv_header */
    int data_layout; /* 0: nchw */
    const char *mean, *std, *augment, *gpu_tuning;
    int cuda_graphs, quiet; /* cuda_graphs 0: on */
    int64_t metrics_port;   /* 0: none */
};

struct options {
    struct options_typed typed;
    struct job_settings job;
    int64_t slurm_ps, slurm_port;
    struct hosts ps_hosts, worker_hosts;
    int join;                  /* become a worker of a running job: see options_adopt */
    int task_index, n_workers; /* task_index -1, n_workers 0: not known yet */
    const char *address;       /* NULL: derived from the host's name and the process */
    struct security_config security;
    /* text of the job's model, used instead of `model`; borrowed from the adopted status; NULL:
     * none */
    const char *model_text;
    int data_named;   /* true if a flag names the data; false: the default data are used */
    bool model_given; /* true if a flag names `model`; false: the default model is used */
    const char *data_dir, *model, *models_dir, *backend_dir;
    int data_own;                       /* each worker has data of its own */
    struct dataset_request train, test; /* requests for the two sets; `dir` is --data_dir */
    struct options_list mean, std;
    int standardize;
    struct job_augment augment;
    const char *summary_json, *export_file, *trace, *record_samples; /* NULL: none */
    const char *logdir;                                              /* NULL: none */
    int64_t summary_steps, histogram_steps; /* see worker/events/events.h */
    const char *metrics_bind;       /* NULL: the host in this worker's entry of worker_hosts */
    char pages[HTTP_ADDRESS_BYTES]; /* --metrics_port; empty: none */
    const char *init, *init_map, *freeze; /* see worker/weights/weights.h; NULL: none */
    int64_t hidden_units;                 /* units of the first dense layer; 0: as in the model */
    double label_smoothing;               /* 0: as in the model */
    double ema_decay;                     /* decay of the parameters' averages; 0: no averages */
    int64_t train_steps;                  /* number of steps; 0: set by `epochs` */
    double epochs;                        /* number of epochs; 0: set by `train_steps` */
    int64_t batch_size, eval_every, log_every, seed, chunk_bytes;
    int64_t towers, towers_per_gpu, intra_op_threads, cpu_batch_size; /* place/tower_plan.h */
    enum backend_precision precision;
    int deterministic;
    enum job_sync_mode sync_mode;
    int aggregate; /* contributions per step, 1 to n_workers; 0 if joining: all */
    int64_t staleness;
    float delay_compensation;
    enum dtype push_dtype, version_dtype;
    /* wire_auto: both dtypes are fp32 until the servers have chosen the dtypes */
    int wire_auto, wire_step_ms;
    struct optim_config optim;
    int64_t local_steps;       /* at least 1 */
    struct optim_config outer; /* the servers' optimizer if local_steps is above 1 */
    int outer_known; /* `outer` is final; 0: it still depends on the model (options_settle_outer) */
    enum progress_style progress;
    enum log_level log_level;
    int64_t push_delay_ms;
    int skip_nonfinite; /* see worker/train/train_config.h, as for the next two fields */
    int64_t max_nonfinite, fault_nonfinite;
    const char *bf16_layers; /* NULL: not given */
    int shared_memory, cuda_graphs;
    uint32_t gpu_tuning;             /* kernels/tuning.h */
    const char *gpus, *gpu_lock_dir; /* see worker/device/devices.h */
    int gpus_by_default;             /* no flag requests a GPU */
    int64_t gpu_wait;                /* seconds */
    double gpu_memory_fraction;      /* 0: no limit */
    int gpu_allow_growth;            /* -1: not given */
    const char *placement;           /* see worker/place/placement.h; NULL: none */
    int soft_placement, log_placement;
    double validation_split;    /* fraction of the training set that is held out; 0: none */
    const char *validation_dir; /* NULL: none */
    /* number of evaluations without a better one after which the job ends; 0: never */
    int64_t early_stopping;
    const char *evaluate, *predict; /* file of parameters; NULL: the flag was not given */
    const char *output;             /* file of --predict's results */
    /* checkpoint_dir: folder of a worker without servers; servers_dir: folder of the servers */
    const char *checkpoint_dir, *servers_dir;
    const char *restore; /* checkpoint to continue from; NULL: the newest in checkpoint_dir */
    int take_over;       /* checkpoint_dir is claimed even if its owner may be alive */
    /* steps or seconds between two checkpoints; 0: this unit is not used */
    int64_t save_steps, save_secs;
    int64_t keep_checkpoint_max; /* 0: all */
    int list_devices, self_test; /* below 0: not requested; 0: prints text; above 0: prints JSON */
    int64_t self_test_seconds;
};

/* Parses and checks the flags. *exit_now: 1 if --help or --version was printed. */
enum status options_read(int argc, char **argv, struct options *out, int *exit_now);
void options_free(struct options *o);
/* Sets all flags that were not given to the values of the running job that this worker joins. s
 * must outlive the options. */
enum status options_adopt(struct options *o, const struct net_status *s);
/* Returns the number of the job's global steps for a training set of n items. */
int64_t options_train_steps(const struct options *o, int64_t n);
/* Sets the flags of the outer optimizer (the servers' optimizer with --local_steps) that were not
 * given, by the sizes of the training set and the model. Must be called before options_job. */
void options_settle_outer(struct options *o, int64_t n_samples, int64_t n_params);
/* Returns the number of this worker's steps per step of the servers. It is 1 without --local_steps
 * and without servers. */
int64_t options_rounds(const struct options *o);
/* Returns the job that the options describe, for a training set of n items. */
struct net_job options_job(const struct options *o, int64_t n);

#endif
