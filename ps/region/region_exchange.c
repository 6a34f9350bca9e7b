/* ps/region/region_exchange.c - see region.h: the thread that exchanges with the parent group, as
 * one member of its job. Its rounds are the parent's steps.
 *
 *     held < step   the parent has a version that this region lacks: the region adopts it at the
 *                   gate and contributes nothing. This happens after a restart from a checkpoint
 *                   (the region had contributed before), or if other regions were faster.
 *     else          the region contributes a change that is based on version `step`, and adopts
 *                   version `step` + 1.
 *
 * Locks:   the region's. */
#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/rng.h"
#include "net/wire/fragments.h"
#include "ps/region/region_chunks.h"
#include "ps/service/service.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MS = 10000, POLL_MS = 200, FIRST_MS = 50 };

/* Returns true if the region's workers have sent initial values, or if the region resumes with
 * values. The caller does not hold the region's lock: the store's functions lock a chunk, and the
 * hooks, which run under a chunk's lock, lock the region's lock. */
static bool has_values(struct ps_region *r, const struct run *run)
{
    if (region_chunks_step(r, run) >= 0)
        return true;
    pthread_mutex_lock(&r->lock);
    int all = r->pieces != NULL;
    for (int i = 0; all && i < r->chunks->n_chunks; i++)
        all = r->pieces[i].proposed;
    pthread_mutex_unlock(&r->lock);
    return all;
}

/* Returns a reference to the run of the job that has begun; NULL: this process ends. */
static struct run *await_job(struct ps_region *r)
{
    for (int stopping = 0; !stopping;) {
        struct run *run = region_run(r);
        if (run && has_values(r, run))
            return run;
        if (run)
            run_unref(run);
        pthread_mutex_lock(&r->lock);
        if (!region_rewind_is_due(r))
            clock_cond_wait(&r->changed, &r->lock, clock_deadline_ns(POLL_MS));
        stopping = region_rewind_is_due(r);
        pthread_mutex_unlock(&r->lock);
    }
    return NULL;
}

/* Returns the weight of a contribution: the number of samples that it is computed from, if the
 * present workers made all its steps. It needs no factor for fragments, whose turns are equally far
 * apart in all regions. */
static float weigh_contribution(const struct ps_region *r)
{
    struct run *run = region_run(r);
    int n = run ? run->plan->n_members : 1, batch = run ? run->job.batch : 0;
    if (run)
        run_unref(run);
    return (float)r->cfg.steps * (float)n * (float)(batch > 0 ? batch : 1);
}

/* Reads this server's present values into params if the parent's job begins from scratch. Otherwise
 * params stays as it is: a version of the parent, from which changes are counted. Runs on the net's
 * thread, which must not wait. */
static enum status read_values(void *ctx, float *params)
{
    region_chunks_read_own(ctx, params);
    return ST_OK;
}

static enum status make_exchange(struct ps_region *r, const struct run *run)
{
    struct net_exchange *x;
    r->train_steps = run->job.train_steps;
    r->n_gates = ps_region_gates(&r->cfg, r->train_steps, r->train_steps);
    region_job_make(r, &run->job);
    enum status st = fragments_create(&r->job, r->chunks, &r->fragment);
    if (st != ST_OK)
        return st;
    st = region_chunks_read(r, r->base);
    if (st != ST_OK)
        return st;
    struct net_exchange_config cfg = {
        .ps_hosts = r->cfg.parents,
        .join = {.member = r->cfg.index,
                 .incarnation = rng_mix((uint64_t)clock_now_ns() ^ (uint64_t)getpid()),
                 .address = r->cfg.address,
                 .job = r->job,
                 .chunks = r->chunks},
        .params = r->base,
        .step_ms = r->cfg.step_ms,
        .first_values = read_values,
        .ctx = r};
    st = net_exchange_create(&cfg, &x);
    if (st != ST_OK)
        return st;
    pthread_mutex_lock(&r->lock);
    r->x = x;
    bool stopping = region_rewind_is_due(r);
    pthread_mutex_unlock(&r->lock);
    return stopping ? ST_CANCELLED : ST_OK;
}

