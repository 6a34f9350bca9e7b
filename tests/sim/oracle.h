/* tests/sim/oracle.h - the right bits of every version of every chunk. In lockstep they follow from
 * the chain of plans alone: version s+1 = update(version s, mean over exactly the samples from
 * position(s) on). In the other modes they follow from the contributions in the order in which they
 * came, each at most once.
 * Owns: its tables, for the run. Threads: one. Errors: sim_fail I2, I3, I4, I6, term. */
#ifndef TESTS_SIM_ORACLE_H
#define TESTS_SIM_ORACLE_H
#include "net/wire/plan.h"
#include "tests/sim/job.h"
#include "tests/sim/net.h"

struct oracle_state { /* of one chunk */
    int64_t version;  /* -1: not there */
    int n_slots;
    float value[SIM_ELEMS], slots[SIM_SLOTS];
};

void oracle_reset(void);
/* ps 0 has made this plan, and is past no generation of its own. */
void oracle_planned(const struct net_plan *p);
/* A generation begins at a server (by its node; it is in none twice). In other modes than lockstep
 * each of its chunks is given. */
void oracle_begin(int server, const struct net_plan *p);
void oracle_begin_chunk(const struct net_plan *p, int chunk, const struct oracle_state *now);
/* The bits of a version that a server has, sends, writes or reads. slots: NULL: not looked at. */
struct oracle_place {
    int server; /* node */
    uint64_t generation;
    int chunk;
};
void oracle_version(struct oracle_place at, int64_t step, const float *value, const float *slots,
                    const char *what);
/* A server is about to handle a contribution, at that version. */
void oracle_pushing(int server, const struct sim_msg *m, int64_t before);
/* A server handled a contribution; versions before and after, and the value after. */
void oracle_pushed(int server, const struct sim_msg *m, int64_t before, int64_t after,
                   const float *value);
/* A worker reads these for its step, in a generation of this ps 0's. */
void oracle_samples(uint64_t generation, uint64_t ps0, const struct net_place *place, int64_t step,
                    uint64_t position);
int64_t oracle_n_checks(void);

/* Where the workers are regions, a chunk's version of the parent's in a generation. */
struct ledger_step {
    uint64_t generation, ps0;
    int chunk, n_members;
    int64_t step;
};
/* It has these bits. */
void oracle_parent(const struct ledger_step *at, const float *value, const char *what);
/* Adds what the member has contributed to it and those before. *root: where these begin. Returns
 * the member's incarnation whose contribution is in that version itself; 0: it did not take part.
 */
uint64_t oracle_counted(const struct ledger_step *at, int member, double sum[SIM_ELEMS],
                        uint64_t *root, uint64_t *root_ps0);
/* Of the versions of an earlier generation (`of`), the last that this one goes on from; -1: none.
 */
int64_t oracle_keeps(uint64_t generation, uint64_t ps0, uint64_t of, uint64_t of_ps0);

#endif
