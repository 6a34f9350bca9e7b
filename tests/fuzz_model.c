/* tests/fuzz_model.c - libFuzzer target: any text given to model_parse ends in an error or in a
 * model that holds together. Corpus: tests/corpus/model. */
#include "base/log.h"
#include "worker/model.h"
#include <math.h>
#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    log_init("fuzz", -1, LOG_LEVEL_ERROR + 1);
    return 0;
}

static void require(int cond)
{
    if (!cond)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model *m = NULL;
    struct chunks *chunks = NULL;
    int64_t n = 0;
    if (model_parse((const char *)data, size, "fuzz", size % 16 == 15 ? 9 : 0, &m) != ST_OK) {
        require(m == NULL);
        return 0;
    }
    require(m->n_layers > 0 && m->n_layers <= MODEL_MAX_LAYERS && m->n_params > 0);
    for (int i = 0; i < m->n_params; i++)
        n += shape_elems(&m->params[i].shape);
    require(n > 0 && n <= (int64_t)1 << 31);
    require(shape_elems(&m->layers[m->n_layers - 1].out) == m->classes);
    require(chunks_create(m->params, m->n_params, CHUNKS_MAX_BYTES, &chunks) == ST_OK);
    require(chunks->n_elems == n);
    if (n <= 100000) {
        float *flat = malloc((size_t)n * sizeof *flat);
        require(flat != NULL);
        model_init_params(m, size, flat);
        for (int64_t i = 0; i < n; i++)
            require(isfinite(flat[i]));
        free(flat);
    }
    chunks_destroy(chunks);
    model_destroy(m);
    return 0;
}
