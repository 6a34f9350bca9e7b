/* tests/sim/oracle.c - see oracle.h. In lockstep, right() computes a version from the chain of
 * plans. In the other modes a shadow of each chunk applies the contributions in the order in which
 * they arrive. */
#include "tests/sim/disk.h"
#include "tests/sim/oracle_impl.h"
#include "tests/sim/oracle_rows.h"
#include "tests/sim/region.h"
#include "tests/sim/server.h"
#include "tests/sim/worker.h"
#include <math.h>
#include <string.h>

enum { MAX_GENERATIONS = 512, MAX_COUNTED = 4096 };

static struct generation *generations[MAX_GENERATIONS];
static int n_generations;
static int64_t n_checks;

void oracle_reset(void)
{
    n_generations = 0;
    n_checks = 0;
}

int64_t oracle_n_checks(void)
{
    return n_checks;
}

void oracle_count_check(void)
{
    n_checks++;
}

struct generation *oracle_generation(uint64_t number, uint64_t ps0)
{
    for (int i = n_generations - 1; i >= 0; i--)
        if (generations[i]->number == number && generations[i]->ps0 == ps0)
            return generations[i];
    return NULL;
}

struct generation *oracle_generation_at(int server, uint64_t number)
{
    for (int i = n_generations - 1; i >= 0; i--)
        if (generations[i]->number == number &&
            generations[i]->life[server] == sim.node[server].life)
            return generations[i];
    return NULL;
}

void oracle_planned(const struct net_plan *p)
{
    /* true: the names of the folder's files contain all terms */
    bool is_recorded = opt(OPT_folder) && disk_n_losses() == 0;
    for (int i = 0; i < n_generations; i++)
        if ((is_recorded || generations[i]->ps0 == p->ps0) &&
            generations[i]->number >= p->generation)
            sim_fail("term", "ps 0 plans generation %llx, but %llx has begun before",
                     (unsigned long long)p->generation, (unsigned long long)generations[i]->number);
}

static bool in_lockstep(void)
{
    return job_in_lockstep(&sim_job);
}

static int n_slots(void)
{
    return optim_n_slots(&sim_job.optim);
}

/* Applies a sum to a chunk, with the factors of its parameter and of the step. */
static void apply_sum(struct oracle_state *s, int chunk, float rate, const float *sum, float scale)
{
    size_t n = (size_t)opt(OPT_elems);
    float slots[SIM_SLOTS], old[SIM_ELEMS];
    struct optim_factors factors = sim_chunks->params[chunk].factors;
    struct optim_step step;
    memcpy(old, s->value, sizeof old);
    memcpy(slots, s->slots, sizeof slots);
    factors.rate *= rate;
    optim_begin_scaled(&sim_job.optim, (uint64_t)s->version + 1, s->idle, &factors, &step);
    const struct optim_run run = {.n = n,
                                  .sum = sum,
                                  .weight = 1,
                                  .scale = scale,
                                  .old = old,
                                  .slots = s->slots,
                                  .new_slots = slots,
                                  .slot_stride = n,
                                  .new_ = s->value};
    optim_run(&step, &run);
    memcpy(s->slots, slots, sizeof slots);
    s->version++;
}

static void keep_state(struct oracle_state *s)
{
    s->version++;
    s->idle++;
}

uint64_t oracle_position(const struct generation *g, int64_t step)
{
    uint64_t members = sim_job.sync_mode == JOB_SYNC ? (uint64_t)g->n_members : 1;
    return g->position + (uint64_t)(step - g->step) * members * (uint64_t)sim_job.batch;
}

/* Adds all members' contributions to the chunk, computed on version s. Returns false if no member
 * has a gradient. */
static bool sum_step(const struct generation *g, int chunk, const struct oracle_state *s,
                     float sum[SIM_ELEMS])
{
    float one[SIM_ELEMS], batch = (float)sim_job.batch, before[SIM_ELEMS];
    uint64_t at = oracle_position(g, s->version);
    bool has_gradient = false;
    memset(sum, 0, SIM_ELEMS * sizeof *sum);
    memcpy(before, s->value, sizeof before);
    for (int m = 0; m < g->n_members; m++, at += (uint64_t)sim_job.batch) {
        if (sim_lacks(chunk, at))
            continue;
        has_gradient = true;
        sim_gradient(chunk, at, sim_job.batch, before, one);
        for (int e = 0; e < (int)opt(OPT_elems); e++)
            sum[e] += one[e] * batch;
    }
    return has_gradient;
}