/* Starts the exchange, which writes the parent's present version to `base`. */
static enum status start_exchange(struct ps_region *r)
{
    struct net_start s;
    enum status st = net_exchange_start(r->x, &s);
    if (st == ST_OK) {
        r->step = s.step;
        r->parent_has =
            (struct net_contribution){s.place.member, s.place.contributed, s.place.contributed_in};
        r->generation = s.generation;
        /* A later version of a generation in lockstep contains all members' contributions. */
        r->last_counted = s.step > s.place.first_step ? s.step : s.place.contributed;
    }
    return st;
}

/* Sets the initial values in the present run, and in every run that replaces it, until all servers
 * of the region have values. */
static enum status push_first(struct ps_region *r, int64_t version)
{
    enum status st = ST_OK;
    for (int has = 0, stopping = 0; !has && st == ST_OK;) {
        pthread_mutex_lock(&r->lock);
        int n_first = r->n_first;
        pthread_mutex_unlock(&r->lock);
        struct run *run = region_run(r);
        has = run && region_chunks_set_first(r, run, version, &st);
        struct run *now = region_run(r);
        has = has && now == run;
        if (run)
            run_unref(run);
        if (now)
            run_unref(now);
        pthread_mutex_lock(&r->lock);
        has = has && n_first == r->n_first;
        r->has_first |= has;
        if (!has && !region_rewind_is_due(r))
            clock_cond_wait(&r->changed, &r->lock, clock_deadline_ns(FIRST_MS));
        stopping = region_rewind_is_due(r);
        pthread_mutex_unlock(&r->lock);
        if (stopping && !has)
            return ST_CANCELLED;
    }
    return st;
}

/* Finds the parent's version that the region's values are based on: `held` is -1 if the parent has
 * replaced that version. If a region has no record of that version, its values are assumed to be
 * based on the version of the last gate that the region has passed. */
static void resume_from(struct ps_region *r, int64_t version)
{
    size_t bytes = (size_t)r->chunks->n_elems * sizeof(float);
    uint32_t crc32c = digest_crc32c(0, r->base, bytes);
    pthread_mutex_lock(&r->lock);
    struct checkpoint_parent_version *had = &r->adopting;
    *had = r->taken.restored;
    if (!had->known) {
        int64_t guess = ps_region_gates(&r->cfg, version, r->train_steps);
        *had = (struct checkpoint_parent_version){guess == r->step, guess, crc32c, r->slots_since};
    }
    /* A different checksum means that the parent lost that round, and then made another version
     * of it. */
    bool is_same = had->version != r->step || had->crc32c == crc32c;
    r->held = is_same ? had->version : -1;
    pthread_mutex_unlock(&r->lock);
}

/* Starts the exchange, finds the region's next gate and the parent's version that its values are
 * based on, and sets the initial values if the region has none. */
static enum status begin_exchange(struct ps_region *r, const struct run *run)
{
    enum status st = ST_OK;
    int64_t version = region_chunks_step(r, run);
    int first = version < 0;
    TRY(start_exchange(r));
    if (first) {
        version = ps_region_gate_version(&r->cfg, r->step, r->train_steps);
        r->held = r->step;
        pthread_mutex_lock(&r->lock);
        if (!r->next)
            r->slots_since = version;
        pthread_mutex_unlock(&r->lock);
        region_adopts(r, r->step);
    } else {
        resume_from(r, version);
    }
    region_unsent_resume(r);
    pthread_mutex_lock(&r->lock);
    region_rewind_note(r, version, &r->adopting);
    r->gate = ps_region_gates(&r->cfg, version, r->train_steps);
    r->due =
        r->gate < r->n_gates ? ps_region_gate_version(&r->cfg, r->gate + 1, r->train_steps) : -1;
    for (int i = 0; i < r->chunks->n_chunks; i++)
        r->pieces[i].due = r->due;
    pthread_mutex_unlock(&r->lock);
    LOG_I("region %d of %d is at step %" PRId64 ", the parent group at round %" PRId64
          " of %" PRId64 " (%" PRId64 " steps each%s)",
          r->cfg.index, r->cfg.n_regions, version * r->steps_each, r->step, r->n_gates,
          r->cfg.steps * r->steps_each,
          r->fragment ? ", and each exchanges one of the fragments in turn" : "");
    region_job_warn_few(r);
    if (first)
        TRY(push_first(r, version));
done:
    return st;
}

