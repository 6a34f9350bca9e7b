/* tests/worker_inputs_test.c - model files with "inputs": the inputs by their names, and the tables
 * of layers that read keys. */
#include "tests/capture.h"
#include "tests/check.h"
#include "worker/model/model.h"
#include <string.h>

#define LAYERS                                                                                     \
    "\"classes\": 10, \"layers\": [{\"type\": \"flatten\"},\n{\"type\": \"dense\", \"units\": "    \
    "10},\n{\"type\": \"softmax_cross_entropy\"}]}"

static enum status parse(const char *text, const struct model_data *data, struct model **m)
{
    return model_parse_for(text, strlen(text), "test.json", 0, data, m);
}

/* Checks that layer 0 reads samples of 3 x 5 x 7. */
static void check_samples(const struct model *m)
{
    assert_int_equal(m->input.dim[0], 3);
    assert_int_equal(m->input.dim[1], 5);
    assert_int_equal(m->input.dim[2], 7);
    assert_int_equal(m->layers[0].input[0], LAYER_INPUT_IMAGE);
    assert_int_equal(m->layers[0].in.dim[2], 7);
}

static void dense_input_has_a_name(void **state)
{
    static const char text[] =
        "{\"inputs\": {\"numbers\": {\"type\": \"dense\", \"shape\": [3, 5, 7]}},"
        "\"classes\": 10, \"layers\": [{\"type\": \"flatten\"}, {\"type\": \"flatten\", "
        "\"name\": \"image\", \"input\": \"numbers\"}, {\"type\": \"add\", \"inputs\": "
        "[\"flatten1\", \"image\"]}, {\"type\": \"dense\", \"units\": 10}, "
        "{\"type\": \"softmax_cross_entropy\"}]}";
    struct model *m = NULL;
    assert_int_equal(parse(text, NULL, &m), ST_OK);
    check_samples(m);
    assert_int_equal(m->layers[1].input[0], LAYER_INPUT_IMAGE);
    assert_int_equal(m->layers[2].input[1], 1);
    model_destroy(m);
}

static void auto_shape_is_that_of_the_data(void **state)
{
    static const char text[] =
        "{\"inputs\": {\"dense\": {\"type\": \"dense\", \"shape\": \"auto\"}}," LAYERS;
    const struct model_data data = {.sample = {3, {3, 5, 7}}, .classes = 10};
    struct model *m = NULL, *joined = NULL;
    assert_int_equal(parse(text, &data, &m), ST_OK);
    check_samples(m);
    /* a worker that joins receives the text with the shape */
    assert_int_equal(parse(m->text, NULL, &joined), ST_OK);
    check_samples(joined);
    model_destroy(joined);
    model_destroy(m);
}

/* ---- inputs of keys ---- */

#define NUMBERS "\"numbers\": {\"type\": \"dense\", \"shape\": \"auto\"}"
#define KEYS(name, more) "\"" name "\": {\"type\": \"keys\"" more "}"
#define BAG(more) "{\"type\": \"embedding_bag\"" more "},\n"
#define HEAD(inputs) "{\"inputs\": {\n" inputs "},\n\"classes\": 1, \"layers\": [\n"
#define TAIL "{\"type\": \"dense\", \"units\": 1}, {\"type\": \"sigmoid_cross_entropy\"}]}"
#define FLAT_TAIL "{\"type\": \"flatten\"}, " TAIL

/* Two tables of one input, a table of another, and a dense input. */
static const char wide_and_deep[] =
    "{\"inputs\": {\"fields\": {\"type\": \"keys\", \"columns\": \"auto\"},\n"
    "\"numbers\": {\"type\": \"dense\", \"shape\": \"auto\"},\n"
    "\"ids\": {\"type\": \"keys\", \"columns\": [\"user\", \"7\"], \"keys\": \"numbers\"}},\n"
    "\"classes\": 1, \"layers\": [\n"
    "{\"type\": \"embedding_bag\", \"name\": \"wide\", \"input\": \"fields\", \"units\": 1, \"max_rows\": 100},\n"
    "{\"type\": \"sum\", \"name\": \"total\"},\n"
    "{\"type\": \"embedding_bag\", \"name\": \"deep\", \"input\": \"ids\", \"units\": 3, \"max_rows\": 1000000,\n"
    "\"mode\": \"mean\", \"settings\": {\"init\": \"uniform\", \"init_scale\": 0.05, \"buckets\": 4,\n"
    "\"lr_schedule\": \"step\", \"lr_boundaries\": \"100,200\"}},\n"
    "{\"type\": \"flatten\", \"name\": \"flat\"},\n"
    "{\"type\": \"flatten\", \"name\": \"numbers_flat\", \"input\": \"numbers\"},\n"
    "{\"type\": \"embedding_bag\", \"input\": \"fields\", \"units\": 2, \"max_rows\": 7},\n"
    "{\"type\": \"flatten\"},\n"
    "{\"type\": \"concat\", \"inputs\": [\"total\", \"flat\", \"numbers_flat\", \"flatten3\"]},\n" TAIL;