static const struct oracle_state *right(struct generation *g, int chunk, int64_t step);

/* Returns the factor that clips the mean gradient of all chunks, computed on version `step`. */
static double clip_of(struct generation *g, int64_t step, double weight)
{
    double squares = 0;
    if (sim_job.optim.clip_norm == 0)
        return 1;
    for (int c = 0; c < g->n_chunks; c++) {
        float sum[SIM_ELEMS];
        double square = 0;
        sum_step(g, c, right(g, c, step), sum);
        for (int e = 0; e < (int)opt(OPT_elems); e++)
            square += (double)sum[e] * (double)sum[e];
        squares += square / weight / weight;
    }
    double norm = sqrt(squares), limit = (double)sim_job.optim.clip_norm;
    return norm > limit ? limit / norm : 1;
}

static void step_once(struct generation *g, int chunk, struct oracle_state *s)
{
    float sum[SIM_ELEMS];
    double weight = (double)sim_job.batch * g->n_members;
    double factor = clip_of(g, s->version, weight);
    if (sum_step(g, chunk, s, sum))
        apply_sum(s, chunk, sim_rate((uint64_t)s->version), sum, (float)(factor / weight));
    else
        keep_state(s);
}

static void first_state(int chunk, struct oracle_state *s)
{
    *s = (struct oracle_state){.version = 0, .n_slots = n_slots()};
    sim_first_value(chunk, s->value);
}

/* Returns version `step` of a chunk along the chain of plans, in lockstep. */
static const struct oracle_state *right(struct generation *g, int chunk, int64_t step)
{
    if (step < g->step && g->base)
        return right((struct generation *)g->base, chunk, step);
    if (step < g->step || step - g->step >= MAX_STEPS)
        sim_fail("I2", "step %lld is not part of generation %llx, which begins at step %lld",
                 (long long)step, (unsigned long long)g->number, (long long)g->step);
    if (g->known[chunk] < g->step) {
        if (g->base)
            g->state[chunk][0] = *right((struct generation *)g->base, chunk, g->step);
        else
            first_state(chunk, &g->state[chunk][0]);
        g->known[chunk] = g->step;
    }
    while (g->known[chunk] < step) {
        int64_t i = g->known[chunk]++ - g->step;
        g->state[chunk][i + 1] = g->state[chunk][i];
        step_once(g, chunk, &g->state[chunk][i + 1]);
    }
    return &g->state[chunk][step - g->step];
}

/* A version of the parent, in jobs whose workers are regions. The contributions of regions are not
 * a function of the samples. So the version must be the update by contributions that arrived,
 * within rounding, because the store chooses the order of the sum. Each later read of the version
 * must have the same bits. */
struct made {
    int chunk;
    struct oracle_state *next;
    const float *value, *slots;
};

static bool is_near(const float *a, const float *b, int n)
{
    bool near = true;
    for (int i = 0; i < n; i++)
        near &= fabsf(a[i] - b[i]) <= 1e-3f * (1 + fabsf(a[i]) / 16);
    return near;
}

static bool fits(void *ctx, const double *sum, double weight)
{
    const struct made *m = ctx;
    struct oracle_state t = *m->next;
    float part[SIM_ELEMS];
    for (int e = 0; e < SIM_ELEMS; e++)
        part[e] = (float)sum[e];
    if (weight > 0)
        apply_sum(&t, m->chunk, 1, part, (float)(1 / weight));
    else
        t.version++;
    if (!is_near(t.value, m->value, (int)opt(OPT_elems)))
        return false;
    memcpy(t.value, m->value, (size_t)opt(OPT_elems) * sizeof(float));
    *m->next = t;
    return true;
}

static const struct oracle_state *parent_state(const struct generation *g, int chunk, int64_t step)
{
    while (step < g->step && g->base)
        g = g->base;
    if (step < g->step || step > g->known[chunk])
        sim_fail("I2", "version %lld of chunk %d, of generation %llx, was never made",
                 (long long)step, chunk, (unsigned long long)g->number);
    return &g->state[chunk][step - g->step];
}

