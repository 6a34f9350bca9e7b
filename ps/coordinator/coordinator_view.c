/* ps/coordinator/coordinator_view.c - answers queries of a coordinator's state
 * (coordinator_view.h). */
#include "ps/coordinator/coordinator_view.h"
#include "ps/coordinator/coordinator_impl.h"
#include <stdbool.h>
#include <string.h>

void coordinator_view_next_plan(const struct coordinator_state *c,
                                struct coordinator_plan_view *out)
{
    *out = (struct coordinator_plan_view){.generation = c->next_generation,
                                          .base = c->base,
                                          .source = c->next_source,
                                          .step = c->next_step,
                                          .n_members = c->n_next_members,
                                          .n_servers = c->n_next_numbers,
                                          .member = coordinator_ints(c, c->members_at),
                                          .server = coordinator_ints(c, c->numbers_at),
                                          .train_steps = c->eval.ended ? c->train_steps : 0};
}

int coordinator_view_next_servers(const struct coordinator_state *c, int *slot)
{
    return server_registry_next(c, slot);
}

void coordinator_view_manifest(const struct coordinator_state *c,
                               struct coordinator_manifest_view *out)
{
    *out = (struct coordinator_manifest_view){.step = c->ckpt.step,
                                              .generation = c->ckpt.generation,
                                              .n_files = c->ckpt.n_files,
                                              .file = coordinator_files(c)};
}

/* Returns true if the server was restarted, lost its chunks of the settled generation, and so waits
 * for the next plan. */
static bool waits_for_next_plan(const struct coordinator_state *c,
                                const struct coordinator_server *s)
{
    return c->settled == c->generation && s->held && s->held != s->incarnation;
}

/* Returns true if the process of a server that drained or left may exit: the generation without it
 * has settled. */
static bool has_left(const struct coordinator_state *c, const struct coordinator_server *s)
{
    return c->generation && s->number < 0 && (s->leaving || s->drained) &&
           c->settled == c->generation;
}

bool coordinator_view_is_over(const struct coordinator_state *c)
{
    return (c->job_done || c->job_failed) && c->closing;
}

bool coordinator_view_fill_reply(const struct coordinator_state *c, int server,
                                 struct net_control_reply *out)
{
    *out = (struct net_control_reply){
        .number = c->number,
        .incarnation = c->incarnation,
        .epoch = c->recorded,
        .generation = c->generation,
        .order = c->ckpt.order,
        .step = -1,
        .closing = c->closing,
        .stop = c->stop,
        .stop_step = -1,
        .settled = c->settled,
    };
    if (server < 0)
        return false;
    const struct coordinator_server *s = &coordinator_servers(c)[server];
    out->given = s->given;
    out->drained = has_left(c, s) || coordinator_view_is_over(c);
    out->failed = c->job_failed && c->closing;
    if (c->ckpt.phase == SCHEDULE_ORDERED && s->ordered >= 0)
        out->step = c->ckpt.step;
    return c->generation && s->number >= 0 && s->generation != c->generation &&
           !waits_for_next_plan(c, s) && !reconfigure_plan_is_void(c);
}

const char *coordinator_view_server_address(const struct coordinator_state *c, int server)
{
    return server >= 0 && server < c->n_slots ? coordinator_servers(c)[server].address : "?";
}

const char *coordinator_view_worker_address(const struct coordinator_state *c, int worker)
{
    return worker >= 0 && worker < c->max_workers ? coordinator_workers(c)[worker].address : "";
}

int coordinator_view_worker_late(const struct coordinator_state *c, int from)
{
    for (int i = from; i < c->max_workers; i++)
        if (coordinator_workers(c)[i].lot == LOT_LATE)
            return i;
    return -1;
}

int64_t coordinator_view_worker_timeout_ms(const struct coordinator_state *c)
{
    return c->worker_timeout_ms;
}

int coordinator_view_n_servers(const struct coordinator_state *c)
{
    return c->n_slots;
}

/* Returns true for a server with chunks that has been silent for at least `ms` while training makes
 * no step. */
static bool holds_up(const struct coordinator_state *c, const struct coordinator_server *s,
                     int64_t ms)
{
    return s->life == LIFE_KNOWN && s->number > 0 && s->held &&
           server_registry_is_silent(c, s, ms) && c->awake - c->moved >= STILL_MS * MS;
}

void coordinator_view_server(const struct coordinator_state *c, int server,
                             struct coordinator_server_view *out)
{
    const struct coordinator_server *s = &coordinator_servers(c)[server];
    int silent = s->life != LIFE_KNOWN || server_registry_is_silent(c, s, SILENT_MS) ||
                 holds_up(c, s, OVERDUE_MS);
    *out = (struct coordinator_server_view){.number = s->number, .heard_ms = -1, .up_ms = -1};
    if (s->life == LIFE_NONE || (s->number < 0 && silent) || has_left(c, s))
        out->kind = SERVER_NONE;
    else if (server_registry_is_joining(c, s))
        out->kind = SERVER_JOINS;
    else if (silent)
        out->kind = SERVER_SILENT;
    else
        out->kind = s->leaving || s->drained ? SERVER_LEAVES : SERVER_PRESENT;
    if (s->life == LIFE_KNOWN) {
        out->heard_ms = (c->awake - s->heard) / MS;
        out->up_ms = (c->awake - s->first) / MS;
    }
}

