/* worker/input_keys.c - see input_keys.h. */
#include "worker/input_keys.h"
#include "worker/data/dataset_keys.h"
#include <stdlib.h>
#include <string.h>

_Static_assert((int)MODEL_MAX_KEY_INPUTS == (int)DATASET_MAX_KEY_INPUTS, "limits are equal");

static enum status refuse_flag(const char *flag, const char *why)
{
    LOG_E("--%s: %s", flag, why);
    return ST_INVALID;
}

/* Refuses flags for keys if the model reads none, and flags for numbers if it reads only keys. */
static enum status check_used(const struct worker *w)
{
    const struct options *o = &w->opt;
    const struct options_typed *t = &o->typed;
    const struct {
        const char *flag;
        bool is_given, needs_keys, needs_names, needs_dense;
    } flags[] = {
        {"key_columns", t->key_columns, true, false, false},
        {"key_separator", t->key_separator, true, false, false},
        {"input_names", t->input_names, false, true, false},
        {"images_name", t->images_name, false, false, true},
        {"standardize", o->standardize, false, false, true},
        {"mean", t->mean, false, false, true},
        {"std", t->std, false, false, true},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (!flags[i].is_given)
            continue;
        if (flags[i].needs_keys && w->inputs.n_keys == 0)
            return refuse_flag(flags[i].flag, "the model has no input of keys; remove the flag");
        if (flags[i].needs_names && !w->inputs.named)
            return refuse_flag(
                flags[i].flag,
                "the model has \"input\" instead of \"inputs\" with names; set --images_name, or remove the flag");
        if (flags[i].needs_dense && !*w->inputs.dense)
            return refuse_flag(flags[i].flag,
                               "the model has no input of type dense; remove the flag");
    }
    return ST_OK;
}

static void add_keys(struct worker *w)
{
    struct options *o = &w->opt;
    struct dataset_request *requests[] = {&o->train, &o->test};
    for (int i = 0; i < w->inputs.n_keys; i++) {
        const struct model_key_input *in = &w->inputs.keys[i];
        w->keys[i] = (struct dataset_key_source){.input = in->name,
                                                 .array = in->name,
                                                 .columns = in->columns,
                                                 .listed_by = "the model",
                                                 .are_numbers = in->are_numbers,
                                                 .is_resolved = o->model_text != NULL,
                                                 .n_columns = in->n_columns};
    }
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        requests[i]->keys = w->keys;
        requests[i]->n_keys = w->inputs.n_keys;
        requests[i]->dense_input = w->inputs.named && *w->inputs.dense ? w->inputs.dense : NULL;
        requests[i]->no_dense = !*w->inputs.dense;
    }
}

/* Assigns --key_columns to the input that lists no columns. */
static enum status add_columns(struct worker *w)
{
    struct dataset_key_source *to = NULL;
    const char *list = w->opt.typed.key_columns;
    for (int i = 0; list && i < w->inputs.n_keys; i++) {
        if (w->keys[i].columns)
            continue;
        if (to)
            return refuse_flag(
                "key_columns",
                "the model leaves the columns of several inputs open (\"columns\": \"auto\"); list the columns of all but one in the model");
        to = &w->keys[i];
    }
    if (to) {
        to->columns = list;
        to->listed_by = "--key_columns";
        to->is_resolved = false;
    } else if (list && w->opt.model_text) {
        LOG_I("--key_columns is not used, because the model %s lists the columns of its keys",
              w->opt.join ? "of the job" : set_up_weights(w).path);
    } else if (list) {
        return refuse_flag(
            "key_columns",
            "the model lists the columns of its keys; remove the flag, or set \"columns\": \"auto\" in the model");
    }
    return ST_OK;
}

/* Returns the place for the name of an input's array; NULL: the model has no such input. */
static const char **array_of(struct worker *w, const char *input)
{
    for (int i = 0; i < w->inputs.n_keys; i++)
        if (strcmp(w->inputs.keys[i].name, input) == 0)
            return &w->keys[i].array;
    return strcmp(w->inputs.dense, input) == 0 ? &w->opt.train.images_name : NULL;
}

/* Uses one "INPUT=ARRAY" of --input_names. */
static enum status add_name(struct worker *w, char *text)
{
    char *array = strchr(text, '=');
    if (!array || array == text || !array[1] || strlen(array + 1) >= DATA_MAX_NAME) {
        LOG_E("--input_names: '%.60s' is not INPUT=ARRAY, such as clicks=click_ids", text);
        return ST_INVALID;
    }
    *array++ = 0;
    const char **to = array_of(w, text);
    if (!to) {
        LOG_E("--input_names: the model has no input '%.60s'; correct the name", text);
        return ST_INVALID;
    }
    if (to == &w->opt.train.images_name ? *to != NULL : strcmp(*to, text) != 0) {
        LOG_E("--input_names: the array of input '%.60s' is named twice; name it once%s", text,
              w->opt.typed.images_name ? ", and remove --images_name" : "");
        return ST_INVALID;
    }
    *to = array;
    w->opt.test.images_name = w->opt.train.images_name;
    return ST_OK;
}

