/* worker/events/events.c - the observer that turns training into events, see events.h. */
#include "worker/events/events.h"
#include "base/clock.h"
#include "base/log.h"
#include "worker/events/event_samples.h"
#include "worker/events/event_writer.h"
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { AUTO_SECONDS = 30, AUTO_SHARE = 200, EVENT_BYTES = 8192, TAG_BYTES = CHUNKS_MAX_NAME + 16 };

/* Figures at the last event: the next event reports the difference to these. */
struct last_figures {
    int64_t ns, images, local_steps;
    int64_t global_step, wait_ns; /* -1: unknown */
    uint64_t sent_bytes, received_bytes;
};

struct events {
    struct events_config cfg;
    struct trainer_observer observer;
    struct evaluate_visitor visitor;
    struct event_writer *writer; /* NULL: not started, or failed */
    bool is_off;                 /* writing has failed */
    int member, is_first_member;
    struct last_figures last;
    struct trainer_figures newest;
    int owes_newest; /* the newest figures are not written yet */
    bool is_begun;   /* a step was made after the last call of on_start */
    int said_last;   /* the figures of the job's last step were written */
    bool is_resumed; /* training has resumed, so the values of its first step were written before */
    int64_t values_ns; /* time of the last histograms; 0: never */
    _Atomic int64_t values_took_ns;
    struct event_samples samples;
    struct event_hparam hparams[EVENTS_MOST_HPARAMS];
};

