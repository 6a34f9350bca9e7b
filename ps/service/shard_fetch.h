/* ps/service/shard_fetch.h - fills a generation's store from the servers of the generation before:
 * this server's own chunks by reference, other servers' chunks by fetching, server after server.
 *
 * A fetch from a server continues while chunks arrive; a server that fails does not prevent the
 * fetches from the next servers. Chunks that a failed or cancelled call of shard_fetch_run fetched
 * are kept. The next call for the same earlier generation and step does not fetch them again: a
 * chunk's version at that step is the same for every plan.
 *
 * Owns:    during a call, a channel to the server that it fetches from; after a call that failed,
 *          until the next call or forget, references to the chunks that it fetched.
 * Threads: one runs and forgets, any cancels.
 * Errors:  those of fetch_client_run; ST_NOT_FOUND, ST_RANGE: this server itself lacks a chunk;
 *          logged, with the progress. */
#ifndef PS_SERVICE_SHARD_FETCH_H
#define PS_SERVICE_SHARD_FETCH_H
#include "net/wire/plan.h"
#include "ps/store/store.h"

struct shard_fetch_request {
    const struct net_plan *plan; /* plan with the source MEMORY */
    int self;                    /* number of this server in the plan */
    const char *address;         /* address of this server, written like the plan's holders */
    struct store *to;            /* store without values */
    struct store *before;        /* store of this server in the generation before; NULL: none */
};

#define SHARD_FETCH_ALL UINT64_MAX

struct shard_fetch;
enum status shard_fetch_create(struct shard_fetch **out);
void shard_fetch_destroy(struct shard_fetch *g); /* NULL is fine. */
enum status shard_fetch_run(struct shard_fetch *g, const struct shard_fetch_request *request);
/* Drops the kept chunks: the next generation resumes from another point. */
void shard_fetch_forget(struct shard_fetch *g);
/* Ends the call of shard_fetch_run for this generation, whether in progress or made later, with
 * ST_CANCELLED; SHARD_FETCH_ALL stands for every generation. */
void shard_fetch_cancel(struct shard_fetch *g, uint64_t generation);

#endif