static void check_parent(struct generation *g, int chunk, int64_t step, const float *value,
                         const char *what)
{
    struct oracle_state *s = g->state[chunk];
    if (g->known[chunk] < g->step && step >= g->step) {
        if (g->base) {
            s[0] = *parent_state(g->base, chunk, g->step);
        } else {
            s[0] = (struct oracle_state){.version = g->step, .n_slots = n_slots()};
            memcpy(s[0].value, value, (size_t)opt(OPT_elems) * sizeof(float));
        }
        g->known[chunk] = g->step;
    }
    int64_t i = step - g->step;
    if (step == g->known[chunk] + 1 && i < MAX_STEPS) {
        const struct ledger_step at = {g->number, g->ps0, chunk, g->n_members, step - 1};
        struct made m = {chunk, &s[i], value, NULL};
        s[i] = s[i - 1];
        if (!ledger_find(&at, fits, &m))
            sim_fail(
                "once",
                "chunk %d, version %lld of generation %llx, %s, is not the update by one contribution of each member",
                chunk, (long long)step, (unsigned long long)g->number, what);
        g->known[chunk]++;
        return;
    }
    if (memcmp(parent_state(g, chunk, step)->value, value,
               (size_t)opt(OPT_elems) * sizeof(float)) != 0)
        sim_fail("I2", "chunk %d, version %lld of generation %llx, %s, has other bits than before",
                 chunk, (long long)step, (unsigned long long)g->number, what);
}

static struct generation *find_all(uint64_t number, uint64_t ps0)
{
    struct generation *g = oracle_generation(number, ps0);
    if (!g)
        sim_fail("I2", "a region is in generation %llx, which no server began",
                 (unsigned long long)number);
    n_checks++;
    return g;
}

void oracle_parent(const struct ledger_step *at, const float *value, const char *what)
{
    check_parent(find_all(at->generation, at->ps0), at->chunk, at->step, value, what);
}

uint64_t oracle_counted(const struct ledger_step *at, int member, double sum[SIM_ELEMS],
                        uint64_t *root, uint64_t *root_ps0)
{
    int64_t end = at->step;
    uint64_t by = 0;
    for (const struct generation *g = find_all(at->generation, at->ps0); g; g = g->base) {
        for (int64_t s = g->step; s < end; s++)
            for (int i = 0; i < g->n_members; i++)
                if (g->member[i] == member) {
                    uint64_t was = ledger_counted(
                        &(struct ledger_step){g->number, g->ps0, at->chunk, g->n_members, s}, i,
                        sum);
                    by = s + 1 == at->step ? was : by;
                }
        end = g->step < end ? g->step : end;
        *root = g->number;
        *root_ps0 = g->ps0;
    }
    return by;
}

int64_t oracle_keeps(uint64_t generation, uint64_t ps0, uint64_t of, uint64_t of_ps0)
{
    int64_t kept = INT64_MAX;
    for (const struct generation *g = oracle_generation(generation, ps0); g; g = g->base) {
        if (g->number == of && g->ps0 == of_ps0)
            return kept;
        kept = g->step < kept ? g->step : kept;
    }
    return -1;
}

/* Returns the generation of a checkpoint. The name of a checkpoint contains the number of its
 * generation. If several generations have this number, because terms begin again in a lost folder,
 * the name means the last of them. */
static const struct generation *generation_of(struct checkpoint_id id)
{
    for (int i = n_generations - 1; i >= 0 && id.generation; i--)
        if (generations[i]->number == id.generation)
            return generations[i];
    return NULL;
}

bool oracle_continues(uint64_t generation, uint64_t ps0, struct checkpoint_id from)
{
    const struct generation *of = generation_of(from);
    return of && oracle_keeps(generation, ps0, of->number, of->ps0) >= from.step;
}

/* Returns the generation that a plan continues. */
static const struct generation *base_of(const struct net_plan *p)
{
    struct checkpoint_name is = {.id = {0}};
    if (p->source == PLAN_MEMORY)
        return oracle_generation(p->before, p->ps0);
    if (p->source == PLAN_CHECKPOINT)
        checkpoint_name_parse(p->restore, &is);
    return generation_of(is.id);
}

