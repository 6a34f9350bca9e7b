/* tests/sim/worker_rows.h - the rows of tables that a worker has: it looks up the keys of its batch
 * before a step, by a pull if the last answer lacks some of them, and pushes their gradients.
 * Owns: nothing. Threads: fibers of one thread. Errors: those of net/exchange; sim_fail. */
#ifndef TESTS_SIM_WORKER_ROWS_H
#define TESTS_SIM_WORKER_ROWS_H
#include "net/exchange/exchange.h"
#include "tests/sim/tables.h"

struct worker_rows {
    int node, n_members;
    struct {
        int64_t version; /* version of the rows; -1: none */
        bool has[ROW_MODEL_KEYS];
        float values[ROW_MODEL_KEYS][ROW_MODEL_DIM];
        uint64_t read[ROW_MODEL_KEYS]; /* read keys of the last request */
        size_t n_read;
    } bucket[SIM_BUCKETS];
};

/* Forgets all rows, at the start of a generation. */
void worker_rows_forget(struct worker_rows *w);
/* Receives the rows that the batch at `position` needs. */
enum status worker_rows_look_up(struct worker_rows *w, struct net_exchange *x, uint64_t position);
/* Receives all rows of the last version. */
enum status worker_rows_read_all(struct worker_rows *w, struct net_exchange *x);
/* Pushes the batch's contribution to a bucket. */
enum status worker_rows_push(struct worker_rows *w, struct net_exchange *x, int chunk,
                             uint64_t position);

#endif
