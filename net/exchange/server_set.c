/* net/exchange/server_set.c - the servers of the next generation, as links. A set is made before
 * the session receives the answer that names its servers. If the session changes to these servers,
 * the same step installs the set, so that a link's index is always the one that the session uses.
 * Only the poller makes and installs sets, so it needs no lock to read the present set. */
#include "base/log.h"
#include "net/exchange/exchange_requests.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void server_set_free(struct server_set *set)
{
    for (int i = 0; set->links && set->from && i < set->n; i++)
        if (set->links[i] && set->from[i] < 0)
            link_destroy(set->links[i]);
    for (int i = 0; set->gone && i < set->n_gone; i++) {
        if (!set->gone[i]->retired)
            continue;
        link_cancel(set->gone[i]);
        exchange_session_unuse_link(set->gone[i]);
    }
    free(set->links);
    free(set->gone);
    free(set->from);
    free(set->server);
    free(set->idle);
}

/* Returns the present index of the link to this address; -1: there is no such link. ps 0 is not
 * compared: its link stays, even if the server names another address for it. */
static int find_link(const struct net_exchange *x, const char *addr)
{
    for (int i = 1; i < x->n_links; i++)
        if (!strcmp(x->links[i]->addr, addr))
            return i;
    return -1;
}

static enum status find_links(struct net_exchange *x, const struct hosts *servers,
                              struct server_set *set)
{
    enum status st = ST_OK;
    set->links = calloc((size_t)servers->n, sizeof *set->links);
    set->from = calloc((size_t)servers->n, sizeof *set->from);
    set->gone = calloc((size_t)x->n_links, sizeof(struct link *));
    TRY(set->links && set->from && set->gone ? ST_OK : ST_NOMEM);
    for (int i = 1; i < x->n_links; i++)
        if (hosts_find(servers, x->links[i]->addr) <= 0)
            set->gone[set->n_gone++] = x->links[i];
    for (; set->n < servers->n; set->n++) {
        int i = set->n, from = i == 0 ? 0 : find_link(x, servers->addr[i]);
        set->from[i] = from;
        if (from >= 0)
            set->links[i] = x->links[from];
        else
            TRY(link_create(x, servers->addr[i], &set->links[i]));
    }
done:
    return st;
}

static bool map_fits(const struct net_exchange *x, const struct net_join_reply *reply,
                     int n_servers)
{
    bool fits = reply->server && reply->n_chunks == x->n_chunks;
    for (int i = 0; fits && i < x->n_chunks; i++)
        fits = reply->server[i] >= 0 && reply->server[i] < n_servers;
    return fits;
}

enum status server_set_make(struct net_exchange *x, const struct net_join_reply *reply,
                            struct session_event *e, struct server_set *out)
{
    enum status st = ST_OK;
    const struct hosts *servers = reply->servers.n > 0 ? &reply->servers : x->cfg.ps_hosts;
    size_t map_bytes = (size_t)x->n_chunks * sizeof *x->server;
    pthread_mutex_lock(&x->lock);
    uint64_t present = x->session->generation;
    pthread_mutex_unlock(&x->lock);
    *out = (struct server_set){.links = NULL};
    e->map = MAP_BAD;
    /* no newer generation: the map must be the one that this member has */
    if (reply->generation <= present) {
        if (x->server && map_fits(x, reply, x->n_links) &&
            !memcmp(x->server, reply->server, map_bytes))
            e->map = MAP_SAME;
        return ST_OK;
    }
    if (!map_fits(x, reply, servers->n))
        return ST_OK;
    out->server = malloc(map_bytes);
    TRY(out->server ? ST_OK : ST_NOMEM);
    memcpy(out->server, reply->server, map_bytes);
    TRY(find_links(x, servers, out));
    out->idle = malloc((size_t)out->n);
    TRY(out->idle ? ST_OK : ST_NOMEM);
    memset(out->idle, 1, (size_t)out->n);
    for (int i = 0; i < x->n_chunks; i++)
        out->idle[out->server[i]] = 0;
    e->map = MAP_OTHER;
    e->n_servers = out->n;
    e->from = out->from;
    e->idle = out->idle;
done:
    if (st != ST_OK) {
        LOG_E("no memory for the links to %d servers", servers->n);
        server_set_free(out);
    }
    return st;
}

void server_set_install(struct net_exchange *x, struct server_set *set)
{
    int *server = x->server;
    struct link **links = x->links;
    for (int i = 0; i < set->n_gone; i++) {
        struct link *l = set->gone[i];
        l->retired = l->cancelled = true;
        l->n_users++; /* decremented when the link's call is cancelled */
        l->next_retired = x->retired;
        x->retired = l;
    }
    x->links = set->links;
    x->n_links = set->n;
    x->server = set->server;
    for (int i = 0; i < x->n_links; i++)
        x->links[i]->index = i;
    set->links = links; /* n is 0, so server_set_free frees only the list */
    set->n = 0;
    set->server = server;
}
