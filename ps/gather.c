/* ps/gather.c - see gather.h. */
#include "ps/gather.h"
#include "base/log.h"
#include "net/fetch.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { FETCH_MS = 60000 }; /* for one server's chunks */

struct ps_gather {
    pthread_mutex_t lock;            /* guards all below */
    uint64_t cancelled;              /* generation; GATHER_ALL stays */
    uint64_t generation;             /* that the client fetches for */
    struct net_fetch_client *client; /* NULL: nothing is being fetched */
};

enum status ps_gather_create(struct ps_gather **out)
{
    struct ps_gather *g = calloc(1, sizeof *g);
    if (!g)
        return ST_NOMEM;
    pthread_mutex_init(&g->lock, NULL);
    *out = g;
    return ST_OK;
}

void ps_gather_destroy(struct ps_gather *g)
{
    if (!g)
        return;
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* Under the lock. */
static int is_cancelled(const struct ps_gather *g, uint64_t generation)
{
    return g->cancelled == generation || g->cancelled == GATHER_ALL;
}

void ps_gather_cancel(struct ps_gather *g, uint64_t generation)
{
    pthread_mutex_lock(&g->lock);
    if (g->cancelled != GATHER_ALL)
        g->cancelled = generation;
    if (g->client && is_cancelled(g, g->generation))
        net_fetch_cancel(g->client);
    pthread_mutex_unlock(&g->lock);
}

/* The client that a cancel is to end; ST_CANCELLED: one came before. */
static enum status set_client(struct ps_gather *g, struct net_fetch_client *client,
                              uint64_t generation)
{
    pthread_mutex_lock(&g->lock);
    g->client = client;
    g->generation = generation;
    enum status st = is_cancelled(g, generation) ? ST_CANCELLED : ST_OK;
    pthread_mutex_unlock(&g->lock);
    return st;
}

static enum status take_own(const struct ps_gather_request *r, int chunk)
{
    struct ps_taken taken;
    enum status st =
        r->before ? ps_store_take(r->before, chunk, r->plan->step, &taken) : ST_NOT_FOUND;
    if (st != ST_OK) {
        LOG_E("generation %" PRIu64 " cannot begin: chunk %d of generation %" PRIu64
              " is not here at step %" PRId64,
              r->plan->generation, chunk, r->plan->before, r->plan->step);
        return st;
    }
    st = ps_store_give(r->to, chunk, &taken);
    ps_taken_drop(&taken);
    return st;
}

static enum status on_fetched(void *ctx, const struct net_fetched *c)
{
    const struct ps_gather_request *r = ctx;
    if (job_in_lockstep(&r->plan->job) && c->version != r->plan->step)
        return ST_PROTOCOL;
    const struct ps_copied copied = {c->version, c->value, c->slots, c->n_value, c->n_slots};
    return ps_store_copy(r->to, c->chunk, &copied);
}

/* All of this server's chunks that the holder of that number has. */
static enum status fetch_from(struct ps_gather *g, const struct ps_gather_request *r, int holder,
                              int *chunk)
{
    const struct net_plan *p = r->plan;
    struct net_fetch_client *client = NULL;
    struct net_fetch_request request = {.generation = p->before, .step = p->step, .chunk = chunk};
    char why[CONTROL_TEXT_BYTES] = "";
    for (int i = 0; i < p->chunks->n_chunks; i++)
        if (p->shard[i] == r->self && p->held_by[i] == holder)
            chunk[request.n++] = i;
    if (request.n == 0)
        return ST_OK;
    enum status st = net_fetch_create(p->holders.addr[holder], &client);
    if (st != ST_OK)
        goto done;
    TRY(set_client(g, client, p->generation));
    st = net_fetch_run(client, &request, FETCH_MS, on_fetched, (void *)r, why);
done:
    set_client(g, NULL, 0);
    net_fetch_destroy(client);
    if (st != ST_OK && st != ST_CANCELLED)
        LOG_E("generation %" PRIu64 " cannot begin: %d chunks of generation %" PRIu64
              " could not be fetched from %s: %s",
              p->generation, request.n, p->before, p->holders.addr[holder],
              why[0] ? why : status_text(st));
    else if (st == ST_OK)
        LOG_I("%d chunks came from %s", request.n, p->holders.addr[holder]);
    return st;
}

static enum status gather(struct ps_gather *g, const struct ps_gather_request *r, int *chunk)
{
    enum status st = ST_OK;
    const struct net_plan *p = r->plan;
    int own = hosts_find(&p->holders, r->address);
    for (int i = 0; i < p->chunks->n_chunks; i++)
        if (p->shard[i] == r->self && p->held_by[i] == own)
            TRY(take_own(r, i));
    for (int i = 0; i < p->holders.n; i++)
        if (i != own)
            TRY(fetch_from(g, r, i, chunk));
done:
    return st;
}

enum status ps_gather_run(struct ps_gather *g, const struct ps_gather_request *request)
{
    int *chunk = malloc(((size_t)request->plan->chunks->n_chunks + 1) * sizeof *chunk);
    if (!chunk) {
        LOG_E("generation %" PRIu64 " cannot begin: out of memory", request->plan->generation);
        return ST_NOMEM;
    }
    enum status st = gather(g, request, chunk);
    free(chunk);
    return st;
}
