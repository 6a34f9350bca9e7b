/* worker/options/options_table.c - the worker's one table of flags. Names and defaults are those of
 * TensorFlow's mnist_replica.py where it has them (batch 100, 200 steps, Adam), but training is
 * synchronous unless asked otherwise. */
#include "base/flags_tensorflow.h"
#include "cluster/flags.h"
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

#define STR(n, t, a, h, g)                                                                         \
    {                                                                                              \
        n, FLAG_STRING, &options_raw.t, 0, 0, a, NULL, h, g                                        \
    }
#define INT(n, t, lo, hi, h)                                                                       \
    {                                                                                              \
        n, FLAG_INT, &options_raw.t, lo, hi, NULL, NULL, h, NULL                                   \
    }
#define NUM(n, t, lo, hi, h)                                                                       \
    {                                                                                              \
        n, FLAG_DOUBLE, &options_raw.t, lo, hi, NULL, NULL, h, NULL                                \
    }
#define ONE(n, t, c, h, g)                                                                         \
    {                                                                                              \
        n, FLAG_CHOICE, &options_raw.t, 0, 0, NULL, c, h, g                                        \
    }

static const struct flag table[] = {
    STR("ps_hosts", ps_hosts, "HOST:PORT,...",
        "servers of the job; left out, with no TF_CONFIG and --slurm_ps, the worker trains alone",
        "Cluster:"),
    STR("worker_hosts", worker_hosts, "HOST:PORT,...",
        "workers of the job; their number and order count, workers do not listen", NULL),
    STR("job_name", job_name, "NAME", "worker, or chief, which is worker 0; may be left out", NULL),
    INT("task_index", task_index, 0, JOB_MAX_WORKERS - 1,
        "which entry of --worker_hosts this process is; needed with more than one"),
    CLUSTER_SLURM_FLAGS(options_raw.slurm_ps, options_raw.slurm_port),
    {"join", FLAG_BOOL, &options_raw.join, 0, 0, NULL, NULL,
     "become one more worker of the job that the servers train now; ps 0 gives it its number, and "
     "all flags of the job that are left out",
     NULL},
    STR("address", address, "HOST",
        "how lines and tables name this worker; left out, its host's name and its process id",
        NULL),
    STR("tls_cert", tls_cert, "FILE",
        "this worker's certificate, with those between it and its CA, in PEM "
        "(docs/guide/security.md), where the servers use TLS; read again when it "
        "changes, as the next three files",
        NULL),
    STR("tls_key", tls_key, "FILE", "its private key, in PEM", NULL),
    STR("tls_ca", tls_ca, "FILE",
        "the CAs that sign the certificates of the job's programs, in PEM", NULL),
    STR("token_file", token_file, "FILE",
        "a line of worker TOKEN, where the servers ask for tokens", NULL),
#define JOB_FIELD(f) &options_raw.job.f
#include "member/job_flags.inc"
    {"sync_replicas", FLAG_BOOL, &options_raw.sync_replicas, 0, 0, NULL, NULL,
     "TensorFlow's name: true is --sync_mode=sync, false is async", NULL},
    {"model", FLAG_STRING, &options_raw.model, 0, 0, "FILE|NAME",
     "softmax|mlp|lenet5|deep_mnist|deep_mnist_bn|resnet_mini|resnet18|resnet18_cifar|"
     "regression",
     "JSON file, or a name in the models folder; left out with --evaluate and --predict, the one "
     "that the file keeps",
     "Model and data:"},
    STR("models_dir", models_dir, "DIR", "models folder; left out, the one that came with Weir",
        NULL),
    INT("hidden_units", hidden_units, 0, 65536,
        "units of the first dense layer; 0: as the model file says"),
    STR("init", init, "FILE",
        "first values of the parameters: safetensors (a Weir export, a PyTorch state dict) or a "
        "checkpoint (its .json; a folder: the newest; FOLDER/best: the best on the validation "
        "data); of a job, those of its first worker count",
        NULL),
    STR("init_map", init_map, "FILE",
        "which tensor of --init, --evaluate or --predict each parameter is, where names differ: "
        "lines PARAMETER = TENSOR, LAYER = MODULE; - for what stays as it is initialised",
        NULL),
    STR("freeze", freeze, "PATTERN,...",
        "parameters that training does not change, by name (* ? [a-c]), as in conv*,dense1/biases; "
        "equal on all workers",
        NULL),
    STR("data_dir", data_dir, "DIR",
        "folder with training and test data: IDX (gzipped or not), npy, npz, safetensors, CSV, or "
        "folders of PNG and JPEG files, under the names of docs/guide/data.md",
        NULL),
    ONE("data_shard", data_shard, "same|own",
        "same: all workers have the same data, which is checked; own: each has a part of its own",
        NULL),
    NUM("validation_split", validation_split, 0, 0.9,
        "share of the training set that no step reads, chosen by the seed; every --eval_every "
        "steps and at the end the first worker says how well it is classified; equal on all "
        "workers"),
    STR("validation_dir", validation_dir, "DIR",
        "likewise, the files val, validation or test of this folder, or the folders of classes in "
        "it, "
        "instead of a part of the training set",
        NULL),
    INT("early_stopping", early_stopping, 0, 1e9,
        "training ends, with servers for all workers, when so many evaluations had no lower "
        "validation loss; 0: not for that"),
    STR("train_data", train_data, "FILE", "training samples, instead of --data_dir", NULL),
    STR("train_labels", train_labels, "FILE",
        "labels of --train_data, or targets if they are floats; left out, they are in the same "
        "file (npz, safetensors, CSV)",
        NULL),
    STR("test_data", test_data, "FILE",
        "test samples, with --train_data; left out: no test accuracy is said", NULL),
    STR("test_labels", test_labels, "FILE", "labels of --test_data", NULL),
    STR("images_name", images_name, "NAME",
        "npz, safetensors: name of the samples' array; left out: images", NULL),
    STR("labels_name", labels_name, "NAME",
        "npz, safetensors: name of the labels' array; left out: labels", NULL),
    STR("label_column", label_column, "NAME|N",
        "CSV: the labels' column, whole numbers or words, by its name or its number from 1 on; "
        "left "
        "out: the one named label, else the last; none: --predict of a file without labels",
        NULL),
    STR("target_columns", target_columns, "NAME|N,...",
        "CSV, instead of a label: the columns of numbers that the model's outputs are to be", NULL),
    STR("ignore_columns", ignore_columns, "NAME|N,...",
        "CSV: columns that are left out, as those of names or numbers of the lines", NULL),
    ONE("csv_header", csv_header, "auto|yes|no",
        "CSV: whether line 1 names the columns; auto: judged by its fields (default auto)", NULL),
    ONE("data_layout", data_layout, "nchw|nhwc",
        "order of samples with several channels: channels first, or last (default nchw)", NULL),
    STR("mean", mean, "NUMBER,...|measured",
        "is taken from each number of a sample (of bytes: once they are divided by 255), before it "
        "is divided by --std: one for each channel, or one for all; measured: over the training "
        "set; equal on all workers, and left out with --evaluate and --predict, whose file says it",
        NULL),
    STR("std", std, "NUMBER,...|measured", "likewise, the standard deviation, above 0", NULL),
    {"standardize", FLAG_BOOL, &options_raw.standardize, 0, 0, NULL, NULL,
     "tables (CSV files, rows of features): each column gets mean 0 and deviation 1, by numbers of "
     "the training set, which the export keeps; equal on all workers, and left out with --evaluate "
     "and --predict, whose export says it",
     NULL},
    STR("augment", augment, "flip,shift:N,crop:N,cutout:N",
        "training samples are changed at random in each pass, by the seed: half of them are "
        "mirrored, they are moved by up to N pixels, padded by N and cut out again, and a square "
        "of N pixels is made 0; some of these, before --mean and --std; equal on all workers",
        NULL),
    INT("train_steps", train_steps, 0, 1e15, "global steps; 0: by --epochs, else 200"),
    NUM("epochs", epochs, 0, 1e9, "passes over the training set, instead of --train_steps"),
    INT("batch_size", batch_size, 1, 1 << 20, "samples of one worker in one step"),
    INT("seed", seed, 0, 0x1p53,
        "of initial values, sample order, dropout, --augment and --validation_split; equal on all "
        "workers"),
#include "member/optim_flags.inc"
    ONE("on_nonfinite", on_nonfinite, "stop|skip",
        "a loss or gradient that is not finite: stop ends the worker with an error; skip has the "
        "step's contribution count with weight 0 (and sends nothing before all of it was looked "
        "at)",
        NULL),
    INT("max_nonfinite", max_nonfinite, 1, 1e15,
        "--on_nonfinite=skip: contributions that this process may skip; one more ends it"),
    {"towers", FLAG_INT, &options_raw.towers, 0, TOWERS_MAX, NULL, NULL,
     "copies of the model on the CPU, each computing its part of the batch; with GPUs: beside "
     "theirs; 0: none beside GPUs, one without",
     "Computing:"},
    INT("towers_per_gpu", towers_per_gpu, 1, 16, "copies of the model on each GPU"),
    INT("cpu_batch_size", cpu_batch_size, 0, 1 << 20,
        "with GPUs, which share the rest: samples of --batch_size for the CPU's towers together; "
        "0: all towers have equal parts"),
    INT("intra_op_threads", intra_op_threads, 0, 4096,
        "threads inside one operation of one CPU tower, and a quarter of them for the worker's "
        "own loops; 0: the cores that it may use (CPU "
        "affinity, control groups; shared with the workers on the same host of "
        "--worker_hosts), less one for each GPU tower, divided by the CPU towers"),
    STR("bf16_layers", bf16_layers, "LAYER,...|none",
        "with --precision=bf16 on the CPU: the layers whose products are rounded; left out: those "
        "that are found faster so, by measuring, by the job's first worker",
        NULL),
    ONE("precision", precision, "fp32|tf32|bf16",
        "what factors of products are rounded to; sums are in fp32. CPUs have no tf32, and bf16 "
        "with AVX512_BF16 or AMX; GPUs bf16 from compute capability 8.0 on",
        NULL),
    {"deterministic", FLAG_BOOL, &options_raw.deterministic, 0, 0, NULL, NULL,
     "GPUs: the same bits on every run, at some cost; the CPU always does so, with the same "
     "instruction set and threads",
     NULL},
    STR("gpus", gpus, "auto[:N]|all|none|LIST",
        "auto: a GPU (or up to N) that nobody uses, among those that CUDA shows, reserved for this "
        "process, else one that CUDA_VISIBLE_DEVICES names, else the CPU; all: each that CUDA "
        "shows; LIST: CUDA's numbers or UUIDs, or "
        "beginnings of UUIDs, as in 0,2 or GPU-8932f937",
        NULL),
    INT("gpu_wait", gpu_wait, 0, 30 * 24 * 3600, "--gpus=auto: seconds to wait until one is free"),
    NUM("gpu_memory_fraction", gpu_memory_fraction, 0, 1,
        "the most of each GPU's memory that this process takes, as in 0.4, and takes at once; 0: "
        "no limit, and only what is needed is taken"),
    {"gpu_allow_growth", FLAG_BOOL, &options_raw.gpu_allow_growth, 0, 0, NULL, NULL,
     "of --gpu_memory_fraction only what is needed is taken; the environment's "
     "TF_FORCE_GPU_ALLOW_GROWTH=true or false wins",
     NULL},
    STR("gpu_lock_dir", gpu_lock_dir, "DIR",
        "where GPUs are reserved; the same for all who share the machine; left out, /run/lock, or "
        "/tmp where not everybody may write there",
        NULL),
    ONE("cuda_graphs", cuda_graphs, "on|off",
        "where training stays on a GPU (one tower, no servers): launch each step as one CUDA "
        "graph, or kernel by kernel",
        NULL),
    STR("gpu_tuning", gpu_tuning, "auto|NAME,...|all|none",
        "other ways to compute on a GPU: measure, epilogues, first_conv, multi_step, capture, "
        "branches, nhwc (docs/design/cuda.md has what each does and what it brought); all, "
        "all,-NAME or auto,NAME; auto: epilogues and first_conv, which were never slower",
        NULL),
    STR("placement", placement, "RULE,...",
        "which device computes which layer, as in fc*=cpu:0,conv*=gpu:1: layers by name (* ? "
        "[a-c]) or type:TYPE, parameters by name as in */biases=cpu, the first rule that fits "
        "counts, and before the model file; devices are cpu, gpu "
        "(the tower's own), gpu:K (of those chosen by --gpus; if that is left out, CUDA's number "
        "of one that is free; the "
        "worker is then one tower over them) and round_robin",
        NULL),
    {"allow_soft_placement", FLAG_BOOL, &options_raw.soft_placement, 0, 0, NULL, NULL,
     "a layer whose device is not there goes to its tower's own, instead of an error", NULL},
    {"log_device_placement", FLAG_BOOL, &options_raw.log_placement, 0, 0, NULL, NULL,
     "say of each layer where it lies, and why", NULL},
    {"list_devices", FLAG_MAYBE, &options_raw.list_devices, 0, 0, NULL, "text|json",
     "print the devices of this machine and exit", NULL},
    {"self_test", FLAG_MAYBE, &options_raw.self_test, 0, 0, NULL, "text|json",
     "take a small training step on each GPU (or those of --gpus) and on the CPU, compare "
     "with double precision, say which device works or why not, and exit",
     NULL},
    INT("self_test_seconds", self_test_seconds, 1, 24 * 3600,
        "longest time that --self_test gives one device"),
    STR("backend_dir", backend_dir, "DIR",
        "where backends lie; left out, as installed or built, or "
        "beside the program",
        NULL),
    {"evaluate", FLAG_STRING, &options_raw.evaluate, 0, 0, "FILE", NULL,
     "train nothing: loss and accuracy on the test set of these parameters: safetensors (a Weir "
     "export, a PyTorch state dict) or a checkpoint (its weir-E.G-STEP.json, a folder's newest, or "
     "FOLDER/best)",
     "What was trained:"},
    STR("predict", predict, "FILE",
        "likewise, and write the class and all outputs for each of the test set's images to "
        "--output",
        NULL),
    STR("output", output, "FILE", "of --predict; its end says the format: .csv, .jsonl or .npy",
        NULL),
    {"checkpoint_dir", FLAG_STRING, &options_raw.checkpoint_dir, 0, 0, "DIR", NULL,
     "keep checkpoints in this folder, go on from the newest; with servers, which keep them there: "
     "where none answers, its end is looked for in there",
     "Checkpoints of a worker alone:"},
    INT("save_steps", save_steps, 0, 1e15, "a checkpoint every N steps; 0: not by steps"),
    INT("save_secs", save_secs, -1, 1e9,
        "a checkpoint every S seconds; 0: not by time; -1: 600 without --save_steps, else 0"),
    INT("keep_checkpoint_max", keep_checkpoint_max, 0, 1000000,
        "older checkpoints are removed; 0: none is"),
    STR("restore", restore, "PATH",
        "resume from this checkpoint: a weir-E.G-STEP.json, a folder's newest that is whole, or "
        "FOLDER/best",
        NULL),
    {"take_over", FLAG_BOOL, &options_raw.take_over, 0, 0, NULL, NULL,
     "take --checkpoint_dir also from a running worker or job, which then ends without its steps "
     "since its last checkpoint",
     NULL},
    {"eval_every", FLAG_INT, &options_raw.eval_every, 0, 1e15, NULL, NULL,
     "steps between evaluations on the test set; 0: only at the end", "Output:"},
    INT("log_every", log_every, 1, 1e15,
        "steps between lines of progress; slow steps have one every 5 s"),
    ONE("progress", progress, "auto|bar|lines", "auto: a bar on a terminal, lines elsewhere", NULL),
    STR("summary_json", summary_json, "FILE",
        "write the final figures here; each process needs a file of its own", NULL),
    STR("export", export_file, "FILE",
        "write the trained parameters here, as safetensors: those of the last step, also with "
        "--early_stopping",
        NULL),
    STR("trace", trace, "FILE",
        "write here, at the end, what each thread did when (Chrome trace JSON); each process needs "
        "a "
        "file of its own",
        NULL),
    STR("logdir", logdir, "DIR",
        "write event files for TensorBoard into DIR/worker_N, N this worker's index: figures, "
        "histograms, the model's graph, samples with what the network says of them "
        "(docs/guide/tensorboard.md)",
        NULL),
    INT("summary_steps", summary_steps, 1, 1e15, "--logdir: steps between figures"),
    INT("histogram_steps", histogram_steps, -1, 1e15,
        "--logdir: steps between histograms of weights and gradients; 0: none; -1: as "
        "--summary_steps, but at least 30 s apart"),
    INT("metrics_port", metrics_port, 0, 65535,
        "serve metrics for Prometheus and /healthz over HTTP, at the host of this worker's entry "
        "in "
        "--worker_hosts, else on loopback; not encrypted, read-only; 0: no"),
    STR("metrics_bind", metrics_bind, "HOST",
        "--metrics_port: listen on this address of the host instead, as 127.0.0.1 or 0.0.0.0",
        NULL),
    STR("record_samples", record_samples, "FILE",
        "add a line to this for each step that has all its parameters: generation, step, position "
        "of its first sample in the order of all passes, samples",
        NULL),
    ONE("log_level", log_level, "debug|info|warn|error", "least important lines to log", NULL),
    {"quiet", FLAG_BOOL, &options_raw.quiet, 0, 0, NULL, NULL,
     "log warnings and errors alone, as --log_level=warn, and draw no bar", NULL},
    INT("fault_push_delay_ms", push_delay_ms, 0, 10000,
        "for tests: each push waits a random time up to this, which disturbs the order of arrival"),
    INT("fault_nonfinite", fault_nonfinite, 0, 1e15,
        "for tests: in every so manieth step an element of a gradient is no number; 0: never"),
#include "worker/options/ps_flags.inc" /* after the worker's own, which count where a name is in both */
};

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

const struct flag *options_table_rows(size_t *n)
{
    *n = program.n_flags;
    return table;
}

enum status options_table_parse(int argc, char **argv, int *exit_now)
{
    options_raw = defaults;
    memset(given, 0, sizeof given);
    return flags_parse(&program, argc, argv, exit_now);
}

const char *options_table_given_name(const void *target)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].target == target)
            return given[i] ? table[i].name : NULL;
    return NULL;
}

int options_table_is_given(const void *target)
{
    return options_table_given_name(target) != NULL;
}

void options_table_dump(void)
{
    flags_dump(&program);
}
