/* tests/emulation/graph.h - CUDA graphs. The calls on a stream during its capture are recorded, not
 * done; each launch of the graph does them. An event that is recorded during the capture stands for
 * this position of the graph. Another stream that waits for the event is captured from then on,
 * too, as a lane of its own, and a launch queues the lane's work on a stream of the graph. The
 * stream where the capture began must wait for all lanes before the end. Each launch records
 * external events, or waits for them, again. Other events are refused, and so are waits of the
 * host, allocations, and copies of memory that is not pinned. A refused call invalidates the
 * capture. Threads: those of the stream. */
#ifndef TESTS_EMULATION_GRAPH_H
#define TESTS_EMULATION_GRAPH_H
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

struct CUgraph_st;
/* State of a stream's capture, and the stream's lane in it. */
struct emulation_capture {
    struct CUgraph_st *graph; /* NULL: none */
    int lane;
};
struct emulation_capture *emulation_capture(struct CUstream_st *s);
void emulation_capture_end(const struct CUgraph_st *g); /* g captures no stream any more */
/* Records work of a captured stream for each launch. */
void emulation_graph_add(struct CUstream_st *s, void (*run)(const void *args), const void *args,
                         size_t bytes);
/* Records a function that queues work itself. */
void emulation_graph_add_call(struct CUstream_st *s,
                              void (*queue)(struct CUstream_st *s, const void *args),
                              const void *args, size_t bytes);
/* Calls drop(args) when the graph that contains the last recorded work is destroyed. */
void emulation_graph_on_drop(struct CUstream_st *s, void (*drop)(const void *args));

/* Returns, for tests, the number of pieces of work that launches have queued since the last call on
 * streams other than their own. */
int emulation_branch_nodes(void);

/* The position of a capture for which an event stands. */
struct emulation_place {
    uint64_t capture; /* number of the capture; 0: the event was not recorded in one */
    int at;
};
struct emulation_place
emulation_graph_record(struct CUstream_st *s); /* position of the captured stream */
/* Makes the stream wait for the position. If the stream was not captured before, it is from now on.
 * Returns CUDA's error. */
cudaError_t emulation_graph_wait(struct CUstream_st *s, struct emulation_place place);
/* Invalidates the capture. Returns `code`. */
cudaError_t emulation_graph_break(struct CUgraph_st *g, cudaError_t code);

#endif
