/* kernels/graph.c - fills the table of readers that graph.h declares, in one pass over the inputs
 * of all layers, and marks each layer that has parameters, is on the host, or reads a marked
 * layer. */
#include "kernels/graph.h"

void graph_fill(const struct backend_plan_config *cfg, struct graph_node *node)
{
    for (int i = 0; i < cfg->n_layers; i++) {
        const struct layer *l = &cfg->layers[i];
        node[i] = (struct graph_node){.mine = cfg->mine == NULL || cfg->mine[i],
                                      .reader = -1,
                                      .trained = l->n_params > 0 || layer_is_on_host(l->kind)};
        for (int k = 0; k < l->n_inputs; k++) {
            if (l->input[k] < 0)
                continue;
            struct graph_node *from = &node[l->input[k]];
            node[i].trained |= from->trained;
            from->n_readers++;
            from->own_readers += node[i].mine;
            from->reader = from->n_readers == 1 && from->mine && node[i].mine ? i : -1;
        }
    }
}

int graph_image_readers(const struct backend_plan_config *cfg)
{
    int n = 0;
    for (int i = 0; i < cfg->n_layers; i++)
        for (int k = 0; k < cfg->layers[i].n_inputs; k++)
            n += cfg->layers[i].input[k] < 0 && (cfg->mine == NULL || cfg->mine[i]);
    return n;
}
