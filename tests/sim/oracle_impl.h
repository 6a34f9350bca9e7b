/* tests/sim/oracle_impl.h - the generations that servers have begun, shared by the oracle of chunks
 * (oracle.c) and that of rows (oracle_rows.c). Private to these files.
 * Owns: nothing. Threads: one. Errors: none. */
#ifndef TESTS_SIM_ORACLE_IMPL_H
#define TESTS_SIM_ORACLE_IMPL_H
#include "tests/sim/oracle.h"

enum { MAX_STEPS = 16 }; /* versions of a chunk that a generation can make */
/* Limit of a generation's members. A worker that joined, but did not receive its number before ps 0
 * died, receives a second number. The first number is a member until it counts as late. */
enum { MAX_MEMBERS = 2 * SIM_WORKERS };

/* The right state of one chunk, computed from the contributions that arrived, in modes other than
 * lockstep. */
struct shadow {
    struct oracle_state state;
    int n_counted, n_partial;
    uint64_t *counted; /* identities of the contributions that count in the versions so far */
    uint64_t partial[MAX_MEMBERS];  /* ranks whose contributions count for the next version */
    uint64_t position[MAX_MEMBERS]; /* their samples */
    float sum[SIM_ELEMS];
    bool has_gradient; /* a contribution in `sum` has a gradient */
};

/* A batch that contributed to the model's first chunk. */
struct batch_read {
    uint64_t position;
    int64_t version; /* version that the contribution made */
};

struct generation {
    /* ps0: incarnation that made the plan, because two lives of ps 0 may use the same number */
    uint64_t number, ps0;
    uint32_t life[SIM_SERVERS]; /* life of each server that has begun it */
    /* generation that this one continues; NULL: this is the first one */
    const struct generation *base;
    int64_t step;
    uint64_t position;
    int n_members, member[MAX_MEMBERS + 1];
    int n_chunks, shard[SIM_PIECES];
    enum plan_source source;
    int64_t known[SIM_CHUNKS]; /* highest version of each chunk that is already computed */
    struct oracle_state state[SIM_CHUNKS][MAX_STEPS]; /* states from `step` on */
    struct shadow shadow[SIM_PIECES]; /* a bucket uses only the list of contributions */
    struct generation_rows *rows;     /* rows of the buckets (oracle_rows.c); NULL: no tables */
    struct batch_read *read; /* batches of the first chunk, of all generations along the chain */
    int n_read, most;        /* most: largest number of members of a generation of the chain */
};

/* Returns the generation with that number of that ps 0; NULL: no server began it. */
struct generation *oracle_generation(uint64_t number, uint64_t ps0);
/* Returns the generation of that number that this life of the server has begun; NULL: none. */
struct generation *oracle_generation_at(int server, uint64_t number);
/* Returns the first sample of the step. */
uint64_t oracle_position(const struct generation *g, int64_t step);
/* Notes a contribution that counts, and checks that it counts once. */
void oracle_count_push(struct shadow *s, const struct sim_msg *m);
/* Copies the contributions that counted before. */
void oracle_keep_counted(struct shadow *s, const struct shadow *from);

#endif
