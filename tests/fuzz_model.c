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
        require(l->n_inputs >= !layer_is_on_host(l->kind) && l->n_inputs <= LAYER_MAX_INPUTS);
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

/* Checks that each layer on the host has a table, and reads an input of keys. */
static void require_tables(const struct model *m)
{
    int next = 0;
    for (int i = 0; i < m->n_layers; i++) {
        const struct layer *l = &m->layers[i];
        if (!layer_is_on_host(l->kind))
            continue;
        require(next < m->n_tables && m->tables[next].layer == i && m->tables[next].max_rows > 0);
        require(l->n_inputs == 0 && l->n_params == 0 && l->keys < m->inputs.n_keys);
        require(l->out.n_dims == 3 && l->out.dim[0] == m->inputs.keys[l->keys].n_columns);
        require(l->out.dim[1] == 1 && l->out.dim[2] >= 1 && l->out.dim[2] <= TABLES_MAX_DIM);
        next++;
    }
    require(next == m->n_tables);
}

/* Checks that the inputs alone, and the text for workers that join, lead to the same inputs. */
static void require_inputs(const struct model *m, const char *text, size_t size)
{
    struct model_inputs in = {0}, resolved = {0};
    require(model_inputs_parse(text, size, "fuzz", &in) == ST_OK);
    require(model_inputs_parse(m->text, strlen(m->text), "fuzz", &resolved) == ST_OK);
    require(in.n_keys == m->inputs.n_keys && resolved.n_keys == m->inputs.n_keys);
    require(in.named == m->inputs.named && strcmp(in.dense, m->inputs.dense) == 0);
    for (int i = 0; i < m->inputs.n_keys; i++) {
        const struct model_key_input *k = &m->inputs.keys[i], *r = &resolved.keys[i];
        require(k->n_columns >= 1 && k->n_columns <= MODEL_MAX_KEY_COLUMNS);
        require(r->n_columns == k->n_columns && r->are_numbers == k->are_numbers);
        require((r->columns == NULL) == (k->columns == NULL));
        require(!k->columns || strcmp(r->columns, k->columns) == 0);
        require(strcmp(in.keys[i].name, k->name) == 0 && strcmp(r->name, k->name) == 0);
    }
    model_inputs_free(&resolved);
    model_inputs_free(&in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct model_data with_keys = {.sample = {3, {1, 1, 4}},
                                                .classes = 2,
                                                .n_keys = 2,
                                                .keys = {{2, "city,\xc3\xa9"}, {3, NULL}}};
    struct model *m = NULL;
    struct chunks *chunks = NULL;
    int64_t n = 0;
    if (model_parse_for((const char *)data, size, "fuzz", size % 16 == 15 ? 9 : 0,
                        size % 2 ? &with_keys : NULL, &m) != ST_OK) {
        struct model_inputs in = {0};
        require(m == NULL);
        (void)model_inputs_parse((const char *)data, size, "fuzz", &in);
        model_inputs_free(&in);
        return 0;
    }
    require(m->n_layers > 0 && m->n_layers <= MODEL_MAX_LAYERS && m->n_params > 0);
    require_graph(m);
    require_tables(m);
    require_inputs(m, (const char *)data, size);
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
