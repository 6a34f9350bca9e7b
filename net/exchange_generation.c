/* net/exchange_generation.c - an exchange's generations: how one ends, and how the next begins.
 *
 * ENDS. A planned one ends at an announced step, chunk by chunk: the answer to what makes a chunk's
 * last version is REBASE. The other chunks still need this member's contributions of that step, so
 * streams stay, and break and are joined again as ever, until nothing is under way on them; but
 * whoever waits for the chunk, or pushes to it, is told. Where a join tells of a newer generation,
 * the present one is over at once, and with it whatever is under way.
 *
 * BEGINS. By net_exchange_start alone: ps 0 is asked until it is in another generation. Its answer
 * brings this member's place, the servers and the shard map; links to servers that are gone are
 * closed by the keeper, and all others join anew.
 *
 * All callbacks come from one thread, and lists change in one of them only: there they need no lock
 * to be read. */
#include "base/clock.h"
#include "base/log.h"
#include "net/request.h"
#include <stdlib.h>
#include <string.h>

static int64_t lowest_version(const struct net_exchange *x)
{
    int64_t lowest = INT64_MAX;
    for (int i = 0; i < x->n_chunks; i++)
        if (x->chunks[i].version < lowest)
            lowest = x->chunks[i].version;
    return lowest;
}

/* What was under way and held counts no more; under the lock. */
static void forget_all(struct net_exchange *x)
{
    int64_t lowest = lowest_version(x);
    if (lowest >= 0)
        x->reached = lowest;
    request_forget_all(x);
    for (int i = 0; i < x->n_links; i++)
        x->links[i]->fetched = x->links[i]->joined = 0;
}

void exchange_rebase(struct net_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->rebased = x->ending = 1;
    forget_all(x);
    pthread_cond_broadcast(&x->changed);
    pthread_cond_broadcast(&x->ready);
    pthread_mutex_unlock(&x->lock);
    for (int i = 0; i < x->n_links; i++)
        link_cancel(x->links[i]);
}

/* Servers of a generation, as links: those that are kept, new ones, and those to be closed. */
struct lineup {
    struct link **links, **gone;
    int n, n_gone;
    int *server; /* shard map */
};

static void lineup_free(struct net_exchange *x, struct lineup *u)
{
    for (int i = 0; u->links && i < u->n; i++)
        if (u->links[i] && u->links[i]->index < 0)
            link_destroy(u->links[i]);
    free(u->links);
    free(u->gone);
    free(u->server);
}

static struct link *link_at(const struct net_exchange *x, const char *addr)
{
    for (int i = 1; i < x->n_links; i++)
        if (!strcmp(x->links[i]->addr, addr))
            return x->links[i];
    return NULL;
}

static int lists(const struct hosts *servers, const struct link *l)
{
    return l->index == 0 || hosts_find(servers, l->addr) > 0;
}

/* ps 0 stays, whatever its address is called there. */
static enum status lineup_make(struct net_exchange *x, const struct hosts *servers,
                               struct lineup *u)
{
    enum status st = ST_OK;
    u->links = calloc((size_t)servers->n, sizeof *u->links);
    u->gone = calloc((size_t)x->n_links, sizeof *u->gone);
    if (!u->links || !u->gone)
        return ST_NOMEM;
    for (int i = 0; i < x->n_links; i++)
        if (!lists(servers, x->links[i]))
            u->gone[u->n_gone++] = x->links[i];
    for (; u->n < servers->n; u->n++) {
        u->links[u->n] = u->n == 0 ? x->links[0] : link_at(x, servers->addr[u->n]);
        if (!u->links[u->n])
            TRY(link_create(x, servers->addr[u->n], &u->links[u->n]));
    }
done:
    return st;
}

static int map_fits(const struct net_exchange *x, const struct net_join_reply *reply, int n_servers)
{
    int fits = reply->server && reply->n_chunks == x->n_chunks;
    for (int i = 0; fits && i < x->n_chunks; i++)
        fits = reply->server[i] >= 0 && reply->server[i] < n_servers;
    return fits;
}

