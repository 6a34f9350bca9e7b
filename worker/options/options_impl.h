/* worker/options/options_impl.h - what options*.c share: the flags as they were typed.
 * Owns: nothing; texts are argv's. Threads: none, before the first one. */
#ifndef WORKER_OPTIONS_OPTIONS_IMPL_H
#define WORKER_OPTIONS_OPTIONS_IMPL_H
#include "member/job_settings.h"
#include "worker/options/options.h"

/* What argp fills in before it is checked; options_table.c says what each is. */
struct options_raw {
    const char *ps_hosts, *worker_hosts, *job_name, *address;
    int64_t task_index, slurm_ps, slurm_port;
    const char *tls_cert, *tls_key, *tls_ca, *token_file;
    const char *data_dir, *model, *models_dir, *backend_dir, *summary_json, *export_file, *trace;
    const char *record_samples, *logdir, *metrics_bind;
    int64_t summary_steps, histogram_steps;
    int64_t metrics_port; /* 0: none */
    double validation_split;
    const char *validation_dir;
    int64_t early_stopping;
    const char *evaluate, *predict, *output;
    const char *checkpoint_dir, *restore;
    int take_over;
    int64_t save_steps, save_secs, keep_checkpoint_max;
    const char *init, *init_map, *freeze;
    const char *train_data, *train_labels, *test_data, *test_labels, *images_name, *labels_name,
        *label_column, *target_columns, *ignore_columns;
    int csv_header;  /* of enum data_csv_header */
    int data_layout; /* 0: nchw */
    const char *mean, *std, *augment;
    const char *gpu_tuning, *gpus, *gpu_lock_dir, *placement;
    int64_t hidden_units, train_steps, batch_size, eval_every, log_every, seed;
    int64_t towers, towers_per_gpu, cpu_batch_size, intra_op_threads, push_delay_ms;
    int64_t gpu_wait, self_test_seconds;
    double gpu_memory_fraction, epochs;
    struct job_settings job;
    int sync_replicas, progress, log_level, quiet, list_devices, self_test;
    int soft_placement, log_placement, precision, deterministic, gpu_allow_growth;
    int join, on_nonfinite;
    int64_t max_nonfinite, fault_nonfinite;
    const char *bf16_layers;
    int data_shard; /* 0: same */
    int standardize;
    int cuda_graphs; /* 0: on */
};
extern struct options_raw options_raw;

/* Sets options_raw. Errors as of flags_parse. */
enum status options_table_parse(int argc, char **argv, int *exit_now);
/* 1: the flag that is stored there, in options_raw, was on the command line. */
int options_table_is_given(const void *target);
/* Its name then, without "--"; else NULL. */
const char *options_table_given_name(const void *target);
/* Logs every value that is not its default, at debug level. */
void options_table_dump(void);

/* options_cluster.c: the cluster of the flags, TF_CONFIG or a Slurm step; sets the lists of hosts,
 * and options_raw.task_index where one of the latter says it. ST_INVALID, logged; ST_NOMEM. */
enum status options_cluster_find(struct options *o);
/* options_cluster.c: where --metrics_port's pages are, once the cluster is known. ST_INVALID. */
enum status options_cluster_check_pages(struct options *o);
/* options_check.c: what belongs together in options_raw, into *o. ST_INVALID, logged. */
enum status options_check_cluster(struct options *o);
enum status options_check_mode(struct options *o);
enum status options_check_dtypes(struct options *o);
enum status options_check_tuning(struct options *o); /* gpu_tuning */
enum status options_check_training(struct options *o);
enum status options_check_validation(struct options *o);
enum status options_check_inference(struct options *o);
enum status options_check_outputs(const struct options *o); /* after that of inference */
enum status options_logdir_check(struct options *o);        /* likewise */
/* options_schedule.c */
/* What cannot be clipped, of a worker's own flags, or of the job's that it joins. */
enum status options_schedule_check_clipping(const struct options *o);
/* options_local.c: likewise, of local steps, after the mode, the training and the validation. */
enum status options_local_check(struct options *o);
/* The rules for them, of a worker's own flags or with the job's that it joins. */
enum status options_local_check_rounds(const struct options *o);
/* Joining: what the job has, but for what a flag says. */
void options_local_adopt_outer(struct options *o, const struct net_job *job);
/* From a job of gradients to one of rounds, where that is meant. */
void options_local_job(const struct options *o, struct net_job *job);
/* Joining: what no flag says of it, from the job's. */
void options_schedule_adopt(const struct optim_config *own, struct optim_config *job);
/* After the mode is known. */
enum status options_check_checkpoints(struct options *o);
/* options_unused.c: those that contradict each other; ST_INVALID. */
enum status options_unused_check(const struct options *o);
/* Lines that name the flags given that change nothing for a worker alone, or in inference. */
void options_unused_warn(const struct options *o);
enum status options_check_data(struct options *o);
/* A worker's own flags, or joining the job's as well: is a part of its own named? */
enum status options_check_shard(const struct options *o);
/* options_input.c: likewise, of what is done with samples. */
enum status options_input_check(struct options *o);
/* Joining: what no flag says of it, from the job. */
enum status options_input_adopt(struct options *o, const struct net_job *job);

#endif