static const struct model_data with_keys = {.sample = {3, {1, 1, 4}},
                                            .classes = 1,
                                            .n_keys = 2,
                                            .keys = {{3, "city,genre,5"}, {2, "user,7"}}};

static void check_wide_and_deep(const struct model *m)
{
    static const struct {
        int layer, keys, units;
        int64_t max_rows;
    } tables[] = {{0, 0, 1, 100}, {2, 1, 3, 1000000}, {5, 0, 2, 7}};
    struct table_wish wish[3];
    assert_int_equal(m->n_tables, 3);
    model_table_wishes(m, wish);
    for (int i = 0; i < 3; i++) {
        const struct layer *l = &m->layers[tables[i].layer];
        const int64_t columns = m->inputs.keys[tables[i].keys].n_columns;
        assert_int_equal(m->tables[i].layer, tables[i].layer);
        assert_int_equal(l->kind, LAYER_EMBEDDING_BAG);
        assert_int_equal(l->n_inputs, 0);
        assert_int_equal(l->n_params, 0);
        assert_int_equal(l->keys, tables[i].keys);
        assert_int_equal(l->mean, i == 1);
        assert_int_equal(l->out.n_dims, 3);
        assert_int_equal(l->out.dim[0], columns);
        assert_int_equal(l->out.dim[1], 1);
        assert_int_equal(l->out.dim[2], tables[i].units);
        assert_string_equal(wish[i].name, l->name);
        assert_int_equal(wish[i].dim, tables[i].units);
        assert_int_equal(wish[i].max_rows, tables[i].max_rows);
        assert_ptr_equal(wish[i].settings, &m->tables[i].settings);
    }
    assert_string_equal(wish[2].name, "embedding_bag3");
    assert_int_equal(m->layers[0].in.dim[2], 4); /* the shape of a sample */
    assert_int_equal(m->layers[4].input[0], LAYER_INPUT_IMAGE);
    const struct table_settings *s = &m->tables[1].settings;
    assert_int_equal(s->init, ROW_INIT_UNIFORM);
    assert_true(s->init_scale == 0.05);
    assert_int_equal(s->buckets, 4);
    assert_string_equal(s->lr_boundaries, "100,200");
    assert_int_equal(s->optimizer, -1);
    assert_int_equal(m->tables[0].settings.init, -1);
}

static void keys_become_tables(void **state)
{
    struct model *m = NULL, *joined = NULL;
    assert_int_equal(parse(wide_and_deep, &with_keys, &m), ST_OK);
    check_wide_and_deep(m);
    assert_true(m->inputs.named);
    assert_string_equal(m->inputs.dense, "numbers");
    assert_int_equal(m->inputs.n_keys, 2);
    assert_string_equal(m->inputs.keys[0].name, "fields");
    assert_int_equal(m->inputs.keys[0].n_columns, 3);
    assert_string_equal(m->inputs.keys[0].columns, "city,genre,5");
    assert_false(m->inputs.keys[0].are_numbers);
    assert_string_equal(m->inputs.keys[1].name, "ids");
    assert_string_equal(m->inputs.keys[1].columns, "user,7");
    assert_true(m->inputs.keys[1].are_numbers);
    /* a worker that joins receives the columns with the text */
    struct model_inputs in = {0};
    assert_int_equal(model_inputs_parse(m->text, strlen(m->text), "of the job", &in), ST_OK);
    assert_string_equal(in.keys[0].columns, "city,genre,5");
    model_inputs_free(&in);
    assert_int_equal(parse(m->text, NULL, &joined), ST_OK);
    check_wide_and_deep(joined);
    assert_string_equal(joined->text, m->text);
    model_destroy(joined);
    model_destroy(m);
}

