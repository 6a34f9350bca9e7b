/* tests/emulation/graph.h - CUDA graphs: the calls on a stream during its capture are recorded, not
 * done, and done at each launch of the graph. An event that is recorded during the capture stands
 * for this position of the graph: another stream that waits for it is captured, too, from then on,
 * as a lane of its own, whose work a launch queues on a stream of the graph; the stream where the
 * capture began must wait for all of it before the end. Each launch records external events, or
 * waits for them, again. Other events are refused, and so are waits of the host, memory, and copies
 * of memory that is not pinned; a refused call invalidates the capture. Threads: those of the
 * stream. */
#ifndef TESTS_EMULATION_GRAPH_H
#define TESTS_EMULATION_GRAPH_H
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

struct CUgraph_st;
/* The capture of a stream, and its lane in it. */
struct emulation_capture {
    struct CUgraph_st *graph; /* NULL: none */
    int lane;
};
struct emulation_capture *emulation_capture(struct CUstream_st *s);
void emulation_capture_end(const struct CUgraph_st *g); /* it captures no stream any more */
/* Records work of a captured stream for each launch. */
void emulation_graph_add(struct CUstream_st *s, void (*run)(const void *args), const void *args,
                         size_t bytes);
/* Records a function that queues work itself. */
void emulation_graph_add_call(struct CUstream_st *s,
                              void (*queue)(struct CUstream_st *s, const void *args),
                              const void *args, size_t bytes);

/* Returns, for tests, the pieces of work that launches queued on other streams than their own,
 * since the last call. */
int emulation_branch_nodes(void);

/* The position in a capture that an event stands for. */
struct emulation_place {
    uint64_t capture; /* its number; 0: the event was not recorded in a capture */
    int at;
};
struct emulation_place
emulation_graph_record(struct CUstream_st *s); /* position of the captured stream */
/* Makes the stream, captured or about to be, wait for the position; returns CUDA's error. */
cudaError_t emulation_graph_wait(struct CUstream_st *s, struct emulation_place place);
/* Invalidates the capture; returns the code. */
cudaError_t emulation_graph_break(struct CUgraph_st *g, cudaError_t code);

#endif
