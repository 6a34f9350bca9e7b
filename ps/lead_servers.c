/* ps/lead_servers.c - see lead_impl.h: the other servers, by address. One that is in no plan and
 * does not call any more is forgotten when its place is needed. */
#include "base/clock.h"
#include "base/log.h"
#include "files/durable.h"
#include "ps/lead_impl.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int lead_server_silent(const struct remote *r, int64_t ms)
{
    return clock_now_ns() - r->heard_ns > ms * 1000000;
}

int lead_server_leaves(const struct remote *r)
{
    return r->server > 0 && (r->leaving || r->drain);
}

int lead_server_joins(const struct lead *l, const struct remote *r)
{
    return r->server < 0 && r->incarnation && !r->leaving && !r->drain && !r->held && l->plan &&
           !lead_server_silent(r, FRESH_MS);
}

int lead_server_gone(const struct lead *l, const struct remote *r)
{
    return r->server > 0 && (lead_server_leaves(r) || (l->base && !r->held)) &&
           lead_server_silent(r, r->held ? ALIVE_MS : FRESH_MS);
}

/* One that wants out and is silent is gone, in the plan or already left out of it with chunks that
 * others have yet to fetch; if it only is silent, it is waited for. */
const struct remote *lead_servers_lost(const struct lead *l)
{
    for (int i = 0; i < l->n_remotes; i++) {
        const struct remote *r = &l->remotes[i];
        if (r->held && (r->held != r->incarnation ||
                        ((r->leaving || r->drain) && lead_server_silent(r, ALIVE_MS))))
            return r;
    }
    return NULL;
}

static struct remote *find(const struct lead *l, const char *address)
{
    for (int i = 0; i < l->n_remotes; i++)
        if (strcmp(l->remotes[i].address, address) == 0)
            return &l->remotes[i];
    return NULL;
}

/* NULL: there is no memory, or no room. */
static struct remote *add(struct lead *l, const char *address)
{
    struct remote *r = NULL;
    for (int i = 0; i < l->n_remotes && !r; i++) {
        struct remote *old = &l->remotes[i];
        if (old->server < 0 && !old->held && !old->call && lead_server_silent(old, 4 * ALIVE_MS))
            r = old;
    }
    if (!r && l->n_remotes < HOSTS_MAX) {
        struct remote *grown = realloc(l->remotes, ((size_t)l->n_remotes + 1) * sizeof *l->remotes);
        if (!grown)
            return NULL;
        l->remotes = grown;
        l->remotes[l->n_remotes] = (struct remote){.server = -1};
        r = &l->remotes[l->n_remotes++];
    }
    if (!r)
        return NULL;
    free(r->missing);
    *r = (struct remote){.server = -1, .heard_ns = clock_now_ns()};
    snprintf(r->address, sizeof r->address, "%s", address);
    return r;
}

enum status lead_servers_create(struct lead *l)
{
    for (int i = 1; i < l->cfg.servers.n; i++) {
        struct remote *r = add(l, l->cfg.servers.addr[i]);
        if (!r)
            return ST_NOMEM;
        r->server = i;
    }
    l->n_servers = l->cfg.servers.n;
    return ST_OK;
}

void lead_servers_free(struct lead *l)
{
    for (int i = 0; i < l->n_remotes; i++)
        free(l->remotes[i].missing);
    free(l->remotes);
    hosts_free(&l->cfg.servers);
}

struct remote *lead_servers_caller(struct lead *l, const struct net_control *c, const char **why)
{
    const struct hosts *hosts = l->cfg.hosts;
    int fits = c->joining || (c->n_servers == hosts->n && c->server >= 1 && c->server < hosts->n &&
                              strcmp(c->address, hosts->addr[c->server]) == 0);
    *why = NULL;
    if (!fits)
        *why = "another --ps_hosts than that of ps:0";
    else if (strcmp(c->address, hosts->addr[0]) == 0)
        *why = "its address is that of ps:0";
    if (*why)
        return NULL;
    struct remote *r = find(l, c->address);
    if (!r)
        r = add(l, c->address);
    if (!r)
        *why = "ps:0 is out of memory, or knows too many servers";
    return r;
}

/* The end of a process ends its calls at once, and a host's that is cut off is ended by keepalive:
 * who calls with another incarnation meanwhile did not take its place. */
int lead_servers_doubted(const struct remote *r, const struct net_control *c)
{
    return r->incarnation && r->incarnation != c->incarnation &&
           (r->call || clock_now_ns() < r->life_ns);
}

