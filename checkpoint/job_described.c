/* checkpoint/job_described.c - see job_described.h. */
#include "checkpoint/job_described.h"
#include "base/utf8.h"
#include "files/json_text.h"
#include <stdio.h>
#include <string.h>

enum {
    /* limits on the JSON values in a worker's description, which is an object of at most 17
     * strings, and in its model, which may list many columns */
    MAX_VALUES = 256,
    MAX_MODEL_VALUES = 1 << 16,
    SHOWN_BYTES = 100, /* limit on a value in a sentence */
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
        char there[4 * SHOWN_BYTES], here[4 * SHOWN_BYTES], of[SHOWN_BYTES + 80];
        const json_t *other = json_object_get(json_object_get(models->has, "inputs"), name);
        const json_t *a = json_object_get(input, "columns"), *b = json_object_get(other, "columns");
        if (!json_is_array(a) || !json_is_array(b) || json_equal(a, b))
            continue;
        list_columns(input, there, sizeof there);
        list_columns(other, here, sizeof here);
        snprintf(of, sizeof of, "--key_columns: input '%.40s': ", name);
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
        int n_a = (int)strcspn(a, "\n"), n_b = (int)strcspn(b, "\n");
        if (n_a != n_b || memcmp(a, b, (size_t)n_a) != 0) {
            snprintf(
                why, n,
                "feature %d is the column '%.*s', but on the servers it is '%.*s'; write the columns of all CSV files in the same order, with the same names",
                column, n_b > 60 ? 60 : n_b, b, n_a > 60 ? 60 : n_a, a);
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
