/* tests/emulation/graph.h - CUDA graphs: what a stream is told while it is captured is noted, not
 * done, and done at each launch of the graph. An event that is recorded meanwhile stands for that
 * place of the graph: another stream that waits for it is captured, too, from then on, as a lane of
 * its own, whose work a launch queues on a stream of the graph's own; the stream where the capture
 * began must wait for all of it before the end. External events are recorded or waited for anew by
 * each launch. Other events are refused, as are waits of the host, memory, and copies of memory
 * that is not pinned; what is refused invalidates the capture. Threads: as the stream's. */
#ifndef TESTS_EMULATION_GRAPH_H
#define TESTS_EMULATION_GRAPH_H
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

struct CUgraph_st;
/* What captures a stream, and as which of its lanes. */
struct emulation_capture {
    struct CUgraph_st *graph; /* NULL: nothing */
    int lane;
};
struct emulation_capture *emulation_capture(struct CUstream_st *s);
void emulation_capture_end(const struct CUgraph_st *g); /* no stream is captured by it any more */
/* Notes what a stream that is captured is to do at each launch. */
void emulation_graph_add(struct CUstream_st *s, void (*run)(const void *args), const void *args,
                         size_t bytes);
/* The same for what queues something itself. */
void emulation_graph_add_call(struct CUstream_st *s,
                              void (*queue)(struct CUstream_st *s, const void *args),
                              const void *args, size_t bytes);

/* For tests: pieces of work that launches queued on other streams than their own, since it was
 * asked last. */
int emulation_branch_nodes(void);

/* The place of a capture that an event stands for. */
struct emulation_place {
    uint64_t capture; /* its number; 0: it was not recorded in one */
    int at;
};
struct emulation_place emulation_graph_record(struct CUstream_st *s); /* that is captured */
/* The stream, captured or about to be, waits for it; or CUDA's error. */
cudaError_t emulation_graph_wait(struct CUstream_st *s, struct emulation_place place);
/* The capture is invalidated; returns the code. */
cudaError_t emulation_graph_break(struct CUgraph_st *g, cudaError_t code);

#endif
