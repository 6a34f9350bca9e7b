/* worker/results/export.c - lists the parameters as tensors with the model's shapes and writes the
 * file. */
#include "worker/results/export.h"
#include "base/log.h"
#include "files/safetensors.h"
#include <stdlib.h>

enum status export_write(const char *path, const struct chunks *chunks, const float *flat,
                         const char *const (*metadata)[2], int n_meta)
{
    struct safetensors_tensor *tensors = calloc((size_t)chunks->n_params, sizeof *tensors);
    if (!tensors) {
        LOG_E("%s: out of memory", path);
        return ST_NOMEM;
    }
    for (int i = 0; i < chunks->n_params; i++) {
        const struct net_param *p = &chunks->params[i];
        tensors[i] = (struct safetensors_tensor){
            .name = p->name, .shape = p->shape, .data = flat + p->first};
    }
    struct safetensors_content content = {tensors, chunks->n_params, metadata, n_meta};
    enum status st = safetensors_write(path, &content, NULL);
    free(tensors);
    return st;
}
