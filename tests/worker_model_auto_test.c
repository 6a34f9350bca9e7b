/* tests/worker_model_auto_test.c - the parts of a model file that depend on the data: "auto",
 * "classes". */
#include "base/log.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "worker/model/model.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define TAIL "{\"type\": \"dense\", \"units\": 10}, {\"type\": \"softmax_cross_entropy\"}]}"

static const char *models_dir(void)
{
    return WEIR_SOURCE_DIR "/examples/models";
}

static int64_t total_elems(const struct model *m)
{
    int64_t n = 0;
    for (int i = 0; i < m->n_params; i++)
        n += shape_elems(&m->params[i].shape);
    return n;
}

/* The pictures have 3x20x24 values and 7 classes. The resolved text contains these numbers, so a
 * worker that receives the text builds the same model for any data. */
static void check_auto(const char *name)
{
    static const struct model_data data = {.sample = {3, {3, 20, 24}}, .classes = 7},
                                   other = {.sample = {3, {1, 9, 9}}, .classes = 300};
    struct model *m = NULL, *again = NULL;
    assert_int_equal(model_read_for(name, models_dir(), 0, &data, &m), ST_OK);
    assert_string_equal(m->name, name);
    assert_int_equal(m->classes, 7);
    assert_int_equal(m->input.dim[0], 3);
    assert_int_equal(m->input.dim[1], 20);
    assert_int_equal(m->input.dim[2], 24);
    assert_int_equal(m->layers[m->n_layers - 2].out.dim[0], 7);
    assert_true(m->classes_param >= 0);
    assert_int_equal(m->params[m->classes_param].shape.dim[0], 7);
    assert_null(strstr(m->text, "auto"));
    assert_int_equal(model_parse_for(m->text, strlen(m->text), "of the job", 0, &other, &again),
                     ST_OK);
    assert_int_equal(total_elems(again), total_elems(m));
    assert_int_equal(again->input.dim[2], 24);
    assert_int_equal(again->classes_param, -1);
    assert_string_equal(again->text, m->text);
    model_destroy(again);
    model_destroy(m);
}

/* The data have 3 columns of keys and 5 of numbers. */
static void check_tables(const char *name)
{
    static const struct model_data data = {.sample = {3, {1, 1, 5}},
                                           .classes = 2,
                                           .n_keys = 1,
                                           .keys = {{3, "user,item,genre"}}},
                                   none = {.sample = {3, {1, 9, 9}}, .classes = 300};
    struct model *m = NULL, *again = NULL;
    assert_int_equal(model_read_for(name, models_dir(), 0, &data, &m), ST_OK);
    assert_string_equal(m->name, name);
    assert_int_equal(m->classes, 1);
    assert_int_equal(m->n_tables, 2);
    assert_string_equal(m->layers[m->tables[0].layer].name, "embedding_bag1");
    const struct layer *factors = &m->layers[m->tables[1].layer];
    assert_string_equal(factors->name, "factors");
    assert_int_equal(factors->out.dim[0], 3);
    assert_int_equal(factors->out.dim[2], 8);
    assert_int_equal(total_elems(m), (3 * 8 + 5 + 1) * 64 + 64 + 1);
    assert_null(strstr(m->text, "auto"));
    assert_non_null(strstr(m->text, "\"genre\""));
    assert_int_equal(model_parse_for(m->text, strlen(m->text), "of the job", 0, &none, &again),
                     ST_OK);
    assert_int_equal(total_elems(again), total_elems(m));
    assert_string_equal(again->text, m->text);
    model_destroy(again);
    model_destroy(m);
}

static void auto_is_what_the_data_have(void **state)
{
    int n = 0;
    DIR *folder = opendir(models_dir());
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        char name[64];
        int end = 0;
        if (sscanf(e->d_name, "%63[a-z0-9_].json%n", name, &end) == 1 && end > 0) {
            bool has_tables = strstr("deepfm wide_deep", name) != NULL;
            (has_tables ? check_tables : check_auto)(name);
            n++;
        }
    }
    closedir(folder);
    assert_true(n >= 8);
}

static void only_auto_values_depend_on_data(void **state)
{
    static const struct model_data data = {.sample = {3, {3, 20, 24}}, .classes = 7};
    struct model *m = NULL;
    /* a text without "auto" is unchanged */
    static const char fixed[] =
        "{\"input\": [1, 28, 28], \"classes\": 10, \"layers\": [{\"type\": \"flatten\"}," TAIL;
    assert_int_equal(model_parse_for(fixed, strlen(fixed), "x", 0, &data, &m), ST_OK);
    assert_string_equal(m->text, fixed);
    assert_int_equal(m->classes, 10);
    model_destroy(m);
    m = NULL;
    static const char one[] =
        "{\"input\": \"auto\", \"classes\": \"auto\", \"layers\": [{\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": \"classes\"},{\"type\": \"mean_squared_error\"}]}";
    static const struct model_data targets = {.sample = {3, {1, 1, 4}},
                                              .classes = 1,
                                              .has_targets = true},
                                   labels = {.sample = {3, {1, 1, 4}}, .classes = 1};
    assert_int_equal(model_parse_for(one, strlen(one), "x", 0, &targets, &m), ST_OK);
    assert_int_equal(m->classes, 1);
    assert_int_equal(m->layers[1].out.dim[0], 1);
    model_destroy(m);
    assert_int_equal(model_parse_for(one, strlen(one), "x", 0, &labels, &m), ST_OK);
    assert_int_equal(m->classes, 2);
    model_destroy(m);
    m = NULL;
    assert_int_equal(CAPTURE(model_read_for("softmax", models_dir(), 0, &targets, &m)), ST_INVALID);
    assert_non_null(strstr(capture_text, "needs at least 2 \"classes\""));
    static const struct model_data tiny = {.sample = {3, {1, 3, 3}}, .classes = 7};
    assert_int_equal(CAPTURE(model_read_for("lenet5", models_dir(), 0, &tiny, &m)), ST_INVALID);
    assert_non_null(strstr(capture_text, "kernel does not fit"));
}

/* If the data may lack the last classes, the network may have more classes than the data, but never
 * fewer. */
static void auto_classes_may_be_more(void **state)
{
    static const char fixed[] =
        "{\"input\": \"auto\", \"classes\": \"auto\", \"layers\": [{\"type\": \"flatten\"}," TAIL;
    static const struct {
        int classes, may_lack, want;
    } cases[] = {{7, 1, 10}, {10, 1, 10}, {10, 0, 10}, {7, 0, 0}, {11, 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct model_data data = {
            .sample = {3, {1, 2, 2}}, .classes = cases[i].classes, .may_lack = cases[i].may_lack};
        struct model *m = NULL;
        enum status st = CAPTURE(model_parse_for(fixed, strlen(fixed), "x", 0, &data, &m));
        assert_int_equal(st, cases[i].want ? ST_OK : ST_INVALID);
        if (m) {
            assert_int_equal(m->classes, cases[i].want);
            assert_int_equal(m->classes_param, -1);
        }
        model_destroy(m);
    }
}

int main(void)
{
    return RUN_TESTS(auto_is_what_the_data_have, only_auto_values_depend_on_data,
                     auto_classes_may_be_more);
}
