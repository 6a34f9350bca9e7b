/* tests/sim/ledger.c - see ledger.h. The value of a region that adopts the parent's version p is:
 *
 *     value = the parent's version p + the sum of the region's progress
 *             + its contributions that count in the parent's versions up to p (old less new)
 *
 * So all progress counts exactly once: in the parent's version if it counted there, else in the
 * value that is added to it. oracle.c finds the contributions, one of each member, from which a
 * version of the parent was made. Where a region may lose progress (docs/guide/regions.md), its
 * account begins again. */
#include "tests/sim/oracle.h"
#include "tests/sim/region.h"
#include <math.h>
#include <string.h>

enum { MAX_STEPS = 2048, MAX_TRIES = 4, MAX_RANKS = 2 * SIM_WORKERS };

struct candidate {
    float weight, data[SIM_ELEMS];
    uint64_t by; /* incarnation that sent the contribution last */
};

/* Contributions to one version of a chunk, in one generation, by rank. A rank may have several,
 * from a process that died and from its successor; one of them counts. */
struct step {
    struct ledger_step at;
    int n[MAX_RANKS], chosen[MAX_RANKS];
    struct candidate tried[MAX_RANKS][MAX_TRIES];
};
static struct step *steps[MAX_STEPS];
static int n_steps;

void ledger_reset(void)
{
    n_steps = 0;
}

static struct step *find_step(uint64_t generation, uint64_t ps0, int chunk, int64_t step)
{
    for (int i = n_steps - 1; i >= 0; i--) {
        const struct ledger_step *a = &steps[i]->at;
        if (a->generation == generation && a->ps0 == ps0 && a->chunk == chunk && a->step == step)
            return steps[i];
    }
    return NULL;
}

static bool is_same(const struct candidate *a, const struct candidate *b)
{
    return a->weight == b->weight && !memcmp(a->data, b->data, sizeof a->data);
}

void ledger_pushed(uint64_t generation, uint64_t ps0, const struct sim_msg *m)
{
    int chunk = (int)m->piece.chunk;
    struct step *s = find_step(generation, ps0, chunk, (int64_t)m->piece.step);
    if (!s) {
        if (n_steps == MAX_STEPS)
            sim_fail("bound", "more steps than a run can have");
        s = steps[n_steps++] = sim_alloc(sizeof *s);
        s->at = (struct ledger_step){generation, ps0, chunk, 0, (int64_t)m->piece.step};
    }
    struct candidate c = {.weight = m->piece.weight, .by = m->head.incarnation};
    int rank = (int)m->head.member, i = 0;
    if (m->bytes)
        memcpy(c.data, m->data, m->bytes);
    while (i < s->n[rank] && !is_same(&s->tried[rank][i], &c))
        i++;
    if (i < MAX_TRIES)
        s->tried[rank][i] = c;
    s->n[rank] += i == s->n[rank] && i < MAX_TRIES;
}

static bool try_rank(struct step *s, int rank, int n_members, ledger_try *fits, void *ctx)
{
    if (rank < n_members) {
        for (int i = 0; i < s->n[rank]; i++) {
            s->chosen[rank] = i;
            if (try_rank(s, rank + 1, n_members, fits, ctx))
                return true;
        }
        return false;
    }
    double sum[SIM_ELEMS] = {0}, weight = 0;
    for (int r = 0; r < n_members; r++) {
        const struct candidate *c = &s->tried[r][s->chosen[r]];
        weight += (double)c->weight;
        for (int e = 0; e < SIM_ELEMS; e++)
            sum[e] += (double)c->weight * (double)c->data[e];
    }
    return fits(ctx, sum, weight);
}

bool ledger_find(const struct ledger_step *at, ledger_try *fits, void *ctx)
{
    struct step *s = find_step(at->generation, at->ps0, at->chunk, at->step);
    return s && try_rank(s, 0, at->n_members, fits, ctx);
}

uint64_t ledger_counted(const struct ledger_step *at, int rank, double sum[SIM_ELEMS])
{
    const struct step *s = find_step(at->generation, at->ps0, at->chunk, at->step);
    if (!s)
        return 0;
    const struct candidate *c = &s->tried[rank][s->chosen[rank]];
    for (int e = 0; e < SIM_ELEMS && c->weight > 0; e++)
        sum[e] += (double)c->data[e];
    return c->by;
}

/* A version of the parent group, as a region has received it. */
struct held {
    int64_t version, before; /* before: the version that the region had adopted before this one */
    uint64_t generation, ps0, root, root_ps0;
    uint64_t by; /* incarnation of the region that contributed to this version; 0: none did */
    double counted[SIM_ELEMS]; /* sum of the region's contributions up to this version */
};

