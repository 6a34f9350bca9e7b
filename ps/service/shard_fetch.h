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

struct shard_fetch_request {
    const struct net_plan *plan; /* MEMORY */
    int self;                    /* this server's number in it */
    const char *address;         /* as in the plan's holders */
    struct store *to;            /* without values yet */
    struct store *before;        /* this server's of the generation before; NULL: it had none */
};

#define SHARD_FETCH_ALL UINT64_MAX

struct shard_fetch;
enum status shard_fetch_create(struct shard_fetch **out);
void shard_fetch_destroy(struct shard_fetch *g); /* NULL is fine */
enum status shard_fetch_run(struct shard_fetch *g, const struct shard_fetch_request *request);
/* Nothing is kept from the last run: the next generation goes on from elsewhere. */
void shard_fetch_forget(struct shard_fetch *g);
/* Ends the run for this generation with ST_CANCELLED, be it under way or still to come; of all
 * generations: SHARD_FETCH_ALL. */
void shard_fetch_cancel(struct shard_fetch *g, uint64_t generation);

#endif
