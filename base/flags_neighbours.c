/* base/flags_neighbours.c - names of flags in scripts of PyTorch, torchrun, Keras and others, for
 * which a program suggests its own flag. None is taken: they differ in meaning from script to
 * script. `ours` is the flag that the suggestion leads to, NULL where no flag is needed; `text`
 * replaces the plain suggestion. */
#include "base/flags_impl.h"

static const char MACHINES[] =
    "write --ps_hosts and --worker_hosts, the lists of all servers and workers, and --task_index";
static const char PROCESSES[] =
    "start one worker for each entry of --worker_hosts; one worker uses several GPUs by --gpus=all";
static const char RESTART[] =
    "training resumes from the newest checkpoint in --checkpoint_dir; --restore=PATH names another one, and --init=FILE takes only its parameters";
static const char LOADERS[] =
    "threads read samples without a flag, and --intra_op_threads=N counts the threads that compute; --worker_hosts has one entry for each worker of the job";
static const char WORKERS[] =
    "write --worker_hosts=HOST:PORT,... for the workers of the job; threads read samples without a flag";
static const char PORTS[] =
    "the entries of --ps_hosts and --worker_hosts have the host and port of each server and worker";
static const char TRANSPORT[] =
    "each program chooses by itself how it exchanges messages; leave the flag out";
static const char HALF[] = "write --precision=bf16 for products, --wire_dtype=fp16 for messages";
static const char ONE_GPU[] =
    "write --gpus=0 for the first GPU, --gpus=auto for a free one, --gpus=none for the CPU";
static const char DATA[] = "write --data_dir=DIR for a folder, or --train_data=FILE";
static const char TRAIN[] =
    "write --train_data=FILE, or --data_dir=DIR for a folder with training and test data";
static const char VALIDATION[] =
    "write --validation_dir=DIR, or --validation_split=X for a share of the training set";
static const char LABELS[] =
    "write --label_column=NAME for the labels in a CSV file, --target_columns=NAME,... for numbers to predict, or --train_labels=FILE for labels in their own file";
static const char FEATURES[] =
    "all columns but the label's are features; --ignore_columns=NAME,... leaves columns out";
static const char SIZE[] =
    "samples keep the size that they have in the data set; resize the pictures in their files, and leave the flag out";
static const char CLASSES[] =
    "the model file (--model=FILE) states the number as \"classes\"; \"auto\" there counts the classes of the data set";
static const char LAYERS[] =
    "the model file (--model=FILE) lists the layers with their settings, the loss last; docs/guide/models.md describes them";
static const char NETWORK[] =
    "write --model=FILE for the network, --init=FILE for the first values of its parameters, --export=FILE for the trained ones";
static const char RESULT[] =
    "write --export=FILE for the trained parameters, --output=FILE for the results of --predict, --checkpoint_dir=DIR for checkpoints";
static const char PASSES[] =
    "write --train_steps=N for all steps of the job, or --epochs=N for passes over the training set";
static const char ROUNDS[] =
    "write --train_steps=N for all steps of the job; with --local_steps=K a round has K steps";
static const char DECAY[] =
    "write --lr_schedule=exponential --lr_decay=F --lr_decay_steps=N, or --lr_schedule=step --lr_boundaries=STEP,...";
static const char WARM_UP[] = "write --lr_warmup_steps=N, which counts steps";
static const char MODE[] = "write --sync_mode=sync, --sync_mode=async or --sync_mode=ssp";
static const char RULE[] = "write --optimizer=NAME, as in --optimizer=adam";
static const char GPUS[] = "write --gpus=auto:N for up to N that are free, --gpus=all for all";
static const char LOG_FILE[] =
    "log lines are on stderr; write 2>FILE after the command to keep them";
static const char PARAMETERS[] = "write --evaluate=FILE with the file of the parameters";
static const char PREDICT[] =
    "write --predict=FILE with the file of the parameters, and --output=FILE for the results";
