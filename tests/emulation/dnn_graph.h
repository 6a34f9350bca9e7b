/* tests/emulation/dnn_graph.h - for tests: what was run of the emulated cuDNN's graphs.
 * Threads: any. */
#ifndef TESTS_EMULATION_DNN_GRAPH_H
#define TESTS_EMULATION_DNN_GRAPH_H

/* The engines, by what is particular about them. */
enum emulation_engine {
    ENGINE_REFUSED,  /* does not finalize */
    ENGINE_BROKEN,   /* does not either, for want of a compiler */
    ENGINE_LARGE,    /* its workspace is larger than any memory */
    ENGINE_HALF,     /* cuts its factors down */
    ENGINE_SHORT,    /* adds in a short type */
    ENGINE_FAILS,    /* proposed where WEIR_EMULATED_GRAPH=fails; cannot be run */
    ENGINE_LOOSE_TC, /* Tensor Cores, no fixed order */
    ENGINE_TC,       /* Tensor Cores */
    ENGINE_TC_TOO,   /* the same */
    ENGINE_LOOSE,    /* no fixed order */
    ENGINE_FIXED,    /* nothing particular */
    ENGINE_PLAIN,    /* by the other mode of the heuristics; no workspace */
    N_ENGINES
};

enum { EMULATION_N_WAYS = 3 }; /* forward, by filter, by data */
enum { EMULATION_WIDE = 12 << 20 };
struct emulation_graphs {
    int engine[N_ENGINES]; /* runs */
    int way[EMULATION_N_WAYS];
    int with_bias, with_relu;
    int not_last; /* with a tensor that is not channels last */
};
/* Since the last call. */
void emulation_graphs_take(struct emulation_graphs *out);

#endif
