/* ps/region/region_chunks.c - see region_chunks.h.
 * Locks:   the region's, then the mail's. */
#include "ps/region/region_chunks.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/term.h"
#include "ps/service/service.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POLL_MS = 200 };

static bool is_here(const struct run *run, int chunk)
{
    return run->plan->shard[chunk] == run->self;
}

enum status region_chunks_create(struct ps_region *r)
{
    const struct mail_config mail = {r->cfg.refused, r->cfg.ctx};
    return mail_create(&mail, &r->mail);
}

void region_chunks_no_memory(struct ps_region *r)
{
    LOG_E("region %d: out of memory for messages between its servers", r->cfg.index);
    r->cfg.refused(r->cfg.ctx);
}

static void send_item(struct ps_region *r, const struct run *run, const struct net_gate_item *item)
{
    if (mail_put(r->mail, run->plan, run->self, run->plan->shard[item->chunk], item) != ST_OK)
        region_chunks_no_memory(r);
}

/* Sends a value of n floats: `to` minus `from`, or `to` if `from` is NULL. */
static void send_value(struct ps_region *r, const struct run *run, struct net_gate_item *item,
                       const float *to, const float *from)
{
    size_t n = (size_t)run->chunks->chunks[item->chunk].n_elems;
    if (buf_create(n * sizeof(float), &item->value) != ST_OK) {
        region_chunks_no_memory(r);
        return;
    }
    float *value = item->value->data;
    for (size_t i = 0; i < n; i++)
        value[i] = from ? to[i] - from[i] : to[i];
    send_item(r, run, item);
    buf_unref(item->value);
}

bool region_chunks_adopt(struct ps_region *r, struct run *run,
                         const struct region_chunk_adoption *w)
{
    const struct outer_adoption *how = &w->how;
    int mixed = how->to && how->from && how->mixed;
    struct net_gate_item item = {.kind = !how->to    ? GATE_OWN
                                         : mixed     ? GATE_MIX
                                         : how->from ? GATE_ADD
                                                     : GATE_WHOLE,
                                 .chunk = w->chunk,
                                 .version = w->version,
                                 .mix = mixed ? how->mix : 0,
                                 .alone = w->alone};
    if (is_here(run, w->chunk))
        return outer_adopt(run->store, w->chunk, w->version, how);
    if (how->to)
        send_value(r, run, &item, how->to, mixed ? NULL : how->from);
    else
        send_item(r, run, &item);
    return true;
}

static bool has_others(const struct run *run)
{
    return run->plan->servers.n > 1;
}

bool region_chunks_set_first(struct ps_region *r, struct run *run, int64_t version, enum status *st)
{
    int again = r->begun == run->generation;
    pthread_mutex_lock(&r->lock);
    int64_t since = r->slots_since;
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < run->chunks->n_chunks && *st == ST_OK; i++) {
        const float *value = r->base + r->chunks->chunks[i].first;
        struct net_gate_item item = {
            .kind = GATE_BEGIN, .chunk = i, .version = version, .slots_since = since};
        if (is_here(run, i))
            *st = outer_set_first(run->store, i, version, value);
        else if (!again)
            send_value(r, run, &item, value, NULL);
    }
    r->begun = run->generation;
    return (run->n_bytes == 0 || store_step(run->store) >= 0) &&
           mail_is_empty(r->mail, run->generation);
}

int64_t region_chunks_step(struct ps_region *r, const struct run *run)
{
    int64_t step = run->n_bytes > 0 ? store_step(run->store) : run->plan->step;
    if (!has_others(run))
        return step;
    pthread_mutex_lock(&r->lock);
    int64_t adopted = INT64_MAX;
    for (int i = 0; r->pieces && i < r->chunks->n_chunks; i++)
        adopted = r->pieces[i].adopted < adopted ? r->pieces[i].adopted : adopted;
    if (run->plan->source == PLAN_FIRST && !r->has_first)
        step = -1;
    else if (run->n_bytes == 0 && adopted > step && adopted != INT64_MAX)
        step = adopted;
    pthread_mutex_unlock(&r->lock);
    return step;
}

void region_chunks_read_own(struct ps_region *r, float *params)
{
    struct run *run = region_run(r);
    for (int i = 0; run && i < r->chunks->n_chunks; i++) {
        int64_t version;
        struct buf *b = store_read(run->store, i, &version);
        if (b)
            memcpy(params + r->chunks->chunks[i].first, b->data, b->bytes);
        buf_unref(b);
    }
    if (run)
        run_unref(run);
}

/* Copies the values of other servers' chunks, once all of them have arrived. Returns false before
 * that. The caller holds the lock. */
static bool copy_all(struct ps_region *r, const struct run *run, float *params)
{
    int all = 1;
    for (int i = 0; i < r->chunks->n_chunks; i++)
        all &= is_here(run, i) || r->pieces[i].read != NULL;
    for (int i = 0; i < r->chunks->n_chunks && all; i++) {
        struct buf *b = r->pieces[i].read;
        if (b)
            memcpy(params + r->chunks->chunks[i].first, b->data, b->bytes);
        buf_unref(b);
        r->pieces[i].read = NULL;
    }
    return all;
}

