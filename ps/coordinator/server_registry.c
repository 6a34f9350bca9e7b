/* ps/coordinator/server_registry.c - the servers, by address, with their last reports, and the
 * consequences for the next generation. The slot of a server that has no place in a plan and
 * does not call any more can be reused. */
#include "ps/coordinator/coordinator_impl.h"
#include <stdbool.h>
#include <string.h>

bool server_registry_is_silent(const struct coordinator_state *c,
                               const struct coordinator_server *s, int64_t ms)
{
    return c->awake - s->heard > ms * MS;
}

bool server_registry_is_leaving(const struct coordinator_server *s)
{
    return s->number > 0 && (s->leaving || s->drained);
}

bool server_registry_is_joining(const struct coordinator_state *c,
                                const struct coordinator_server *s)
{
    return s->life == LIFE_KNOWN && s->number < 0 && !s->leaving && !s->drained && !s->held &&
           c->generation && !server_registry_is_silent(c, s, FRESH_MS);
}

/* Decides whether a server is gone. ps 0 waits for a server that holds chunks of the settled
 * generation: silence is no loss. It does not wait for a server that was only to join, once that
 * server is silent or must leave. */
bool server_registry_is_gone(const struct coordinator_state *c, const struct coordinator_server *s)
{
    if (s->number <= 0 || s->held)
        return false;
    return server_registry_is_leaving(s) || (c->base && server_registry_is_silent(c, s, SILENT_MS));
}

static bool is_lost(const struct coordinator_state *c, const struct coordinator_server *s)
{
    return s->life == LIFE_KNOWN && s->held &&
           (s->held != s->incarnation || s->given_up ||
            (s->forgotten && server_registry_is_silent(c, s, SILENT_MS)));
}

int server_registry_find_lost(const struct coordinator_state *c)
{
    for (int i = 0; i < c->n_slots; i++)
        if (is_lost(c, &coordinator_servers(c)[i]))
            return i;
    return -1;
}

int server_registry_find_unreadable(const struct coordinator_state *c)
{
    for (int i = 0; i < c->n_slots; i++) {
        const struct coordinator_server *s = &coordinator_servers(c)[i];
        if (s->number >= 0 && s->unreadable && s->unreadable == c->generation &&
            s->generation != c->generation && c->phase == PHASE_BEGINNING &&
            c->plan_source == PLAN_CHECKPOINT)
            return i;
    }
    return -1;
}

int server_registry_next(const struct coordinator_state *c, int *slot)
{
    const struct coordinator_server *s = coordinator_servers(c);
    int n = 0;
    for (int k = 0; k < c->n_numbers; k++)
        for (int i = 0; i < c->n_slots; i++)
            if (s[i].number == k && s[i].life != LIFE_NONE &&
                (k == 0 ||
                 (!server_registry_is_leaving(&s[i]) && !server_registry_is_gone(c, &s[i]))))
                slot[n++] = i;
    for (int i = 0; i < c->n_slots; i++)
        if (server_registry_is_joining(c, &s[i]))
            slot[n++] = i;
    return n;
}

int64_t server_registry_lowest(const struct coordinator_state *c)
{
    int64_t lowest = INT64_MAX;
    for (int i = 0; i < c->n_slots; i++) {
        const struct coordinator_server *s = &coordinator_servers(c)[i];
        if (s->number >= 0 && s->lowest < lowest)
            lowest = s->lowest;
    }
    return lowest == INT64_MAX ? -1 : lowest;
}

/* Returns the highest version of all servers. Ignores servers that report all steps, as a server
 * without chunks does, unless all servers report all steps. */
int64_t server_registry_highest(const struct coordinator_state *c)
{
    int64_t highest = c->own_lowest < c->train_steps ? c->own_highest : -2;
    for (int i = 0; i < c->n_slots; i++) {
        const struct coordinator_server *s = &coordinator_servers(c)[i];
        if (s->number >= 0 && s->generation == c->generation && s->lowest < c->train_steps &&
            s->highest > highest)
            highest = s->highest;
    }
    return highest == -2 ? c->train_steps : highest;
}