static void data_replace_numbers_of_columns(void **state)
{
    static const struct model_data named = {.sample = {3, {1, 1, 4}},
                                            .classes = 1,
                                            .n_keys = 2,
                                            .keys = {{1, "city"}, {2, "user,hour"}}};
    struct model *m = NULL;
    assert_int_equal(parse(wide_and_deep, &named, &m), ST_OK);
    assert_string_equal(m->inputs.keys[1].columns, "user,hour");
    assert_null(strstr(m->text, "\"7\""));
    model_destroy(m);
}

/* An array has a number of columns instead of a list, and each input of a file may be "auto". */
static void arrays_have_numbers_of_columns(void **state)
{
    static const char text[] = HEAD(KEYS("a", "") ", " KEYS("b", ""))
        BAG(", \"name\": \"p\", \"input\": \"a\", \"units\": 2, \"max_rows\": 9") BAG(
            ", \"name\": \"q\", \"input\": \"b\", \"units\": 2, \"max_rows\": 9") "{\"type\": \"concat\", \"inputs\": [\"p\", \"q\"]}," FLAT_TAIL;
    static const struct model_data data = {
        .sample = {3, {1, 1, 1}}, .classes = 1, .n_keys = 2, .keys = {{26, NULL}, {1, NULL}}};
    struct model *m = NULL, *joined = NULL;
    assert_int_equal(parse(text, &data, &m), ST_OK);
    assert_string_equal(m->inputs.dense, "");
    assert_int_equal(m->input.dim[2], 1);
    assert_int_equal(m->layers[0].out.dim[0], 26);
    assert_null(m->inputs.keys[0].columns);
    assert_int_equal(m->params[0].shape.dim[1], 54);
    assert_int_equal(parse(m->text, &data, &joined), ST_OK);
    assert_int_equal(joined->inputs.keys[0].n_columns, 26);
    assert_string_equal(joined->text, m->text);
    model_destroy(joined);
    model_destroy(m);
}

/* The inputs decide how data are read, so they are read first. */
static void inputs_are_known_before_the_data(void **state)
{
    static const char image[] = "{\"input\": \"auto\"," LAYERS;
    struct model_inputs in = {0};
    assert_int_equal(model_inputs_parse(wide_and_deep, sizeof wide_and_deep - 1, "x", &in), ST_OK);
    assert_true(in.named);
    assert_string_equal(in.dense, "numbers");
    assert_int_equal(in.n_keys, 2);
    assert_int_equal(in.keys[0].n_columns, 0);
    assert_null(in.keys[0].columns);
    assert_string_equal(in.keys[1].columns, "user,7");
    model_inputs_free(&in);
    assert_int_equal(model_inputs_parse(image, sizeof image - 1, "x", &in), ST_OK);
    assert_false(in.named);
    assert_string_equal(in.dense, "image");
    assert_int_equal(in.n_keys, 0);
    model_inputs_free(&in);
    assert_int_equal(model_inputs_read("lenet5", WEIR_SOURCE_DIR "/examples/models", &in), ST_OK);
    assert_string_equal(in.dense, "image");
    model_inputs_free(&in);
    assert_int_equal(CAPTURE(model_inputs_parse("{", 1, "x", &in)), ST_INVALID);
    assert_non_null(strstr(capture_text, "not valid JSON"));
}

/* Checks that a text is refused, in one line with these words. */
static void check_refused(const char *text, const struct model_data *data, const char *words)
{
    struct model *m = NULL;
    assert_int_equal(CAPTURE(parse(text, data, &m)), ST_INVALID);
    assert_int_equal(capture_lines(), 1);
    if (!strstr(capture_text, words))
        fail_msg("no \"%s\" in: %s", words, capture_text);
    assert_null(m);
}

#define ONE_BAG BAG(", \"units\": 2, \"max_rows\": 9")
#define SETTINGS(inner) BAG(", \"units\": 2, \"max_rows\": 9,\n\"settings\": " inner)

