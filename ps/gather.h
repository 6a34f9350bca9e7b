/* ps/gather.h - fills a generation's store with what the servers of the one before hold: this
 * server's own chunks by reference, the others' fetched from them, one after the other.
 * Owns:    while it runs, a channel to the server that it fetches from.
 * Threads: one runs, any cancels.
 * Errors:  those of net_fetch_run; ST_NOT_FOUND, ST_RANGE: this server lacks a chunk itself;
 *          logged, but for ST_CANCELLED. */
#ifndef PS_GATHER_H
#define PS_GATHER_H
#include "net/plan.h"
#include "ps/store.h"

struct ps_gather_request {
    const struct net_plan *plan; /* MEMORY */
    int self;                    /* this server's number in it */
    const char *address;         /* as in the plan's holders */
    struct ps_store *to;         /* without values yet */
    struct ps_store *before;     /* this server's of the generation before; NULL: it had none */
};

#define GATHER_ALL UINT64_MAX

struct ps_gather;
enum status ps_gather_create(struct ps_gather **out);
void ps_gather_destroy(struct ps_gather *g); /* NULL is fine */
enum status ps_gather_run(struct ps_gather *g, const struct ps_gather_request *request);
/* Ends the run for this generation with ST_CANCELLED, be it under way or still to come; of all
 * generations: GATHER_ALL. */
void ps_gather_cancel(struct ps_gather *g, uint64_t generation);

#endif
