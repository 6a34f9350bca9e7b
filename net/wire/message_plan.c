/* net/wire/message_plan.c - see message_impl.h: plans, and the lists that they and a join's reply
 * have. A plan that decodes is one that can be followed: every list has its length, every number is
 * a place in the list that it points to, and what the source needs is there. */
#include "net/wire/message.h"
#include "net/wire/message_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t *message_plan_map_to_wire(const int *list)
{
    return (uint32_t *)(uintptr_t)list;
}

static void gates_to_wire(const struct net_gates *g, Weir__V1__Plan *w)
{
    w->gate_steps = g->steps;
    w->gate_overlap = g->overlap;
    w->slots_since = g->slots_since;
    w->gate_alone = g->alone;
}

static enum status gates_from_wire(const Weir__V1__Plan *from, struct net_gates *to,
                                   char why[MESSAGE_WHY_BYTES])
{
    int64_t steps = from->gate_steps, overlap = from->gate_overlap, since = from->slots_since;
    if (steps < 0 || steps > MESSAGE_MAX_STEP || overlap < 0 || (overlap >= steps && overlap > 0) ||
        since < 0 || since > MESSAGE_MAX_STEP)
        return message_invalid(why, "the plan's gates are none that can be");
    *to = (struct net_gates){steps, overlap, since, from->gate_alone != 0};
    return ST_OK;
}

static enum status contributions_to_wire(const struct net_plan *p, struct message_plan *out)
{
    size_t n = (size_t)p->n_contributed;
    out->contributor = malloc((n + 1) * sizeof *out->contributor);
    out->contributed = malloc((n + 1) * sizeof *out->contributed);
    if (!out->contributor || !out->contributed) {
        message_plan_free(out);
        return ST_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        out->contributor[i] = (uint32_t)p->contributed[i].member;
        out->contributed[i] = p->contributed[i].version;
    }
    out->wire.n_contributor = out->wire.n_contributed = n;
    out->wire.contributor = out->contributor;
    out->wire.contributed = out->contributed;
    return ST_OK;
}

enum status message_plan_to_wire(const struct net_plan *p, struct message_plan *out)
{
    static const Weir__V1__Plan__Source sources[PLAN_N_SOURCES] = {
        [PLAN_FIRST] = WEIR__V1__PLAN__SOURCE__FIRST,
        [PLAN_CHECKPOINT] = WEIR__V1__PLAN__SOURCE__CHECKPOINT,
        [PLAN_MEMORY] = WEIR__V1__PLAN__SOURCE__MEMORY};
    enum status st = message_job_to_wire(&p->job, p->chunks, &out->job);
    if (st != ST_OK)
        return st;
    Weir__V1__Plan *w = &out->wire;
    weir__v1__plan__init(w);
    w->generation = p->generation;
    w->ps0 = p->ps0;
    w->step = p->step;
    w->position = p->position;
    w->job = &out->job.wire;
    w->n_member = (size_t)p->n_members;
    w->member = message_plan_map_to_wire(p->member);
    w->n_server = (size_t)p->servers.n;
    w->server = p->servers.addr;
    w->n_shard = (size_t)p->chunks->n_chunks;
    w->shard = message_plan_map_to_wire(p->shard);
    w->source = sources[p->source];
    if (p->source == PLAN_CHECKPOINT)
        w->restore = (char *)(uintptr_t)p->restore;
    if (p->source == PLAN_MEMORY) {
        w->before = p->before;
        w->n_holder = (size_t)p->holders.n;
        w->holder = p->holders.addr;
        w->n_held_by = (size_t)p->chunks->n_chunks;
        w->held_by = message_plan_map_to_wire(p->held_by);
    }
    gates_to_wire(&p->gates, w);
    return contributions_to_wire(p, out);
}

void message_plan_free(struct message_plan *p)
{
    message_job_free(&p->job);
    free(p->contributor);
    free(p->contributed);
    p->contributor = NULL;
    p->contributed = NULL;
}

enum status message_plan_map_from_wire(const uint32_t *from, size_t n, int below, int **out,
                                       char why[MESSAGE_WHY_BYTES])
{
    if (n == 0)
        return ST_OK;
    if (n > CHUNKS_MAX_CHUNKS)
        return message_invalid(why, "the shard map is too long");
    int *map = malloc(n * sizeof *map);
    if (!map)
        return ST_NOMEM;
    for (size_t i = 0; i < n; i++) {
        if (from[i] >= (uint32_t)below) {
            free(map);
            return message_invalid(why, "the shard map names a server that there is not");
        }
        map[i] = (int)from[i];
    }
    *out = map;
    return ST_OK;
}

enum status message_plan_hosts_from_wire(char *const *from, size_t n, struct hosts *out,
                                         char why[MESSAGE_WHY_BYTES])
{
    struct hosts h = {0};
    enum status st = hosts_copy((const char *const *)from, n, &h);
    for (int i = 0; st == ST_OK && i < h.n; i++)
        if (strlen(h.addr[i]) >= CONTROL_TEXT_BYTES)
            st = ST_INVALID;
    if (st == ST_INVALID)
        message_invalid(
            why,
            "the list of servers is too long, or has an entry that is no host:port or is there twice");
    if (st == ST_OK)
        *out = h;
    else
        hosts_free(&h);
    return st;
}

