/* ps/region/region_server.c - see region_server.h.
 * Locks:   a chunk's (of the store), this module's own, the mail's. */
#include "ps/region/region_server.h"
#include "base/log.h"
#include "base/term.h"
#include "net/wire/chunks.h"
#include "ps/region/mail.h"
#include "ps/service/run.h"
#include "ps/service/service.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct region_server {
    struct region_server_config cfg;
    struct outer_hooks outer;
    struct service *service;
    struct mail *mail;
    bool is_logged;        /* a line reported that the group is no region */
    float *nothing;        /* zeros, as many as the largest possible chunk has elements */
    pthread_mutex_t lock;  /* guards the fields below */
    struct net_plan *plan; /* plan in force, or about to be; NULL: none with gates */
    int self;              /* number of this server in the plan */
    bool alone;            /* each version waits, not only those at gates */
    int64_t slots_since;
    int64_t *reported; /* [n_chunks] gate before which a version was last reported; 0: none */
    int64_t *waiting;  /* [n_chunks] version that waits for ps 0's order; 0: none */
};

static int on_waits(void *ctx, int64_t version, int64_t train_steps)
{
    struct region_server *p = ctx;
    pthread_mutex_lock(&p->lock);
    int must = p->alone || net_plan_gates_has(&p->plan->gates, version, train_steps);
    pthread_mutex_unlock(&p->lock);
    return must;
}

static void fail_server(struct region_server *p)
{
    LOG_E("out of memory for messages between the servers of the region; this server exits");
    p->cfg.failed(p->cfg.ctx);
}

/* Sends a letter to ps 0. The caller holds the lock. */
static void send_to_ps0(struct region_server *p, enum gate_kind kind, int chunk, int64_t version,
                        struct buf *value)
{
    const struct net_gate_item item = {
        .kind = kind, .chunk = chunk, .version = version, .value = value};
    if (!value || mail_put(p->mail, p->plan, p->self, 0, &item) != ST_OK)
        fail_server(p);
}

static struct buf *copy_data(const void *data, size_t bytes)
{
    struct buf *b = NULL;
    if (buf_create(bytes, &b) == ST_OK)
        memcpy(b->data, data, bytes);
    return b;
}

/* Reports a version. The value of a version that waits will change in place, so its letter carries
 * a copy. */
static void on_made(void *ctx, int chunk, int64_t version, int waits_now, struct buf *value)
{
    struct region_server *p = ctx;
    pthread_mutex_lock(&p->lock);
    const struct net_gates *g = &p->plan->gates;
    int64_t end = p->plan->job.train_steps;
    int64_t next = net_plan_gates_version(g, net_plan_gates_up_to(g, version, end) + 1, end);
    if (waits_now) {
        struct buf *b = copy_data(value->data, value->bytes);
        p->waiting[chunk] = version;
        send_to_ps0(p, GATE_WAITS, chunk, version, b);
        buf_unref(b);
    } else if (version >= next - g->overlap && p->reported[chunk] < next) {
        p->reported[chunk] = next;
        send_to_ps0(p, GATE_MADE, chunk, version, value);
    }
    pthread_mutex_unlock(&p->lock);
}

static void on_first(void *ctx, int chunk, const struct net_payload *value)
{
    struct region_server *p = ctx;
    struct buf *b = NULL;
    if (buf_create(value->bytes, &b) == ST_OK)
        payload_copy(value, b->data);
    pthread_mutex_lock(&p->lock);
    send_to_ps0(p, GATE_FIRST, chunk, 0, b);
    pthread_mutex_unlock(&p->lock);
    buf_unref(b);
}

static int64_t slots_since(void *ctx)
{
    struct region_server *p = ctx;
    pthread_mutex_lock(&p->lock);
    int64_t since = p->slots_since;
    pthread_mutex_unlock(&p->lock);
    return since;
}

enum status region_server_create(const struct region_server_config *cfg, struct region_server **out)
{
    enum status st = ST_NOMEM;
    struct region_server *p = calloc(1, sizeof *p);
    if (!p)
        return st;
    pthread_mutex_init(&p->lock, NULL);
    p->cfg = *cfg;
    p->outer = (struct outer_hooks){on_waits, on_made, on_first, slots_since, p};
    const struct mail_config mail = {cfg->failed, cfg->ctx};
    TRY(mail_create(&mail, &p->mail));
    *out = p;
    return ST_OK;
done:
    region_server_destroy(p);
    return st;
}

const struct outer_hooks *region_server_outer(struct region_server *p)
{
    return p ? &p->outer : NULL;
}

void region_server_serve(struct region_server *p, struct service *service)
{
    if (p)
        p->service = service;
}

