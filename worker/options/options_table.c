/* worker/options/options_table.c - the worker's one table of flags. Names and defaults are those of
 * TensorFlow's mnist_replica.py where it has them (batch 100, 200 steps, Adam), but training is
 * synchronous unless asked otherwise. */
#include "base/flags_tensorflow.h"
#include "cluster/cluster.h"
#include "flags/rows.h"
#include "worker/data/dataset.h"
#include "worker/options/options_impl.h"
#include "worker/place/tower_plan.h"
#include <string.h>

struct options_raw options_raw;

static const struct options_raw defaults = {
    .job = JOB_SETTINGS_DEFAULTS,
    .task_index = -1,
    .slurm_port = CLUSTER_SLURM_PORT,
    .data_dir = DATASET_DEFAULT_DIR,
    .model = "mlp",
    .train_steps = 0,
    .batch_size = 100,
    .log_every = 100,
    .summary_steps = 100,
    .histogram_steps = -1,
    .towers_per_gpu = 1,
    .sync_replicas = -1,
    .gpu_tuning = "auto",
    .gpus = "auto",
    .gpu_allow_growth = -1,
    .list_devices = -1,
    .self_test = -1,
    .self_test_seconds = 120,
    .log_level = LOG_LEVEL_INFO,
    .save_secs = -1,
    .keep_checkpoint_max = 5,
    .max_nonfinite = 100,
};

/* The flags of ps have no target here: the worker accepts them and does not use them. */
#define FOR_PS(name, type, field, ...) FLAG_ROW(name, type, NULL, __VA_ARGS__)
#define FOR_WORKER(name, type, field, ...) FLAG_ROW(name, type, &options_raw.field, __VA_ARGS__)
#define FOR_JOB(name, type, field, ...) FLAG_ROW(name, type, &options_raw.job.field, __VA_ARGS__)
#define FOR_ALL FOR_WORKER
#define PS_ALONE(...)
#define WORKER_ALONE FOR_WORKER

static const struct flag table[] = {
#include "flags/table.inc"
};
_Static_assert(TOWERS_MAX == 256, "the bound of --towers in flags/table.inc");

static unsigned char given[sizeof table / sizeof *table];

static const struct flags_program program = {
    .name = "worker",
    .installed = "weir-worker",
    .doc =
        "Trains a neural network: computes gradients on its part of the data and exchanges them "
        "with the servers of the job for new parameters. Without a cluster it trains alone. Exits "
        "with 0 when all is done, 1 after an error that stays, 2 after one in the flags, 138 where "
        "starting it again may help. SIGTERM and Ctrl-C: leaves the job by name, 0; where that "
        "cannot "
        "be, and alone, after a last checkpoint if they are kept, 143 and 130. The flags of ps are "
        "taken as well and not used, so that one command line can serve both.",
    .flags = table,
    .n_flags = sizeof table / sizeof *table,
    .given = given,
    .foreign = flags_tensorflow,
};

enum status options_table_parse(int argc, char **argv, int *exit_now)
{
    options_raw = defaults;
    memset(given, 0, sizeof given);
    return flags_parse(&program, argc, argv, exit_now);
}

const char *options_table_given_name(const void *target)
{
    return flags_given_name(&program, target);
}

int options_table_is_given(const void *target)
{
    return options_table_given_name(target) != NULL;
}

void options_table_dump(void)
{
    flags_dump(&program);
}