bool server_registry_has_unaware(const struct coordinator_state *c)
{
    for (int i = 1; i < c->n_slots; i++) {
        const struct coordinator_server *s = &coordinator_servers(c)[i];
        bool is_there = s->number >= 0 || s->call || c->awake < s->claimed;
        if (s->life == LIFE_KNOWN && is_there && s->seen < c->end_number &&
            !server_registry_is_silent(c, s, SILENT_MS))
            return true;
    }
    return false;
}

int server_registry_find(const struct coordinator_state *c, const char *address)
{
    for (int i = 0; i < c->n_slots; i++)
        if (coordinator_servers(c)[i].life != LIFE_NONE &&
            strcmp(coordinator_servers(c)[i].address, address) == 0)
            return i;
    return -1;
}

/* Returns true if the slot's record is not needed any more. */
static bool can_be_reused(const struct coordinator_state *c, const struct coordinator_server *s)
{
    return s->life == LIFE_NONE || (s->number < 0 && !s->held && !s->call && s->ordered < 0 &&
                                    server_registry_is_silent(c, s, 4 * SILENT_MS));
}

int server_registry_add(struct coordinator_state *c, const char *address)
{
    int i = 0;
    while (i < c->n_slots && !can_be_reused(c, &coordinator_servers(c)[i]))
        i++;
    if (i == c->max_servers)
        return -1;
    if (i == c->n_slots)
        c->n_slots++;
    struct coordinator_server *s = &coordinator_servers(c)[i];
    *s = (struct coordinator_server){.life = LIFE_EXPECTED,
                                     .number = -1,
                                     .heard = c->awake,
                                     .first = c->awake,
                                     .lowest = -1,
                                     .highest = -1,
                                     .ordered = -1};
    strncpy(s->address, address, sizeof s->address - 1);
    return i;
}

static void begin_life(struct coordinator_state *c, int slot, uint64_t incarnation,
                       struct coordinator_out *out)
{
    struct coordinator_server *s = &coordinator_servers(c)[slot];
    if (s->incarnation)
        checkpoint_schedule_lost(c, slot, out);
    if (s->incarnation && c->phase == PHASE_BEGINNING && s->number >= 0)
        c->redo = 1;
    s->incarnation = incarnation;
    s->first = c->awake;
    s->leaving = s->drained = s->forgotten = s->given_up = s->obeyed = 0;
    s->wanted = s->accepted = s->given = 0;
    s->stop = s->order = 0;
    s->stopped = 0;
}

/* Returns true if another process called from this address and may still run. The calls of a
 * process that ends are closed at once; keepalive closes those of a host that is cut off. Until
 * then a call with another incarnation does not replace that process. */
static bool is_doubted(const struct coordinator_state *c, const struct coordinator_server *s,
                       uint64_t other)
{
    return s->incarnation && s->incarnation != other && (s->call || c->awake < s->claimed);
}

static void reply_to(struct coordinator_state *c, int slot, struct coordinator_out *out)
{
    struct coordinator_server *s = &coordinator_servers(c)[slot];
    const struct coordinator_action a = {.kind = ACT_REPLY, .call = s->call, .server = slot};
    if (!s->call || !coordinator_add_action(out, &a))
        return;
    s->call = 0;
    s->claimed = c->awake + AGAIN_MS * MS;
}

static void refuse_call(uint64_t call, int later, const char *text, struct coordinator_out *out)
{
    const struct coordinator_action a = {
        .kind = ACT_REPLY, .call = call, .server = -1, .arg = later, .text = text};
    coordinator_add_action(out, &a);
}

/* Handles the server's report of another ps 0. If the server has obeyed this ps 0 before, the other
 * ps 0 is the later one, and replaces this one. Otherwise the other ps 0 is the earlier one, and
 * the epoch of this one must be above its epoch. */