/* Refuses an array that two inputs would read. */
static enum status check_arrays(const struct worker *w)
{
    const char *input[DATASET_MAX_KEY_INPUTS + 1], *array[DATASET_MAX_KEY_INPUTS + 1];
    const char *images = w->opt.train.images_name;
    int n = 0;
    for (; n < w->inputs.n_keys; n++) {
        input[n] = w->inputs.keys[n].name;
        array[n] = w->keys[n].array;
    }
    if (*w->inputs.dense) {
        input[n] = w->inputs.dense;
        array[n++] = images ? images : w->inputs.dense;
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(array[i], array[k]) == 0) {
                LOG_E(
                    "--input_names: inputs '%.60s' and '%.60s' would both read the array '%.60s'; name another array for one of them",
                    input[k], input[i], array[i]);
                return ST_INVALID;
            }
    return ST_OK;
}

static enum status add_names(struct worker *w)
{
    enum status st = ST_OK;
    if (!w->opt.typed.input_names)
        return ST_OK;
    w->array_names = strdup(w->opt.typed.input_names);
    if (!w->array_names) {
        LOG_E("--input_names: out of memory");
        return ST_NOMEM;
    }
    for (char *at = w->array_names, *next; at && st == ST_OK; at = next) {
        next = strchr(at, ',');
        if (next)
            *next++ = 0;
        st = add_name(w, at);
    }
    return st == ST_OK ? check_arrays(w) : st;
}

enum status input_keys_set(struct worker *w)
{
    enum status st = ST_OK;
    TRY(check_used(w));
    add_keys(w);
    TRY(add_columns(w));
    TRY(add_names(w));
done:
    return st;
}

enum status input_keys_follow(struct worker *w)
{
    const struct dataset *d = w->train;
    for (int i = 0; d && d->keys && i < d->keys->n; i++) {
        if (w->opt.data_own && d->key_columns && !w->keys[i].columns)
            return refuse_flag(
                "data_shard=own",
                "each worker would look for columns of keys in its own part of the data; list them in --key_columns, the same on all workers");
        w->keys[i].n_columns = d->keys->input[i].n_columns;
        w->keys[i].columns = d->key_columns ? d->key_columns[i] : NULL;
        w->keys[i].is_resolved = d->key_columns != NULL;
    }
    return ST_OK;
}

/* Refuses columns that were guessed in samples to evaluate, because they may be others than in
 * training. */
static enum status check_guess(const struct worker *w)
{
    for (int i = 0; !w->train && w->test->key_columns && i < w->inputs.n_keys; i++)
        if (!w->keys[i].columns) {
            LOG_E(
                "--model: input '%s' leaves its columns to the training data; remove --model, because the file with the parameters has the model and its columns, or list the columns in --key_columns",
                w->keys[i].input);
            return ST_INVALID;
        }
    return ST_OK;
}

/* Refuses --model if its columns of keys are not those of the training, which the file of
 * parameters has: the same rows would have other meanings. */
static enum status check_trained_columns(const struct worker *w)
{
    const char *text = w->trained_on.model, *path = set_up_weights(w).path;
    struct model_inputs was = {0};
    if (w->train || !w->opt.model_given || !text || !w->test->key_columns)
        return ST_OK;
    enum status st = model_inputs_parse(text, strlen(text), path, &was);
    for (int i = 0; st == ST_OK && i < w->inputs.n_keys && i < was.n_keys; i++) {
        const struct model_key_input *k = &was.keys[i];
        if (!k->columns || (strcmp(k->columns, w->test->key_columns[i]) == 0 &&
                            k->are_numbers == w->keys[i].are_numbers))
            continue;
        LOG_E(
            "--model: input '%s' has keys of %s in the columns %.200s, but in the training of %s it had %s in %.200s; remove --model and --key_columns, because the file has the model and its columns",
            w->keys[i].input, w->keys[i].are_numbers ? "numbers" : "text", w->test->key_columns[i],
            path, k->are_numbers ? "numbers" : "text", k->columns);
        st = ST_MISMATCH;
    }
    model_inputs_free(&was);
    return st;
}

static const char *kind_of(const struct dataset *d)
{
    return d->key_columns ? "columns" : "arrays";
}

/* Returns the kind of the keys in training; NULL: the file of --evaluate or --predict does not have
 * it. */
static const char *trained_kind(const struct worker *w)
{
    const char *roles = w->trained_on.csv_roles;
    if (w->train)
        return kind_of(w->train);
    if (roles && strchr(roles, 'k'))
        return "columns";
    for (int i = 0; w->opt.model_text && i < w->inputs.n_keys; i++)
        if (!w->inputs.keys[i].columns)
            return "arrays"; /* training would have replaced it by a list of columns */
    return NULL;
}

enum status input_keys_check(const struct worker *w)
{
    const struct dataset *sets[] = {w->test, w->validation};
    const char *trained = trained_kind(w);
    for (size_t i = 0; trained && w->inputs.n_keys > 0 && i < sizeof sets / sizeof *sets; i++)
        if (sets[i] && strcmp(kind_of(sets[i]), trained) != 0) {
            LOG_E(
                "%s has keys in %s, but the training set, %s, has them in %s, so they are other keys; use files of one kind",
                sets[i]->path, kind_of(sets[i]), w->train ? w->train->path : w->trained_on.data,
                trained);
            return ST_MISMATCH;
        }
    enum status st = check_guess(w);
    return st == ST_OK ? check_trained_columns(w) : st;
}

void input_keys_describe(const struct dataset *d, struct model_data *out)
{
    out->n_keys = d->keys ? d->keys->n : 0;
    for (int i = 0; i < out->n_keys; i++)
        out->keys[i] = (struct model_data_keys){d->keys->input[i].n_columns,
                                                d->key_columns ? d->key_columns[i] : NULL};
}