static bool set_line(struct coordinator_line *out, enum coordinator_line_id id, int server,
                     int64_t a0, int64_t a1)
{
    *out = (struct coordinator_line){.id = id, .server = server, .worker = -1, .arg = {a0, a1, 0}};
    return true;
}

int coordinator_view_server_behind(const struct coordinator_state *c, int from)
{
    for (int i = from; i < c->n_slots && c->phase >= PHASE_STOPPING; i++) {
        const struct coordinator_server *s = &coordinator_servers(c)[i];
        if (s->number < 0)
            continue;
        if (c->phase == PHASE_BEGINNING ? s->generation != c->generation
                                        : s->stop != c->stop || !s->stopped || !s->incarnation)
            return i;
    }
    return -1;
}

static int n_workers(const struct coordinator_state *c)
{
    int n = 0;
    for (int i = 0; i < c->max_workers; i++) {
        enum worker_lot lot = coordinator_workers(c)[i].lot;
        n += lot == LOT_STAYS || lot == LOT_JOINS;
    }
    return n;
}

static bool waits_for_workers(const struct coordinator_state *c, struct coordinator_line *out)
{
    set_line(out, WAIT_WORKERS, -1, server_registry_lowest(c), n_workers(c));
    out->arg[2] = c->min_workers > 0 ? c->min_workers : 1;
    return true;
}

static bool waits_in_stop(const struct coordinator_state *c, struct coordinator_line *out)
{
    int slot = server_registry_find_lost(c) >= 0 ? -1 : coordinator_view_server_behind(c, 0);
    if (slot < 0)
        return waits_for_workers(c, out);
    const struct coordinator_server *s = &coordinator_servers(c)[slot];
    if (server_registry_is_leaving(s) && server_registry_is_silent(c, s, SILENT_MS))
        return set_line(out, WAIT_LEAVER, slot, s->number, (c->awake - s->heard) / (1000 * MS));
    return set_line(out, WAIT_STOP, slot, s->number, 0);
}

/* Returns the slot of a server that a worker of the generation does not reach; -1: none. */
static int find_unreached(const struct coordinator_state *c)
{
    for (int i = 0; i < c->max_workers; i++) {
        const struct coordinator_worker *w = &coordinator_workers(c)[i];
        if (w->in_plan && w->lot == LOT_STAYS && w->missed_by > 0 && !w->heard && w->joined &&
            c->awake - w->since >= REJOIN_MS * MS)
            return w->missed_by;
    }
    return -1;
}

/* Returns the slot of a server outside the plan that does not call, but holds chunks that other
 * servers need; -1: none. */
static int silent_holder(const struct coordinator_state *c)
{
    for (int i = 0; i < c->n_slots; i++) {
        const struct coordinator_server *s = &coordinator_servers(c)[i];
        if (s->life == LIFE_KNOWN && s->number < 0 && s->held && c->plan_source == PLAN_MEMORY &&
            server_registry_is_silent(c, s, SILENT_MS))
            return i;
    }
    return -1;
}

/* Returns the slot of a server of the plan with chunks that is silent while training makes no step;
 * -1: none. */
static int silent_server(const struct coordinator_state *c)
{
    for (int i = 0; i < c->n_slots; i++)
        if (holds_up(c, &coordinator_servers(c)[i], FRESH_MS))
            return i;
    return -1;
}