static void note_claim(struct coordinator_state *c, int slot, const struct net_control *from,
                       struct coordinator_out *out)
{
    struct coordinator_server *s = &coordinator_servers(c)[slot];
    uint64_t claim = from->ps0 && from->ps0 != c->incarnation ? from->generation : 0;
    int obeys_other = from->heard_ps0 && from->heard_ps0 != c->incarnation;
    if (obeys_other && from->heard_epoch > term_epoch(claim))
        claim = from->heard_epoch > TERM_MAX_EPOCH ? UINT64_MAX : term_of(from->heard_epoch, 0);
    if (obeys_other && s->obeyed && term_is_possible(claim))
        coordinator_fence(c, 0, out);
    else if (!coordinator_note_claim(c, claim) && claim != s->claim)
        coordinator_add_line(
            out, &(struct coordinator_line){LINE_SERVER_CLAIM, slot, -1, {(int64_t)claim, 0, 0}});
    s->claim = claim;
    s->obeyed = from->heard_ps0 == c->incarnation;
}

static void note_control(struct coordinator_state *c, int slot, const struct net_control *from,
                         struct coordinator_out *out)
{
    struct coordinator_server *s = &coordinator_servers(c)[slot];
    s->generation = !from->ps0 || from->ps0 == c->incarnation ? from->generation : 0;
    s->seen = from->seen;
    s->heard = s->called = c->awake;
    if (from->leaving && !s->leaving)
        s->leaving = 1;
    s->stop = from->stop;
    s->stopped = from->stopped;
    s->unreadable = from->heard_ps0 == c->incarnation ? from->unreadable : 0;
    s->lowest = from->lowest;
    s->highest = from->highest;
    s->wanted = from->wanted;
    s->order = from->order;
    s->phase = from->phase;
    s->file = (struct coordinator_file){from->bytes, from->crc32c};
    s->forgotten = 0;
    if (s->number >= 0 && slot > 0 && c->generation && s->generation == c->generation)
        failure_detector_note_missing(c, slot, from->missing, from->n_missing);
}

void server_registry_control(struct coordinator_state *c, const struct coordinator_event *e,
                             struct coordinator_out *out)
{
    const struct net_control *from = e->control;
    int slot = server_registry_find(c, from->address);
    if (slot < 0)
        slot = server_registry_add(c, from->address);
    if (slot < 0) {
        refuse_call(e->call, 0, "the table of servers of ps:0 is full", out);
        return;
    }
    struct coordinator_server *s = &coordinator_servers(c)[slot];
    if (is_doubted(c, s, from->incarnation)) {
        refuse_call(e->call, 1, "another process has just called from this address", out);
        return;
    }
    if (s->incarnation == from->incarnation && from->serial < s->serial) {
        refuse_call(e->call, 1, "superseded by a newer call from the same server", out);
        return;
    }
    reply_to(c, slot, out);
    s->serial = from->serial;
    if (s->incarnation != from->incarnation)
        begin_life(c, slot, from->incarnation, out);
    s->life = LIFE_KNOWN;
    s->call = e->call;
    note_claim(c, slot, from, out);
    note_control(c, slot, from, out);
}

void server_registry_closed(struct coordinator_state *c, uint64_t call)
{
    for (int i = 0; i < c->n_slots; i++) {
        struct coordinator_server *s = &coordinator_servers(c)[i];
        if (s->call != call)
            continue;
        s->call = 0;
        s->claimed = c->awake + CLOSED_MS * MS;
    }
}

void server_registry_answer(struct coordinator_state *c, struct coordinator_out *out)
{
    if (!c->recorded || c->fenced)
        return; /* no server receives an epoch before it is recorded */
    for (int i = 0; i < c->n_slots; i++) {
        struct coordinator_server *s = &coordinator_servers(c)[i];
        /* the server may report a claim, and this ps 0's epoch may have to rise above that claim */
        if (!s->call || (c->epoch != c->recorded && !s->obeyed))
            continue;
        if (s->seen != c->number || c->awake - s->called >= BEAT_MS * MS)
            reply_to(c, i, out);
        else
            coordinator_wake_at(c, out, s->called + BEAT_MS * MS);
    }
}
