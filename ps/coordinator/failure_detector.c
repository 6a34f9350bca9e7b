/* ps/coordinator/failure_detector.c - decides which workers are present. A server misses a
 * worker if the worker belongs to its generation, but has no stream to the server. A worker's
 * absence is measured by the awake clock, which stands still while ps 0 itself does not run. ps
 * 0 waits without end for a worker that never joined, unless --min_workers lets training begin
 * with fewer, or the job is older than ps 0. A worker that is connected to ps 0 but not to
 * another server is late like any other worker, and may not rejoin at once. */
#include "ps/coordinator/coordinator_impl.h"
#include <stdbool.h>
#include <string.h>

static bool has_bit(const unsigned char *bits, int i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

static void set_bit(unsigned char *bits, int i, int on)
{
    bits[i / 8] = (unsigned char)((bits[i / 8] & ~(1 << (i % 8))) | (on ? 1 << (i % 8) : 0));
}

/* Finds a server that misses the worker (has no stream to it), from the reports of all servers. */
static void update_missed(struct coordinator_state *c, int worker)
{
    struct coordinator_worker *w = &coordinator_workers(c)[worker];
    w->missed_by = -1;
    w->heard = 0;
    for (int i = 0; i < c->n_slots; i++) {
        if (coordinator_servers(c)[i].number < 0 ||
            !has_bit(coordinator_bits(c, c->missing_at, i), worker))
            continue;
        w->missed_by = i;
        w->heard |= has_bit(coordinator_bits(c, c->contact_at, i), worker);
    }
    if (w->missed_by < 0)
        w->since = INT64_MAX;
    else if (w->since == INT64_MAX && c->phase == PHASE_RUNNING)
        w->since = c->awake;
}

static void set_missing(struct coordinator_state *c, int slot, int worker, int missing)
{
    unsigned char *bits = coordinator_bits(c, c->missing_at, slot);
    if (!missing)
        set_bit(coordinator_bits(c, c->contact_at, slot), worker, 1);
    if (has_bit(bits, worker) == missing)
        return;
    set_bit(bits, worker, missing);
    update_missed(c, worker);
}

/* Records a report that the worker has joined at a server that misses it. */
static void note_join(struct coordinator_state *c, int worker, int came)
{
    struct coordinator_worker *w = &coordinator_workers(c)[worker];
    if (!came || w->came)
        return;
    w->came = 1;
    w->joined_at = c->awake;
}

/* Ignores reports after a Stop, since streams end then by themselves. */
void failure_detector_note_missing(struct coordinator_state *c, int slot,
                                   const struct net_missing *list, int n)
{
    int k = 0;
    if (c->phase != PHASE_RUNNING && c->phase != PHASE_BEGINNING)
        return;
    for (int i = 0; i < c->max_workers; i++) {
        if (!coordinator_workers(c)[i].in_plan)
            continue;
        while (k < n && list[k].member < i) /* the list is in ascending order of members */
            k++;
        int missing = k < n && list[k].member == i;
        set_missing(c, slot, i, missing);
        note_join(c, i, missing && list[k].came);
    }
}

void failure_detector_begin(struct coordinator_state *c, bool resets_absence)
{
    size_t row = (size_t)((c->max_workers + 7) / 8);
    for (int i = 0; i < c->n_slots; i++) {
        memset(coordinator_bits(c, c->missing_at, i), 0xff, row);
        memset(coordinator_bits(c, c->contact_at, i), 0, row);
    }
    for (int i = 0; i < c->max_workers; i++) {
        struct coordinator_worker *w = &coordinator_workers(c)[i];
        if (resets_absence || !w->in_plan || w->asked || w->since >= c->stopped)
            w->since = INT64_MAX;
        w->asked = w->spoke = w->came = w->late = 0;
    }
}

void failure_detector_settle(struct coordinator_state *c)
{
    for (int i = 0; i < c->max_workers; i++)
        if (coordinator_workers(c)[i].in_plan)
            update_missed(c, i);
}

static void note_worker(struct coordinator_state *c, const struct coordinator_worker_event *from,
                        int is_present)
{
    struct coordinator_worker *w = &coordinator_workers(c)[from->member];
    int64_t contact = c->awake - (from->missing_ms > 0 ? from->missing_ms * MS : 0);
    if (contact > w->contact)
        w->contact = contact;
    int waits = from->waits;
    if (!w->in_plan && from->failed && from->incarnation == w->incarnation)
        w->left_step = -1; /* the worker's error arrived after the worker was found absent */
    /* While ps 0 is not in the plan's generation yet, members join in the generation before it. A
     * worker that finished there and was restarted counts only if the plan rolls back. */
    bool is_out = from->done && c->plan_source == PLAN_MEMORY;
    if (!is_present)
        waits |= !w->in_plan && from->asked && !is_out && from->missing_ms < REJOIN_MS;
    if (!waits && !is_present)
        return;
    if (waits) {
        w->waits = 1;
        if (w->in_plan)
            return;
    }
    if (w->incarnation != from->incarnation)
        w->came = 0;
    if (!w->joined && from->joined && w->since != INT64_MAX)
        w->since = c->awake; /* the worker had never joined until now, so it was not missing */
    w->incarnation = from->incarnation;
    w->joined = from->joined != 0;
    w->leaving = from->leaving != 0;
    w->failed = from->failed && from->leaving;
    w->done = from->done != 0;
    w->spoke = from->spoke != 0;
    w->asked = from->asked != 0;
    strncpy(w->address, from->address ? from->address : "", sizeof w->address - 1);
    if (w->remove && w->incarnation) {
        w->removed = w->incarnation;
        w->remove = 0;
    }
    if (w->in_plan && (c->phase == PHASE_RUNNING || c->phase == PHASE_BEGINNING)) {
        set_missing(c, 0, from->member, from->missing_ms >= 0);
        note_join(c, from->member, from->missing_ms >= 0 && from->came);
    }
}

void failure_detector_note_workers(struct coordinator_state *c, const struct coordinator_event *e)
{
    bool is_present = e->workers.generation == c->generation;
    for (int i = 0; i < c->max_workers; i++)
        coordinator_workers(c)[i].waits = 0;
    c->workers_generation = e->workers.generation;
    for (int i = 0; i < e->workers.n; i++)
        if (e->workers.worker[i].member >= 0 && e->workers.worker[i].member < c->max_workers)
            note_worker(c, &e->workers.worker[i], is_present);
}

/* Returns the time until which ps 0 waits for a worker without contact in this generation, even
 * if --worker_timeout is less. A live worker may be slow to enter the new generation; but once
 * it has joined, it sends soon. */
static int64_t first_word_due(const struct coordinator_state *c, const struct coordinator_worker *w,
                              int64_t since)
{
    int64_t due = since + REJOIN_MS * MS, sent_by = w->joined_at + SPEAK_MS * MS;
    return c->phase == PHASE_RUNNING && w->came && sent_by < due ? sent_by : due;
}

/* Returns true for a worker that never joined, and for which training waits without a limit. */
static bool has_never_joined(const struct coordinator_state *c, const struct coordinator_worker *w)
{
    return !w->joined && !w->wanted && !c->lives_on && c->min_workers == 0 &&
           c->plan_step < c->train_steps;
}

/* Returns true if the worker's time has run out; otherwise requests a coordinator_step() for the
 * time when it runs out. */
static bool is_late(struct coordinator_state *c, struct coordinator_worker *w,
                    struct coordinator_out *out)
{
    int running = c->phase == PHASE_RUNNING, is_back = !running && w->asked;
    /* the worker is in the generation that begins, and waits for a server */
    if (c->phase == PHASE_BEGINNING && w->joined && w->in_plan &&
        !has_bit(coordinator_bits(c, c->missing_at, 0), (int)(w - coordinator_workers(c))))
        is_back = 1;
    if (has_never_joined(c, w))
        return false;
    if (!running && !c->workers_generation)
        return false; /* ps 0 has no generation yet in which workers could report */
    if (is_back || (w->since == INT64_MAX && running))
        return false;
    if (!running && w->late)
        return true;
    int64_t since = w->since != INT64_MAX ? w->since : c->stopped;
    /* the worker retries at ps 0 while it waits for a server, so its contact with ps 0 counts */
    if ((!running || (w->missed_by == 0 && w->heard)) && w->contact > since)
        since = w->contact;
    int64_t due = since + c->worker_timeout_ms * MS;
    int64_t first = first_word_due(c, w, since);
    if ((!w->heard || (!running && since >= c->stopped)) && due < first)
        due = first;
    if (c->awake >= due)
        return true;
    coordinator_wake_at(c, out, due);
    return false;
}

static bool waits_to_join(const struct coordinator_state *c, const struct coordinator_worker *w)
{
    return w->waits && !w->in_plan && w->removed != w->incarnation &&
           (w->refused != w->incarnation || c->awake >= w->refused_until);
}

static enum worker_lot lot_of(struct coordinator_state *c, struct coordinator_worker *w,
                              struct coordinator_out *out)
{
    if (!w->in_plan)
        return waits_to_join(c, w) ? LOT_JOINS : LOT_NONE;
    if (w->done)
        return LOT_DONE;
    if (w->remove || (w->removed && w->removed == w->incarnation))
        return LOT_REMOVED;
    if (w->leaving)
        return LOT_LEAVES;
    /* after an order to end the job, ps 0 does not wait for a worker that never joined */
    if (c->stop_asked && has_never_joined(c, w))
        return LOT_NONE;
    return is_late(c, w, out) ? LOT_LATE : LOT_STAYS;
}

bool failure_detector_is_unreached(const struct coordinator_state *c, int worker)
{
    const struct coordinator_worker *w = &coordinator_workers(c)[worker];
    return w->missed_by > 0 && !w->heard && !has_bit(coordinator_bits(c, c->missing_at, 0), worker);
}

static void keep(struct coordinator_worker *w, struct failure_detector_census *census)
{
    census->n_by[w->lot]--;
    w->lot = LOT_STAYS;
    census->n_by[LOT_STAYS]++;
    census->n_next++;
}

/* Keeps the late workers that cannot reach a server if no worker reaches that server: a log line
 * then names the server, and no worker is dropped. Does nothing if other workers stay or join, or
 * have made all steps. */
static void spare_unreached(struct coordinator_state *c, struct failure_detector_census *census)
{
    int n = 0, slot = -1;
    for (int i = 0; i < c->max_workers; i++) {
        if (coordinator_workers(c)[i].lot != LOT_LATE || !failure_detector_is_unreached(c, i))
            continue;
        n++;
        slot = coordinator_workers(c)[i].missed_by;
    }
    int others = census->n_by[LOT_STAYS] + census->n_by[LOT_JOINS];
    if (server_registry_lowest(c) >= c->train_steps)
        others += census->n_by[LOT_DONE];
    if (n == 0 || others > 0 || c->phase != PHASE_RUNNING)
        return;
    census->unreached = slot;
    for (int i = 0; i < c->max_workers; i++) {
        struct coordinator_worker *w = &coordinator_workers(c)[i];
        if (w->lot != LOT_LATE || !failure_detector_is_unreached(c, i))
            continue;
        keep(w, census);
    }
}

/* Keeps the workers that leave without an error or are removed, if no other worker is left, until
 * ps 0 has begun its first generation: no worker can join before that. */
static void keep_for_first(struct coordinator_state *c, struct failure_detector_census *census)
{
    if (census->n_next > 0 || c->phase != PHASE_BEGINNING || c->workers_generation)
        return;
    for (int i = 0; i < c->max_workers; i++) {
        struct coordinator_worker *w = &coordinator_workers(c)[i];
        if (w->lot == LOT_REMOVED || (w->lot == LOT_LEAVES && !w->failed))
            keep(w, census);
    }
}

void failure_detector_judge(struct coordinator_state *c, struct coordinator_out *out,
                            struct failure_detector_census *census)
{
    *census = (struct failure_detector_census){.unreached = -1};
    for (int i = 0; i < c->max_workers; i++) {
        struct coordinator_worker *w = &coordinator_workers(c)[i];
        w->lot = lot_of(c, w, out);
        census->n_by[w->lot]++;
        census->n_gone += (w->lot == LOT_LEAVES || w->lot == LOT_REMOVED) && w->missed_by >= 0;
        census->n_next += w->lot == LOT_STAYS || w->lot == LOT_JOINS;
        if (c->phase == PHASE_RUNNING)
            w->late = w->lot == LOT_LATE;
    }
    spare_unreached(c, census);
    keep_for_first(c, census);
}