bool coordinator_view_waits_for(const struct coordinator_state *c, struct coordinator_line *out)
{
    if (c->finished || c->job_failed)
        return false;
    if (!c->recorded)
        return set_line(out, WAIT_EPOCH, -1, c->epoch_failed, 0);
    if (c->pending == PENDING_FIND)
        return set_line(out, WAIT_FIND, -1, (c->awake - c->pending_since) / (1000 * MS), 0);
    if (c->pending == PENDING_PLAN)
        return false;
    if (c->failed != ST_OK && c->awake < c->not_before)
        return set_line(out, c->phase == PHASE_EMPTY ? WAIT_PLAN_FAILED : WAIT_FIND_FAILED, -1,
                        c->failed, 0);
    if (c->finishing && c->ckpt.phase != SCHEDULE_IDLE)
        return set_line(out, WAIT_LAST_CHECKPOINT, -1, c->ckpt.step, 0);
    if (c->phase == PHASE_STOPPING)
        return waits_in_stop(c, out);
    if (reconfigure_plan_is_void(c))
        return waits_for_workers(c, out);
    int leaver = silent_holder(c);
    if (c->phase == PHASE_BEGINNING && leaver >= 0)
        return set_line(out, WAIT_LEAVER, leaver, coordinator_servers(c)[leaver].held_number,
                        (c->awake - coordinator_servers(c)[leaver].heard) / (1000 * MS));
    if (c->phase == PHASE_BEGINNING && coordinator_view_server_behind(c, 0) > 0)
        return set_line(out, WAIT_BEGIN, coordinator_view_server_behind(c, 0),
                        (int64_t)c->generation,
                        coordinator_servers(c)[coordinator_view_server_behind(c, 0)].number);
    if (c->phase == PHASE_BEGINNING)
        return set_line(out, WAIT_BEGIN_OWN, -1, (int64_t)c->generation, 0);
    int silent = c->phase == PHASE_RUNNING && !reconfigure_all_done(c) ? silent_server(c) : -1;
    if (silent >= 0)
        return set_line(out, WAIT_SILENT, silent, coordinator_servers(c)[silent].number,
                        (c->awake - coordinator_servers(c)[silent].heard) / (1000 * MS));
    if (c->phase == PHASE_RUNNING && find_unreached(c) >= 0)
        return set_line(out, WAIT_REACH, find_unreached(c),
                        coordinator_servers(c)[find_unreached(c)].number, 0);
    if (c->epoch != c->recorded && c->epoch_failed != ST_OK)
        return set_line(out, WAIT_RAISE, -1, c->epoch_failed, 0);
    return false;
}

uint64_t coordinator_view_generation(const struct coordinator_state *c)
{
    return c->generation;
}

uint64_t coordinator_view_settled(const struct coordinator_state *c)
{
    return c->settled;
}

bool coordinator_view_is_settled(const struct coordinator_state *c)
{
    return c->generation && c->settled == c->generation && c->phase == PHASE_RUNNING;
}

bool coordinator_view_is_ending(const struct coordinator_state *c)
{
    return c->finishing != 0;
}

int64_t coordinator_view_last_step(const struct coordinator_state *c)
{
    return c->ckpt.last_step;
}

bool coordinator_view_lacks_last(const struct coordinator_state *c)
{
    return c->ckpt.no_last;
}

int64_t coordinator_view_order_step(const struct coordinator_state *c)
{
    return c->ckpt.phase == SCHEDULE_IDLE ? -1 : c->ckpt.step;
}

int64_t coordinator_view_next_ms(const struct coordinator_state *c)
{
    const struct checkpoint_schedule *k = &c->ckpt;
    int trains = c->phase == PHASE_RUNNING && c->workers_generation == c->generation;
    int made = k->phase != SCHEDULE_IDLE && (k->taken || k->why != WHY_STEPS);
    if (!c->has_folder || c->save_ms == 0 || k->save_at == 0 || !trains || made || c->finishing ||
        k->last_step >= c->train_steps)
        return -1;
    int64_t at = k->save_at > k->not_before ? k->save_at : k->not_before;
    return at > c->awake ? (at - c->awake) / MS : 0;
}

uint64_t coordinator_view_wanted(const struct coordinator_state *c)
{
    return c->ckpt.wanted;
}

uint64_t coordinator_view_given(const struct coordinator_state *c)
{
    return c->ckpt.given;
}

/* Without a folder only servers that still run can report earlier generations: ps 0 waits for
 * them to call. */
bool coordinator_view_takes_job(const struct coordinator_state *c, struct coordinator_line *line)
{
    *line = (struct coordinator_line){.id = LINE_NONE, .server = -1, .worker = -1};
    if (c->epoch != c->recorded) {
        line->id = WAIT_EPOCH;
        line->arg[0] = c->epoch_failed;
        return false;
    }
    int again = c->phase == PHASE_RUNNING && reconfigure_all_done(c) && !c->finishing;
    if (c->pending != PENDING_NONE || c->finishing || (c->phase != PHASE_EMPTY && !again))
        return false;
    for (int i = 0; i < c->n_slots && !c->has_folder && !c->generation; i++) {
        const struct coordinator_server *s = &coordinator_servers(c)[i];
        if (s->number <= 0 || s->life == LIFE_KNOWN || c->awake - c->began > FIRST_CALL_MS * MS)
            continue;
        line->id = WAIT_SERVER_CALLS;
        line->server = i;
        line->arg[0] = s->number;
        return false;
    }
    return true;
}

/* A server counts as present for a short time after its last call, because it may call again. */
bool coordinator_view_is_unheard(const struct coordinator_state *c)
{
    for (int i = 1; i < c->n_slots; i++) {
        const struct coordinator_server *s = &coordinator_servers(c)[i];
        if (s->life == LIFE_KNOWN && s->seen < c->end_number &&
            (s->call || c->awake < s->claimed) && !server_registry_is_silent(c, s, SILENT_MS))
            return true;
    }
    return false;
}
