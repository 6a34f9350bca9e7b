/* tests/sim/second.h - a region's second server: its process, the calls of its driver at ps 0
 * (second.c), and the messages between the two servers (peer.c).
 * Owns: nothing beyond the run. Threads: one. Errors: sim_fail. */
#ifndef TESTS_SIM_SECOND_H
#define TESTS_SIM_SECOND_H
#include "tests/sim/region.h"

int second_node(int head);
bool region_is_second(int node);
struct region *region_head(struct region *r); /* process of its ps 0 */
/* process of its second server; NULL: that process does not run */
struct region *region_second(const struct region *r);
/* Returns the region whose ledger currently checks the versions of this process; NULL: none. */
struct region *ledger_of(struct region *r);
void second_reset(void);
void second_start(struct region *r);
void second_die(struct region *r);
void second_timer(struct region *r, int what, int64_t number);
/* Lets a worker join at the second server, too. *init: the worker must send initial values. */
bool second_join(struct region *h, struct group_worker *g, const struct net_join *like,
                 const struct net_join_reply *told, bool *init);
/* Sends a worker's piece to the second server. */
void second_ask(struct region *h, struct group_worker *g, const struct net_piece *p,
                const float *data);
void second_close(struct region *h, struct group_worker *g);
void second_leave(struct region *h, const struct net_leave *l);

/* peer.c */

void gate_request(struct region *r, struct sim_call *k);

#endif
