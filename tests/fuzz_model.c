/* tests/fuzz_model.c - libFuzzer target: any text in model_parse ends in an error or in a
 * consistent model. Corpus: tests/corpus/model. */
#include "tests/fuzz.h"
#include "worker/model/model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Checks that each layer reads only earlier layers, that the output of each layer but the last is
 * read, and that parameters are numbered in the order of layers. */
static void require_graph(const struct model *m)
{
    int read[MODEL_MAX_LAYERS] = {0}, next = 0;
    for (int i = 0; i < m->n_layers; i++) {
        const struct layer *l = &m->layers[i];
        require(l->n_inputs >= 1 && l->n_inputs <= LAYER_MAX_INPUTS);
        for (int k = 0; k < l->n_inputs; k++) {
            require(l->input[k] >= LAYER_INPUT_IMAGE && l->input[k] < i);
            if (l->input[k] >= 0)
                read[l->input[k]] = 1;
        }
        for (int k = 0; k < l->n_params; k++)
            require(l->param[k] == next++);
        require(m->device[i] == NULL || strlen(m->device[i]) < MODEL_DEVICE_SIZE);
    }
    for (int i = 0; i < m->n_layers - 1; i++)
        require(read[i]);
    for (int k = 0; k < m->n_after; k++)
        require(m->after[k].first >= 0 && m->after[k].first < m->after[k].then &&
                m->after[k].then < m->n_layers);
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
    require_graph(m);
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