static enum status bad_map(const struct net_exchange *x, int n_servers)
{
    LOG_E("ps:0 (%s) sent a shard map that does not fit %d chunks on %d servers; do all programs "
          "have the same --ps_hosts?",
          x->links[0]->addr, x->n_chunks, n_servers);
    return ST_PROTOCOL;
}

/* Under the lock. */
static void install(struct net_exchange *x, const struct net_join_reply *reply, struct lineup *u)
{
    int *server = x->server;
    struct link **links = x->links;
    forget_all(x);
    for (int i = 0; i < u->n_gone; i++)
        u->gone[i]->retired = 1;
    x->links = u->links;
    x->n_links = u->n;
    x->server = u->server;
    u->links = links;
    u->server = server;
    for (int i = 0; i < x->n_links; i++) {
        struct link *l = x->links[i];
        l->index = i;
        if (i > 0)
            link_hurry(l);
    }
    x->has_first_values = x->generation == 0;
    x->generation = reply->generation;
    x->ending = 0;
    pthread_cond_broadcast(&x->work);
    pthread_cond_broadcast(&x->changed);
}

/* The keeper may close them as soon as they are on the list: not before they are cancelled. */
static void retire(struct net_exchange *x, const struct lineup *u)
{
    for (int i = 0; i < u->n_gone; i++)
        link_cancel(u->gone[i]);
    pthread_mutex_lock(&x->lock);
    for (int i = 0; i < u->n_gone; i++) {
        u->gone[i]->next_retired = x->retired;
        x->retired = u->gone[i];
    }
    pthread_cond_broadcast(&x->work);
    pthread_mutex_unlock(&x->lock);
}

enum status exchange_begin(struct net_exchange *x, struct net_join_reply *reply)
{
    const struct hosts *servers = reply->servers.n > 0 ? &reply->servers : x->cfg.ps_hosts;
    struct lineup u = {.links = NULL};
    if (!map_fits(x, reply, servers->n))
        return bad_map(x, servers->n);
    enum status st = lineup_make(x, servers, &u);
    if (st != ST_OK) {
        LOG_E("no memory for the links to %d servers", servers->n);
        goto done;
    }
    u.server = reply->server;
    reply->server = NULL;
    pthread_mutex_lock(&x->lock);
    int go = exchange_goes_on(x) && x->starting;
    if (go)
        install(x, reply, &u);
    pthread_mutex_unlock(&x->lock);
    if (!go) {
        st = ST_CANCELLED;
        goto done;
    }
    for (int i = 1; i < x->n_links; i++)
        link_cancel(x->links[i]); /* joins anew */
    retire(x, &u);
    free(u.links); /* the old list */
    u.links = NULL;
done:
    lineup_free(x, &u);
    return st;
}

enum status exchange_check_map(struct net_exchange *x, const struct net_join_reply *reply)
{
    if (x->server && map_fits(x, reply, x->n_links) &&
        !memcmp(x->server, reply->server, (size_t)x->n_chunks * sizeof *x->server))
        return ST_OK;
    return bad_map(x, x->n_links);
}

static int all_joined(const struct net_exchange *x)
{
    for (int i = 0; i < x->n_links; i++)
        if (!x->links[i]->joined)
            return 0;
    return x->n_refs == 0 && !x->ending;
}

/* The generation is over, and the next one is without this member; under the lock. */
static int is_out(const struct net_exchange *x)
{
    return x->soon == 2 && x->ending;
}

/* While a generation ends, ps 0 is asked for the next as soon as nothing is under way there; under
 * the lock, which is given up for a moment. */
static void ask_again(struct net_exchange *x)
{
    struct link *l = x->links[0];
    if (!x->ending || is_out(x) || !l->joined || l->state != LINK_STREAMING ||
        request_is_under_way(l))
        return;
    l->joined = 0;
    pthread_mutex_unlock(&x->lock);
    link_cancel(l);
    pthread_mutex_lock(&x->lock);
}

