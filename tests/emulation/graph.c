/* tests/emulation/graph.c - see the header. With WEIR_EMULATION_NO_GRAPHS in the environment every
 * capture fails at its end, as on a driver that cannot capture what a library does. */
#include "tests/emulation/graph.h"
#include "tests/emulation/errors.h"
#include "tests/emulation/runtime.h"
#include "tests/emulation/streams.h"
#include <stdlib.h>
#include <string.h>

struct node {
    void (*run)(const void *args); /* queued at a launch; or else */
    void (*queue)(struct CUstream_st *s, const void *args);
    void *args;
    size_t bytes;
};

struct CUgraph_st {
    struct node *nodes;
    int n, cap;
    int broken;
};

struct CUgraphExec_st {
    struct CUgraph_st *graph;
};

static void *take(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (p == NULL)
        emulation_fail("no memory");
    return p;
}

static void node_add(struct CUgraph_st *g, struct node node, const void *args)
{
    if (g->n == g->cap) {
        g->cap = g->cap * 2 + 64;
        g->nodes = realloc(g->nodes, (size_t)g->cap * sizeof *g->nodes);
        if (g->nodes == NULL)
            emulation_fail("no memory");
    }
    node.args = take(node.bytes);
    memcpy(node.args, args, node.bytes);
    g->nodes[g->n++] = node;
}

void emulation_graph_add(struct CUgraph_st *g, void (*run)(const void *args), const void *args,
                         size_t bytes)
{
    node_add(g, (struct node){.run = run, .bytes = bytes}, args);
}

void emulation_graph_add_call(struct CUgraph_st *g,
                              void (*queue)(struct CUstream_st *s, const void *args),
                              const void *args, size_t bytes)
{
    node_add(g, (struct node){.queue = queue, .bytes = bytes}, args);
}

cudaError_t emulation_graph_break(struct CUgraph_st *g, cudaError_t code)
{
    g->broken = 1;
    return code;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *out)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    *out =
        *emulation_capture(s) != NULL ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return emulation_answer(cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    struct CUgraph_st **capture = emulation_capture(s);
    if (mode != cudaStreamCaptureModeThreadLocal)
        emulation_fail("a capture that other threads' work would spoil");
    cudaError_t code = emulation_forbid();
    if (code != cudaSuccess)
        return code;
    if (*capture != NULL)
        return emulation_answer(cudaErrorIllegalState);
    *capture = take(sizeof **capture);
    emulation_capturing(*capture);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    struct CUgraph_st **capture = emulation_capture(s), *g = *capture;
    *out = NULL;
    if (g == NULL)
        return emulation_answer(cudaErrorIllegalState);
    if (!emulation_is_capturing(g))
        return emulation_answer(cudaErrorStreamCaptureWrongThread);
    *capture = NULL;
    emulation_capturing(NULL);
    if (g->broken || emulation_fault(__func__) || getenv("WEIR_EMULATION_NO_GRAPHS") != NULL) {
        cudaGraphDestroy(g);
        return emulation_answer(cudaErrorStreamCaptureInvalidated);
    }
    *out = g;
    return emulation_answer(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    for (int i = 0; i < g->n; i++)
        free(g->nodes[i].args);
    free(g->nodes);
    free(g);
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    if (nodes != NULL)
        emulation_fail("cudaGraphGetNodes: more is asked for than how many there are");
    *n = (size_t)graph->n;
    return emulation_answer(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    (void)flags;
    struct CUgraphExec_st *exec = take(sizeof *exec);
    exec->graph = take(sizeof *exec->graph);
    *exec->graph = *graph; /* the graph itself is destroyed next, and instantiated once */
    *graph = (struct CUgraph_st){0};
    *out = exec;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    if (*emulation_capture(s) != NULL)
        return emulation_answer(
            emulation_graph_break(*emulation_capture(s), cudaErrorStreamCaptureUnsupported));
    int code = emulation_before_launch(s);
    if (code != 0)
        return (cudaError_t)code;
    for (int i = 0; i < exec->graph->n; i++) {
        const struct node *node = &exec->graph->nodes[i];
        if (node->queue != NULL)
            node->queue(s, node->args);
        else
            emulation_later(s, node->run, node->args, node->bytes);
    }
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    cudaGraphDestroy(exec->graph);
    free(exec);
    return cudaSuccess;
}