static void check_same(const struct generation *g, const struct net_plan *p)
{
    bool is_same = g->step == p->step && g->position == p->position && g->source == p->source &&
                   g->n_members == p->n_members && g->n_chunks == p->chunks->n_chunks;
    for (int i = 0; is_same && i < p->n_members; i++)
        is_same = g->member[i] == p->member[i];
    for (int i = 0; is_same && i < p->chunks->n_chunks; i++)
        is_same = g->shard[i] == p->shard[i];
    if (!is_same)
        sim_fail("term", "generation %llx has two different plans",
                 (unsigned long long)p->generation);
}

/* Returns the last version up to `step` with a contribution of the member, along the chain, in
 * lockstep. */
static int64_t contributed(const struct generation *g, int member, int64_t step)
{
    for (; g; g = g->base) {
        for (int i = 0; step > g->step && i < g->n_members; i++)
            if (g->member[i] == member)
                return step;
        step = step < g->step ? step : g->step;
    }
    return 0;
}

/* Checks up to which version, according to the plan, each member has contributed: by this number a
 * member that lost its connection detects whether its last contribution counted. */
static void check_contributed(const struct generation *g, const struct net_plan *p)
{
    for (int i = 0; in_lockstep() && i < p->n_members; i++) {
        int64_t want = contributed(g->base, g->member[i], g->step);
        int64_t planned = net_plan_contributed(p, g->member[i], g->step).version;
        if (want != planned)
            sim_fail(
                "I2",
                "generation %llx: by its plan member %d has contributed up to version %lld, not up to %lld",
                (unsigned long long)g->number, g->member[i], (long long)planned, (long long)want);
    }
}

static void check_chain(const struct generation *g)
{
    if (g->source != PLAN_FIRST && !g->base)
        sim_fail("I2", "generation %llx resumes from an unknown generation or checkpoint",
                 (unsigned long long)g->number);
    uint64_t want = g->base ? oracle_position(g->base, g->step) : 0;
    /* the plan goes back to a step before the first step of the generation that it continues */
    if (g->base && g->step < g->base->step && in_lockstep())
        return;
    if (g->position != want && in_lockstep())
        sim_fail("I6", "generation %llx begins at sample %llu, not %llu",
                 (unsigned long long)g->number, (unsigned long long)g->position,
                 (unsigned long long)want);
}

void oracle_begin(int server, const struct net_plan *p)
{
    struct generation *g = oracle_generation(p->generation, p->ps0);
    n_checks++;
    if (g) {
        check_same(g, p);
        g->life[server] = sim.node[server].life;
        return;
    }
    if (n_generations == MAX_GENERATIONS || p->n_members > MAX_MEMBERS)
        sim_fail("bound", "more generations or members than a run can have");
    g = sim_alloc(sizeof *g);
    *g = (struct generation){.number = p->generation,
                             .ps0 = p->ps0,
                             .base = base_of(p),
                             .step = p->step,
                             .position = p->position,
                             .n_members = p->n_members,
                             .n_chunks = p->chunks->n_chunks,
                             .source = p->source};
    g->life[server] = sim.node[server].life;
    memcpy(g->member, p->member, (size_t)p->n_members * sizeof *p->member);
    memcpy(g->shard, p->shard, (size_t)g->n_chunks * sizeof *p->shard);
    g->read = sim_alloc_list(MAX_COUNTED * sizeof *g->read);
    g->most = g->base && g->base->most > g->n_members ? g->base->most : g->n_members;
    for (int i = 0; i < SIM_CHUNKS; i++)
        g->known[i] = g->shadow[i].state.version = -1;
    oracle_rows_planned(g);
    generations[n_generations++] = g;
    STORY("generation %llx: %d members, from step %lld, sample %llu, %s",
          (unsigned long long)g->number, g->n_members, (long long)g->step,
          (unsigned long long)g->position,
          g->source == PLAN_MEMORY       ? "from memory"
          : g->source == PLAN_CHECKPOINT ? "from a checkpoint"
                                         : "the first");
    check_chain(g);
    check_contributed(g, p);
}

static void differs(const char *check, const struct generation *g, int chunk, int64_t step,
                    const char *what)
{
    sim_fail(check, "chunk %d, step %lld of generation %llx, %s, has wrong bits", chunk,
             (long long)step, (unsigned long long)g->number, what);
}

static bool is_same_state(const struct oracle_state *s, const float *value, const float *slots)
{
    size_t bytes = (size_t)opt(OPT_elems) * sizeof(float);
    return !memcmp(s->value, value, bytes) &&
           (!slots || !memcmp(s->slots, slots, bytes * (size_t)n_slots()));
}