/* Returns true if the region is at its last gate while the parent has more rounds left, because
 * the parent has lost some rounds. */
static bool is_short(struct ps_region *r)
{
    return region_at_end(r) && r->step < r->n_gates;
}

/* Returns true if the chunk's values are not based on the parent's version in `base`. If the chunk
 * had no turn since the version that they are based on, both versions have the same value. */
static bool is_behind(const struct ps_region *r, int chunk)
{
    return r->held < 0 || fragments_turn_between(&r->job, r->fragment, chunk, r->held, r->step);
}

/* Adopts the parent's version `step`, which is in `base`. The region's own changes are dropped in
 * the chunks that the parent has changed since, unless they were contributed. */
static enum status take_over(struct ps_region *r)
{
    enum status st = ST_OK;
    if (r->cfg.max_drift > 0)
        TRY(region_hold(r));
    if (is_short(r))
        return ST_OK; /* the region has reached its end while this thread waited */
    LOG_I("region %d: adopts round %" PRId64 " of the parent group", r->cfg.index, r->step);
    region_adopts(r, r->step);
    for (int i = 0; i < r->chunks->n_chunks && st == ST_OK; i++) {
        int changed = r->step >= r->n_gates || is_behind(r, i);
        st = region_adopt(r, i, changed ? r->base + r->chunks->chunks[i].first : NULL, NULL);
    }
    if (st == ST_OK)
        r->held = r->step;
done:
    return st;
}

/* Computes the chunk's change from `before` to `value`. */
static void subtract_base(struct ps_region *r, int chunk, const float *value)
{
    const struct net_chunk *c = &r->chunks->chunks[chunk];
    const struct net_param *p = &r->chunks->params[c->param];
    float keep = p->rule == PARAM_AVERAGE ? p->keep : -1;
    optim_change(keep, (size_t)c->n_elems, r->before + c->first, value, r->change + c->first);
}

static bool has_turn(const struct ps_region *r, int chunk, int64_t step)
{
    return fragments_turn(&r->job, r->fragment, chunk, step);
}

/* Notes that the contribution to `step` is part of the parent's version, in each chunk that had its
 * turn. */
static void note_counted(struct ps_region *r, int64_t step)
{
    for (int i = 0; i < r->chunks->n_chunks; i++)
        r->pieces[i].counted |= has_turn(r, i, step);
}

/* Notes the step and the generation of the parent that receive the chunk's change. */
static void note_given(const struct ps_region *r, struct piece *p)
{
    bool is_first = p->given < 0 || p->given == r->step;
    *(is_first ? &p->given : &p->rest) = r->step;
    *(is_first ? &p->given_in : &p->rest_in) = r->generation;
}

/* Contributes to the parent's present step. *rebased is set if a generation of the parent ended
 * during the call; the parent may still make the step if it has all contributions. */
static enum status push_all(struct ps_region *r, int *rebased)
{
    enum status st = ST_OK;
    for (int i = 0; i < r->chunks->n_chunks && st == ST_OK; i++) {
        const float *value;
        struct piece *p = &r->pieces[i];
        int brings = has_turn(r, i, r->step) && !p->counted;
        if (brings)
            note_given(r, p);
        TRY(region_contribution(r, i, &value));
        if (brings)
            subtract_base(r, i, value);
        st = net_exchange_push(r->x, i, r->step, r->change + r->chunks->chunks[i].first,
                               brings ? r->weight : 0);
        *rebased |= st == ST_REBASED;
        st = st == ST_REBASED ? ST_OK : st;
    }
    net_exchange_flush(r->x);
    if (st == ST_OK) /* even if the generation ended, the parent may have made the step */
        region_unsent_keep(r, r->step + 1);
done:
    return st;
}