static double wall_time(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void put_events(struct events *ev, const struct event_buf *b)
{
    if (ev->writer && b->n > 0)
        event_writer_put(ev->writer, b->data, b->n);
}

static void put_graph(struct events *ev)
{
    enum { FIRST_BYTES = 256 << 10 };
    struct event_graph_source source = ev->cfg.graph;
    source.task = ev->member;
    for (size_t cap = FIRST_BYTES; cap <= EVENT_WRITER_RING_BYTES; cap *= 2) {
        /* keeps bytes free in the ring for the record that begins TensorBoard's session */
        const size_t most = cap - 4096;
        struct event_buf graph = {malloc(cap), 0, most, 0}, b = {malloc(cap), 0, most, 0};
        int made = graph.data && b.data;
        if (made)
            event_graph_put(&source, &graph);
        if (made && !graph.overflow) {
            struct event e = event_begin(&b, wall_time(), 0);
            event_graph(&e, graph.data, graph.n);
            if (event_end(&e))
                put_events(ev, &b);
            else
                graph.overflow = 1;
        }
        int again = made && graph.overflow;
        free(graph.data);
        free(b.data);
        if (!again)
            return;
    }
    LOG_W("--logdir: the graph of this model is too large for an event; it is left out");
}

static void put_hparams(struct events *ev)
{
    enum { BYTES = 32 << 10 };
    uint8_t *room = malloc(BYTES);
    struct event_buf b = {room, 0, room ? BYTES : 0, 0};
    struct event e = event_begin(&b, wall_time(), 0);
    event_hparams_start(&e, ev->hparams, ev->cfg.n_hparams);
    event_end(&e);
    put_events(ev, &b);
    free(room);
}

/* Opens the file when this worker's index is known. */
static void open_file(struct events *ev)
{
    char folder[PATH_MAX];
    struct event_writer_config cfg = {.folder = folder};
    int n = snprintf(folder, sizeof folder, "%s/worker_%d", ev->cfg.folder, ev->member);
    if (n >= (int)sizeof folder)
        LOG_W("--logdir=%.100s...: the name of one of its folders is too long", ev->cfg.folder);
    ev->is_off = n >= (int)sizeof folder || event_writer_create(&cfg, &ev->writer) != ST_OK;
    if (ev->is_off) {
        LOG_W("--logdir: no event file is written");
        return;
    }
    LOG_I("events for TensorBoard are written into %s", folder);
}

/* Begins what TensorBoard calls a session. Earlier events stay valid up to start->step; in a new
 * job no earlier event stays valid. */
static void on_start(void *ctx, const struct net_start *start)
{
    struct events *ev = ctx;
    uint8_t room[128];
    struct event_buf b = {room, 0, sizeof room, 0};
    int is_first = !ev->writer && !ev->is_off;
    ev->member = start->place.member < 0 ? 0 : start->place.member;
    if (is_first)
        open_file(ev);
    struct event e = event_begin(&b, wall_time(), start->step > 0 ? start->step + 1 : 0);
    event_session_start(&e);
    event_end(&e);
    if (ev->writer)
        event_writer_session(ev->writer, b.data, b.n);
    if (is_first) {
        put_graph(ev);
        if (ev->member == 0)
            put_hparams(ev);
    }
    ev->is_first_member = start->place.rank <= 0;
    ev->said_last = ev->owes_newest = ev->is_begun = false;
    event_samples_clear(&ev->samples);
    ev->is_resumed = start->step > 0;
}

static void put_exchange(struct events *ev, struct event *e, const struct trainer_figures *f)
{
    struct net_exchange_stats s;
    struct last_figures *last = &ev->last;
    double steps = (double)(f->local_steps - last->local_steps);
    if (ev->cfg.graph.n_servers == 0 || steps <= 0)
        return;
    ev->cfg.updates->ops->stats(ev->cfg.updates->ctx, &s);
    if (last->wait_ns >= 0)
        event_scalar(e, "exchange/wait_ms_per_step",
                     (double)(f->wait_ns - last->wait_ns) / 1e6 / steps);
    event_scalar(e, "exchange/sent_bytes_per_step",
                 (double)(s.sent_bytes - last->sent_bytes) / steps);
    event_scalar(e, "exchange/received_bytes_per_step",
                 (double)(s.received_bytes - last->received_bytes) / steps);
    event_scalar(e, "exchange/reconnects", (double)s.reconnects);
    event_scalar(e, "exchange/stale", (double)s.stale);
    /* between two steps of this worker, global_step increases by this worker's own update and by
     * the updates of the other workers */
    if (ev->cfg.own_pace && last->global_step >= 0)
        event_scalar(e, "exchange/staleness",
                     fmax(0, (double)(f->global_step - last->global_step) / steps - 1));
    last->sent_bytes = s.sent_bytes;
    last->received_bytes = s.received_bytes;
}

/* Writes the figures. exchange: also writes the figures of the exchange, for which the updates must
 * still exist. */
static void put_figures(struct events *ev, const struct trainer_figures *f, int exchange)
{
    struct last_figures *last = &ev->last;
    uint8_t room[EVENT_BYTES];
    struct event_buf b = {room, 0, sizeof room, 0};
    struct event e = event_begin(&b, wall_time(), f->global_step);
    int64_t now_ns = clock_now_ns();
    event_scalar(&e, "loss", (double)f->loss);
    if (!isnan(f->accuracy))
        event_scalar(&e, "accuracy", (double)f->accuracy);
    event_scalar(&e, "learning_rate", (double)optim_rate(&ev->cfg.optim, (uint64_t)f->global_step));
    if (now_ns > last->ns && f->images > last->images)
        event_scalar(&e, "images_per_second",
                     (double)(f->images - last->images) * 1e9 / (double)(now_ns - last->ns));
    if (f->skipped > 0)
        event_scalar(&e, "nonfinite_skipped", (double)f->skipped);
    if (exchange)
        put_exchange(ev, &e, f);
    event_end(&e);
    put_events(ev, &b);
    last->ns = now_ns;
    last->images = f->images;
    last->local_steps = f->local_steps;
    last->global_step = f->global_step;
    last->wait_ns = f->wait_ns;
    ev->owes_newest = 0;
}

static void on_step(void *ctx, const struct trainer_figures *f)
{
    struct events *ev = ctx;
    ev->newest = *f;
    if (f->is_last ? ev->said_last : f->number % ev->cfg.summary_steps != 0) {
        ev->owes_newest = !f->is_last && f->global_step > ev->last.global_step;
        return;
    }
    ev->said_last = f->is_last;
    put_figures(ev, f, 1);
}

/* Stores the figures of the first step since the start, as the base of the first differences. */
static void begin_figures(struct events *ev)
{
    struct net_exchange_stats s = {0};
    if (ev->cfg.graph.n_servers > 0)
        ev->cfg.updates->ops->stats(ev->cfg.updates->ctx, &s);
    ev->last = (struct last_figures){.ns = clock_now_ns(),
                                     .images = ev->newest.images,
                                     .local_steps = ev->newest.local_steps,
                                     .global_step = -1,
                                     .wait_ns = -1,
                                     .sent_bytes = s.sent_bytes,
                                     .received_bytes = s.received_bytes};
    ev->is_begun = true;
}

/* Returns true if histograms are due. They are at least 30 s apart, and need at most a 200th of the
 * time. */
static bool is_time_for_values(struct events *ev, int64_t now_ns)
{
    int64_t apart_ns = AUTO_SECONDS * INT64_C(1000000000);
    int64_t share_ns = atomic_load(&ev->values_took_ns) * AUTO_SHARE;
    return ev->values_ns == 0 ||
           now_ns - ev->values_ns >= (share_ns > apart_ns ? share_ns : apart_ns);
}

static int on_wants_values(void *ctx, int64_t number, int is_last)
{
    struct events *ev = ctx;
    int64_t every = ev->cfg.histogram_steps, now_ns = clock_now_ns();
    int is_again = ev->is_resumed && !is_last;
    ev->is_resumed = false;
    if (is_last && ev->owes_newest)
        put_figures(ev, &ev->newest, 1);
    else if (!is_last && !ev->is_begun)
        begin_figures(ev);
    if (every == EVENTS_HISTOGRAMS_AUTO)
        every = is_time_for_values(ev, now_ns) ? ev->cfg.summary_steps : 0;
    if (is_again || ev->cfg.histogram_steps == 0 ||
        (!is_last && (every == 0 || number % every != 0)))
        return 0;
    ev->values_ns = now_ns;
    atomic_store(&ev->values_took_ns, 0);
    return 1;
}

static int64_t next_multiple(int64_t number, int64_t every)
{
    return (number / every + 1) * every;
}

static int64_t on_next(void *ctx, int64_t number)
{
    const struct events *ev = ctx;
    int64_t figures = next_multiple(number, ev->cfg.summary_steps), values = figures;
    if (ev->cfg.histogram_steps > 0)
        values = next_multiple(number, ev->cfg.histogram_steps);
    return figures < values ? figures : values;
}

/* A loop of several threads, each of which adds its part of the numbers to one histogram. */
struct loop {
    const struct trainer_values *v;
    int counts;           /* true in the second pass, which counts */
    pthread_mutex_t lock; /* guards the field below */
    struct event_histogram h;
};

static void look_at_range(void *ctx, size_t first, size_t n)
{
    enum { BLOCK = 2048 };
    struct loop *l = ctx;
    float decoded[BLOCK];
    struct event_histogram part = {.lowest = l->h.lowest};
    for (size_t at = first; at < first + n; at += BLOCK) {
        size_t now = first + n - at < BLOCK ? first + n - at : BLOCK;
        const float *value = l->v->f ? l->v->f + at : decoded;
        if (!l->v->f)
            dtype_decode(l->v->dtype, decoded, l->v->f16 + at, now);
        if (l->counts)
            event_histogram_count(&part, value, now);
        else
            event_histogram_bounds(&part, value, now);
    }
    pthread_mutex_lock(&l->lock);
    if (l->counts)
        event_histogram_add_count(&l->h, &part);
    else
        event_histogram_add_bounds(&l->h, &part);
    pthread_mutex_unlock(&l->lock);
}

static void on_values(void *ctx, const struct trainer_values *v)
{
    struct events *ev = ctx;
    struct loop l = {.v = v};
    int64_t begin_ns = clock_now_ns();
    if (!v->is_gradient && !ev->cfg.own_pace && !ev->is_first_member)
        return; /* all towers have the same values, so the first one is enough */
    char tag[TAG_BYTES];
    uint8_t room[EVENT_BYTES];
    struct event_buf b = {room, 0, sizeof room, 0};
    pthread_mutex_init(&l.lock, NULL);
    crew_run(v->crew, (size_t)v->param->n_elems, look_at_range, &l);
    event_histogram_scale(&l.h);
    l.counts = 1;
    crew_run(v->crew, (size_t)v->param->n_elems, look_at_range, &l);
    pthread_mutex_destroy(&l.lock);
    snprintf(tag, sizeof tag, "%s%s", v->param->name, v->is_gradient ? "/gradient" : "");
    struct event e = event_begin(&b, wall_time(), v->global_step);
    event_histogram(&e, tag, &l.h);
    event_end(&e);
    put_events(ev, &b);
    atomic_fetch_add(&ev->values_took_ns, clock_now_ns() - begin_ns);
}

static enum status on_batch(void *ctx, struct tower *e, int64_t first, int n)
{
    struct events *ev = ctx;
    event_samples_collect(&ev->samples, e, first, n);
    return ST_OK;
}

static void on_evaluated(void *ctx, int64_t global_step, const char *what, double accuracy,
                         double loss)
{
    struct events *ev = ctx;
    char tag[TAG_BYTES];
    uint8_t *room = malloc(EVENT_SAMPLES_BYTES);
    struct event_buf b = {room, 0, room ? EVENT_SAMPLES_BYTES : 0, 0};
    double now = wall_time();
    struct event e = event_begin(&b, now, global_step);
    if (!isnan(accuracy)) {
        snprintf(tag, sizeof tag, "%s/accuracy", what);
        event_scalar(&e, tag, accuracy);
    }
    if (!isnan(loss)) {
        snprintf(tag, sizeof tag, "%s/loss", what);
        event_scalar(&e, tag, loss);
    }
    event_end(&e);
    event_samples_put(&ev->samples, &b, now, global_step, what);
    event_samples_clear(&ev->samples);
    put_events(ev, &b);
    free(room);
}

enum status events_create(const struct events_config *cfg, struct events **out)
{
    struct events *ev = calloc(1, sizeof *ev);
    if (!ev) {
        LOG_E("--logdir: out of memory");
        return ST_NOMEM;
    }
    CHECK(cfg->n_hparams <= EVENTS_MOST_HPARAMS);
    ev->cfg = *cfg;
    for (int i = 0; i < cfg->n_hparams; i++)
        ev->hparams[i] = cfg->hparams[i];
    ev->visitor = (struct evaluate_visitor){on_batch, ev};
    ev->observer = (struct trainer_observer){.ctx = ev,
                                             .start = on_start,
                                             .step = on_step,
                                             .wants_values = on_wants_values,
                                             .values = on_values,
                                             .next = on_next,
                                             .visitor = &ev->visitor,
                                             .evaluated = on_evaluated};
    event_samples_clear(&ev->samples);
    *out = ev;
    return ST_OK;
}

const struct trainer_observer *events_observer(struct events *ev)
{
    return ev ? &ev->observer : NULL;
}

void events_destroy(struct events *ev, int failed)
{
    uint8_t room[512];
    struct event_buf b = {room, 0, sizeof room, 0};
    if (!ev)
        return;
    if (ev->owes_newest) /* training has not reached its end */
        put_figures(ev, &ev->newest, 0);
    if (ev->writer && ev->member == 0) {
        struct event e = event_begin(&b, wall_time(), 0);
        event_hparams_end(&e, failed);
        event_end(&e);
        put_events(ev, &b);
    }
    event_writer_destroy(ev->writer);
    free(ev);
}