/* Until gRPC holds none of the caller's bytes and all servers are joined: ps 0 first, then, as it
 * says which they are, the others. */
static enum status join_all(struct net_exchange *x)
{
    net_exchange_flush(x);
    pthread_mutex_lock(&x->lock);
    x->starting = 1;
    x->rebased = 0;
    for (int i = 0; i < x->n_links; i++)
        if (i == 0 || x->links[i]->state != LINK_HELD)
            link_hurry(x->links[i]);
    pthread_cond_signal(&x->work);
    for (;;) {
        ask_again(x);
        if (exchange_state(x) != ST_OK || all_joined(x) || is_out(x))
            break;
        pthread_cond_wait(&x->changed, &x->lock);
    }
    enum status st = is_out(x) ? ST_CANCELLED : exchange_state(x);
    x->starting = 0;
    pthread_mutex_unlock(&x->lock);
    return st;
}

/* In lockstep this member's last life may have ended in the middle of a step: chunks for which it
 * had pushed have gone on since. The step is redone from its beginning, so these are read again as
 * they were then (I4); nobody gets further than that without this member. */
static enum status go_back(struct net_exchange *x, int64_t step)
{
    enum status st = ST_OK;
    for (int i = 0; i < x->n_chunks; i++)
        if (net_exchange_version(x, i) > step)
            TRY(request_version(x, i, step, x->version_dtype));
    TRY(net_exchange_wait(x, 0, x->n_chunks, step));
    for (int i = 0; i < x->n_chunks; i++) {
        int64_t version = net_exchange_version(x, i);
        if (version == step)
            continue;
        LOG_E("chunk %d came at step %lld, not %lld, from which this worker has to go on; start "
              "all programs again",
              i, (long long)version, (long long)step);
        return ST_PROTOCOL;
    }
done:
    return st;
}

/* A server that gives no places has members by their index. */
static struct net_place place_of(const struct net_exchange *x)
{
    const struct net_join *join = &x->cfg.join;
    if (x->place.n_members > 0)
        return x->place;
    return (struct net_place){.member = join->member,
                              .rank = join->member,
                              .n_members = join->job.n_workers,
                              .train_steps = join->job.train_steps};
}

/* `before`: the generation that this member was in. */
static void say_start(const struct net_start *s, uint64_t before, int64_t reached, int n_servers)
{
    if (before == 0 || before == s->generation)
        return;
    LOG_I("generation %llu from step %lld: %d %s, %d %s", (unsigned long long)s->generation,
          (long long)s->step, s->place.n_members, s->place.n_members == 1 ? "worker" : "workers",
          n_servers, n_servers == 1 ? "server" : "servers");
    if (s->step < reached)
        LOG_W("going back from step %lld to step %lld", (long long)reached, (long long)s->step);
}

enum status net_exchange_start(struct net_exchange *x, struct net_start *out)
{
    enum status st;
    pthread_mutex_lock(&x->lock);
    uint64_t before = x->generation;
    pthread_mutex_unlock(&x->lock);
    int64_t lowest;
    do {
        st = join_all(x);
        if (st == ST_OK)
            st = net_exchange_wait(x, 0, x->n_chunks, 0);
        pthread_mutex_lock(&x->lock);
        lowest = lowest_version(x);
        pthread_mutex_unlock(&x->lock);
        if (st == ST_OK && job_in_lockstep(&x->cfg.join.job))
            st = go_back(x, lowest);
    } while (st == ST_REBASED); /* while it started; once more */
    if (st != ST_OK)
        return st;
    pthread_mutex_lock(&x->lock);
    *out = (struct net_start){lowest, x->generation, place_of(x)};
    int64_t reached = x->reached;
    int n_servers = x->n_links;
    pthread_mutex_unlock(&x->lock);
    say_start(out, before, reached, n_servers);
    return ST_OK;
}