/* Waits for the parent's answer, then stops further steps without the parent. */
static enum status stop_drift(struct ps_region *r, int *rebased)
{
    enum status st = net_exchange_wait(r->x, 0, r->chunks->n_chunks, r->step + 1);
    *rebased = st == ST_REBASED;
    return st == ST_OK ? region_hold(r) : *rebased ? ST_OK : st;
}

/* Finishes the remaining rounds of a region that has made steps without the parent, and is at the
 * job's end before the parent is. The first remaining round (if there are fragments: each chunk's
 * first remaining turn) receives the changes of these steps; later rounds receive no changes. */
static enum status finish_rounds(struct ps_region *r, int *rebased)
{
    enum status st = ST_OK;
    while (r->step + 1 < r->n_gates && st == ST_OK && !*rebased) {
        st = net_exchange_wait(r->x, 0, r->chunks->n_chunks, r->step + 1);
        *rebased = st == ST_REBASED;
        if (st != ST_OK)
            return *rebased ? ST_OK : st;
        note_counted(r, r->step++);
        for (int i = 0; i < r->chunks->n_chunks; i++)
            if (has_turn(r, i, r->step))
                region_contribute_rest(r, i);
        st = push_all(r, rebased);
    }
    return st;
}

/* Adopts the parent's next version of the chunk, which is in `base`. `changed` is zero if the
 * chunk has the same value in this version as in the version `held`. */
static enum status adopt_chunk(struct ps_region *r, int chunk, int changed, int counted)
{
    if (!changed)
        return region_adopt(r, chunk, NULL, NULL);
    int64_t at = r->chunks->chunks[chunk].first;
    const float *value = NULL;
    enum status st = region_contribution(r, chunk, &value);
    if (st == ST_OK)
        st = region_adopt(r, chunk, r->base + at, counted ? value : r->before + at);
    return st;
}

/* Adopts all chunks or none: while the parent's answer for some chunk is missing, a generation of
 * the parent may end, and the parent may go back to the step of the contribution. */
static enum status adopt_all(struct ps_region *r, int *rebased)
{
    enum status st = net_exchange_wait(r->x, 0, r->chunks->n_chunks, r->step + 1);
    *rebased = st == ST_REBASED;
    if (st != ST_OK)
        return *rebased ? ST_OK : st;
    region_adopts(r, r->step + 1);
    for (int i = 0; i < r->chunks->n_chunks && st == ST_OK; i++)
        st = adopt_chunk(r, i, has_turn(r, i, r->step), 1);
    return st;
}

/* Returns true if the parent's present version includes the contribution to `step` that was sent in
 * the generation `in`. The parent may have returned to a checkpoint of an older generation, which
 * has another contribution of the region to the same step. */
static bool is_kept(const struct ps_region *r, int64_t step, uint64_t in)
{
    return step >= 0 && r->step > step && r->parent_has.version > step &&
           (r->parent_has.generation == 0 || r->parent_has.generation >= in);
}

/* Prepares the chunk's next contribution, after the parent has gone back: it consists of exactly
 * those changes that the parent has lost. */
static void contribute_lost(struct ps_region *r, int chunk)
{
    struct piece *p = &r->pieces[chunk];
    bool kept = is_kept(r, p->given, p->given_in);
    if (kept && (p->rest < 0 || is_kept(r, p->rest, p->rest_in)))
        return;
    /* true: no change of the chunk was contributed, and no change will be */
    p->counted = p->given < 0 && is_behind(r, chunk);
    p->rest = -1;
    if (kept)
        return; /* the later contribution (p->rest) is counted from `before` */
    const struct net_chunk *c = &r->chunks->chunks[chunk];
    memcpy(r->before + c->first, r->base + c->first, (size_t)c->n_elems * sizeof(float));
    p->given = -1;
}

/* Returns true if the parent is at `step` again, and lacks a contribution that it had counted for
 * this version: it has returned to a checkpoint of an older generation. */
