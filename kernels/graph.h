/* kernels/graph.h - the readers of each layer's output, and facts that follow from them for a plan
 * that computes all layers or only some of them (backend_plan_config.mine). Owns: nothing. Threads:
 * any.
 * Errors: none. */
#ifndef KERNELS_GRAPH_H
#define KERNELS_GRAPH_H
#include "kernels/backend.h"

/* Readers of one layer's output, as a plain value. A layer that reads the output two times counts
 * as two readers. */
struct graph_node {
    int mine;
    int n_readers;   /* readers of the layer's output in all plans */
    int own_readers; /* readers of the layer's output in this plan */
    int reader;      /* the only reader of the output, if this plan computes both layers; otherwise
                      * -1 */
    /* true: the layer or one before it has parameters or is on the host, so the layer has a
     * backward, and there is a gradient with respect to its output */
    int trained;
};

/* Fills node[n_layers]. */
void graph_fill(const struct backend_plan_config *cfg, struct graph_node *node);
/* Returns the number of this plan's layers that read the image. */
int graph_image_readers(const struct backend_plan_config *cfg);

/* Returns true if this plan computes the layer and another plan reads its output. */
static inline int graph_exported(const struct graph_node *node)
{
    return node->mine && node->n_readers > node->own_readers;
}

/* Returns true if another plan computes the layer and a layer of this plan reads its output. */
static inline int graph_imported(const struct graph_node *node)
{
    return !node->mine && node->own_readers > 0;
}

/* Returns true if there is a gradient with respect to input k of the layer. */
static inline int graph_input_trained(const struct graph_node *node, const struct layer *l, int k)
{
    return l->input[k] >= 0 && node[l->input[k]].trained;
}

#endif
