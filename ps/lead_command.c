/* ps/lead_command.c - see lead.h: what people want done, and want to know. */
#include "base/clock.h"
#include "ps/lead_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Under the lock. */
static int remove_worker(struct lead *l, int index, char why[CONTROL_TEXT_BYTES])
{
    if (!l->plan || net_plan_rank(l->plan, index) < 0) {
        snprintf(why, CONTROL_TEXT_BYTES, "there is no worker %d in the job", index);
        return 0;
    }
    struct removed *grown = realloc(l->removed, ((size_t)l->n_removed + 1) * sizeof *grown);
    if (!grown) {
        snprintf(why, CONTROL_TEXT_BYTES, "%s", status_text(ST_NOMEM));
        return 0;
    }
    l->removed = grown;
    l->removed[l->n_removed++] = (struct removed){.member = index};
    snprintf(why, CONTROL_TEXT_BYTES, "worker %d leaves at a step to come", index);
    lead_poke(l);
    return 1;
}

int lead_remove_worker(struct lead *l, int index, char why[CONTROL_TEXT_BYTES])
{
    pthread_mutex_lock(&l->lock);
    int known = 0;
    for (int i = 0; i < l->n_removed; i++)
        known |= l->removed[i].member == index && l->removed[i].incarnation == 0;
    if (known)
        snprintf(why, CONTROL_TEXT_BYTES, "worker %d is on its way out", index);
    int done = known || remove_worker(l, index, why);
    pthread_mutex_unlock(&l->lock);
    return done;
}

int lead_drain_server(struct lead *l, int index, char why[CONTROL_TEXT_BYTES])
{
    struct remote *r = NULL;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n_remotes && index > 0; i++)
        r = l->remotes[i].server == index ? &l->remotes[i] : r;
    if (r) {
        r->drain = 1;
        snprintf(why, CONTROL_TEXT_BYTES, "ps:%d (%.200s) hands on its chunks and ends", index,
                 r->address);
        lead_poke(l);
    } else if (index == 0) {
        snprintf(why, CONTROL_TEXT_BYTES, "ps:0 coordinates the job and cannot leave it");
    } else {
        snprintf(why, CONTROL_TEXT_BYTES, "there is no ps:%d; the job has %d servers", index,
                 l->n_servers);
    }
    pthread_mutex_unlock(&l->lock);
    return r != NULL;
}

static enum lead_server_state state_of(const struct lead *l, const struct remote *r)
{
    if (lead_server_joins(l, r))
        return LEAD_JOINING;
    if (!r->incarnation || lead_server_silent(r, ALIVE_MS))
        return LEAD_SILENT;
    return r->leaving || r->drain ? LEAD_LEAVING : LEAD_HERE;
}

/* Those of the plan, and those that are to join. Under the lock. */
static void list_servers(const struct lead *l, struct lead_snapshot *out)
{
    int64_t now = clock_now_ns();
    struct lead_server *s = &out->servers[out->n_servers++];
    *s = (struct lead_server){.up_ms = (now - l->start_ns) / 1000000};
    snprintf(s->address, sizeof s->address, "%s", l->cfg.hosts->addr[0]);
    for (int i = 0; i < l->n_remotes; i++) {
        const struct remote *r = &l->remotes[i];
        if (r->server < 0 && lead_server_silent(r, ALIVE_MS))
            continue;
        s = &out->servers[out->n_servers++];
        *s = (struct lead_server){.number = r->server, .heard_ms = -1, .up_ms = -1};
        s->state = state_of(l, r);
        memcpy(s->address, r->address, sizeof s->address);
        if (r->first_ns) {
            s->heard_ms = (now - r->heard_ns) / 1000000;
            s->up_ms = (now - r->first_ns) / 1000000;
        }
    }
}

enum status lead_snapshot(struct lead *l, struct lead_snapshot *out)
{
    enum status st = ST_OK;
    struct lead_snapshot s = {.plan = NULL};
    pthread_mutex_lock(&l->lock);
    if (l->plan)
        st = net_plan_copy(l->plan, &s.plan);
    s.servers = calloc((size_t)l->n_remotes + 1, sizeof *s.servers);
    if (!s.servers)
        st = ST_NOMEM;
    if (st == ST_OK) {
        list_servers(l, &s);
        memcpy(s.change, l->change, sizeof s.change);
        s.last_step = l->last_step;
        s.order_step = l->step;
        s.wanted = l->requested;
        s.given = l->given;
        *out = s;
    }
    pthread_mutex_unlock(&l->lock);
    if (st != ST_OK)
        lead_snapshot_free(&s);
    return st;
}

void lead_snapshot_free(struct lead_snapshot *s)
{
    net_plan_free(s->plan);
    free(s->servers);
}
