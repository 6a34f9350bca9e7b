/* ps/coordinator/command.c - carries out requests of operators (coordinator_impl.h). */
#include "ps/coordinator/coordinator_impl.h"
#include <stdbool.h>
#include <stdio.h>

/* Returns the slot of the server with this number in the plan in force. If no server has it,
 * returns the slot of a server outside the plan that had the number in the settled generation, and
 * whose chunks other servers still need; -1: no such server. */
static int slot_of(const struct coordinator_state *c, int number)
{
    for (int i = 0; i < c->n_slots; i++)
        if (coordinator_servers(c)[i].number == number &&
            coordinator_servers(c)[i].life != LIFE_NONE)
            return i;
    for (int i = 0; i < c->n_slots; i++) {
        const struct coordinator_server *s = &coordinator_servers(c)[i];
        if (s->life != LIFE_NONE && s->number < 0 && s->held && s->held_number == number)
            return i;
    }
    return -1;
}

static bool is_member(const struct coordinator_state *c, int index)
{
    return index >= 0 && index < c->max_workers && c->generation &&
           coordinator_workers(c)[index].in_plan;
}

static void remove_worker(struct coordinator_state *c, int index)
{
    struct coordinator_worker *w = &coordinator_workers(c)[index];
    if (w->incarnation)
        w->removed = w->incarnation;
    else
        w->remove = 1;
}

/* Returns true if the server is already leaving, and for a while now has not handed on all its
 * chunks: then a repeated request to drain it ends the wait for these chunks. */
static bool is_too_slow(const struct coordinator_state *c, const struct coordinator_server *s)
{
    return (s->leaving || s->drained) && s->held && s->held == s->incarnation &&
           c->phase == PHASE_BEGINNING && c->plan_source == PLAN_MEMORY &&
           c->awake - c->entered >= SILENT_MS * MS;
}

/* Makes a server leave. A server that is silent at this time counts as gone: the operator has
 * checked that it no longer runs. */
static void drain(struct coordinator_state *c, int number)
{
    struct coordinator_server *s = &coordinator_servers(c)[slot_of(c, number)];
    s->forgotten = server_registry_is_silent(c, s, SILENT_MS);
    s->given_up |= !s->forgotten && is_too_slow(c, s);
    s->drained = 1;
}

void coordinator_command_begin(struct coordinator_state *c, const struct coordinator_event *e)
{
    switch (e->command.what) {
    case COORDINATOR_CHECKPOINT:
        c->ckpt.wanted++;
        break;
    case COORDINATOR_REMOVE_WORKER:
        if (is_member(c, e->command.index))
            remove_worker(c, e->command.index);
        break;
    case COORDINATOR_DRAIN_SERVER:
        if (e->command.index > 0 && slot_of(c, e->command.index) >= 0)
            drain(c, e->command.index);
        break;
    case COORDINATOR_STOP_JOB:
        c->stop_asked = 1;
        break;
    case COORDINATOR_FINISH:
        if (!c->finishing)
            c->finish_at = c->awake + FINISH_MS * MS;
        c->finishing = 1;
        break;
    }
}

/* Writes a sentence on the effect of a stop. Returns false if there is nothing to stop. */
static bool stop_text(const struct coordinator_state *c, char *text, size_t bytes)
{
    bool has_job = c->generation && !reconfigure_all_done(c);
    const char *what =
        has_job && c->serves
            ? "the job ends at its present step or, if it has no workers, when the next one joins; its workers exit, and its servers, which run with --serve, wait for the next job"
        : c->serves
            ? "there is no job to stop: the servers run with --serve and wait for the next one; end them by SIGTERM"
        : c->generation ? "the job ends at its present step; then all its programs exit"
                        : "there is no job yet; the servers exit";
    snprintf(text, bytes, "%s", what);
    return has_job || !c->serves;
}

bool coordinator_command_text(const struct coordinator_state *c, enum coordinator_command_kind what,
                              int index, char *text, size_t bytes)
{
    if (what == COORDINATOR_STOP_JOB)
        return stop_text(c, text, bytes);
    int slot = what == COORDINATOR_DRAIN_SERVER && index > 0 ? slot_of(c, index) : -1;
    if (what == COORDINATOR_REMOVE_WORKER && is_member(c, index)) {
        const struct coordinator_worker *w = &coordinator_workers(c)[index];
        snprintf(text, bytes,
                 w->remove || (w->removed && w->removed == w->incarnation)
                     ? "worker %d is already leaving"
                     : "worker %d leaves at a later step",
                 index);
        return true;
    }
    if (what == COORDINATOR_REMOVE_WORKER) {
        snprintf(text, bytes, "there is no worker %d in the job", index);
        return false;
    }
    if (slot >= 0) {
        const struct coordinator_server *s = &coordinator_servers(c)[slot];
        if (server_registry_is_silent(c, s, SILENT_MS))
            snprintf(text, bytes, "ps:%d (%.150s) has been silent for %d s and counts as lost",
                     index, s->address, (int)((c->awake - s->heard) / (1000 * MS)));
        else if (is_too_slow(c, s))
            snprintf(
                text, bytes,
                "ps:%d (%.150s) has been moving its chunks to other servers for %d s and counts as lost: training goes back to %s",
                index, s->address, (int)((c->awake - c->entered) / (1000 * MS)),
                c->has_folder ? "the newest checkpoint" : "its first step");
        else
            snprintf(text, bytes,
                     "ps:%d (%.200s) moves its chunks to the other servers, then exits", index,
                     s->address);
        return true;
    }
    if (index == 0)
        snprintf(text, bytes, "ps:0 coordinates the job and cannot leave it");
    else
        snprintf(text, bytes, "there is no ps:%d; the job has %d %s", index, c->n_numbers,
                 c->n_numbers == 1 ? "server" : "servers");
    return false;
}
