/* tests/emulation/graph.c - see the header. If WEIR_EMULATION_NO_GRAPHS is in the environment,
 * every capture fails at its end, as on a driver that cannot capture a library's calls. */
#include "tests/emulation/graph.h"
#include "tests/emulation/clock.h"
#include "tests/emulation/errors.h"
#include "tests/emulation/runtime.h"
#include "tests/emulation/streams.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LANES = 4 };

struct node {
    int lane;
    void (*run)(const void *args); /* work that a launch queues; NULL: `queue` queues it */
    void (*queue)(struct CUstream_st *s, const void *args);
    void (*drop)(const void *args); /* called when the graph is destroyed; NULL: nothing */
    const char *name;               /* name of the kernel in the timeline (clock.h) */
    void *args;
    size_t bytes;
    /* is_place: the node is a position, number `place`, which the launch passes or waits for */
    int is_place, place;
};

/* The nodes of each lane that precede a position. */
struct before {
    int n[MOST_LANES];
};

struct CUgraph_st {
    uint64_t number;
    struct node *nodes;
    int n, cap, n_work; /* n_work: nodes that are not positions */
    int n_lanes;
    struct before lane[MOST_LANES]; /* predecessors of the next node of each lane */
    struct before *place;
    int n_places, cap_places;
    int broken;
};

struct CUgraphExec_st {
    struct CUgraph_st *graph;
    struct CUstream_st *lane[MOST_LANES]; /* NULL: the stream of the launch */
    struct emulation_point *passed;       /* [graph->n_places] places that this launch has passed */
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
    if (args != NULL) {
        node.args = take(node.bytes);
        memcpy(node.args, args, node.bytes);
        g->n_work++;
        g->lane[node.lane].n[node.lane]++;
    }
    g->nodes[g->n++] = node;
}

void emulation_graph_add(struct CUstream_st *s, void (*run)(const void *args), const void *args,
                         size_t bytes)
{
    const struct emulation_capture *c = emulation_capture(s);
    struct node node = {
        .lane = c->lane, .run = run, .name = emulation_clock_named(), .bytes = bytes};
    node_add(c->graph, node, args);
    emulation_clock_name(NULL);
}

void emulation_graph_add_call(struct CUstream_st *s,
                              void (*queue)(struct CUstream_st *s, const void *args),
                              const void *args, size_t bytes)
{
    const struct emulation_capture *c = emulation_capture(s);
    node_add(c->graph, (struct node){.lane = c->lane, .queue = queue, .bytes = bytes}, args);
}

void emulation_graph_on_drop(struct CUstream_st *s, void (*drop)(const void *args))
{
    const struct CUgraph_st *g = emulation_capture(s)->graph;
    g->nodes[g->n - 1].drop = drop;
}

struct emulation_place emulation_graph_record(struct CUstream_st *s)
{
    const struct emulation_capture *c = emulation_capture(s);
    struct CUgraph_st *g = c->graph;
    if (g->n_places == g->cap_places) {
        g->cap_places = g->cap_places * 2 + 64;
        g->place = realloc(g->place, (size_t)g->cap_places * sizeof *g->place);
        if (g->place == NULL)
            emulation_fail("no memory");
    }
    g->place[g->n_places] = g->lane[c->lane];
    node_add(g, (struct node){.lane = c->lane, .is_place = 1, .place = g->n_places}, NULL);
    return (struct emulation_place){g->number, g->n_places++};
}

/* Returns the graph of this capture if this thread captures it. */
static struct CUgraph_st *captured_as(uint64_t number)
{
    struct CUgraph_st *g;
    for (int k = 0; (g = emulation_captured(k)) != NULL; k++)
        if (g->number == number)
            return g;
    return NULL;
}

cudaError_t emulation_graph_wait(struct CUstream_st *s, struct emulation_place place)
{
    struct emulation_capture *c = emulation_capture(s);
    struct CUgraph_st *g = c->graph != NULL ? c->graph : captured_as(place.capture);
    if (g == NULL || g->number != place.capture)
        return c->graph == NULL ? cudaErrorCapturedEvent
                                : emulation_graph_break(g, cudaErrorStreamCaptureIsolation);
    if (c->graph == NULL) {
        if (g->n_lanes == MOST_LANES)
            emulation_fail("a capture of more streams than are emulated");
        *c = (struct emulation_capture){g, g->n_lanes++};
    }
    for (int k = 0; k < MOST_LANES; k++)
        if (g->lane[c->lane].n[k] < g->place[place.at].n[k])
            g->lane[c->lane].n[k] = g->place[place.at].n[k];
    node_add(g, (struct node){.lane = c->lane, .place = place.at}, NULL);
    return cudaSuccess;
}

cudaError_t emulation_graph_break(struct CUgraph_st *g, cudaError_t code)
{
    g->broken = 1;
    return code;
}

