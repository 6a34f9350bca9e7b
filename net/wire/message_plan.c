/* net/wire/message_plan.c - see message_impl.h: plans. The reader checks that a plan can be carried
 * out: every list has the right length, every index is valid for the list that it refers to, and
 * the fields that the source needs are set. */
#include "net/wire/message_impl.h"
#include <stdlib.h>
#include <string.h>

enum status message_plan_read_map(const uint32_t *from, size_t n, int below, int **out,
                                  char why[MESSAGE_WHY_BYTES])
{
    if (n == 0)
        return ST_OK;
    if (n > CHUNKS_MAX_CHUNKS)
        return message_invalid(why, "the shard map is too long");
    for (size_t i = 0; i < n; i++)
        if (from[i] >= (uint32_t)below)
            return message_invalid(why, "the shard map names a server that does not exist");
    if (!(*out = malloc(n * sizeof **out)))
        return ST_NOMEM;
    memcpy(*out, from, n * sizeof **out);
    return ST_OK;
}

static enum status write_contributions(const struct net_plan *p, struct message_room *room,
                                       Weir__V1__Plan *out)
{
    size_t n = (size_t)p->n_contributed;
    out->contributor = message_alloc(room, n + 1, sizeof *out->contributor);
    out->contributed = message_alloc(room, n + 1, sizeof *out->contributed);
    out->contributed_in = message_alloc(room, n + 1, sizeof *out->contributed_in);
    if (!out->contributor || !out->contributed || !out->contributed_in)
        return ST_NOMEM;
    for (size_t i = 0; i < n; i++) {
        out->contributor[i] = (uint32_t)p->contributed[i].member;
        out->contributed[i] = p->contributed[i].version;
        out->contributed_in[i] = p->contributed[i].generation;
    }
    out->n_contributor = out->n_contributed = out->n_contributed_in = n;
    return ST_OK;
}

static enum status read_contributions(const Weir__V1__Plan *from, struct net_plan *to,
                                      char why[MESSAGE_WHY_BYTES])
{
    size_t n = from->n_contributor, n_in = from->n_contributed_in; /* 0: from an older program */
    if (n != from->n_contributed || (n_in && n != n_in) || n > JOB_MAX_WORKERS)
        return message_invalid(
            why, "the plan has too many contributions, or not one version for each contributor");
    to->contributed = malloc((n + 1) * sizeof *to->contributed);
    if (!to->contributed)
        return ST_NOMEM;
    for (size_t i = 0; i < n; i++) {
        uint32_t member = from->contributor[i];
        int64_t version = from->contributed[i];
        if (member >= JOB_MAX_WORKERS || (i && member <= from->contributor[i - 1]) || version < 1 ||
            version > from->step)
            return message_invalid(why, "the plan's contributions are not valid");
        to->contributed[i] =
            (struct net_contribution){(int)member, version, n_in ? from->contributed_in[i] : 0};
    }
    to->n_contributed = (int)n;
    return ST_OK;
}

static const char no_source[] = "the plan's source is unknown";
static const char no_checkpoint[] = "the plan's checkpoint is not valid";
static const char no_step[] = "the plan's generation, step or position is out of bounds";
static const char no_gates[] = "the plan's gates are not valid";

/* Checks that the plan has the fields that its source needs, and no fields of other sources. */
static const char *problem(const void *message)
{
    const Weir__V1__Plan *from = message;
    bool is_memory = from->source == WEIR__V1__PLAN__SOURCE__MEMORY;
    if (from->source >= (unsigned)PLAN_N_SOURCES)
        return no_source;
    if (from->source == WEIR__V1__PLAN__SOURCE__FIRST && (from->step != 0 || from->position != 0))
        return "the plan begins with no values, but not at step 0";
    if ((from->source == WEIR__V1__PLAN__SOURCE__CHECKPOINT) != (from->restore[0] != 0) ||
        strchr(from->restore, '/'))
        return no_checkpoint;
    if (is_memory ? from->before == 0 || from->before >= from->generation || from->n_holder < 1
                  : from->before != 0 || from->n_holder > 0 || from->n_held_by > 0)
        return "the plan's previous generation, or its servers, are not valid";
    if (from->generation == 0)
        return no_step;
    if (from->gate_overlap >= from->gate_steps && from->gate_overlap > 0)
        return no_gates;
    if (from->n_server < 1)
        return "the plan has no servers";
    for (size_t i = 0; i < from->n_member; i++)
        if (from->member[i] >= JOB_MAX_WORKERS || (i && from->member[i] <= from->member[i - 1]))
            return "the plan's members are not indices in ascending order";
    return NULL;
}

static enum status read_plan(const void *message, void *plain, char *why)
{
    const Weir__V1__Plan *from = message;
    struct net_plan *to = plain;
    enum status st = ST_OK;
    TRY(message_job_read(from->job, &to->job, &to->chunks, why));
    if (to->job.n_workers == 0)
        TRY(message_invalid(why, "the plan's job has no n_workers"));
    const size_t n = (size_t)to->chunks->n_chunks;
    if (from->n_shard != n || (to->source == PLAN_MEMORY && from->n_held_by != n))
        TRY(message_invalid(why, "the plan's maps do not have one entry for each chunk"));
    TRY(message_plan_read_map(from->shard, n, to->servers.n, &to->shard, why));
    TRY(message_plan_read_map(from->held_by, from->n_held_by, to->holders.n, &to->held_by, why));
    st = read_contributions(from, to, why);
done:
    return st;
}

static enum status write_plan(const void *plain, void *message, struct message_room *room)
{
    const struct net_plan *p = plain;
    Weir__V1__Plan *to = message;
    enum status st = message_job_write(&p->job, p->chunks, room, &to->job);
    to->n_shard = (size_t)p->chunks->n_chunks;
    to->shard = message_numbers(p->shard);
    if (p->source != PLAN_CHECKPOINT)
        to->restore = NULL;
    if (p->source == PLAN_MEMORY) {
        to->n_held_by = (size_t)p->chunks->n_chunks;
        to->held_by = message_numbers(p->held_by);
    } else {
        to->before = 0;
        to->n_holder = 0;
    }
    return st == ST_OK ? write_contributions(p, room, to) : st;
}

#define OF Weir__V1__Plan, struct net_plan
static const struct message_row rows[] = {
    NUMBER(OF, source, source, 0, PLAN_N_SOURCES - 1, no_source),
    FIT(OF, restore, restore, no_checkpoint),
    ANY(OF, generation, generation),
    NUMBER(OF, step, step, 0, MESSAGE_MAX_STEP, no_step),
    NUMBER(OF, position, position, 0, MESSAGE_MAX_STEP, no_step),
    ANY(OF, ps0, ps0),
    ANY(OF, before, before),
    NUMBER(OF, gate_steps, gates.steps, 0, MESSAGE_MAX_STEP, no_gates),
    NUMBER(OF, gate_overlap, gates.overlap, 0, MESSAGE_MAX_STEP, no_gates),
    NUMBER(OF, slots_since, gates.slots_since, 0, MESSAGE_MAX_STEP, no_gates),
    ANY(OF, gate_alone, gates.alone),
    ARRAY(OF, member, n_members, member, 1, JOB_MAX_WORKERS,
          "the plan has no members, or too many"),
    HOSTS(OF, server, servers),
    HOSTS(OF, holder, holders),
};
const struct message_type message_plan = {MESSAGE_TYPE(OF, plan, rows), .problem = problem,
                                          .read = read_plan, .write = write_plan};
