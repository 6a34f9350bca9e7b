/* base/flags_neighbours.c - names of flags in scripts of PyTorch, torchrun, Keras and others, for
 * which a program suggests its own flag. None is taken: they differ in meaning from script to
 * script. `ours` is the flag that the suggestion leads to; `text` replaces the plain suggestion. */
#include "base/flags_impl.h"

static const char MACHINES[] =
    "write --ps_hosts and --worker_hosts, the lists of all servers and workers, and --task_index";
static const char PROCESSES[] =
    "start one worker for each entry of --worker_hosts; one worker uses several GPUs by --gpus=all";
static const char RESTART[] =
    "training resumes from the newest checkpoint in --checkpoint_dir; --restore=PATH names another "
    "one, and --init=FILE takes only its parameters";
static const char LOADERS[] = "threads read samples without a flag; --intra_op_threads=N counts "
                              "those that compute";
static const char HALF[] = "write --precision=bf16 for products, --wire_dtype=fp16 for messages";
static const char ONE_GPU[] = "write --gpus=0 for the first GPU, --gpus=auto for a free one, "
                              "--gpus=none for the CPU";
static const char DATA[] = "write --data_dir=DIR for a folder, or --train_data=FILE";
static const char KEPT[] = "write --checkpoint_dir=DIR for checkpoints, --export=FILE for the "
                           "trained parameters";

const struct flag_foreign flags_neighbours[] = {
    {"lr", "learning_rate", NULL},
    {"base_lr", "learning_rate", NULL},
    {"wd", "weight_decay", NULL},
    {"bs", "batch_size", NULL},
    {"batch", "batch_size", NULL},
    {"per_device_train_batch_size", "batch_size", NULL},
    {"steps", "train_steps", NULL},
    {"num_steps", "train_steps", NULL},
    {"iterations", "train_steps", NULL},
    {"num_train_epochs", "epochs", NULL},
    {"optim", "optimizer", NULL},
    {"opt", "optimizer", NULL},
    {"scheduler", "lr_schedule", NULL},
    {"lr_scheduler", "lr_schedule", NULL},
    {"lr_scheduler_type", "lr_schedule", NULL},
    {"warmup_steps", "lr_warmup_steps", NULL},
    {"grad_clip", "clip_norm", NULL},
    {"max_grad_norm", "clip_norm", NULL},
    {"patience", "early_stopping", NULL},
    {"log_interval", "log_every", NULL},
    {"logging_steps", "log_every", NULL},
    {"print_freq", "log_every", NULL},
    {"eval_steps", "eval_every", NULL},
    {"threads", "intra_op_threads", NULL},
    {"num_threads", "intra_op_threads", NULL},
    {"workers", "intra_op_threads", LOADERS},
    {"num_workers", "intra_op_threads", LOADERS},
    {"arch", "model", NULL},
    {"network", "model", NULL},
    {"rank", "task_index", NULL},
    {"node_rank", "task_index", NULL},
    {"local_rank", "task_index", NULL},
    {"world_size", "worker_hosts", MACHINES},
    {"nnodes", "worker_hosts", MACHINES},
    {"master_addr", "ps_hosts", MACHINES},
    {"master_port", "ps_hosts", MACHINES},
    {"dist_url", "ps_hosts", MACHINES},
    {"nproc_per_node", "worker_hosts", PROCESSES},
    {"gpu", "gpus", ONE_GPU},
    {"gpu_id", "gpus", ONE_GPU},
    {"gpu_ids", "gpus", ONE_GPU},
    {"cuda", "gpus", ONE_GPU},
    {"no_cuda", "gpus", "write --gpus=none"},
    {"cpu", "gpus", "write --gpus=none"},
    {"amp", "precision", HALF},
    {"fp16", "precision", HALF},
    {"bf16", "precision", HALF},
    {"dataset", "data_dir", DATA},
    {"data", "data_dir", DATA},
    {"data_path", "data_dir", DATA},
    {"resume", "checkpoint_dir", RESTART},
    {"resume_from_checkpoint", "checkpoint_dir", RESTART},
    {"load", "init", RESTART},
    {"ckpt", "checkpoint_dir", RESTART},
    {"weights", "init", NULL},
    {"pretrained", "init", "write --init=FILE for the first values of the parameters"},
    {"model_dir", "checkpoint_dir", KEPT},
    {"output_dir", "checkpoint_dir", KEPT},
    {"save_dir", "checkpoint_dir", KEPT},
    {"save", "export", KEPT},
    {"verbose", "log_level", "write --log_level=debug"},
    {NULL, NULL, NULL},
};