/* Reads the values of other servers' chunks. Returns false if the run has ended. */
static bool read_others(struct ps_region *r, const struct run *run, float *params)
{
    int over = 0, done = 0;
    for (int i = 0; i < r->chunks->n_chunks; i++) {
        const struct net_gate_item item = {.kind = GATE_READ, .chunk = i};
        if (is_here(run, i))
            continue;
        pthread_mutex_lock(&r->lock);
        buf_unref(r->pieces[i].read);
        r->pieces[i].read = NULL;
        pthread_mutex_unlock(&r->lock);
        send_item(r, run, &item);
    }
    while (!over && !done) {
        struct run *now = region_run(r);
        over = now != run;
        if (now)
            run_unref(now);
        pthread_mutex_lock(&r->lock);
        over |= region_rewind_is_due(r);
        done = !over && copy_all(r, run, params);
        if (!over && !done)
            clock_cond_wait(&r->changed, &r->lock, clock_deadline_ns(POLL_MS));
        pthread_mutex_unlock(&r->lock);
    }
    return done;
}

enum status region_chunks_read(struct ps_region *r, float *params)
{
    for (int done = 0; !done;) {
        struct run *run = region_run(r);
        region_chunks_read_own(r, params);
        done = !run || !has_others(run) || region_chunks_step(r, run) < 0 ||
               read_others(r, run, params);
        if (run)
            run_unref(run);
        pthread_mutex_lock(&r->lock);
        bool over = region_rewind_is_due(r);
        pthread_mutex_unlock(&r->lock);
        if (over)
            return ST_CANCELLED;
    }
    return ST_OK;
}

/* Returns the fault of the message; NULL: the message fits the plan. */
static const char *gate_problem(const struct run *run, const struct net_gate *gate)
{
    if (gate->server == 0 || gate->server >= run->plan->servers.n)
        return "its sender is not another server of the region";
    for (int i = 0; i < gate->n; i++) {
        const struct net_gate_item *item = &gate->item[i];
        if (item->kind > GATE_VALUE || item->chunk >= run->chunks->n_chunks ||
            run->plan->shard[item->chunk] != gate->server ||
            item->value->bytes != (size_t)run->chunks->chunks[item->chunk].n_elems * sizeof(float))
            return "a chunk is not in the plan, or has another size";
    }
    return NULL;
}

/* Returns true if the item reports a new version. The caller holds the lock. */
static bool is_new(struct piece *p, uint64_t generation, const struct net_gate_item *item)
{
    int64_t key = 2 * item->version + (item->kind == GATE_WAITS);
    if (p->heard_in == generation && key <= p->heard)
        return false;
    p->heard_in = generation;
    p->heard = key;
    return true;
}

/* Handles an item. Returns true if the sender lets a version wait that need not wait. The caller
 * holds the lock. */
static bool receive_item(struct ps_region *r, const struct run *run,
                         const struct net_gate_item *item)
{
    struct piece *p = &region_rewind_pieces(r)[item->chunk];
    if (item->kind == GATE_FIRST) {
        const struct net_span span = {item->value->data, item->value->bytes};
        const struct net_payload value = {&span, 0, item->value->bytes};
        region_first(r, item->chunk, &value);
        return false;
    }
    if (item->kind == GATE_VALUE) {
        buf_unref(p->read);
        p->read = buf_ref(item->value);
        pthread_cond_broadcast(&r->changed);
        return false;
    }
    if (!is_new(p, run->generation, item))
        return false;
    int waits = item->kind == GATE_WAITS,
        must = waits && region_must_wait(r, item->version, run->job.train_steps);
    region_made(r, item->chunk, item->version, must, item->value);
    return waits && !must;
}

void region_chunks_receive(struct ps_region *r, const struct net_gate *gate,
                           struct net_squares_reply *reply)
{
    struct run *run = region_run(r);
    uint64_t here = run ? run->generation : 0;
    const char *wrong = NULL;
    reply->answer = here > gate->generation ? SQUARES_OVER : SQUARES_LATER;
    if (run && here == gate->generation && run->plan->ps0 == gate->ps0) {
        wrong = gate_problem(run, gate);
        reply->answer = wrong ? SQUARES_REFUSED : SQUARES_TAKEN;
    }
    for (int i = 0; i < gate->n && reply->answer == SQUARES_TAKEN; i++) {
        const struct net_gate_item *item = &gate->item[i];
        const struct net_gate_item own = {
            .kind = GATE_OWN, .chunk = item->chunk, .version = item->version};
        pthread_mutex_lock(&r->lock);
        int over = r->planned != gate->generation, go = !over && receive_item(r, run, item);
        pthread_mutex_unlock(&r->lock);
        if (go)
            send_item(r, run, &own);
        if (over)
            reply->answer = SQUARES_OVER;
    }
    if (wrong)
        snprintf(reply->why, sizeof reply->why, "%s", wrong);
    else if (reply->answer == SQUARES_LATER)
        snprintf(reply->why, sizeof reply->why,
                 "generation " TERM_FMT " has not begun on this server",
                 TERM_ARG(gate->generation));
    if (run)
        run_unref(run);
}