static const char BOARD[] = "write --logdir=DIR for TensorBoard's files";
static const char CPU[] = "write --gpus=none";
static const char LARGER[] = "write a larger --batch_size=N";
static const char DEBUG[] = "write --log_level=debug";
static const char KEPT[] =
    "write --checkpoint_dir=DIR for checkpoints, --export=FILE for the trained parameters";

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
    {"workers", "worker_hosts", WORKERS},
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
    {"no_cuda", "gpus", CPU},
    {"cpu", "gpus", CPU},
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
    {"verbose", "log_level", DEBUG},
    {"ps", "ps_hosts", NULL},
    {"ps_host", "ps_hosts", NULL},
    {"servers", "ps_hosts", NULL},
    {"server", "ps_hosts", NULL},
    {"server_address", "ps_hosts", NULL},
    {"rdzv_endpoint", "ps_hosts", MACHINES},
    {"init_method", "ps_hosts", MACHINES},
    {"hosts", "ps_hosts", MACHINES},
    {"hostfile", "ps_hosts", MACHINES},
    {"num_servers", "ps_hosts", MACHINES},
    {"num_ps", "ps_hosts", MACHINES},
    {"n_workers", "worker_hosts", MACHINES},
    {"num_clients", "worker_hosts", MACHINES},
    {"host", "ps_hosts", PORTS},
    {"port", "ps_hosts", PORTS},
    {"np", "worker_hosts", PROCESSES},
    {"task", "task_index", NULL},
    {"index", "task_index", NULL},
    {"worker_index", "task_index", NULL},
    {"client_id", "task_index", NULL},
    {"partition_id", "task_index", NULL},
    {"role", "job_name", NULL},
    {"backend", NULL, TRANSPORT},
    {"dist_backend", NULL, TRANSPORT},
    {"rdzv_backend", NULL, TRANSPORT},
    {"strategy", "sync_mode", MODE},
    {"kv_store", "sync_mode", MODE},
    {"sync", "sync_mode", MODE},
    {"async", "sync_mode", MODE},
    {"local_epochs", "local_steps", "write --local_steps=N, which counts steps"},
    {"rounds", "train_steps", ROUNDS},
    {"num_rounds", "train_steps", ROUNDS},
    {"steps_per_epoch", "train_steps", PASSES},
    {"dry_run", "train_steps", "write --train_steps=1 for a single step"},
    {"max_epochs", "epochs", NULL},
    {"n_epochs", "epochs", NULL},
    {"start_epoch", "checkpoint_dir", RESTART},
    {"initial_epoch", "checkpoint_dir", RESTART},
    {"load_epoch", "checkpoint_dir", RESTART},
    {"gradient_accumulation_steps", "batch_size", LARGER},
    {"accumulation_steps", "batch_size", LARGER},
    {"optimiser", "optimizer", NULL},
    {"adam", "optimizer", RULE},
    {"sgd", "optimizer", RULE},
    {"nesterov", "optimizer", RULE},
    {"mom", "momentum", NULL},
    {"momentum_factor", "momentum", NULL},
    {"l2", "weight_decay", NULL},
    {"betas", "beta1", "write --beta1=X --beta2=X"},
    {"adam_beta1", "beta1", NULL},
    {"adam_beta2", "beta2", NULL},
    {"adam_epsilon", "epsilon", NULL},
    {"eps", "epsilon", NULL},
    {"clip_grad", "clip_norm", NULL},
    {"sched", "lr_schedule", NULL},
    {"gamma", "lr_decay", DECAY},
    {"decay_rate", "lr_decay", DECAY},
    {"lr_decay_rate", "lr_decay", DECAY},
    {"lr_factor", "lr_decay", DECAY},
    {"step_size", "lr_decay_steps", DECAY},
    {"milestones", "lr_boundaries", DECAY},
    {"warmup", "lr_warmup_steps", WARM_UP},
    {"warmup_epochs", "lr_warmup_steps", WARM_UP},
    {"warmup_ratio", "lr_warmup_steps", WARM_UP},
    {"early_stop", "early_stopping", NULL},
    {"random_seed", "seed", NULL},
    {"manual_seed", "seed", NULL},
    {"shuffle", "seed",
     "each pass has the training samples in a new random order, which depends on --seed; leave the flag out"},
    {"train", "train_data", TRAIN},
    {"train_file", "train_data", TRAIN},
    {"train_csv", "train_data", TRAIN},
    {"csv", "train_data", TRAIN},
    {"csv_file", "train_data", TRAIN},
    {"input", "train_data", TRAIN},
    {"data_root", "data_dir", DATA},
    {"root", "data_dir", DATA},
    {"test", "test_data", NULL},
    {"test_file", "test_data", NULL},
    {"test_csv", "test_data", NULL},
    {"val", "validation_dir", VALIDATION},
    {"val_data", "validation_dir", VALIDATION},
    {"val_dir", "validation_dir", VALIDATION},
    {"validation", "validation_dir", VALIDATION},
    {"validation_data", "validation_dir", VALIDATION},
    {"validation_file", "validation_dir", VALIDATION},
    {"val_split", "validation_split", NULL},
    {"validation_size", "validation_split", NULL},
    {"test_split", "validation_split", NULL},
    {"label", "label_column", LABELS},
    {"labels", "label_column", LABELS},
    {"label_col", "label_column", LABELS},
    {"target", "target_columns", LABELS},
    {"targets", "target_columns", LABELS},
    {"target_column", "target_columns", LABELS},
    {"features", "ignore_columns", FEATURES},
    {"drop_columns", "ignore_columns", NULL},
    {"num_classes", "model", CLASSES},
    {"nb_classes", "model", CLASSES},
    {"img_size", NULL, SIZE},
    {"image_size", NULL, SIZE},
    {"input_size", NULL, SIZE},
    {"hflip", "augment", "write --augment=flip"},
    {"loss", "model", LAYERS},
    {"loss_fn", "model", LAYERS},
    {"criterion", "model", LAYERS},
    {"label_smoothing", "model", LAYERS},
    {"dropout", "model", LAYERS},
    {"activation", "model", LAYERS},
    {"num_layers", "model", LAYERS},
    {"hidden", "hidden_units", NULL},
    {"hidden_size", "hidden_units", NULL},
    {"hidden_dim", "hidden_units", NULL},
    {"model_file", "model", NETWORK},
    {"model_name", "model", NETWORK},
    {"model_path", "model", NETWORK},
    {"model_name_or_path", "model", NETWORK},
    {"config", "model", "write --model=FILE for the network; each other setting is a flag"},
    {"weights_path", "init", NULL},
    {"checkpoint", "checkpoint_dir", RESTART},
    {"checkpoint_path", "checkpoint_dir", RESTART},
    {"ckpt_path", "checkpoint_dir", RESTART},
    {"ckpt_dir", "checkpoint_dir", NULL},
    {"initial_checkpoint", "init", RESTART},
    {"load_model", "init", RESTART},
    {"load_from", "init", RESTART},
    {"save_model", "export", KEPT},
    {"save_path", "export", KEPT},
    {"out", "export", RESULT},
    {"output_file", "output", RESULT},
    {"save_every", "save_steps", NULL},
    {"save_freq", "save_steps", NULL},
    {"save_interval", "save_steps", NULL},
    {"save_total_limit", "keep_checkpoint_max", NULL},
    {"device", "gpus", ONE_GPU},
    {"devices", "gpus", GPUS},
    {"ngpus", "gpus", GPUS},
    {"n_gpu", "gpus", GPUS},
    {"num_gpu", "gpus", GPUS},
    {"cpu_only", "gpus", CPU},
    {"no_accel", "gpus", CPU},
    {"mixed_precision", "precision", HALF},
    {"dtype", "precision", HALF},
    {"fp16_allreduce", "wire_dtype", HALF},
    {"eval", "evaluate", PARAMETERS},
    {"eval_only", "evaluate", PARAMETERS},
    {"evaluate_only", "evaluate", PARAMETERS},
    {"test_only", "evaluate", PARAMETERS},
    {"infer", "predict", PREDICT},
    {"inference", "predict", PREDICT},
    {"eval_freq", "eval_every", NULL},
    {"eval_interval", "eval_every", NULL},
    {"tensorboard", "logdir", NULL},
    {"tb_dir", "logdir", NULL},
    {"wandb", "logdir", BOARD},
    {"report_to", "logdir", BOARD},
    {"log_file", NULL, LOG_FILE},
    {"logfile", NULL, LOG_FILE},
    {"debug", "log_level", DEBUG},
    {NULL, NULL, NULL},
};
