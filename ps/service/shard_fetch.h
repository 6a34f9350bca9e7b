/* ps/service/shard_fetch.h - fills a generation's store with what the servers of the one before
 * hold: this server's own chunks by reference, the others' fetched from them, one after the other.
 *
 * A server is waited for as long as chunks come from it; one that fails does not keep the others'
 * from coming. What was fetched by a run that failed or was cancelled is kept, and is not fetched
 * again by the next that goes on from the same generation and step: a chunk's version there is one
 * and the same, whatever plan wants it.
 * Owns:    while it runs, a channel to the server that it fetches from; from a run that did not
 *          succeed to the next (or forget), the chunks that it fetched, by reference.
 * Threads: one runs and forgets, any cancels.
 * Errors:  those of fetch_client_run; ST_NOT_FOUND, ST_RANGE: this server lacks a chunk itself;
 *          logged, and how far it came. */
#ifndef PS_SERVICE_SHARD_FETCH_H
#define PS_SERVICE_SHARD_FETCH_H
#include "net/wire/plan.h"
#include "ps/store/store.h"

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
/* Nothing is kept from the last run: the next generation goes on from elsewhere. */
void ps_gather_forget(struct ps_gather *g);
/* Ends the run for this generation with ST_CANCELLED, be it under way or still to come; of all
 * generations: GATHER_ALL. */
void ps_gather_cancel(struct ps_gather *g, uint64_t generation);

#endif