static void check_version(struct generation *g, int chunk, int64_t step, const float *value,
                          const float *slots, const char *what)
{
    if (opt(OPT_regions)) {
        check_parent(g, chunk, step, value, what);
        return;
    }
    if (in_lockstep()) {
        const struct oracle_state *s = right(g, chunk, step);
        if (!is_same_state(s, value, NULL))
            differs("I2", g, chunk, step, what);
        if (slots && !is_same_state(s, value, slots))
            differs("I2", g, chunk, step, "the optimizer's slots");
        return;
    }
    struct shadow *s = &g->shadow[chunk];
    if (s->state.version < 0 && step == 0)
        first_state(chunk, &s->state);
    if (s->state.version == step && !is_same_state(&s->state, value, NULL))
        differs("I2", g, chunk, step, what);
}

/* Copies the batches that made the versions from which the generation continues. */
static void inherit_batches(struct generation *g, int64_t version)
{
    g->n_read = 0;
    for (int i = 0; g->base && i < g->base->n_read; i++)
        if (g->base->read[i].version <= version)
            g->read[g->n_read++] = g->base->read[i];
}

void oracle_keep_counted(struct shadow *s, const struct shadow *from)
{
    s->n_counted = from->n_counted;
    s->counted = sim_alloc_list(MAX_COUNTED * sizeof *s->counted);
    if (from->n_counted > 0)
        memcpy(s->counted, from->counted, (size_t)s->n_counted * sizeof *s->counted);
}

void oracle_begin_chunk(const struct net_plan *p, int chunk, const struct oracle_state *now)
{
    struct generation *g = oracle_generation(p->generation, p->ps0);
    struct shadow *s = &g->shadow[chunk];
    n_checks++;
    if (now->version < 0)
        return;
    if (in_lockstep()) {
        check_version(g, chunk, now->version, now->value, n_slots() ? now->slots : NULL,
                      "at the beginning");
        if (n_slots() > 0 && !opt(OPT_regions) && now->idle != right(g, chunk, now->version)->idle)
            differs("I2", g, chunk, now->version, "its number of idle updates");
        return;
    }
    if (chunk == 0)
        inherit_batches(g, now->version);
    const struct shadow *from = g->base ? &g->base->shadow[chunk] : NULL;
    if (from && g->source == PLAN_MEMORY) {
        if (now->version != from->state.version || !is_same_state(&from->state, now->value, NULL) ||
            (n_slots() > 0 && now->idle != from->state.idle))
            differs("I2", g, chunk, now->version, "as it was handed over");
        oracle_keep_counted(s, from);
    }
    s->state = *now;
    s->state.n_slots = n_slots();
}

void oracle_version(struct oracle_place at, int64_t step, const float *value, const float *slots,
                    const char *what)
{
    struct generation *g = oracle_generation_at(at.server, at.generation);
    n_checks++;
    if (!g)
        sim_fail("I2", "a version is of generation %llx, which %s never began",
                 (unsigned long long)at.generation, sim.node[at.server].name);
    check_version(g, at.chunk, step, value, slots, what);
}

void oracle_count_push(struct shadow *s, const struct sim_msg *m)
{
    if (!s->counted)
        s->counted = sim_alloc_list(MAX_COUNTED * sizeof *s->counted);
    for (int i = 0; i < s->n_counted; i++)
        if (s->counted[i] == m->identity)
            sim_fail("I3", "a contribution to chunk %u, step %llu, of rank %u counted twice",
                     m->piece.chunk, (unsigned long long)m->piece.step, m->head.member);
    if (s->n_counted == MAX_COUNTED)
        sim_fail("bound", "more contributions than a run can have");
    s->counted[s->n_counted++] = m->identity;
}

/* Checks the batch whose contribution to the model's first chunk makes `version`, in modes other
 * than lockstep. No batch counts twice, and no earlier batch is skipped: a batch that has not
 * counted is in the hand of a member, or was when its generation ended. So there are at most as
 * many such batches as members. */
