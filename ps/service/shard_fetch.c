/* ps/service/shard_fetch.c - see shard_fetch.h. */
#include "ps/service/shard_fetch.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/term.h"
#include "net/exchange/fetch_client.h"
#include "ps/store/handover.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* A try ends if no chunk arrives for this time, which doubles after each try without a
     * chunk. */
    STALL_MS = 60000,
    STALL_MAX_MS = 960000, /* longest such time, for a large chunk over a very slow connection */
    LINE_MS = 5000,        /* interval of the progress lines */
};

/* Chunks that a failed call of shard_fetch_run fetched. */
struct kept {
    uint64_t before, ps0;
    int64_t step;
    int n;                        /* number of chunks of the job; 0: nothing is kept */
    struct handover_chunk *chunk; /* [n] chunks, of which some were fetched (handover_has) */
};

struct shard_fetch {
    struct kept kept; /* chunks of a failed call; only the thread in shard_fetch_run uses it */
    int64_t stall_ms;

    pthread_mutex_t lock; /* guards all fields below */
    /* generation whose fetch is cancelled; SHARD_FETCH_ALL: every generation */
    uint64_t cancelled;
    uint64_t generation;         /* generation that the client fetches for */
    struct fetch_client *client; /* NULL: no fetch in progress */
};

/* State of one call of shard_fetch_run. */
struct fetching {
    struct shard_fetch *g;
    const struct shard_fetch_request *r;
    int *chunk; /* chunks to request from the present holder */
    /* [n_chunks] nonzero: another server sent the chunk, now or earlier. A bucket of which a part
     * is missing is not here, but the store has its cursor. */
    uint8_t *here;

    /* Fields for the present holder. */
    const char *from;
    /* number of chunks to request; of these, chunks that are here already; chunks that arrived
     * in this run; parts of buckets that arrived in this run, except for last parts */
    int n, n_here, n_new, n_parts;
    double mb, mb_here; /* a bucket counts only as far as it is here */
    const char *why;    /* reason why the last chunk was refused; NULL: none */
    int64_t line_ns;    /* time of the next line */
};

enum status shard_fetch_create(struct shard_fetch **out)
{
    struct shard_fetch *g = calloc(1, sizeof *g);
    if (!g)
        return ST_NOMEM;
    g->stall_ms = STALL_MS;
    pthread_mutex_init(&g->lock, NULL);
    *out = g;
    return ST_OK;
}

void shard_fetch_forget(struct shard_fetch *g)
{
    for (int i = 0; i < g->kept.n; i++)
        handover_drop(&g->kept.chunk[i]);
    free(g->kept.chunk);
    g->kept = (struct kept){.n = 0};
    g->stall_ms = STALL_MS;
}

