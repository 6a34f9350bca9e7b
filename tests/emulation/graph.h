/* tests/emulation/graph.h - CUDA graphs: what a stream is told while it is captured is noted, not
 * done, and done at each launch of the graph. Events are refused but for external ones, which each
 * launch records or waits for anew, as are waits of the host, memory, and copies of memory that is
 * not pinned; what is refused invalidates the capture.
 * Threads: as the stream's. */
#ifndef TESTS_EMULATION_GRAPH_H
#define TESTS_EMULATION_GRAPH_H
#include <cuda_runtime_api.h>
#include <stddef.h>

struct CUgraph_st;
struct CUgraph_st **emulation_capture(struct CUstream_st *s); /* what captures it; NULL: nothing */
void emulation_graph_add(struct CUgraph_st *g, void (*run)(const void *args), const void *args,
                         size_t bytes);
/* The same for what queues something itself. */
void emulation_graph_add_call(struct CUgraph_st *g,
                              void (*queue)(struct CUstream_st *s, const void *args),
                              const void *args, size_t bytes);
/* The capture is invalidated; returns the code. */
cudaError_t emulation_graph_break(struct CUgraph_st *g, cudaError_t code);

#endif
