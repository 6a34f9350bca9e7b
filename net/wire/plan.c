/* net/wire/plan.c - see plan.h. */
#include "net/wire/plan.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

bool net_plan_gates_has(const struct net_gates *g, int64_t version, int64_t train_steps)
{
    return version == train_steps ||
           (version > 0 && version % g->steps == 0 && version < train_steps - g->overlap);
}

int64_t net_plan_gates_up_to(const struct net_gates *g, int64_t version, int64_t train_steps)
{
    int64_t before_last = train_steps - g->overlap - 1;
    int64_t most = before_last > 0 ? before_last / g->steps : 0;
    if (version >= train_steps)
        return most + 1;
    return version / g->steps < most ? version / g->steps : most;
}

int64_t net_plan_gates_version(const struct net_gates *g, int64_t n, int64_t train_steps)
{
    return n >= net_plan_gates_up_to(g, train_steps, train_steps) ? train_steps : n * g->steps;
}

static enum status copy_ints(const int *from, int n, int **out)
{
    if (!from)
        return ST_OK;
    *out = malloc((size_t)(n > 0 ? n : 1) * sizeof **out);
    if (!*out)
        return ST_NOMEM;
    memcpy(*out, from, (size_t)n * sizeof **out);
    return ST_OK;
}

static enum status copy_hosts(const struct hosts *from, struct hosts *out)
{
    return hosts_copy((const char *const *)from->addr, (size_t)from->n, out);
}

enum status net_plan_contributions_copy(const struct net_contribution *from, int n,
                                        struct net_contribution **out)
{
    if (n == 0)
        return ST_OK;
    *out = malloc((size_t)n * sizeof **out);
    if (!*out)
        return ST_NOMEM;
    memcpy(*out, from, (size_t)n * sizeof **out);
    return ST_OK;
}

enum status net_plan_copy(const struct net_plan *p, struct net_plan **out)
{
    enum status st = ST_NOMEM;
    struct net_plan *q = malloc(sizeof *q);
    if (!q)
        return ST_NOMEM;
    *q = *p;
    q->chunks = NULL;
    q->member = q->shard = q->held_by = NULL;
    q->contributed = NULL;
    q->servers = q->holders = (struct hosts){0, NULL};
    TRY(chunks_copy(p->chunks, &q->chunks));
    TRY(copy_ints(p->member, p->n_members, &q->member));
    TRY(copy_ints(p->shard, p->chunks->n_chunks, &q->shard));
    TRY(copy_ints(p->held_by, p->chunks->n_chunks, &q->held_by));
    TRY(copy_hosts(&p->servers, &q->servers));
    TRY(copy_hosts(&p->holders, &q->holders));
    TRY(net_plan_contributions_copy(p->contributed, p->n_contributed, &q->contributed));
    *out = q;
    q = NULL;
done:
    net_plan_free(q);
    return st;
}

void net_plan_free(struct net_plan *p)
{
    if (!p)
        return;
    chunks_destroy(p->chunks);
    free(p->member);
    free(p->shard);
    free(p->held_by);
    free(p->contributed);
    hosts_free(&p->servers);
    hosts_free(&p->holders);
    free(p);
}

int net_plan_rank(const struct net_plan *p, int member)
{
    int low = 0, high = p->n_members;
    while (low < high) {
        int mid = low + (high - low) / 2;
        if (p->member[mid] < member)
            low = mid + 1;
        else
            high = mid;
    }
    return low < p->n_members && p->member[low] == member ? low : -1;
}

int net_plan_server(const struct net_plan *p, const char *addr)
{
    return hosts_find(&p->servers, addr);
}

/* Adds to p->position the samples of all contributions since p->step. In lockstep all members
 * contribute to each version. Otherwise a version has job_aggregate() contributions, and the
 * servers assign the exact samples. */
uint64_t net_plan_position(const struct net_plan *p, int64_t step)
{
    bool lockstep = job_in_lockstep(&p->job);
    int most = job_aggregate(&p->job);
    uint64_t members = (uint64_t)(lockstep || most > p->n_members ? p->n_members : most);
    uint64_t steps = step > p->step ? (uint64_t)(step - p->step) : 0;
    return p->position + steps * members * (uint64_t)p->job.batch;
}

struct net_contribution net_plan_contributed(const struct net_plan *p, int member, int64_t step)
{
    struct net_contribution c = {.member = member};
    if (!job_in_lockstep(&p->job))
        return c;
    if (step > p->step && net_plan_rank(p, member) >= 0)
        return (struct net_contribution){member, step, p->generation};
    for (int i = 0; i < p->n_contributed; i++)
        if (p->contributed[i].member == member)
            c = p->contributed[i];
    c.version = c.version < step ? c.version : step;
    return c;
}

enum status net_plan_contributions(const struct net_plan *p, int64_t step,
                                   struct net_contribution **out, int *n)
{
    size_t most = (size_t)p->n_members + (size_t)p->n_contributed;
    struct net_contribution *list = malloc((most + 1) * sizeof *list);
    if (!list)
        return ST_NOMEM;
    *n = 0;
    /* Merges two ascending lists. */
    for (int i = 0, k = 0; i < p->n_members || k < p->n_contributed;) {
        int now = i < p->n_members ? p->member[i] : JOB_MAX_WORKERS;
        int before = k < p->n_contributed ? p->contributed[k].member : JOB_MAX_WORKERS;
        int member = now < before ? now : before;
        struct net_contribution c = net_plan_contributed(p, member, step);
        i += now == member;
        k += before == member;
        if (c.version > 0)
            list[(*n)++] = c;
    }
    *out = list;
    return ST_OK;
}