/* Returns true if the first captured stream waits for the work of all other captured streams. */
static int is_joined(const struct CUgraph_st *g)
{
    for (int k = 1; k < g->n_lanes; k++)
        if (g->lane[0].n[k] != g->lane[k].n[k])
            return 0;
    return 1;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *out)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    *out = emulation_capture(s)->graph != NULL ? cudaStreamCaptureStatusActive
                                               : cudaStreamCaptureStatusNone;
    return emulation_answer(cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    static _Atomic uint64_t n_captures;
    struct emulation_capture *c = emulation_capture(s);
    if (mode != cudaStreamCaptureModeThreadLocal)
        emulation_fail("a capture that other threads' work would invalidate");
    cudaError_t code = emulation_answer(cudaSuccess);
    if (code != cudaSuccess)
        return code;
    if (c->graph != NULL)
        return emulation_answer(cudaErrorIllegalState);
    *c = (struct emulation_capture){take(sizeof *c->graph), 0};
    c->graph->number = ++n_captures;
    c->graph->n_lanes = 1;
    emulation_capturing(c->graph);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    const struct emulation_capture *c = emulation_capture(s);
    struct CUgraph_st *g = c->graph;
    *out = NULL;
    if (g == NULL)
        return emulation_answer(cudaErrorIllegalState);
    if (g != captured_as(g->number))
        return emulation_answer(cudaErrorStreamCaptureWrongThread);
    if (c->lane != 0)
        return emulation_answer(cudaErrorStreamCaptureUnmatched);
    emulation_capture_end(g);
    emulation_captures_no_more(g);
    if (!g->broken && !is_joined(g)) {
        cudaGraphDestroy(g);
        return emulation_answer(cudaErrorStreamCaptureUnjoined);
    }
    if (g->broken || emulation_fault(__func__) || getenv("WEIR_EMULATION_NO_GRAPHS") != NULL) {
        cudaGraphDestroy(g);
        return emulation_answer(cudaErrorStreamCaptureInvalidated);
    }
    *out = g;
    return emulation_answer(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    for (int i = 0; i < g->n; i++) {
        if (g->nodes[i].drop != NULL)
            g->nodes[i].drop(g->nodes[i].args);
        free(g->nodes[i].args);
    }
    free(g->nodes);
    free(g->place);
    free(g);
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    if (nodes != NULL)
        emulation_fail("cudaGraphGetNodes: more is asked for than how many there are");
    *n = (size_t)graph->n_work;
    return emulation_answer(cudaSuccess);
}

/* Streams of destroyed graphs. They are kept, because their work may not be done, and an event may
 * have been recorded on them. */
static struct CUstream_st *idle[64];
static int n_idle;
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;

/* Returns a stream of the current device. */
static struct CUstream_st *lane_take(void)
{
    struct CUstream_st *s = NULL;
    pthread_mutex_lock(&idle_lock);
    for (int k = 0; k < n_idle && s == NULL; k++)
        if (emulation_stream_device(idle[k]) == emulation_device()) {
            s = idle[k];
            idle[k] = idle[--n_idle];
        }
    pthread_mutex_unlock(&idle_lock);
    if (s != NULL)
        emulation_finish(s);
    else
        s = emulation_stream_create();
    if (s == NULL)
        emulation_fail("no memory");
    return s;
}

static void lane_give(struct CUstream_st *s)
{
    pthread_mutex_lock(&idle_lock);
    if (n_idle == sizeof idle / sizeof *idle)
        emulation_fail("more graphs with branches than are emulated");
    idle[n_idle++] = s;
    pthread_mutex_unlock(&idle_lock);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    struct CUgraphExec_st *exec = take(sizeof *exec);
    exec->graph = take(sizeof *exec->graph);
    *exec->graph = *graph; /* the caller destroys the graph next, and instantiates it only once */
    *graph = (struct CUgraph_st){0};
    exec->passed = take((size_t)exec->graph->n_places * sizeof *exec->passed + 1);
    for (int k = 1; k < exec->graph->n_lanes; k++)
        exec->lane[k] = lane_take();
    *out = exec;
    return cudaSuccess;
}

static _Atomic int n_branch_nodes;

int emulation_branch_nodes(void)
{
    return atomic_exchange(&n_branch_nodes, 0);
}

static void node_launch(struct CUgraphExec_st *exec, const struct node *node, struct CUstream_st *s)
{
    if (node->lane > 0) {
        s = exec->lane[node->lane];
        n_branch_nodes += node->queue != NULL || node->run != NULL;
    }
    if (node->queue != NULL) {
        node->queue(s, node->args);
    } else if (node->run != NULL) {
        emulation_clock_name(node->name);
        emulation_later(s, node->run, node->args, node->bytes);
    } else if (node->is_place) {
        exec->passed[node->place] = emulation_point(s);
    } else {
        emulation_wait_later(s, &exec->passed[node->place]);
    }
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    if (emulation_capture(s)->graph != NULL)
        return emulation_answer(
            emulation_graph_break(emulation_capture(s)->graph, cudaErrorStreamCaptureUnsupported));
    int code = emulation_before_launch(s);
    if (code != 0)
        return (cudaError_t)code;
    emulation_clock_call();
    for (int i = 0; i < exec->graph->n; i++)
        node_launch(exec, &exec->graph->nodes[i], s);
    return cudaSuccess;
}

/* Does not wait for the graph's work. On a lost card the graph keeps what it refers to. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    cudaError_t code = emulation_answer(cudaSuccess);
    for (int i = 0; i < exec->graph->n && code != cudaSuccess; i++)
        exec->graph->nodes[i].drop = NULL;
    for (int k = 1; k < exec->graph->n_lanes; k++)
        lane_give(exec->lane[k]);
    cudaGraphDestroy(exec->graph);
    free(exec->passed);
    free(exec);
    return code;
}
