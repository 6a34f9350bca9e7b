/* ps/service/planner.c - see planner.h. */
#include "ps/service/planner.h"
#include "net/wire/tables.h"
#include "ps/rows/bucket.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status copy_servers(const struct hosts *from, struct hosts *to)
{
    return hosts_copy((const char *const *)from->addr, (size_t)from->n, to);
}

static enum status set_members(struct net_plan *p, const int *member, int n)
{
    p->member = malloc((size_t)(n > 0 ? n : 1) * sizeof *p->member);
    if (!p->member)
        return ST_NOMEM;
    for (int i = 0; i < n; i++)
        p->member[i] = member ? member[i] : i;
    p->n_members = n;
    return ST_OK;
}

/* Copies the record of each member's last contribution before the plan's first step. */
static enum status set_contributed(struct net_plan *p, const struct net_contribution *list, int n)
{
    enum status st = net_plan_contributions_copy(list, n, &p->contributed);
    if (st == ST_OK)
        p->n_contributed = n;
    return st;
}

enum status planner_make_first(const struct planner_first *f, struct net_plan **out)
{
    enum status st = ST_NOMEM;
    const struct chunks *c = f->join->chunks;
    struct net_plan *p = calloc(1, sizeof *p);
    TRY(p ? ST_OK : ST_NOMEM);
    *p = (struct net_plan){
        .generation = f->generation, .ps0 = f->ps0, .job = f->join->job, .source = PLAN_FIRST};
    p->job.asked_steps = 0; /* only a plan may set it, not a worker's request */
    p->job.wire_auto = false;
    p->job.outer_unsaid = 0;
    if (f->from) {
        p->source = PLAN_CHECKPOINT;
        p->step = f->from->step;
        p->position = checkpoint_manifest_position(f->from);
        snprintf(p->restore, sizeof p->restore, "%s", f->restore);
        TRY(set_contributed(p, f->from->progress.contributed, f->from->progress.n_contributed));
        /* the job rounds the same layers as in the steps that it has made so far */
        if (f->from->job.rounding.n_bytes > 0)
            p->job.rounding = f->from->job.rounding;
        /* The first joiner was a client that does not describe its data, so the checkpoint's
         * description is used. */
        if (!p->job.data.n_train)
            p->job.data = f->from->job.data;
    }
    TRY(chunks_copy(c, &p->chunks));
    TRY(set_members(p, f->member, f->member ? f->n_members : p->job.n_workers));
    TRY(copy_servers(f->servers, &p->servers));
    p->shard = malloc((size_t)p->chunks->n_chunks * sizeof *p->shard);
    TRY(p->shard ? ST_OK : ST_NOMEM);
    TRY(chunks_shard(p->chunks, p->servers.n, p->shard));
    *out = p;
    p = NULL;
done:
    net_plan_free(p);
    return st;
}

/* Derives the new shard map from that of the plan before. */
static enum status set_shard(struct net_plan *p, const struct net_plan *base)
{
    int *prev = malloc((size_t)p->servers.n * sizeof *prev);
    p->shard = malloc((size_t)p->chunks->n_chunks * sizeof *p->shard);
    enum status st = prev && p->shard ? ST_OK : ST_NOMEM;
    if (st == ST_OK) {
        for (int i = 0; i < p->servers.n; i++)
            prev[i] = net_plan_server(base, p->servers.addr[i]);
        st = chunks_reshard(p->chunks, base->servers.n, base->shard, prev, p->servers.n, p->shard);
    }
    free(prev);
    return st;
}

enum status planner_make_next(const struct planner_next *n, struct net_plan **out)
{
    enum status st = ST_NOMEM;
    const struct net_plan *base = n->base;
    struct net_plan *p = calloc(1, sizeof *p);
    TRY(p ? ST_OK : ST_NOMEM);
    *p = (struct net_plan){.generation = n->generation,
                           .ps0 = n->ps0,
                           .step = n->step,
                           .position = n->position,
                           .job = base->job,
                           .source = n->source};
    if (n->train_steps > 0 && n->train_steps < p->job.train_steps) {
        if (!p->job.asked_steps)
            p->job.asked_steps = p->job.train_steps;
        p->job.train_steps = n->train_steps;
    }
    if (n->source == PLAN_CHECKPOINT) {
        snprintf(p->restore, sizeof p->restore, "%s", n->restore);
        TRY(set_contributed(p, n->contributed, n->n_contributed));
    }
    TRY(chunks_copy(base->chunks, &p->chunks));
    TRY(set_members(p, n->member, n->n_members));
    TRY(copy_servers(n->servers, &p->servers));
    TRY(set_shard(p, base));
    if (n->source == PLAN_MEMORY) {
        size_t bytes = (size_t)p->chunks->n_chunks * sizeof *p->held_by;
        p->before = base->generation;
        TRY(net_plan_contributions(base, n->step, &p->contributed, &p->n_contributed));
        TRY(copy_servers(&base->servers, &p->holders));
        p->held_by = malloc(bytes);
        TRY(p->held_by ? ST_OK : ST_NOMEM);
        memcpy(p->held_by, base->shard, bytes);
    }
    *out = p;
    p = NULL;
done:
    net_plan_free(p);
    return st;
}

