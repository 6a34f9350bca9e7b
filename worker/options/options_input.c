/* worker/options/options_input.c - checks the flags that name files, and the flags that change
 * samples before the model reads them. The number of channels is checked later, when the data are
 * open: see worker/input.c. */
#include "files/output_path.h"
#include "worker/data/data_csv.h"
#include "worker/options/options_impl.h"
#include "worker/results/predictions.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Refuses --data_shard=own with the default folder, because its data cannot be those of one worker
 * only. */
enum status options_check_shard(const struct options *o)
{
    if (!o->data_own || o->ps_hosts.n == 0 || o->typed.train_data ||
        options_is_given(o, &o->data_dir))
        return ST_OK;
    LOG_E("%s: each worker of this job has data of its own; set --data_dir (or --train_data)",
          o->join ? "--join" : "--data_shard=own");
    return ST_INVALID;
}

/* Returns true if the text is a character that may be between the keys of a cell. */
static bool is_separator(const char *text)
{
    return strlen(text) == 1 && *text >= ' ' && *text <= '~' && *text != '"' &&
           !isalnum((unsigned char)*text);
}

enum status options_check_data(struct options *o)
{
    const char *wrong = NULL;
    int trains = !o->evaluate && !o->predict;
    if (trains && !o->typed.train_data && o->typed.test_data)
        wrong = "--test_data needs --train_data; set both, or a folder by --data_dir";
    else if (!trains && o->typed.train_data && !o->typed.test_data)
        wrong = "--evaluate and --predict read --test_data; set it, or a folder by --data_dir";
    else if ((o->typed.test_data || o->typed.train_data) && options_is_given(o, &o->data_dir))
        wrong = "--data_dir and --train_data or --test_data exclude each other; set one of them";
    else if ((!o->typed.train_data && o->typed.train_labels) ||
             (!o->typed.test_data && o->typed.test_labels))
        wrong = "--train_labels and --test_labels are for --train_data and --test_data; set these";
    if ((o->typed.images_name && strlen(o->typed.images_name) >= DATA_MAX_NAME) ||
        (o->typed.labels_name && strlen(o->typed.labels_name) >= DATA_MAX_NAME))
        wrong = "--images_name and --labels_name are at most 255 characters; this one is longer";
    else if (o->typed.label_column && strcmp(o->typed.label_column, DATA_CSV_NO_LABEL) == 0 &&
             !o->predict)
        wrong = "--label_column=" DATA_CSV_NO_LABEL
                " is for --predict; name the column by its name or its number";
    else if (o->typed.label_column && o->typed.target_columns)
        wrong = "--label_column and --target_columns exclude each other; set one of them";
    else if (o->typed.key_separator && !is_separator(o->typed.key_separator))
        wrong =
            "--key_separator must be one ASCII character, such as '|', but not a quote, a digit or a letter";
    if (wrong)
        return options_refuse(wrong);
    o->train = (struct dataset_request){.dir = o->data_dir,
                                        .part = "train",
                                        .data = o->typed.train_data,
                                        .labels = o->typed.train_labels,
                                        .images_name = o->typed.images_name,
                                        .labels_name = o->typed.labels_name,
                                        .label_column = o->typed.label_column,
                                        .target_columns = o->typed.target_columns,
                                        .ignore_columns = o->typed.ignore_columns,
                                        .csv_header = o->typed.csv_header,
                                        .key_separator =
                                            o->typed.key_separator ? *o->typed.key_separator : 0,
                                        .describe = 1,
                                        .warn = 1,
                                        .progress = o->progress,
                                        .nhwc = o->typed.data_layout};
    o->test = o->train;
    o->test.part = "test";
    o->test.data = o->typed.test_data;
    o->test.labels = o->typed.test_labels;
    o->test.describe = !trains;
    o->test.warn = 0;
    if (o->typed.train_data)
        o->test.dir = NULL;
    o->data_named = o->typed.train_data || o->typed.test_data || options_is_given(o, &o->data_dir);
    return options_check_shard(o);
}

enum status options_check_inference(const struct options *o)
{
    const char *wrong = NULL;
    if (o->evaluate && o->predict)
        wrong = "--evaluate and --predict exclude each other; set one of them";
    else if (o->predict && !o->output)
        wrong = "--predict needs --output=FILE, the file for its results";
    else if (o->output && !o->predict)
        wrong =
            "--output=FILE is for the results of --predict=FILE, which is missing; --export=FILE is for the trained parameters";
    else if ((o->evaluate || o->predict) && (o->ps_hosts.n > 0 || o->join))
        wrong = "--evaluate and --predict need no servers; remove --ps_hosts";
    else if ((o->evaluate || o->predict) && (o->checkpoint_dir || o->export_file))
        wrong = "--evaluate and --predict train nothing; remove --checkpoint_dir and --export";
    else if ((o->evaluate || o->predict) && (o->init || o->freeze))
        wrong = "--evaluate and --predict train nothing; remove --init and --freeze";
    else if ((o->evaluate || o->predict) &&
             (o->validation_dir || options_is_given(o, &o->validation_split) ||
              options_is_given(o, &o->early_stopping) || o->record_samples))
        wrong =
            "--evaluate and --predict train nothing; remove --validation_dir, --validation_split, --early_stopping and --record_samples";
    if (wrong)
        return options_refuse(wrong);
    if (o->output && !predictions_format_known(o->output)) {
        LOG_E("--output: '%s' does not end like one of the formats: " PREDICTIONS_ENDS, o->output);
        return ST_INVALID;
    }
    return ST_OK;
}