static struct held held_at(const struct region *r, int chunk, int64_t version, uint64_t generation,
                           uint64_t ps0)
{
    struct held h = {.version = version, .generation = generation, .ps0 = ps0};
    h.before = r->ledger[chunk].parent;
    memset(h.counted, 0, sizeof h.counted);
    h.by = oracle_counted(&(struct ledger_step){h.generation, h.ps0, chunk, 0, h.version}, r->index,
                          h.counted, &h.root, &h.root_ps0);
    return h;
}

static struct held held_of(const struct region *r, int chunk)
{
    uint64_t generation, ps0;
    int64_t version = region_parent_version(r, chunk, &generation, &ps0);
    return held_at(r, chunk, version, generation, ps0);
}

static int at(const struct region *r, int64_t version)
{
    if (version < 0 || version >= LEDGER_STEPS)
        sim_fail("bound", "%s has version %lld", sim.node[r->node].name, (long long)version);
    return (int)version;
}

void ledger_start(struct region *r, const struct region_checkpoint *from, bool again)
{
    for (int i = 0; i < SIM_CHUNKS; i++) {
        struct ledger_chunk *l = &r->ledger[i];
        *l = (struct ledger_chunk){.parent = -1};
        if (from)
            *l = from->ledger[i];
        l->comes_back = again || sim.node[r->node].life > 1;
        l->n_words = 0;
        if (!from)
            continue;
        memcpy(l->value[from->step], from->file.state[i].value, sizeof(float[SIM_ELEMS]));
    }
    r->restored_round = from && from->parent.known ? from->parent.version : -1;
}

static void rebase_values(struct ledger_chunk *l, const struct held *h, int v, const float *base)
{
    l->has_base = true;
    l->root = h->root;
    l->root_ps0 = h->root_ps0;
    for (int e = 0; e < (int)opt(OPT_elems); e++) {
        double is = (double)l->value[v][e] - (double)base[e] - h->counted[e];
        double more = is - l->learnt[v][e];
        for (int k = 0; k < LEDGER_STEPS; k++) /* earlier versions may be made again */
            l->learnt[k][e] += more;
    }
}

void ledger_first(struct region *r, int chunk, int64_t version, const float *value)
{
    struct ledger_chunk *l = &r->ledger[chunk];
    struct held h = held_of(r, chunk);
    int v = at(r, version);
    memcpy(l->value[v], value, (size_t)opt(OPT_elems) * sizeof(float));
    oracle_parent(&(struct ledger_step){h.generation, h.ps0, chunk, 0, h.version}, value,
                  "that a region begins with");
    rebase_values(l, &h, v, value);
    l->parent = h.version;
    l->generation = h.generation;
    l->ps0 = h.ps0;
}

void ledger_made(struct region *r, int chunk, int64_t version, bool waits, const float *value)
{
    struct ledger_chunk *l = &r->ledger[chunk];
    int v = at(r, version);
    for (int e = 0; e < (int)opt(OPT_elems); e++) {
        l->computed[v][e] = value[e];
        l->learnt[v][e] = l->learnt[v - 1][e] + (double)value[e] - (double)l->value[v - 1][e];
        if (!waits)
            l->value[v][e] = value[e];
    }
}

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 2e-3 * (1 + fabs(a) / 16);
}

/* Returns true if the region may lose progress at this adoption (docs/guide/regions.md):
 * - A region that was restarted may lose progress if it restored no checkpoint, or is more than one
 *   round behind, or did not contribute to the round, or trains with an overlap or a drift.
 * - If an earlier process of the region made the contribution that counts, this process may have
 *   made other steps: with an overlap, in the first round that it adopts; in the second round, if
 *   it lost progress with the first.
 * - At the end it loses the steps that overlap the last exchange or drift beyond it, and the steps
 *   that it makes after the parent's last round, or while the parent makes that round alone.
 * In the first and third case only an adoption without `from` loses progress. */
static bool may_lose(const struct region *r, int chunk, const struct held *h, const float *from,
                     int64_t version)
{
    const struct ledger_chunk *l = &r->ledger[chunk];
    bool is_other = h->by && h->by != r->incarnation;
    bool may_differ = l->comes_back ? sim_overlap() > 0 : l->has_strayed;
    if (is_other && may_differ)
        return true;
    if (from)
        return false;
    if (version >= r->job.train_steps && (sim_overlap() > 0 || opt(OPT_max_drift) > 0))
        return true;
    if (h->before == sim_job.train_steps)
        return true;
    if (version >= r->job.train_steps && !h->by)
        return true;
    return l->comes_back && (h->version > r->restored_round + 1 || !h->by || sim_overlap() > 0 ||
                             opt(OPT_max_drift) > 0);
}

/* Checks that the region adopts versions in order. Returns true if the parent has lost a version
 * that the region had adopted; the region then receives all changes since that version again. */
static bool check_order(struct region *r, int chunk, const struct held *h)
{
    struct ledger_chunk *l = &r->ledger[chunk];
    bool lost =
        l->parent >= 0 && oracle_keeps(h->generation, h->ps0, l->generation, l->ps0) < l->parent;
    if (!lost && h->version < l->parent)
        sim_fail("order", "%s, chunk %d: the region adopts round %lld after round %lld",
                 sim.node[r->node].name, chunk, (long long)h->version, (long long)l->parent);
    l->parent = h->version;
    l->generation = h->generation;
    l->ps0 = h->ps0;
    return lost;
}