enum status region_server_begin(struct region_server *p, const struct net_plan *plan)
{
    enum status st = ST_OK;
    struct net_plan *copied = NULL;
    size_t n = (size_t)plan->chunks->n_chunks + 1;
    int64_t *lists = NULL;
    if (!p)
        return ST_OK;
    if (plan->gates.steps == 0) {
        if (p->cfg.expects && !p->is_logged)
            LOG_W(
                "--parent_hosts: ps:0 was started without this flag, so this group is not a region");
        p->is_logged |= p->cfg.expects;
        return ST_OK;
    }
    if (!p->nothing)
        p->nothing = calloc(1, CHUNKS_MAX_BYTES);
    lists = calloc(2 * n, sizeof *lists);
    TRY(lists && p->nothing ? ST_OK : ST_NOMEM);
    TRY(net_plan_copy(plan, &copied));
    TRY(mail_start(p->mail));
    mail_begin(p->mail, plan->generation);
    pthread_mutex_lock(&p->lock);
    struct net_plan *old = p->plan;
    int64_t *old_lists = p->reported;
    p->plan = copied;
    p->reported = lists;
    p->waiting = lists + n;
    p->self = net_plan_server(plan, p->cfg.address);
    p->alone = plan->gates.alone;
    p->slots_since = plan->gates.slots_since;
    pthread_mutex_unlock(&p->lock);
    copied = old;
    lists = old_lists;
done:
    net_plan_free(copied);
    free(lists);
    return st;
}

/* Returns true if this server is to carry out the order: the order belongs to the generation in
 * force, and the version still waits. Repeated orders are dropped. Orders of an earlier
 * generation are dropped, too, since their versions wait again in the present generation. */
static bool begin_item(struct region_server *p, uint64_t generation,
                       const struct net_gate_item *item)
{
    pthread_mutex_lock(&p->lock);
    int go = p->plan && p->plan->generation == generation;
    if (go && item->kind == GATE_BEGIN) {
        p->slots_since = item->slots_since;
    } else if (go && item->kind != GATE_READ) {
        go = p->waiting[item->chunk] == item->version;
        p->waiting[item->chunk] = go ? 0 : p->waiting[item->chunk];
        p->alone = go ? item->alone : p->alone;
    }
    pthread_mutex_unlock(&p->lock);
    return go;
}

static void send_value(struct region_server *p, const struct run *run, int chunk)
{
    int64_t version;
    struct buf *b = store_read(run->store, chunk, &version);
    pthread_mutex_lock(&p->lock);
    if (b && p->plan->generation == run->generation)
        send_to_ps0(p, GATE_VALUE, chunk, version, b);
    pthread_mutex_unlock(&p->lock);
    buf_unref(b);
}

static void carry_out(struct region_server *p, const struct run *run,
                      const struct net_gate_item *item)
{
    const float *value = item->value ? item->value->data : NULL;
    if (!begin_item(p, run->generation, item))
        return;
    if (item->kind == GATE_READ)
        send_value(p, run, item->chunk);
    else if (item->kind != GATE_BEGIN)
        outer_adopt(run->store, item->chunk, item->version,
                    &(struct outer_adoption){
                        value, item->kind == GATE_ADD || item->kind == GATE_MIX ? p->nothing : NULL,
                        item->kind == GATE_MIX, item->mix});
    else if (outer_set_first(run->store, item->chunk, item->version, value) != ST_OK)
        fail_server(p);
}

/* Returns the fault of the message; NULL: the message fits the plan. */
static const char *gate_problem(const struct run *run, const struct net_gate *gate)
{
    if (gate->server != 0)
        return "it is not from ps 0";
    for (int i = 0; i < gate->n; i++) {
        const struct net_gate_item *item = &gate->item[i];
        if (item->kind < GATE_BEGIN || item->chunk >= run->chunks->n_chunks ||
            run->plan->shard[item->chunk] != run->self ||
            (item->value && item->value->bytes !=
                                (size_t)run->chunks->chunks[item->chunk].n_elems * sizeof(float)))
            return "this server does not have a chunk, or the chunk has another size";
    }
    return NULL;
}

void region_server_take(struct region_server *p, const struct net_gate *gate,
                        struct net_squares_reply *reply)
{
    int ended;
    if (!p)
        return;
    struct run *run = service_run(p->service, &ended);
    uint64_t here = run ? run->generation : 0;
    reply->answer = SQUARES_LATER;
    if (run && here == gate->generation && run->plan->ps0 == gate->ps0) {
        const char *wrong = gate_problem(run, gate);
        reply->answer = wrong ? SQUARES_REFUSED : SQUARES_TAKEN;
        snprintf(reply->why, sizeof reply->why, "%s", wrong ? wrong : "");
        for (int i = 0; i < gate->n && !wrong; i++)
            carry_out(p, run, &gate->item[i]);
    } else if (here > gate->generation) {
        reply->answer = SQUARES_OVER;
    } else {
        snprintf(reply->why, sizeof reply->why,
                 "generation " TERM_FMT " has not begun on this server",
                 TERM_ARG(gate->generation));
    }
    if (run)
        run_unref(run);
}

void region_server_stop(struct region_server *p)
{
    if (p)
        mail_stop(p->mail);
}

void region_server_destroy(struct region_server *p)
{
    if (!p)
        return;
    region_server_stop(p);
    mail_destroy(p->mail);
    net_plan_free(p->plan);
    free(p->reported);
    free(p->nothing);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
