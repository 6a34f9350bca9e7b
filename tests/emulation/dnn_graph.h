/* tests/emulation/dnn_graph.h - counts of the runs of the emulated cuDNN's graphs, for tests.
 * Threads: any. */
#ifndef TESTS_EMULATION_DNN_GRAPH_H
#define TESTS_EMULATION_DNN_GRAPH_H

/* The engines. Each has a special property. */
enum emulation_engine {
    ENGINE_REFUSED,  /* cannot be finalized */
    ENGINE_BROKEN,   /* cannot be finalized, because it lacks a compiler */
    ENGINE_LARGE,    /* its workspace is larger than any memory */
    ENGINE_HALF,     /* truncates its factors */
    ENGINE_SHORT,    /* sums in a short type */
    ENGINE_FAILS,    /* proposed if WEIR_EMULATED_GRAPH=fails; cannot run */
    ENGINE_LOOSE_TC, /* Tensor Cores, no fixed order */
    ENGINE_TC,       /* Tensor Cores */
    ENGINE_TC_TOO,   /* Tensor Cores, and a second numerical note */
    ENGINE_LOOSE,    /* no fixed order */
    ENGINE_FIXED,    /* no special property */
    ENGINE_PLAIN,    /* proposed by the fallback heuristic; no workspace */
    N_ENGINES
};

enum { EMULATION_N_WAYS = 3 }; /* forward, gradient of the filter, gradient of the data */
enum { EMULATION_WIDE = 12 << 20 };
struct emulation_graphs {
    int engine[N_ENGINES]; /* number of runs of each engine */
    int way[EMULATION_N_WAYS];
    int with_bias, with_relu;
    int not_last; /* number of runs with a tensor whose channels are not last */
};
/* Returns the counts since the last call, and resets them. */
void emulation_graphs_take(struct emulation_graphs *out);

#endif