static bool lacks_earlier(const struct ps_region *r, const struct piece *p, int64_t step)
{
    return r->step == step && p->given >= 0 && p->given < step &&
           !is_kept(r, p->given, p->given_in);
}

/* Marks lost contributions, so that they are contributed again. */
static void forget_lost(struct ps_region *r)
{
    for (int i = 0; i < r->chunks->n_chunks; i++)
        if (!is_kept(r, r->pieces[i].given, r->pieces[i].given_in))
            r->pieces[i].given = -1;
}

/* Restarts after a generation of the parent has ended before the region adopted its answer. *again
 * is set if the step must be repeated. The parent reports whether the contribution to the last step
 * counted. If the parent made that step without this region, the contribution did not count, and
 * the region keeps its changes as its own. */
static enum status return_to_parent(struct ps_region *r, int *again)
{
    enum status st = ST_OK;
    int64_t step = r->step;
    uint64_t generation = r->generation;
    TRY(start_exchange(r));
    bool counted = is_kept(r, step, generation);
    if (r->cfg.max_drift > 0 && r->step > step)
        /* without region_hold() the region might reach its end at the same time */
        TRY(region_hold(r));
    *again = r->step <= step || is_short(r);
    for (int i = 0; i < r->chunks->n_chunks; i++)
        if (r->step < step || lacks_earlier(r, &r->pieces[i], step))
            contribute_lost(r, i);
    if (r->step >= step)
        forget_lost(r);
    if (r->step > step && !counted) {
        net_exchange_restore_unsent(r->x, step);
        LOG_W("region %d: the parent group has continued without it, to round %" PRId64
              "; the region's own changes since then are added to that round",
              r->cfg.index, r->step);
    }
    if (counted)
        note_counted(r, step);
    if (!*again)
        region_adopts(r, r->step);
    for (int i = 0; i < r->chunks->n_chunks && st == ST_OK && !*again; i++)
        st = adopt_chunk(r, i, fragments_turn_between(&r->job, r->fragment, i, step, r->step),
                         r->pieces[i].counted);
    r->held = r->step;
done:
    return st;
}

/* Makes one round. Chunks whose values are not based on the parent's version contribute nothing.
 * The region participates all the same, so that the parent reaches its end. */
static enum status exchange_round(struct ps_region *r)
{
    enum status st = ST_OK;
    int again = 1;
    int64_t began = 0;
    for (int i = 0; i < r->chunks->n_chunks; i++) {
        r->pieces[i].counted = is_behind(r, i);
        r->pieces[i].given = r->pieces[i].rest = -1;
    }
    r->weight = weigh_contribution(r);
    memcpy(r->before, r->base, (size_t)r->chunks->n_elems * sizeof(float));
    while (again) {
        int rebased = 0;
        const float *value;
        again = 0;
        TRY(region_contribution(r, 0, &value));
        began = clock_now_ns();
        TRY(push_all(r, &rebased));
        if (!rebased && r->cfg.max_drift > 0)
            TRY(stop_drift(r, &rebased));
        if (!rebased && region_at_end(r))
            TRY(finish_rounds(r, &rebased));
        if (!rebased)
            TRY(adopt_all(r, &rebased));
        if (rebased)
            TRY(return_to_parent(r, &again));
        else
            r->held = ++r->step;
    }
    r->exchange_s = (double)(clock_now_ns() - began) * 1e-9;
done:
    return st;
}

/* Finishes the rounds that the parent has left, since it lost some after the region had made all
 * its steps. The first remaining round (if there are fragments: each chunk's first remaining turn)
 * receives the changes that the parent lacks. The region adopts nothing. */
