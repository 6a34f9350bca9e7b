/* tests/sim/ledger.h - what must hold of a region's versions, and of what it has contributed
 * (ledger.c). Owns: nothing beyond the run. Threads: one. Errors: sim_fail. */
#ifndef TESTS_SIM_LEDGER_H
#define TESTS_SIM_LEDGER_H
#include "ps/region/region_chunks.h"
#include "tests/sim/oracle.h"

struct region;
struct region_checkpoint;
enum { LEDGER_STEPS = 16, LEDGER_WORDS = 8 };

/* Of a chunk, by version of the region's: its value; what was computed before the parent's word was
 * put on it; what the region has learnt in all up to it, less what was given up. */
struct ledger_chunk {
    float value[LEDGER_STEPS][SIM_ELEMS], computed[LEDGER_STEPS][SIM_ELEMS];
    double learnt[LEDGER_STEPS][SIM_ELEMS];
    int has_base;            /* `learnt` is of the same beginning as the parent's versions */
    uint64_t root, root_ps0; /* generation with which these began */
    struct ledger_word {     /* ps 0's, of a version that another server makes at it */
        uint64_t in;         /* its generation; 0: none */
        int64_t version;
        int has_to, has_from;
        float to[SIM_ELEMS], from[SIM_ELEMS];
        int64_t held; /* the parent's version then */
        uint64_t held_in, held_ps0;
    } word[LEDGER_WORDS];
    int n_words;
    int comes_back;           /* it has taken nothing over since its process was started again */
    int strayed;              /* what it took over then was not all that it had learnt before */
    int64_t parent;           /* the parent's version that was taken over last; -1: none */
    uint64_t generation, ps0; /* in which */
};

void ledger_reset(void);
/* again: its processes go back to the checkpoint, or are new. */
void ledger_start(struct region *r, const struct region_checkpoint *from, int again);
void ledger_first(struct region *r, int chunk, int64_t version, const float *value);
void ledger_made(struct region *r, int chunk, int64_t version, int waits, const float *value);
void ledger_adopted(struct region *r, int chunk, int64_t version, const float *to,
                    const float *from);
/* Of another server's chunk: ps 0 says what becomes of it, and it has become that. */
void ledger_word(struct region *r, uint64_t generation, const struct region_chunk_adoption *w);
void ledger_obeyed(struct region *r, uint64_t generation, int chunk, int64_t version,
                   const float *is);
void ledger_end(struct region *r);
/* A contribution came to a server that may count for version step + 1. */
void ledger_pushed(uint64_t generation, uint64_t ps0, const struct sim_msg *m);
/* What makes a version of the parent's of version `step`: tries one contribution of each member
 * after the other, until they fit. 0: none do. */
typedef int ledger_try(void *ctx, const double *sum, double weight);
int ledger_find(const struct ledger_step *at, ledger_try *fits, void *ctx);
/* Adds that of this rank which did. Returns the incarnation that it came from last. */
uint64_t ledger_counted(const struct ledger_step *at, int rank, double sum[SIM_ELEMS]);

#endif
