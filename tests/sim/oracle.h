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
/* ps 0 has planned this generation, which nobody may know of yet. */
void oracle_planned(uint64_t generation);
/* A generation begins at a server. In other modes than lockstep each of its chunks is given. */
void oracle_begin(const struct net_plan *p);
void oracle_begin_chunk(const struct net_plan *p, int chunk, const struct oracle_state *now);
/* The bits of a version that a server has, sends, writes or reads. slots: NULL: not looked at. */
void oracle_version(uint64_t generation, int chunk, int64_t step, const float *value,
                    const float *slots, const char *what);
/* A server handled a contribution; versions before and after, and the value after. */
void oracle_pushed(const struct sim_msg *m, int64_t before, int64_t after, const float *value);
/* A worker reads these for its step. */
void oracle_samples(uint64_t generation, const struct net_place *place, int64_t step,
                    uint64_t position);
/* Of the highest generation; -1. */
int64_t oracle_first_step(uint64_t generation);
uint64_t oracle_newest(void);
int64_t oracle_n_checks(void);

#endif
