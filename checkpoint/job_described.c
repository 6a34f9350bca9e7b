/* checkpoint/job_described.c - see job_described.h. */
#include "checkpoint/job_described.h"
#include "base/utf8.h"
#include "files/json_text.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* limits on the JSON values in a worker's description, which is an object of at most 17
     * strings, and in its model, which may list many columns */
    MAX_VALUES = 256,
    MAX_MODEL_VALUES = 1 << 16,
    SHOWN_BYTES = 100, /* limit on a value in a sentence */
    NAME_BYTES = 64,   /* limit on a name in a sentence */
};

struct pair {
    json_t *had, *has;
};

static json_t *load(const char *text, size_t most)
{
    json_t *o = NULL;
    size_t n = text ? strlen(text) : 0;
    if (n == 0 || json_text_count(text, n, "{[,") > most)
        return NULL;
    return json_text_load(text, n, &o) == ST_OK ? o : NULL;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static struct pair load_both(const char *had, const char *has)
{
    return (struct pair){load(had, MAX_VALUES), load(has, MAX_VALUES)};
}

/* Loads the models of both descriptions. */
static struct pair load_models(const struct pair *p)
{
    return (struct pair){load(text_of(p->had, "model_json"), MAX_MODEL_VALUES),
                         load(text_of(p->has, "model_json"), MAX_MODEL_VALUES)};
}

static void release(struct pair *p)
{
    json_decref(p->had);
    json_decref(p->has);
}

/* Writes a list of names, one per line, as "a,b"; "none" if it is empty. */
static void show(const char *list, char to[SHOWN_BYTES])
{
    utf8_copy_words(to, SHOWN_BYTES, *list ? list : "none");
    for (char *c = to; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = ',';
}

/* Copies a name of n bytes for a sentence, cut after a whole character. Returns `to`. */
static const char *show_name(const char *name, size_t n, char to[NAME_BYTES])
{
    char whole[4 * NAME_BYTES];
    snprintf(whole, sizeof whole, "%.*s", n < sizeof whole ? (int)n : (int)sizeof whole, name);
    utf8_copy_words(to, NAME_BYTES, whole);
    return to;
}

/* Compares a text of the two descriptions. of: the flag and the subject of the sentence. */
static bool texts_differ(const char *of, const char *had, const char *has, const char *fix,
                         char *why, size_t n)
{
    char there[SHOWN_BYTES], here[SHOWN_BYTES];
    if (strcmp(had, has) == 0)
        return false;
    show(had, there);
    show(has, here);
    snprintf(why, n, "%sthe servers have %s, the worker has %s; %s", of, there, here, fix);
    return true;
}

/* Compares the separators between the keys of a cell. */
static bool separators_differ(const struct pair *p, char *why, size_t n)
{
    char text[2][8] = {"none", "none"};
    const char *all[] = {text_of(p->had, "key_separator"), text_of(p->has, "key_separator")};
    for (int i = 0; i < 2; i++)
        if (*all[i])
            snprintf(text[i], sizeof text[i], "'%.1s'", all[i]);
    return texts_differ("--key_separator: ", text[0], text[1],
                        "set the same --key_separator at all workers", why, n);
}

/* Writes the columns that a model's input of keys lists, one per line, cut at to_bytes. */
static void list_columns(const json_t *input, char *to, size_t to_bytes)
{
    size_t i, n = 0;
    json_t *name;
    *to = 0;
    json_array_foreach(json_object_get(input, "columns"), i, name)
    {
        const char *text = json_string_value(name);
        n += (size_t)snprintf(to + n, to_bytes - n, "%s%s", i ? "\n" : "", text ? text : "");
        if (n >= to_bytes)
            return;
    }
}

static bool key_columns_differ(const struct pair *models, char *why, size_t n)
{
    const char *name;
    json_t *input;
    json_object_foreach(json_object_get(models->had, "inputs"), name, input)
    {
        char there[4 * SHOWN_BYTES], here[4 * SHOWN_BYTES], of[NAME_BYTES + 80], shown[NAME_BYTES];
        const json_t *other = json_object_get(json_object_get(models->has, "inputs"), name);
        const json_t *a = json_object_get(input, "columns"), *b = json_object_get(other, "columns");
        if (!json_is_array(a) || !json_is_array(b) || json_equal(a, b))
            continue;
        list_columns(input, there, sizeof there);
        list_columns(other, here, sizeof here);
        snprintf(of, sizeof of,
                 "--key_columns: input '%s': ", show_name(name, strlen(name), shown));
        if (texts_differ(
                of, there, here,
                "list the same columns in the same order, in this flag or in the model file, at all workers",
                why, n))
            return true;
        snprintf(why, n, "%sthe long lists of the servers and of the worker differ", of);
        return true;
    }
    return false;
}

/* Finds the first column of numbers whose name differs, and names the flag if that explains the
 * difference. */
static bool features_differ(const struct pair *p, char *why, size_t n)
{
    const char *a = text_of(p->had, "columns"), *b = text_of(p->has, "columns");
    int column = 1;
    if (!*a || !*b || strcmp(a, b) == 0)
        return false;
    if (texts_differ("--ignore_columns: ", text_of(p->had, "ignored_columns"),
                     text_of(p->has, "ignored_columns"), "ignore the same columns at all workers",
                     why, n) ||
        texts_differ("--label_column, --target_columns: ", text_of(p->had, "label_columns"),
                     text_of(p->has, "label_columns"), "name the same columns at all workers", why,
                     n))
        return true;
    for (; *a && *b; column++) {
        size_t n_a = strcspn(a, "\n"), n_b = strcspn(b, "\n");
        if (n_a != n_b || memcmp(a, b, n_a) != 0) {
            char there[NAME_BYTES], here[NAME_BYTES];
            snprintf(
                why, n,
                "feature %d is the column '%s', but on the servers it is '%s'; write the columns of all CSV files in the same order, with the same names",
                column, show_name(b, n_b, here), show_name(a, n_a, there));
            return true;
        }
        a += n_a + (a[n_a] == '\n');
        b += n_b + (b[n_b] == '\n');
    }
    return false; /* the shapes of the samples differ, which another check names */
}

bool job_described_reading_differs(const char *had, const char *has, char *why, size_t why_bytes)
{
    struct pair p = load_both(had, has), models = load_models(&p);
    bool differs =
        p.had && p.has &&
        (separators_differ(&p, why, why_bytes) || key_columns_differ(&models, why, why_bytes) ||
         features_differ(&p, why, why_bytes));
    release(&models);
    release(&p);
    return differs;
}

/* Returns true if a key of an input or a layer need not be equal: it does not change the results of
 * this worker, or another check compares it: names of parameters, shapes, columns, settings of
 * tables. */
static bool is_left_out(const char *key)
{
    static const char *const keys[] = {"comment", "device", "after",   "init",     "bias_init",
                                       "name",    "shape",  "columns", "settings", "max_rows"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

static bool values_equal(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

/* Writes a value of a model as JSON, cut if it is long; NULL: "none". */
static void show_value(const json_t *value, char to[SHOWN_BYTES])
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    show(text ? text : "", to);
    free(text);
}

/* Compares the keys of an input or a layer that `from` has. owner: its name in the sentence. */
static bool keys_differ(const json_t *from, const struct pair *p, const char *owner, char *why,
                        size_t n)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)from, key, value)
    {
        char there[SHOWN_BYTES], here[SHOWN_BYTES], shown[NAME_BYTES];
        const json_t *a = json_object_get(p->had, key), *b = json_object_get(p->has, key);
        if (is_left_out(key) || values_equal(a, b))
            continue;
        show_value(a, there);
        show_value(b, here);
        snprintf(
            why, n,
            "--model: \"%s\" of %s: the servers have %s, the worker has %s; start all workers with the same model file",
            show_name(key, strlen(key), shown), owner, there, here);
        return true;
    }
    return false;
}

static bool parts_differ(const json_t *had, const json_t *has, const char *owner, char *why,
                         size_t n)
{
    const struct pair p = {(json_t *)(uintptr_t)had, (json_t *)(uintptr_t)has};
    return keys_differ(had, &p, owner, why, n) || keys_differ(has, &p, owner, why, n);
}

static bool inputs_differ(const struct pair *models, char *why, size_t n)
{
    const char *name;
    json_t *input, *others = json_object_get(models->has, "inputs");
    json_object_foreach(json_object_get(models->had, "inputs"), name, input)
    {
        char owner[SHOWN_BYTES], shown[NAME_BYTES];
        snprintf(owner, sizeof owner, "input '%s'", show_name(name, strlen(name), shown));
        if (parts_differ(input, json_object_get(others, name), owner, why, n))
            return true;
    }
    return false;
}

static bool layers_differ(const struct pair *models, char *why, size_t n)
{
    const json_t *a = json_object_get(models->had, "layers");
    const json_t *b = json_object_get(models->has, "layers");
    size_t n_a = json_array_size(a), n_b = json_array_size(b);
    if (n_a != n_b) {
        snprintf(
            why, n,
            "--model: the servers have %zu layers, the worker has %zu; start all workers with the same model file",
            n_a, n_b);
        return true;
    }
    for (size_t i = 0; i < n_a; i++) {
        char owner[32];
        snprintf(owner, sizeof owner, "layer %zu", i + 1);
        if (parts_differ(json_array_get(a, i), json_array_get(b, i), owner, why, n))
            return true;
    }
    return false;
}

bool job_described_model_differs(const char *had, const char *has, char *why, size_t why_bytes)
{
    bool may_differ = had && has && strcmp(had, has) != 0;
    struct pair p = may_differ ? load_both(had, has) : (struct pair){NULL, NULL};
    struct pair models = load_models(&p);
    bool differs =
        models.had && models.has &&
        (layers_differ(&models, why, why_bytes) || inputs_differ(&models, why, why_bytes));
    release(&models);
    release(&p);
    return differs;
}
