/* tests/sim/oracle.h - the right bits of every version of every chunk. In lockstep they follow from
 * the chain of plans alone: version s+1 = update(version s, mean over exactly the samples from
 * position(s) on). In the other modes they follow from the contributions in the order of their
 * arrival, each at most once.
 * Owns: its tables, for the run. Threads: one. Errors: sim_fail I2, I3, I4, I6, term. */
#ifndef TESTS_SIM_ORACLE_H
#define TESTS_SIM_ORACLE_H
#include "checkpoint/names.h"
#include "net/wire/plan.h"
#include "tests/sim/job.h"
#include "tests/sim/net.h"

struct oracle_state { /* state of one chunk */
    int64_t version;  /* -1: the chunk has no version */
    int n_slots;
    /* number of versions that equal the one before, because no member had a gradient */
    uint64_t idle;
    float value[SIM_ELEMS], slots[SIM_SLOTS];
};

void oracle_reset(void);
/* Checks that ps 0 has never reached the generation of its new plan before. */
void oracle_planned(const struct net_plan *p);
/* Checks the plan of a generation that begins at a server (its node). */
void oracle_begin(int server, const struct net_plan *p);
/* Checks a chunk of the server at the start of this generation. */
void oracle_begin_chunk(const struct net_plan *p, int chunk, const struct oracle_state *now);
struct oracle_place {
    int server; /* node */
    uint64_t generation;
    int chunk;
};
/* Checks the bits of a version that a server holds, sends, writes or reads. slots NULL: only the
 * value is checked. */
void oracle_version(struct oracle_place at, int64_t step, const float *value, const float *slots,
                    const char *what);
/* Notes a contribution that a server is about to handle; `before` is the chunk's present
 * version. */
void oracle_pushing(int server, const struct sim_msg *m, int64_t before);
/* Checks a contribution that a server has handled: the version before and after, the new value. */
void oracle_pushed(int server, const struct sim_msg *m, int64_t before, int64_t after,
                   const float *value);
/* Checks the samples that a worker reads for its step, in a generation of this ps 0. */
void oracle_samples(uint64_t generation, uint64_t ps0, const struct net_place *place, int64_t step,
                    uint64_t position);
int64_t oracle_n_checks(void);
void oracle_count_check(void); /* adds 1 to the number of checks */

/* A version of the parent's chunk in a generation, in jobs whose workers are regions. */
struct ledger_step {
    uint64_t generation, ps0;
    int chunk, n_members;
    int64_t step;
};
/* Checks that the version has these bits. */
void oracle_parent(const struct ledger_step *at, const float *value, const char *what);
/* Adds the member's contributions to that version and to all before it. *root: the generation in
 * which these begin. Returns the incarnation with which the member contributed to that version
 * itself; 0: none. */
uint64_t oracle_counted(const struct ledger_step *at, int member, double sum[SIM_ELEMS],
                        uint64_t *root, uint64_t *root_ps0);
/* Returns the last version of an earlier generation (`of`) that this one continues; -1: none. */
int64_t oracle_keeps(uint64_t generation, uint64_t ps0, uint64_t of, uint64_t of_ps0);
/* Returns true if the generation continues this checkpoint of its own or of an earlier one. */
bool oracle_continues(uint64_t generation, uint64_t ps0, struct checkpoint_id from);

#endif
