/* tests/worker_rounding_test.c - the choice of the layers in bf16, in a network with layers on the
 * host. The plans compute in fp32, so that the test needs no CPU with bf16. */
#include "base/log.h"
#include "tests/check.h"
#include "tests/skip.h"
#include "worker/place/rounding.h"
#include <stdlib.h>
#include <string.h>

enum { BATCH = 3, N_PLANS = 2 };

static const char text[] =
    "{\"inputs\": {\"fields\": {\"type\": \"keys\", \"columns\": 2},"
    "\"numbers\": {\"type\": \"dense\", \"shape\": [1, 1, 5]}}, \"classes\": 1, \"layers\": ["
    "{\"type\": \"embedding_bag\", \"name\": \"wide\", \"units\": 1, \"max_rows\": 9},"
    "{\"type\": \"embedding_bag\", \"name\": \"deep\", \"units\": 3, \"max_rows\": 9},"
    "{\"type\": \"flatten\", \"name\": \"a\", \"input\": \"wide\"},"
    "{\"type\": \"flatten\", \"name\": \"b\", \"input\": \"deep\"},"
    "{\"type\": \"flatten\", \"name\": \"c\", \"input\": \"numbers\"},"
    "{\"type\": \"concat\", \"inputs\": [\"a\", \"b\", \"c\"]},"
    "{\"type\": \"dense\", \"name\": \"fc\", \"units\": 1}, {\"type\": \"sigmoid_cross_entropy\"}]}";

static const struct backend *cpu;
static int n_plans; /* plans so far; each must leave the first two layers to the host */

static enum status create_in_floats(const struct backend_plan_config *cfg, struct plan **out)
{
    struct backend_plan_config floats = *cfg;
    floats.precision = BACKEND_FP32;
    floats.rounded = NULL;
    assert_non_null(cfg->mine);
    assert_memory_equal(cfg->mine, "\0\0\1\1\1\1\1\1", 8);
    n_plans++;
    return cpu->plan_create(&floats, out);
}

static void layers_on_host_are_not_measured(void **state)
{
    struct backend backend = *cpu;
    struct tower_plan towers = {.n = 1};
    struct model *m = NULL;
    struct chunks *chunks = NULL;
    float params[14] = {0};
    uint8_t *rounded = NULL;
    backend.plan_create = create_in_floats;
    towers.tower[0] = (struct tower_spec){
        .own = {.backend = &backend, .n_threads = 1, .precision = BACKEND_BF16}, .n = BATCH};
    assert_int_equal(model_parse(text, strlen(text), "test.json", 0, &m), ST_OK);
    assert_int_equal(chunks_create(m->params, m->n_params, CHUNKS_DEFAULT_BYTES, &chunks), ST_OK);
    assert_true(chunks->n_elems == 14);
    const struct rounding_request r = {
        .towers = &towers, .model = m, .chunks = chunks, .params = params};
    assert_int_equal(rounding_measure(&r, &rounded), ST_OK);
    assert_int_equal(n_plans, N_PLANS);
    for (int i = 0; i < m->n_layers; i++)
        assert_true(rounded[i] == 0 || m->layers[i].kind == LAYER_DENSE);
    free(rounded);
    chunks_destroy(chunks);
    model_destroy(m);
}

int main(void)
{
    log_init("worker", 0, LOG_LEVEL_INFO);
    if (backend_open("cpu", WEIR_TEST_BACKEND_DIR, &cpu) != ST_OK)
        return skip_program("the CPU backend was not built");
    return RUN_TESTS(layers_on_host_are_not_measured);
}
