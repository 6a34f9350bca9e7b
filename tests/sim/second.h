/* tests/sim/second.h - a region's second server: its process (second.c), what its driver at ps 0
 * does with it, and how the two speak (peer.c). Owns: nothing beyond the run. Threads: one.
 * Errors: sim_fail. */
#ifndef TESTS_SIM_SECOND_H
#define TESTS_SIM_SECOND_H
#include "tests/sim/region.h"

int second_node(int head);
int region_is_second(int node);
struct region *region_head(struct region *r);
struct region *region_second(const struct region *r); /* of a head; NULL: it is not there */
/* Whose ledger has its versions now; NULL: none. */
struct region *ledger_of(struct region *r);
void second_reset(void);
void second_start(struct region *r);
void second_die(struct region *r);
void second_timer(struct region *r, int what, int64_t number);
int second_join(struct region *h, struct group_worker *g, const struct net_join *like,
                const struct net_join_reply *told, int *init);
void second_ask(struct region *h, struct group_worker *g, const struct net_piece *p,
                const float *data);
void second_close(struct region *h, struct group_worker *g);
void second_leave(struct region *h, const struct net_leave *l);

/* peer.c */
void gate_request(struct region *r, struct sim_call *k);

#endif