void lead_servers_answered(struct remote *r)
{
    r->call = 0;
    r->life_ns = clock_deadline_ns(AGAIN_MS);
}

void lead_servers_closed(struct lead *l, uint64_t call)
{
    for (int i = 0; i < l->n_remotes; i++) {
        struct remote *r = &l->remotes[i];
        if (r->call != call)
            continue;
        r->call = 0;
        r->life_ns = clock_deadline_ns(CLOSED_MS);
    }
}

/* Another process than before at this address. */
static void begin_life(struct remote *r, uint64_t incarnation)
{
    r->incarnation = incarnation;
    r->first_ns = clock_now_ns();
    r->drain = 0;
    r->wanted = r->taken_up = r->given = 0;
    r->stop = 0;
}

void lead_servers_note(struct lead *l, struct remote *r, const struct net_control *c, uint64_t call)
{
    int64_t now = clock_now_ns();
    if (r->incarnation != c->incarnation)
        begin_life(r, c->incarnation);
    r->generation = c->generation;
    r->call = call;
    r->seen = c->seen;
    r->call_ns = r->heard_ns = now;
    r->mute = 0;
    r->wanted = c->wanted;
    r->leaving = c->leaving;
    r->stop = c->stop;
    r->stopped = c->stopped;
    r->lowest = c->lowest;
    r->state = (struct saver_state){
        .order = c->order, .phase = (enum saver_phase)c->phase, .file = {c->bytes, c->crc32c}};
    struct net_missing *list = c->n_missing ? malloc((size_t)c->n_missing * sizeof *list) : NULL;
    free(r->missing);
    r->missing = list;
    r->n_missing = list ? c->n_missing : 0;  /* else the next call tells */
    for (int i = 0; i < r->n_missing; i++) { /* nobody is missing for longer than the clock runs */
        int64_t ms = c->missing[i].ms < now / 1000000 ? c->missing[i].ms : now / 1000000;
        list[i] = (struct net_missing){c->missing[i].member, now - ms * 1000000};
    }
    lead_poke(l);
}

void lead_servers_number(struct lead *l, const struct hosts *servers)
{
    for (int i = 0; i < l->n_remotes; i++)
        l->remotes[i].server = hosts_find(servers, l->remotes[i].address);
    l->n_servers = servers->n;
}

/* Those of the plan that stay, then those that join. */
enum status lead_servers_next(struct lead *l, struct hosts *out)
{
    int n = 0;
    enum status st = ST_NOMEM;
    pthread_mutex_lock(&l->lock);
    const char **list = calloc((size_t)(l->n_servers + l->n_remotes), sizeof *list);
    for (int k = 0; list && k < l->n_servers; k++) {
        const struct remote *r = NULL;
        for (int i = 0; i < l->n_remotes && !r; i++)
            r = l->remotes[i].server == k ? &l->remotes[i] : NULL;
        if (k == 0 || (r && !lead_server_leaves(r) && !lead_server_gone(l, r)))
            list[n++] = k == 0 ? l->cfg.hosts->addr[0] : r->address;
    }
    for (int i = 0; list && i < l->n_remotes; i++)
        if (lead_server_joins(l, &l->remotes[i]) && n < HOSTS_MAX)
            list[n++] = l->remotes[i].address;
    if (list)
        st = hosts_copy(list, (size_t)n, out);
    pthread_mutex_unlock(&l->lock);
    free(list);
    return st;
}

static void print_list(FILE *f, const struct hosts *h)
{
    for (int i = 0; i < h->n; i++)
        fprintf(f, "%s%s", i ? "," : "", h->addr[i]);
    fprintf(f, "\n");
}

/* Two lines: --ps_hosts as it is given, and the servers there are. */
void lead_servers_record(struct lead *l, const struct hosts *servers)
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    if (!l->cfg.folder)
        return;
    FILE *f = open_memstream(&text, &bytes);
    if (f) {
        print_list(f, l->cfg.hosts);
        print_list(f, servers);
    }
    enum status st = f && fclose(f) == 0 ? ST_OK : ST_NOMEM;
    snprintf(path, sizeof path, "%s/servers", l->cfg.folder);
    if (st == ST_OK)
        st = durable_put(path, text, bytes);
    if (st != ST_OK)
        LOG_W("%s: not written; if ps:0 is started again now, it goes by another list of servers",
              path);
    free(text);
}