static void adopted(struct region *r, int chunk, int64_t version, const float *to,
                    const float *from, struct held h)
{
    struct ledger_chunk *l = &r->ledger[chunk];
    int v = at(r, version), n = (int)opt(OPT_elems);
    for (int e = 0; e < n; e++)
        l->value[v][e] = !to     ? l->computed[v][e]
                         : !from ? to[e]
                                 : l->computed[v][e] + (to[e] - from[e]);
    if (!to)
        return;
    oracle_parent(&(struct ledger_step){h.generation, h.ps0, chunk, 0, h.version}, to,
                  "that a region adopts");
    bool lost = check_order(r, chunk, &h);
    STORY("%s, chunk %d: version %lld adopts round %lld%s", sim.node[r->node].name, chunk,
          (long long)version, (long long)h.version, from ? "" : " unchanged");
    if (lost || !l->has_base || l->root != h.root || l->root_ps0 != h.root_ps0) {
        rebase_values(l, &h, v, to);
        return;
    }
    bool lost_some = may_lose(r, chunk, &h, from, version);
    l->has_strayed = l->comes_back && lost_some;
    l->comes_back = false;
    for (int e = 0; e < n; e++) {
        double on_top = (double)l->value[v][e] - (double)to[e];
        double want = l->learnt[v][e] + h.counted[e];
        if (is_near(on_top, want))
            continue;
        if (lost_some) {
            rebase_values(l, &h, v, to);
            return;
        }
        sim_fail(
            "once",
            "%s, chunk %d, version %lld: %.4f is added to the parent's round %lld, but the progress that does not count there is %.4f",
            sim.node[r->node].name, chunk, (long long)version, on_top, (long long)h.version, want);
    }
}

void ledger_adopted(struct region *r, int chunk, int64_t version, const float *to,
                    const float *from)
{
    struct held none = {0};
    adopted(r, chunk, version, to, from, to ? held_of(r, chunk) : none);
}

/* Returns the first order of ps 0 for that version, because only the first order has an effect;
 * NULL: there was none. */
static struct ledger_word *find_word(struct ledger_chunk *l, uint64_t generation, int64_t version)
{
    for (int i = 0; i < LEDGER_WORDS && i < l->n_words; i++)
        if (l->word[i].in == generation && l->word[i].version == version)
            return &l->word[i];
    return NULL;
}

void ledger_word(struct region *r, uint64_t generation, const struct region_chunk_adoption *from)
{
    struct ledger_chunk *l = &r->ledger[from->chunk];
    size_t bytes = (size_t)opt(OPT_elems) * sizeof(float);
    if (find_word(l, generation, from->version))
        return;
    struct ledger_word *w = &l->word[l->n_words++ % LEDGER_WORDS];
    *w = (struct ledger_word){.in = generation,
                              .version = from->version,
                              .has_to = from->how.to != NULL,
                              .has_from = from->how.from != NULL};
    if (from->how.to)
        memcpy(w->to, from->how.to, bytes);
    if (from->how.from)
        memcpy(w->from, from->how.from, bytes);
    if (from->how.to)
        w->held = region_parent_version(r, from->chunk, &w->held_in, &w->held_ps0);
}

void ledger_obeyed(struct region *r, uint64_t generation, int chunk, int64_t version,
                   const float *is)
{
    struct ledger_chunk *l = &r->ledger[chunk];
    const struct ledger_word none = {0}, *w = find_word(l, generation, version);
    w = w ? w : &none; /* ps 0 sent no order, because the version did not wait */
    adopted(r, chunk, version, w->has_to ? w->to : NULL, w->has_from ? w->from : NULL,
            w->has_to ? held_at(r, chunk, w->held, w->held_in, w->held_ps0) : (struct held){0});
    const float *want = l->value[at(r, version)];
    for (int e = 0; e < (int)opt(OPT_elems); e++)
        if (is[e] != want[e])
            sim_fail(
                "word", "%s, chunk %d, version %lld: the second server has value %.6f, not %.6f",
                sim.node[r->node].name, chunk, (long long)version, (double)is[e], (double)want[e]);
}

void ledger_end(struct region *r)
{
    for (int i = 0; i < sim_chunks->n_chunks; i++) {
        struct ledger_chunk *l = &r->ledger[i];
        if (l->parent != sim_job.train_steps)
            sim_fail("end", "%s ends with round %lld of %lld", sim.node[r->node].name,
                     (long long)l->parent, (long long)sim_job.train_steps);
        oracle_parent(&(struct ledger_step){l->generation, l->ps0, i, 0, l->parent},
                      l->value[opt(OPT_steps)], "that a region ends with");
    }
}
