/* tests/worker_inputs_test.c - model files with "inputs": the inputs by their names. */
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
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct model *m = NULL;
        assert_int_equal(CAPTURE(parse(list[i].text, NULL, &m)), ST_INVALID);
        assert_int_equal(capture_lines(), 1);
        if (!strstr(capture_text, list[i].words))
            fail_msg("no \"%s\" in: %s", list[i].words, capture_text);
        assert_null(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_input_has_a_name),
        cmocka_unit_test(auto_shape_is_that_of_the_data),
        cmocka_unit_test(bad_inputs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