static enum status finish_ended(struct ps_region *r)
{
    enum status st = ST_OK;
    r->weight = weigh_contribution(r);
    for (int i = 0; i < r->chunks->n_chunks; i++)
        r->pieces[i].given = -1;
    while (st == ST_OK && r->step < r->n_gates) {
        int64_t step = r->step;
        memcpy(r->before, r->base, (size_t)r->chunks->n_elems * sizeof(float));
        TRY(region_chunks_read(r, r->change));
        for (int i = 0; i < r->chunks->n_chunks && st == ST_OK; i++) {
            float *change = r->change + r->chunks->chunks[i].first;
            int brings = has_turn(r, i, step) && r->pieces[i].given < 0;
            if (brings)
                note_given(r, &r->pieces[i]);
            subtract_base(r, i, change);
            st = net_exchange_push(r->x, i, step, change, brings ? r->weight : 0);
        }
        net_exchange_flush(r->x);
        if (st == ST_OK || st == ST_REBASED)
            region_unsent_keep(r, step + 1);
        if (st == ST_OK)
            st = net_exchange_wait(r->x, 0, r->chunks->n_chunks, step + 1);
        if (st == ST_OK) {
            r->step++;
        } else if (st == ST_REBASED) {
            st = start_exchange(r);
            forget_lost(r);
        }
    }
done:
    return st;
}

/* Logs a round, but not each one if rounds are so short that their lines would fill the log. */
static void log_round(struct ps_region *r)
{
    struct net_exchange_stats s;
    int64_t now = clock_now_ns();
    bool is_last = r->gate >= r->n_gates;
    if (r->line_ns && now - r->line_ns < LINE_MS * INT64_C(1000000) && !is_last)
        return;
    r->line_ns = now;
    net_exchange_stats(r->x, &s);
    pthread_mutex_lock(&r->lock);
    double waited = (double)r->waited_ns, lasted = (double)(now - r->began_ns);
    pthread_mutex_unlock(&r->lock);
    LOG_I(
        "region %d: round %" PRId64 " of %" PRId64
        " exchanged, %.2f s from contribution to answer; %.1f MB sent and %.1f MB received so far; workers waited for answers %.1f s, %.1f %% of the time",
        r->cfg.index, r->held, r->n_gates, r->exchange_s, (double)s.sent_bytes * 1e-6,
        (double)s.received_bytes * 1e-6, waited * 1e-9, lasted > 0 ? 100 * waited / lasted : 0);
}

static enum status exchange_all(struct ps_region *r)
{
    enum status st = ST_OK;
    struct run *run = await_job(r);
    if (!run)
        return ST_CANCELLED;
    pthread_mutex_lock(&r->lock);
    r->began_ns = clock_now_ns();
    pthread_mutex_unlock(&r->lock);
    TRY(make_exchange(r, run));
    TRY(begin_exchange(r, run));
    if (r->gate >= r->n_gates)
        TRY(finish_ended(r));
    while (r->gate < r->n_gates && st == ST_OK) {
        int behind = r->held < r->step, taken = !is_short(r) && (behind || r->step >= r->n_gates);
        st = taken ? take_over(r) : exchange_round(r);
        if (st == ST_OK)
            region_forget(r);
        if (st == ST_OK && (!taken || r->gate >= r->n_gates))
            log_round(r);
    }
done:
    run_unref(run);
    return st;
}

/* Runs the exchange from the present state of the region's servers until it ends or is
 * cancelled. */
static void run_exchange(struct ps_region *r)
{
    enum status st = exchange_all(r);
    pthread_mutex_lock(&r->lock);
    r->ended = !region_rewind_is_due(r) || r->stopping;
    r->done = st == ST_OK && !r->next;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (st == ST_OK)
        region_linger(r);
    pthread_mutex_lock(&r->lock);
    bool over = region_rewind_is_due(r);
    int64_t silent_s = r->silent_s;
    pthread_mutex_unlock(&r->lock);
    if (over)
        return;
    if (st == ST_CANCELLED && silent_s > 0) {
        region_end_alone(r, silent_s);
        return;
    }
    LOG_E("region %d cannot continue with its parent group: %s", r->cfg.index, status_text(st));
    r->cfg.refused(r->cfg.ctx);
}

void *region_exchange_main(void *ctx)
{
    struct ps_region *r = ctx;
    do
        run_exchange(r);
    while (region_rewind_finish(r));
    return NULL;
}
