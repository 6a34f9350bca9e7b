/* tests/sim/oracle_rows.h - the right rows of every version of every bucket (row_model.h). In
 * lockstep they follow from the chain of plans alone, and in the other modes from the contributions
 * in the order of their arrival, like the values of chunks (oracle.h).
 * Owns: its tables, for the run. Threads: one. Errors: sim_fail I2, I3, I7, rows. */
#ifndef TESTS_SIM_ORACLE_ROWS_H
#define TESTS_SIM_ORACLE_ROWS_H
#include "ps/rows/bucket_copy.h"
#include "tests/sim/oracle_impl.h"

/* Prepares a new generation. */
void oracle_rows_planned(struct generation *g);
/* Checks a bucket at the start of a generation, and all its readable versions. */
void oracle_rows_begin(const struct net_plan *p, int chunk, const struct bucket *b);
/* Checks all readable versions of a bucket that a server has. */
void oracle_rows_bucket(struct oracle_place at, const struct bucket *b, const char *what);

/* A part of a bucket that was copied. */
struct oracle_part {
    int64_t version;
    struct bucket_entries entries;
    bool has_after, has_more; /* keys above `after`; has_more: up to the last one */
    uint64_t after;
};
/* Checks entries that a server writes, sends or reads. */
void oracle_rows_part(struct oracle_place at, const struct oracle_part *part, const char *what);
/* Checks the rows that a worker has received in a generation of this ps 0. */
struct oracle_received {
    uint64_t generation, ps0;
    int chunk;
    int64_t version;
    size_t n;
    const uint64_t *keys;
    const float *values;
};
void oracle_rows_received(const struct oracle_received *r);
/* Returns true if the contributions to a step exceed the bound of a bucket, in lockstep. */
bool oracle_rows_is_full(uint64_t generation, uint64_t ps0, int64_t step);
/* Checks a contribution that a server has handled: the version before and after. */
void oracle_rows_pushed(int server, const struct sim_msg *m, int64_t before,
                        const struct bucket *b);

#endif