/* Refuses a name with the ending of another file format, because --export always writes
 * safetensors. */
static enum status check_export_end(const char *path)
{
    static const char torch[] = "safetensors.torch.load_file() reads it in PyTorch";
    static const char numpy[] = "safetensors.numpy.load_file() reads it in NumPy";
    static const struct {
        const char *end, *way;
    } others[] = {
        {"onnx", "python3 -m weir.onnx MODEL FILE.safetensors FILE.onnx then converts it"},
        {"pt", torch},
        {"pth", torch},
        {"bin", torch},
        {"pkl", torch},
        {"npz", numpy},
        {"npy", numpy},
        {"h5", numpy},
        {"hdf5", numpy},
        {"keras", numpy},
        {"pb", numpy},
        {"tflite", numpy},
        {"ckpt", "--checkpoint_dir=DIR keeps checkpoints"},
    };
    const char *dot = path ? strrchr(path, '.') : NULL;
    for (size_t i = 0; dot && i < sizeof others / sizeof *others; i++) {
        if (strcasecmp(dot + 1, others[i].end) != 0)
            continue;
        LOG_E(
            "--export=%.300s: the file would be safetensors, not %s; let the name end in .safetensors: %s",
            path, dot, others[i].way);
        return ST_INVALID;
    }
    return ST_OK;
}

enum status options_check_outputs(const struct options *o)
{
    enum { N_AT_END = 3, N_OUTPUTS = 5 };
    const struct output_path list[] = {
        {"export", o->export_file},
        {"output", o->output},
        {"summary_json", o->summary_json},
        {"trace", o->trace},
        {"record_samples", o->record_samples},
        /* files that the worker reads */
        {"predict", o->predict},
        {"evaluate", o->evaluate},
        {"init", o->init},
        {"init_map", o->init_map},
        {"restore", o->restore},
        {"train_data", o->typed.train_data},
        {"train_labels", o->typed.train_labels},
        {"test_data", o->typed.test_data},
        {"test_labels", o->typed.test_labels},
        /* if there is no such file, the text is the name of a model */
        {"model", access(o->model, F_OK) == 0 ? o->model : NULL},
    };
    enum status st = check_export_end(o->export_file);
    if (st == ST_OK)
        st = output_paths_differ(list, N_OUTPUTS, sizeof list / sizeof *list);
    for (int i = 0; i < N_AT_END && st == ST_OK; i++)
        st = output_path_check(list[i].flag, list[i].path);
    return st;
}

/* Parses the numbers of --mean or --std. */
static enum status read_list(const char *flag, const char *text, struct options_list *out)
{
    int positive = strcmp(flag, "std") == 0;
    *out = (struct options_list){0};
    if (!text)
        return ST_OK;
    if (strcmp(text, "measured") == 0) {
        out->measured = 1;
        return ST_OK;
    }
    out->n = job_input_numbers_parse(text, out->value);
    for (int i = 0; positive && i < out->n; i++)
        if (out->value[i] <= 0)
            out->n = 0;
    if (out->n > 0)
        return ST_OK;
    LOG_E(
        "--%s: '%.100s' is neither a list of at most %d numbers%s, such as 0.5 or 0.49,0.48,0.45, nor the word measured",
        flag, text, JOB_MAX_CHANNELS, positive ? " above 0" : "");
    return ST_INVALID;
}

static bool is_given(const struct options_list *l)
{
    return l->n > 0 || l->measured;
}

enum status options_check_samples(const struct options *o)
{
    const char *wrong = NULL;
    int measured = o->mean.measured || o->std.measured;
    if (o->mean.n > 1 && o->std.n > 1 && o->mean.n != o->std.n)
        wrong =
            "--mean and --std have different counts of numbers; set one for each channel, or one for all";
    else if (measured && o->data_own && (o->ps_hosts.n > 0 || o->join))
        wrong =
            "--mean=measured, --std=measured: with --data_shard=own each worker would measure its own part; set numbers";
    else if (measured && (o->evaluate || o->predict))
        wrong =
            "--mean=measured, --std=measured: --evaluate and --predict have no training set; remove the flags, because the file contains the numbers of the training";
    else if (o->standardize && (is_given(&o->mean) || is_given(&o->std)))
        wrong =
            "--standardize excludes --mean and --std, because each column has numbers of its own; remove --mean and --std";
    else if (o->standardize && o->data_own && (o->ps_hosts.n > 0 || o->join))
        wrong =
            "--standardize: with --data_shard=own each worker would measure its own part; scale the columns of all parts beforehand";
    else if (o->standardize && (o->evaluate || o->predict))
        wrong =
            "--standardize: --evaluate and --predict have no training set; remove the flag, because the export contains the numbers of the training";
    return options_refuse(wrong);
}

static enum status read_augment(struct options *o)
{
    const char *text = o->typed.augment;
    if (text && !job_input_augment_parse(text, &o->augment)) {
        LOG_E(
            "--augment: '%.100s' is not a list of flip, shift:N, crop:N and cutout:N, each once at most, with N from 1 to %d",
            text, JOB_MAX_AUGMENT);
        return ST_INVALID;
    }
    if (text && (o->evaluate || o->predict)) {
        LOG_E("--augment changes training samples; --evaluate and --predict have none: remove it");
        return ST_INVALID;
    }
    return ST_OK;
}

enum status options_check_input(struct options *o)
{
    enum status st = ST_OK;
    TRY(read_list("mean", o->typed.mean, &o->mean));
    TRY(read_list("std", o->typed.std, &o->std));
    TRY(options_check_samples(o));
    TRY(read_augment(o));
done:
    return st;
}
