/* base/flags_tensorflow.c - see flags_tensorflow.h. A name is accepted for one of Weir's flags only
 * if both mean the same. The entry `ours` has an effect only in a program that has this flag. */
#include "base/flags_tensorflow.h"

static const char INTER_OP[] =
    "a tower computes one operation after the other; --towers=N splits the batch for N towers, which compute at the same time";

static const char DECAY[] =
    "write --lr_schedule=exponential --lr_decay=F --lr_decay_steps=N, or another --lr_schedule";

const struct flag_foreign flags_tensorflow[] = {
    {"max_steps", "train_steps", NULL},
    {"num_epochs", "epochs", NULL},
    {"display_every", "log_every", NULL},
    {"cross_replica_sync", "sync_replicas", NULL},
    {"trace_file", "trace", NULL},
    {"num_intra_threads", "intra_op_threads", NULL},
    {"intra_op_parallelism_threads", "intra_op_threads", NULL},
    {"per_process_gpu_memory_fraction", "gpu_memory_fraction", NULL},
    {"allow_growth", "gpu_allow_growth", NULL},
    {"save_model_secs", "save_secs", NULL},
    {"train_dir", "checkpoint_dir", NULL},
    {"log_dir", "logdir", NULL},
    {"save_summaries_steps", "summary_steps", NULL},
    {"num_gpus", NULL,
     "write --gpus=none for 0, --gpus=auto:N for up to N free GPUs, --gpus=all for all GPUs"},
    {"device", NULL, "write --gpus=none for cpu, --gpus=auto for gpu"},
    {"num_batches", NULL, "write --train_steps=N, which counts the steps of all workers together"},
    {"use_fp16", NULL,
     "write --precision=bf16 to compute products in bf16, --wire_dtype=fp16 to send messages in fp16"},
    {"existing_servers", NULL, "a server is always a program of its own, ps; leave the flag out"},
    {"download_only", NULL, "scripts/get_mnist downloads MNIST; then write --data_dir=DIR"},
    {"variable_update", NULL,
     "parameters are on the servers of --ps_hosts, as with parameter_server; leave the flag out"},
    {"local_parameter_device", NULL,
     "parameters are in the servers' memory, and each device has a copy; leave the flag out"},
    {"data_format", NULL, "each backend chooses the data format of its device; leave the flag out"},
    {"server_protocol", NULL, "the protocol is always gRPC; leave the flag out"},
    {"issync", "sync_replicas", NULL},
    {"learning_rate_decay", NULL, DECAY},
    {"learning_rate_decay_factor", NULL, DECAY},
    {"num_epochs_per_decay", NULL,
     "write --lr_schedule=exponential --lr_decay_steps=N, in steps instead of epochs"},
    {"save_summaries_secs", NULL,
     "write --summary_steps=N, in steps instead of seconds, with --logdir=DIR"},
    {"num_inter_threads", NULL, INTER_OP},
    {"inter_op_parallelism_threads", NULL, INTER_OP},
    {NULL, NULL, NULL},
};