void shard_fetch_destroy(struct shard_fetch *g)
{
    if (!g)
        return;
    shard_fetch_forget(g);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* Returns true if the generation is cancelled. The caller holds the lock. */
static bool is_cancelled(const struct shard_fetch *g, uint64_t generation)
{
    return g->cancelled == generation || g->cancelled == SHARD_FETCH_ALL;
}

void shard_fetch_cancel(struct shard_fetch *g, uint64_t generation)
{
    pthread_mutex_lock(&g->lock);
    if (g->cancelled != SHARD_FETCH_ALL)
        g->cancelled = generation;
    if (g->client && is_cancelled(g, g->generation))
        fetch_client_cancel(g->client);
    pthread_mutex_unlock(&g->lock);
}

/* Sets the client that a cancel ends. ST_CANCELLED: the cancel arrived earlier. */
static enum status set_client(struct shard_fetch *g, struct fetch_client *client,
                              uint64_t generation)
{
    pthread_mutex_lock(&g->lock);
    g->client = client;
    g->generation = generation;
    enum status st = is_cancelled(g, generation) ? ST_CANCELLED : ST_OK;
    pthread_mutex_unlock(&g->lock);
    return st;
}

static enum status take_own(const struct shard_fetch_request *r, int chunk)
{
    struct handover_chunk taken;
    enum status st =
        r->before ? handover_take(r->before, chunk, r->plan->step, &taken) : ST_NOT_FOUND;
    if (st != ST_OK) {
        LOG_E("generation " TERM_FMT " cannot begin: chunk %d of generation " TERM_FMT
              " is not on this server at step %" PRId64,
              TERM_ARG(r->plan->generation), chunk, TERM_ARG(r->plan->before), r->plan->step);
        return st;
    }
    st = handover_give(r->to, chunk, &taken);
    handover_drop(&taken);
    return st;
}

/* Returns the size of a chunk with its slots, or 0 for a bucket, whose size is not known. */
static double megabytes(const struct net_plan *p, int chunk)
{
    const struct net_chunk *c = &p->chunks->chunks[chunk];
    if (chunk >= p->chunks->n_dense)
        return 0;
    int averages = p->chunks->params[c->param].rule == PARAM_AVERAGE;
    int n_slots = averages ? 0 : job_n_slots(&p->job);
    return (double)c->n_elems * sizeof(float) * (1 + n_slots) * 1e-6;
}

/* Logs "23 of 97 chunks, 1.2 of 7.0 GB from HOST". */
static void log_progress(const struct fetching *run, const char *what)
{
    int large = run->mb >= 1000;
    double unit = large ? 1000 : 1;
    LOG_I("generation " TERM_FMT ": %d of %d chunks, %.1f of %.1f %s from %s%s",
          TERM_ARG(run->r->plan->generation), run->n_here, run->n, run->mb_here / unit,
          run->mb / unit, large ? "GB" : "MB", run->from, what);
}

static void note_here(struct fetching *run, int chunk)
{
    run->here[chunk] = 1;
    run->n_here++;
    run->mb_here += megabytes(run->r->plan, chunk);
}

/* Copies a chunk with parameters to the store. */
static enum status copy_dense(const struct fetching *run, const struct net_fetched *c)
{
    const struct handover_copied copied = {.version = c->version,
                                           .value = c->value,
                                           .slots = c->slots,
                                           .n_value = c->n_value,
                                           .n_slots = c->n_slots,
                                           .samples = c->samples,
                                           .n_samples = c->n_samples,
                                           .idle = c->idle,
                                           .n_idle = c->n_idle};
    return handover_copy(run->r->to, c->chunk, &copied);
}

/* Adds a part of a bucket to the store. */
static enum status add_part(struct fetching *run, const struct net_fetched *c)
{
    const struct handover_part part = {.version = c->version,
                                       .n_value = c->n_value,
                                       .n_slots = c->n_slots,
                                       .has_more = c->has_more,
                                       .entries = {.n = c->n_rows,
                                                   .keys = c->keys,
                                                   .steps = c->steps,
                                                   .values = c->value,
                                                   .slots = c->slots,
                                                   .n_pending = c->n_pending,
                                                   .pending_keys = c->pending_keys,
                                                   .pending_steps = c->pending_steps,
                                                   .pending_counts = c->pending_counts}};
    enum status st = handover_add(run->r->to, c->chunk, &part, &run->why);
    if (st != ST_OK)
        return st;
    double mb = (double)(c->n_value + c->n_slots) * sizeof(float) * 1e-6 +
                (double)(2 * c->n_rows + 3 * c->n_pending) * sizeof(uint64_t) * 1e-6;
    run->mb += mb;
    run->mb_here += mb;
    run->n_parts += c->has_more;
    return ST_OK;
}

static enum status on_fetched(void *ctx, const struct net_fetched *c)
{
    struct fetching *run = ctx;
    const struct net_plan *p = run->r->plan;
    if (c->is_bucket != (c->chunk >= p->chunks->n_dense) ||
        (job_in_lockstep(&p->job) && c->version != p->step))
        return ST_PROTOCOL;
    enum status st = c->is_bucket ? add_part(run, c) : copy_dense(run, c);
    if (st != ST_OK)
        return st;
    if (!c->has_more) {
        note_here(run, c->chunk);
        run->n_new++;
    }
    run->g->stall_ms = STALL_MS;
    if (clock_now_ns() >= run->line_ns && run->n_here < run->n) {
        log_progress(run, "");
        run->line_ns = clock_deadline_ns(LINE_MS);
    }
    return ST_OK;
}

/* Lists this server's chunks that the holder has and that are not here yet. Returns their
 * number. */
static int count_wanted(struct fetching *run, int holder)
{
    const struct net_plan *p = run->r->plan;
    int n = 0;
    run->from = p->holders.addr[holder];
    run->n = run->n_here = run->n_new = run->n_parts = 0;
    run->mb = run->mb_here = 0;
    run->why = NULL;
    run->line_ns = clock_deadline_ns(LINE_MS);
    for (int i = 0; i < p->chunks->n_chunks; i++) {
        if (p->shard[i] != run->r->self || p->held_by[i] != holder)
            continue;
        run->n++;
        run->mb += megabytes(p, i);
        if (run->here[i])
            note_here(run, i);
        else
            run->chunk[n++] = i;
    }
    return n;
}

static void log_end(const struct fetching *run, enum status st, const char *why)
{
    const struct net_plan *p = run->r->plan;
    if (st == ST_OK)
        LOG_I("%d chunks, with the optimizer's state %.1f MB, received from %s", run->n_new,
              run->mb, run->from);
    else if (st == ST_CANCELLED)
        log_progress(run, " before the transfer was cancelled");
    else
        LOG_E("generation " TERM_FMT " cannot begin yet: %d of %d chunks of generation " TERM_FMT
              " are still missing from %s: %s",
              TERM_ARG(p->generation), run->n - run->n_here, run->n, TERM_ARG(p->before), run->from,
              why[0] ? why : status_text(st));
}

/* Requests n chunks. Only the first chunk of a request may have a cursor, so a bucket of which a
 * part is here begins a request. */
static enum status request_chunks(struct fetching *run, struct fetch_client *client, int n,
                                  char why[CONTROL_TEXT_BYTES])
{
    const struct net_plan *p = run->r->plan;
    enum status st = ST_OK;
    for (int at = 0, end; at < n && st == ST_OK; at = end) {
        struct handover_cursor part = handover_cursor(run->r->to, run->chunk[at]);
        for (end = at + 1; end < n; end++)
            if (handover_cursor(run->r->to, run->chunk[end]).is_partial)
                break;
        const struct net_fetch_request request = {.generation = p->before,
                                                  .step = p->step,
                                                  .n = end - at,
                                                  .chunk = run->chunk + at,
                                                  .has_after = part.has_after,
                                                  .after = part.after};
        st = fetch_client_run(client, &request, run->g->stall_ms, on_fetched, run, why);
    }
    return st;
}

static enum status fetch_from(struct fetching *run, int holder)
{
    struct shard_fetch *g = run->g;
    struct fetch_client *client = NULL;
    char why[CONTROL_TEXT_BYTES] = "";
    int n = count_wanted(run, holder);
    if (n == 0)
        return ST_OK;
    if (run->n_here > 0)
        log_progress(run, " have already arrived");
    enum status st = fetch_client_create(run->from, &client);
    if (st != ST_OK)
        goto done;
    TRY(set_client(g, client, run->r->plan->generation));
    st = request_chunks(run, client, n, why);
done:
    set_client(g, NULL, 0);
    fetch_client_destroy(client);
    if (st == ST_DEADLINE && run->n_new + run->n_parts == 0 && g->stall_ms < STALL_MAX_MS)
        g->stall_ms *= 2;
    log_end(run, st, run->why ? run->why : why);
    return st;
}

/* Uses the chunks that an earlier call of shard_fetch_run fetched. */
static enum status use_kept(struct fetching *run, int own)
{
    enum status st = ST_OK;
    const struct net_plan *p = run->r->plan;
    struct kept *kept = &run->g->kept;
    int64_t stall_ms = run->g->stall_ms;
    if (kept->before != p->before || kept->ps0 != p->ps0 || kept->step != p->step ||
        kept->n != p->chunks->n_chunks) {
        shard_fetch_forget(run->g);
        return ST_OK;
    }
    for (int i = 0; i < kept->n; i++) {
        if (!handover_has(&kept->chunk[i]) || p->shard[i] != run->r->self || p->held_by[i] == own)
            continue;
        TRY(handover_give(run->r->to, i, &kept->chunk[i]));
        run->here[i] = !kept->chunk[i].part.is_partial;
    }
done:
    shard_fetch_forget(run->g);
    run->g->stall_ms = stall_ms;
    return st;
}

/* Keeps the chunks that were fetched. If memory is lacking, the next call fetches them again. */
static void keep_chunks(struct fetching *run)
{
    const struct net_plan *p = run->r->plan;
    struct kept *kept = &run->g->kept;
    kept->chunk = calloc((size_t)p->chunks->n_chunks + 1, sizeof *kept->chunk);
    if (!kept->chunk)
        return;
    kept->before = p->before;
    kept->ps0 = p->ps0;
    kept->step = p->step;
    kept->n = p->chunks->n_chunks;
    for (int i = 0; i < kept->n; i++)
        if (run->here[i])
            handover_take(run->r->to, i, p->step, &kept->chunk[i]);
        else if (p->shard[i] == run->r->self)
            handover_take_part(run->r->to, i, &kept->chunk[i]);
}

static enum status fetch_chunks(struct fetching *run)
{
    const struct shard_fetch_request *r = run->r;
    const struct net_plan *p = r->plan;
    int own = hosts_find(&p->holders, r->address);
    enum status st, first = ST_OK;
    TRY(use_kept(run, own));
    for (int i = 0; i < p->chunks->n_chunks; i++)
        if (p->shard[i] == r->self && p->held_by[i] == own)
            TRY(take_own(r, i));
    for (int i = 0; i < p->holders.n && st != ST_CANCELLED; i++) {
        st = i == own ? ST_OK : fetch_from(run, i);
        if (first == ST_OK || st == ST_CANCELLED)
            first = st;
    }
    st = first;
done:
    if (st != ST_OK)
        keep_chunks(run);
    return st;
}

enum status shard_fetch_run(struct shard_fetch *g, const struct shard_fetch_request *request)
{
    enum status st = ST_NOMEM;
    size_t n = (size_t)request->plan->chunks->n_chunks + 1;
    struct fetching run = {.g = g,
                           .r = request,
                           .chunk = malloc(n * sizeof *run.chunk),
                           .here = calloc(n, sizeof *run.here)};
    if (run.chunk && run.here)
        st = fetch_chunks(&run);
    else
        LOG_E("generation " TERM_FMT " cannot begin: out of memory",
              TERM_ARG(request->plan->generation));
    free(run.chunk);
    free(run.here);
    return st;
}
