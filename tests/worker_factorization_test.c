/* tests/worker_factorization_test.c - model files with a factorization_machine. */
#include "tests/capture.h"
#include "tests/check.h"
#include "worker/model/model.h"
#include <string.h>

#define MODEL(shape, layer)                                                                        \
    "{\"input\": " shape ", \"classes\": 2, \"layers\": [\n"                                       \
    "{\"type\": \"factorization_machine\"" layer "},\n"                                            \
    "{\"type\": \"dense\", \"units\": 2}, {\"type\": \"softmax_cross_entropy\"}]}"

static enum status parse(const char *text, struct model **m)
{
    return model_parse(text, strlen(text), "test.json", 0, m);
}

static void columns_become_one_value(void **state)
{
    static const char text[] = MODEL("[26, 1, 8]", "");
    struct model *m = NULL;
    assert_int_equal(parse(text, &m), ST_OK);
    assert_int_equal(m->layers[0].kind, LAYER_FACTORIZATION_MACHINE);
    assert_int_equal(m->layers[0].n_params, 0);
    assert_int_equal(m->layers[0].out.n_dims, 1);
    assert_int_equal(m->layers[0].out.dim[0], 1);
    assert_string_equal(m->layers[0].name, "factorization_machine1");
    model_destroy(m);
}

static void other_shapes_and_unknown_keys_are_refused(void **state)
{
    static const char flat[] =
        "{\"input\": [1, 1, 9], \"classes\": 2, \"layers\": [{\"type\": \"flatten\"},\n"
        "{\"type\": \"factorization_machine\"}, {\"type\": \"dense\", \"units\": 2},\n"
        "{\"type\": \"softmax_cross_entropy\"}]}";
    static const struct {
        const char *text, *words;
    } list[] = {
        {MODEL("[3, 2, 8]", ""),
         "line 2, layer 1 'factorization_machine1' (factorization_machine): its input must have the shape (F, 1, units), but has (3, 2, 8)"},
        {flat,
         "line 2, layer 2 'factorization_machine1' (factorization_machine): its input must have the shape (F, 1, units), but has (9)"},
        {MODEL("[26, 1, 8]", ", \"units\": 8"),
         "unknown key \"units\" (a factorization_machine has: "},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct model *m = NULL;
        assert_int_equal(CAPTURE(parse(list[i].text, &m)), ST_INVALID);
        assert_int_equal(capture_lines(), 1);
        if (!strstr(capture_text, list[i].words))
            fail_msg("no \"%s\" in: %s", list[i].words, capture_text);
        assert_null(m);
    }
}

int main(void)
{
    return RUN_TESTS(columns_become_one_value, other_shapes_and_unknown_keys_are_refused);
}