static void count_batch(struct generation *g, uint64_t position, int64_t version)
{
    uint64_t batch = (uint64_t)sim_job.batch, end = position + batch;
    if (position % batch != 0)
        sim_fail("I6", "a batch begins at sample %llu, within another batch",
                 (unsigned long long)position);
    for (int i = 0; i < g->n_read; i++) {
        if (g->read[i].position == position)
            sim_fail("I6",
                     "the samples from %llu on count for version %lld, but counted for %lld before",
                     (unsigned long long)position, (long long)version,
                     (long long)g->read[i].version);
        end = g->read[i].position + batch > end ? g->read[i].position + batch : end;
    }
    if (g->n_read == MAX_COUNTED)
        sim_fail("bound", "more contributions than a run can have");
    g->read[g->n_read++] = (struct batch_read){position, version};
    if (end / batch > (uint64_t)(g->n_read + g->most))
        sim_fail("I6", "only %d batches before sample %llu have counted, with %d members",
                 g->n_read, (unsigned long long)end, g->most);
}

/* Adds a contribution that counts for the next version, with backup workers. */
static void add_partial(struct shadow *s, const struct sim_msg *m)
{
    const float *data = m->data;
    if ((int64_t)m->piece.step != s->state.version || s->n_partial == MAX_MEMBERS)
        return;
    for (int i = 0; i < s->n_partial; i++)
        if (s->partial[i] == m->head.member)
            return;
    if (s->n_partial == 0) {
        memset(s->sum, 0, sizeof s->sum);
        s->has_gradient = false;
    }
    for (int e = 0; e < (int)opt(OPT_elems) && !m->piece.lacks; e++)
        s->sum[e] += data[e] * m->piece.weight;
    s->has_gradient |= !m->piece.lacks;
    s->position[s->n_partial] = m->position;
    s->partial[s->n_partial++] = m->head.member;
    oracle_count_push(s, m);
}

void oracle_pushing(int server, const struct sim_msg *m, int64_t before)
{
    const struct generation *g = oracle_generation_at(server, m->head.generation);
    if (g && opt(OPT_regions) && (int64_t)m->piece.step == before)
        ledger_pushed(g->number, g->ps0, m);
}

void oracle_pushed(int server, const struct sim_msg *m, int64_t before, int64_t after,
                   const float *value)
{
    struct generation *g = oracle_generation_at(server, m->head.generation);
    int chunk = (int)m->piece.chunk;
    if (!g || (in_lockstep() && after == before))
        return;
    n_checks++;
    if (after != before && after != before + 1)
        sim_fail("I2", "a contribution made more than one version");
    if (in_lockstep()) {
        check_version(g, chunk, after, value, NULL, "as it was made");
        return;
    }
    struct shadow *s = &g->shadow[chunk];
    if (s->state.version < 0)
        first_state(chunk, &s->state);
    if (sim_job.sync_mode == JOB_SYNC) {
        add_partial(s, m);
        if (after == before)
            return;
        if (s->has_gradient)
            apply_sum(&s->state, chunk, 1, s->sum, (float)(1.0 / (s->n_partial * sim_job.batch)));
        else
            keep_state(&s->state);
        for (int i = 0; chunk == 0 && i < s->n_partial; i++)
            count_batch(g, s->position[i], after);
        s->n_partial = 0;
    } else if (after != before) {
        oracle_count_push(s, m);
        if (m->piece.lacks)
            keep_state(&s->state);
        else
            apply_sum(&s->state, chunk, sim_rate(m->position), m->data, 1);
        if (chunk == 0)
            count_batch(g, m->position, after);
    }
    if (after != before && !is_same_state(&s->state, value, NULL))
        differs("I2", g, chunk, after, "as it was made");
}

void oracle_samples(uint64_t generation, uint64_t ps0, const struct net_place *place, int64_t step,
                    uint64_t position)
{
    const struct generation *g = oracle_generation(generation, ps0);
    if (!g)
        sim_fail("I6", "a worker is in generation %llx, which no server began",
                 (unsigned long long)generation);
    n_checks++;
    if (!in_lockstep())
        return;
    uint64_t want = oracle_position(g, step) + (uint64_t)(place->rank * sim_job.batch);
    if (position != want || place->n_members != g->n_members ||
        g->member[place->rank] != place->member)
        sim_fail("I6", "worker %d reads from sample %llu at step %lld, not from %llu",
                 place->member, (unsigned long long)position, (long long)step,
                 (unsigned long long)want);
}