static void bad_keys_are_refused(void **state)
{
    static const struct {
        const char *text, *words;
    } list[] = {
        {HEAD(KEYS("k", ", \"colums\": 1")) ONE_BAG FLAT_TAIL,
         "line 2, input 'k': unknown key \"colums\", did you mean \"columns\"?"},
        {HEAD(KEYS("k", ",\n\"shape\": \"auto\"")) ONE_BAG FLAT_TAIL,
         "line 3, input 'k': unknown key \"shape\" (an input of keys has: type comment columns"},
        {HEAD("\"d\": {\"type\": \"dense\", \"shape\": \"auto\", \"columns\": 1}") FLAT_TAIL,
         "input 'd': unknown key \"columns\" (a dense input has: type comment shape)"},
        {HEAD(KEYS("k", ", \"columns\": []")) ONE_BAG FLAT_TAIL,
         "input 'k': \"columns\" must be a list of 1 to 1024 names or numbers of columns"},
        {HEAD(KEYS("k", ", \"columns\": [\"a\", \"b,c\"]")) ONE_BAG FLAT_TAIL,
         "each a string without a comma"},
        {HEAD(KEYS("k", ", \"columns\": [\"a\", 3]")) ONE_BAG FLAT_TAIL, "\"columns\" must be"},
        {HEAD(KEYS("k", ",\n\"columns\": [\"a\", \"b\", \"a\"]")) ONE_BAG FLAT_TAIL,
         "line 3, input 'k': \"columns\" has \"a\" twice: remove one"},
        {HEAD(KEYS("k", ", \"columns\": [\"\"]")) ONE_BAG FLAT_TAIL, "\"columns\" must be"},
        {HEAD(KEYS("k", ", \"columns\": \"city\"")) ONE_BAG FLAT_TAIL, "\"columns\" must be"},
        {HEAD(KEYS("k", ", \"columns\": 1025")) ONE_BAG FLAT_TAIL, "\"columns\" must be"},
        {HEAD(KEYS("k", ", \"columns\": 0")) ONE_BAG FLAT_TAIL, "\"columns\" must be"},
        {HEAD(KEYS("k", ", \"columns\": null")) ONE_BAG FLAT_TAIL, "\"columns\" must be"},
        {HEAD(KEYS("k", ", \"keys\": \"number\"")) ONE_BAG FLAT_TAIL,
         "input 'k': \"keys\" is \"number\", but must be \"text\" or \"numbers\""},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check_refused(list[i].text, NULL, list[i].words);
}

static void bad_readers_of_keys_are_refused(void **state)
{
    static const struct {
        const char *text, *words;
    } list[] = {
        {HEAD(KEYS("k", "") ", " NUMBERS) ONE_BAG FLAT_TAIL,
         "line 2, input 'numbers': no layer reads it"},
        {HEAD(KEYS("k", "") ",\n" KEYS("l", ""))
             BAG(", \"input\": \"k\", \"units\": 2, \"max_rows\": 9") FLAT_TAIL,
         "line 3, input 'l': no layer reads it"},
        {HEAD(KEYS("k", "") ", " NUMBERS) ONE_BAG
         "{\"type\": \"flatten\", \"name\": \"d\", \"input\": \"k\"}," TAIL,
         "line 5, layer 2 'd' (flatten): 'k' is an input of keys: insert embedding_bag"},
        {HEAD(KEYS("k", "") ", " NUMBERS) ONE_BAG
         "{\"type\": \"add\", \"inputs\": [\"embedding_bag1\", \"k\"]}," FLAT_TAIL,
         "layer 2 'add1' (add): 'k' is an input of keys: insert embedding_bag"},
        {HEAD(KEYS("k", "")) "{\"type\": \"relu\", \"name\": \"k\"}," FLAT_TAIL,
         "layer 1 'k' (relu): \"k\" is the name of the model's input"},
        {HEAD(KEYS("k", "")) "{\"type\": \"relu\"}," FLAT_TAIL,
         "layer 1 'relu1' (relu): the key \"input\" is missing"},
        {HEAD(KEYS("k", "") ", " NUMBERS) ONE_BAG
         "{\"type\": \"relu\", \"after\": [\"k\"]}," FLAT_TAIL,
         "layer 2 'relu1' (relu): \"after\": an input is always available; name layers"},
        {HEAD(KEYS("k", "") ", " NUMBERS) ONE_BAG
         "{\"type\": \"relu\", \"input\": \"j\"}," FLAT_TAIL,
         "such as \"relu1\"; the model's inputs are \"numbers k\")"},
        {"{\"input\": [1, 2, 2], \"classes\": 1, \"layers\": [" ONE_BAG FLAT_TAIL,
         "layer 1 'embedding_bag1' (embedding_bag): reads an input of keys, but the model has none"},
        {HEAD(KEYS("k", "") ", " KEYS("l", "")) ONE_BAG FLAT_TAIL,
         "layer 1 'embedding_bag1' (embedding_bag): the key \"input\" is missing"},
        {HEAD(KEYS("k", "") ", " NUMBERS)
             BAG(", \"input\": \"numbers\", \"units\": 2, \"max_rows\": 9") FLAT_TAIL,
         "'numbers' is not an input of keys, such as 'k'"},
        {HEAD(KEYS("k", "")) BAG(", \"units\": 2") FLAT_TAIL, "the key \"max_rows\" is missing"},
        {HEAD(KEYS("k", "")) BAG(", \"max_rows\": 2") FLAT_TAIL, "the key \"units\" is missing"},
        {HEAD(KEYS("k", "")) BAG(", \"units\": 1025, \"max_rows\": 9") FLAT_TAIL,
         "\"units\" is 1025, but must be a whole number from 1 to 1024"},
        {HEAD(KEYS("k", "")) BAG(", \"units\": 2, \"max_rows\": 0") FLAT_TAIL,
         "\"max_rows\" is 0, but must be a whole number from 1 to 1099511627776"},
        {HEAD(KEYS("k", "")) BAG(", \"units\": 2, \"max_rows\": 9, \"mode\": \"max\"") FLAT_TAIL,
         "\"mode\" is \"max\", but must be \"sum\" or \"mean\""},
        {HEAD(KEYS("k", "")) BAG(", \"units\": 2, \"max_rows\": 9, \"device\": \"cpu\"") FLAT_TAIL,
         "unknown key \"device\""},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check_refused(list[i].text, NULL, list[i].words);
}

static void bad_settings_are_refused(void **state)
{
    static const struct {
        const char *text, *words;
    } list[] = {
        {HEAD(KEYS("k", "")) SETTINGS("3") FLAT_TAIL,
         "line 5, layer 1 'embedding_bag1' (embedding_bag): \"settings\" must be an object"},
        {HEAD(KEYS("k", "")) SETTINGS("{\"learning_rat\": 3}") FLAT_TAIL,
         "line 5, layer 1 'embedding_bag1' (embedding_bag): \"settings\": unknown key "
         "\"learning_rat\", did you mean \"learning_rate\"? (a table has: buckets step_rows "},
        {HEAD(KEYS("k", "")) SETTINGS("{\"init\": \"unifrm\"}") FLAT_TAIL,
         "\"settings\": \"init\" is \"unifrm\", but must be one of zeros|uniform|normal"},
        {HEAD(KEYS("k", "")) SETTINGS("{\"init_scale\": -0.5}") FLAT_TAIL,
         "\"init_scale\" is -0.5, but must be a number from 0 to 1e+06"},
        {HEAD(KEYS("k", "")) SETTINGS("{\"buckets\": 1.5}") FLAT_TAIL,
         "\"buckets\" is 1.5, but must be a whole number from 1 to 1024"},
        {HEAD(KEYS("k", "")) SETTINGS("{\"buckets\": true}") FLAT_TAIL,
         "\"buckets\" is true, but must be a whole number from 1 to 1024"},
        {HEAD(KEYS("k", "")) SETTINGS("{\"lr_boundaries\": [1, 2]}") FLAT_TAIL,
         "\"lr_boundaries\" is a list of 2, but must be a text"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check_refused(list[i].text, NULL, list[i].words);
}

static void refused_numbers_name_both(void **state)
{
    static const struct model_data array = {
        .sample = {3, {1, 1, 1}}, .classes = 1, .n_keys = 1, .keys = {{26, NULL}}};
    check_refused(HEAD(KEYS("k", ",\n\"columns\": [\"a\", \"b\"]")) ONE_BAG FLAT_TAIL, &array,
                  "line 3, input 'k': has 2 columns, but the data have 26");
    static const struct model_data latin_1 = {
        .sample = {3, {1, 1, 1}}, .classes = 1, .n_keys = 1, .keys = {{1, "na\xefve"}}};
    check_refused(HEAD(KEYS("k", "")) ONE_BAG FLAT_TAIL, &latin_1,
                  "the name of a column of keys in the data is not UTF-8");
    char many[4096] = "{\"inputs\": {";
    for (int i = 0; i < MODEL_MAX_KEY_INPUTS + 1; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "%s\"k%d\": {\"type\": \"keys\"}",
                 i > 0 ? ", " : "", i);
    snprintf(many + strlen(many), sizeof many - strlen(many), "}," LAYERS);
    check_refused(many, NULL, "input 'k16': a model has at most 16 inputs of keys");
}

static void bad_inputs_are_refused(void **state)
{
    static const struct {
        const char *text, *words;
    } list[] = {
        {"{\"input\": [1, 2, 3],\n\"inputs\": {\"a\": {\"type\": \"dense\"}}," LAYERS,
         "line 1: there is \"inputs\", too: remove one of the two keys"},
        {"{\n\"inputs\": [1, 2, 3]," LAYERS, "line 2: \"inputs\" must be an object such as"},
        {"{\n\"inputs\": {}," LAYERS, "line 2: \"inputs\" must be an object such as"},
        {"{\"inputs\": {\n\"a b\": 1}," LAYERS, "an input's name is \"a b\", but must be"},
        {"{\"inputs\": {\n\"a\": 1}," LAYERS, "line 2, input 'a': must be an object such as"},
        {"{\"inputs\": {\n\"a\": {\n\"typ\": 1}}," LAYERS,
         "line 3, input 'a': unknown key \"typ\", did you mean \"type\"?"},
        {"{\"inputs\": {\n\"a\": {}}," LAYERS, "input 'a': the key \"type\" is missing"},
        {"{\"inputs\": {\n\"a\": {\n\n\"type\": \"dens\"}}," LAYERS,
         "line 4, input 'a': unknown input type \"dens\""},
        {"{\"inputs\": {\"a\": {\n\"type\": \"dense\"}}," LAYERS,
         "input 'a': the key \"shape\" is missing"},
        {"{\"inputs\": {\"a\": {\"type\": \"dense\",\n\"shape\": [3]}}," LAYERS,
         "line 2, input 'a': \"shape\" must be [channels, height, width]"},
        {"{\"inputs\": {\"a\": {\"type\": \"dense\", \"shape\": \"auto\"},\n"
         "\"b\": {\"type\": \"dense\", \"shape\": \"auto\"}}," LAYERS,
         "line 2, input 'b': 'a' is dense already"},
        {"{\"inputs\": {\"num\": {\"type\": \"dense\", \"shape\": \"auto\"}}, \"classes\": 2,\n"
         "\"layers\": [{\"type\": \"flatten\", \"input\": \"image\"}]}",
         "line 2, layer 1 'flatten1' (flatten): \"input\": there is no layer \"image\""},
        {"{\"inputs\": {\"num\": {\"type\": \"dense\", \"shape\": \"auto\"}}, \"classes\": 2,\n"
         "\"layers\": [{\"type\": \"flatten\", \"input\": \"nun\"}]}",
         "did you mean \"num\"?"},
        {"{\"inputs\": {\"num\": {\"type\": \"dense\", \"shape\": \"auto\"}}, \"classes\": 2,\n"
         "\"layers\": [{\"type\": \"flatten\", \"name\": \"num\"}]}",
         "\"num\" is the name of the model's input; choose another name"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check_refused(list[i].text, NULL, list[i].words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_input_has_a_name),
        cmocka_unit_test(auto_shape_is_that_of_the_data),
        cmocka_unit_test(bad_inputs_are_refused),
        cmocka_unit_test(keys_become_tables),
        cmocka_unit_test(data_replace_numbers_of_columns),
        cmocka_unit_test(arrays_have_numbers_of_columns),
        cmocka_unit_test(inputs_are_known_before_the_data),
        cmocka_unit_test(bad_keys_are_refused),
        cmocka_unit_test(bad_readers_of_keys_are_refused),
        cmocka_unit_test(bad_settings_are_refused),
        cmocka_unit_test(refused_numbers_name_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
