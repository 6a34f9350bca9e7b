/* kernels/graph.h - who reads whose output in a network, and what follows from that for a plan that
 * computes all of its layers or some (backend_plan_config.mine).
 * Owns: nothing. Threads: any. Errors: none. */
#ifndef KERNELS_GRAPH_H
#define KERNELS_GRAPH_H
#include "kernels/backend.h"

/* A layer; one that reads an output twice counts as two readers. A value. */
struct graph_node {
    int mine;
    int n_readers;   /* of its output, in all plans */
    int own_readers; /* of these, in layers of mine */
    int reader;      /* the layer that alone reads it, both mine; -1: there is no such */
    int trained;     /* it or one that it follows from has parameters: there is a backward, and a
                        gradient by its output */
};

/* node: [n_layers]. */
void graph_fill(const struct backend_plan_config *cfg, struct graph_node *node);
/* Of the image, in layers of mine. */
int graph_image_readers(const struct backend_plan_config *cfg);

/* Is mine, and other plans read it too, or alone. */
static inline int graph_exported(const struct graph_node *node)
{
    return node->mine && node->n_readers > node->own_readers;
}

/* Is not mine, but read by layers of mine. */
static inline int graph_imported(const struct graph_node *node)
{
    return !node->mine && node->own_readers > 0;
}

/* The input's part in a gradient: is there one by the layer's k-th input? */
static inline int graph_input_trained(const struct graph_node *node, const struct layer *l, int k)
{
    return l->input[k] >= 0 && node[l->input[k]].trained;
}

#endif