/* Marks the checkpoint's files that contain a part of chunk `chunk` in an array of n_files. */
static void find_files(const struct checkpoint_manifest *m, const struct chunks *now, int chunk,
                       unsigned char *wanted)
{
    const struct chunks *then = m->chunks;
    const struct net_chunk *c = &now->chunks[chunk];
    /* If the manifest does not record the shard map, every file may contain a part of the chunk. */
    memset(wanted, m->shard == NULL, (size_t)m->n_files);
    if (!m->shard)
        return;
    if (chunk >= now->n_dense) { /* both jobs have the same buckets (job_check.h) */
        wanted[m->shard[then->n_dense + chunk - now->n_dense]] = 1;
        return;
    }
    int low = 0, high = then->n_dense;
    while (low < high) { /* finds the first chunk that ends after the beginning of this one */
        int mid = (low + high) / 2;
        if (then->chunks[mid].first + then->chunks[mid].n_elems <= c->first)
            low = mid + 1;
        else
            high = mid;
    }
    for (; low < then->n_dense && then->chunks[low].first < c->first + c->n_elems; low++)
        wanted[m->shard[low]] = 1;
}

static bool can_read(const unsigned char *wanted, int n_files, const unsigned char *reads,
                     int n_servers, int server)
{
    int can = 1;
    for (int i = 0; i < n_files; i++)
        can &= !wanted[i] || reads[i * n_servers + server];
    return can;
}

/* Returns the elements of a chunk; a bucket counts as 1. */
static int64_t weight_of(const struct net_plan *p, int chunk)
{
    return chunk < p->chunks->n_dense ? p->chunks->chunks[chunk].n_elems : 1;
}

/* Returns the counter in load[2 * n_servers] to which this chunk adds: each server has a counter of
 * elements of parameters, and one of buckets. */
static int64_t *load_of(const struct net_plan *p, int64_t *load, int chunk, int server)
{
    return &load[(chunk < p->chunks->n_dense ? 0 : p->servers.n) + server];
}

enum status planner_restrict(struct net_plan *p, const struct checkpoint_manifest *m,
                             const unsigned char *reads)
{
    int n = p->servers.n;
    unsigned char *wanted = malloc((size_t)m->n_files);
    int64_t *load = calloc((size_t)n, 2 * sizeof *load);
    enum status st = wanted && load ? ST_OK : ST_NOMEM;
    for (int i = 0; i < p->chunks->n_chunks && st == ST_OK; i++)
        *load_of(p, load, i, p->shard[i]) += weight_of(p, i);
    for (int i = 0; i < p->chunks->n_chunks && st == ST_OK; i++) {
        int best = -1;
        find_files(m, p->chunks, i, wanted);
        if (can_read(wanted, m->n_files, reads, n, p->shard[i]))
            continue;
        for (int k = 0; k < n; k++)
            if (can_read(wanted, m->n_files, reads, n, k) &&
                (best < 0 || *load_of(p, load, i, k) < *load_of(p, load, i, best)))
                best = k;
        if (best >= 0) {
            *load_of(p, load, i, p->shard[i]) -= weight_of(p, i);
            *load_of(p, load, i, best) += weight_of(p, i);
            p->shard[i] = best;
        }
        st = best >= 0 ? ST_OK : ST_NOT_FOUND;
    }
    free(wanted);
    free(load);
    return st;
}

double planner_bytes(const struct net_plan *p, int server)
{
    double bytes = 0;
    for (int i = 0; i < p->chunks->n_chunks; i++) {
        if (p->shard[i] != server)
            continue;
        bytes += (double)p->chunks->chunks[i].n_elems * sizeof(float);
        if (i < p->chunks->n_dense)
            continue;
        const struct net_table *t = tables_of(p->chunks, i);
        bytes += bucket_most_bytes((size_t)t->dim, t->row_dtype, t->optimizer.kind,
                                   tables_share(t, t->max_rows));
    }
    return bytes;
}

void planner_moves(const struct net_plan *from, const struct net_plan *to, const char *address,
                   int gets, struct planner_moved *out)
{
    int before = net_plan_server(from, address), after = net_plan_server(to, address);
    *out = (struct planner_moved){.bytes = 0};
    for (int i = 0; i < to->chunks->n_chunks; i++) {
        int had = before >= 0 && from->shard[i] == before;
        int has = after >= 0 && to->shard[i] == after;
        if (gets ? has && !had : had && !has) {
            out->bytes += to->chunks->chunks[i].n_elems * (int64_t)sizeof(float);
            *(i < to->chunks->n_dense ? &out->n_chunks : &out->n_buckets) += 1;
        }
    }
}