static enum status members_from_wire(const Weir__V1__Plan *from, struct net_plan *to,
                                     char why[MESSAGE_WHY_BYTES])
{
    if (from->n_member < 1 || from->n_member > JOB_MAX_WORKERS)
        return message_invalid(why, "the plan's members are none, or too many");
    to->member = malloc(from->n_member * sizeof *to->member);
    if (!to->member)
        return ST_NOMEM;
    for (size_t i = 0; i < from->n_member; i++) {
        if (from->member[i] >= JOB_MAX_WORKERS || (i && from->member[i] <= from->member[i - 1]))
            return message_invalid(why, "the plan's members are not indices in ascending order");
        to->member[i] = (int)from->member[i];
    }
    to->n_members = (int)from->n_member;
    return ST_OK;
}

static enum status contributions_from_wire(const Weir__V1__Plan *from, struct net_plan *to,
                                           char why[MESSAGE_WHY_BYTES])
{
    size_t n = from->n_contributor;
    if (n != from->n_contributed || n > JOB_MAX_WORKERS)
        return message_invalid(
            why,
            "the plan's contributions are too many, or not one for each member that made some");
    to->contributed = malloc((n + 1) * sizeof *to->contributed);
    if (!to->contributed)
        return ST_NOMEM;
    for (size_t i = 0; i < n; i++) {
        uint32_t member = from->contributor[i];
        int64_t version = from->contributed[i];
        if (member >= JOB_MAX_WORKERS || (i && member <= from->contributor[i - 1]) || version < 1 ||
            version > from->step)
            return message_invalid(why, "the plan's contributions are none that can be");
        to->contributed[i] = (struct net_contribution){(int)member, version};
    }
    to->n_contributed = (int)n;
    return ST_OK;
}

/* What the source needs is there, and nothing else. */
static const char *source_problem(const Weir__V1__Plan *from)
{
    int memory = from->source == WEIR__V1__PLAN__SOURCE__MEMORY;
    int checkpoint = from->source == WEIR__V1__PLAN__SOURCE__CHECKPOINT;
    int first = from->source == WEIR__V1__PLAN__SOURCE__FIRST;
    if (!memory && !checkpoint && !first)
        return "the plan's source is unknown";
    if (first && (from->step != 0 || from->position != 0))
        return "the plan begins with no values, but not at step 0";
    if (checkpoint != (from->restore[0] != 0) || strchr(from->restore, '/') ||
        strlen(from->restore) >= CONTROL_TEXT_BYTES)
        return "the plan's checkpoint is none that can be";
    if (memory ? from->before == 0 || from->before >= from->generation || from->n_holder < 1
               : from->before != 0 || from->n_holder > 0 || from->n_held_by > 0)
        return "the plan's generation before, or its servers, cannot be";
    return NULL;
}

static enum status lists_from_wire(const Weir__V1__Plan *from, struct net_plan *to,
                                   char why[MESSAGE_WHY_BYTES])
{
    const size_t n = (size_t)to->chunks->n_chunks;
    if (from->n_server < 1)
        return message_invalid(why, "the plan has no servers");
    if (from->n_shard != n || (to->source == PLAN_MEMORY && from->n_held_by != n))
        return message_invalid(why, "the plan's maps have not one number for each chunk");
    enum status st = members_from_wire(from, to, why);
    if (st == ST_OK)
        st = message_plan_hosts_from_wire(from->server, from->n_server, &to->servers, why);
    if (st == ST_OK)
        st = message_plan_map_from_wire(from->shard, n, to->servers.n, &to->shard, why);
    if (st == ST_OK && to->source == PLAN_MEMORY)
        st = message_plan_hosts_from_wire(from->holder, from->n_holder, &to->holders, why);
    if (st == ST_OK && to->source == PLAN_MEMORY)
        st = message_plan_map_from_wire(from->held_by, n, to->holders.n, &to->held_by, why);
    if (st == ST_OK)
        st = contributions_from_wire(from, to, why);
    return st;
}

enum status message_plan_from_wire(const Weir__V1__Plan *from, struct net_plan **out,
                                   char why[MESSAGE_WHY_BYTES])
{
    static const enum plan_source sources[PLAN_N_SOURCES] = {
        [WEIR__V1__PLAN__SOURCE__FIRST] = PLAN_FIRST,
        [WEIR__V1__PLAN__SOURCE__CHECKPOINT] = PLAN_CHECKPOINT,
        [WEIR__V1__PLAN__SOURCE__MEMORY] = PLAN_MEMORY};
    const char *wrong = source_problem(from);
    if (!wrong && (from->generation == 0 || from->step < 0 || from->step > MESSAGE_MAX_STEP ||
                   from->position > (uint64_t)MESSAGE_MAX_STEP))
        wrong = "the plan's generation, step or position is out of bounds";
    if (wrong)
        return message_invalid(why, wrong);
    struct net_plan *p = calloc(1, sizeof *p);
    if (!p)
        return ST_NOMEM;
    enum status st = message_job_from_wire(from->job, &p->job, &p->chunks, why);
    if (st == ST_OK && p->job.n_workers == 0)
        st = message_invalid(why, "the plan's job does not say n_workers");
    if (st != ST_OK)
        goto done;
    p->generation = from->generation;
    p->ps0 = from->ps0;
    p->step = from->step;
    p->position = from->position;
    p->source = sources[from->source];
    p->before = from->before;
    snprintf(p->restore, sizeof p->restore, "%s", from->restore);
    TRY(gates_from_wire(from, &p->gates, why));
    TRY(lists_from_wire(from, p, why));
    *out = p;
    p = NULL;
done:
    net_plan_free(p);
    return st;
}
