/* worker/train/bags.c - see bags.h. Loops are cut by elements of the output, so a range may begin
 * and end within a row. Each element is computed alone, so the ranges do not change any bits. */
#include "worker/train/bags.h"

struct work {
    const struct bags *bags;
    const struct bags_rule *rule;
    float weight;
    const float *in;
    float *out;
};

/* Some of the elements of one cell. */
struct piece {
    size_t from, to; /* keys of the cell */
    size_t at, n;    /* first element of the cell, number of elements */
};

/* Returns the piece that begins with this element of all cells, and ends before `end`. */
static struct piece piece_at(const struct work *w, size_t element, size_t end)
{
    size_t dim = w->rule->dim, cell = element / dim;
    const uint32_t *first = w->bags->first;
    struct piece p = {.from = first ? first[cell] : cell,
                      .to = first ? first[cell + 1] : cell + 1,
                      .at = element % dim};
    size_t rest = dim - p.at;
    p.n = rest < end - element ? rest : end - element;
    return p;
}

static float factor_of(const struct work *w, const struct piece *p)
{
    return w->rule->mean && p->to > p->from ? 1 / (float)(p->to - p->from) : 1;
}

static void sum_range(void *ctx, size_t first, size_t n)
{
    const struct work *w = ctx;
    size_t dim = w->rule->dim;
    for (size_t e = first; e < first + n;) {
        struct piece p = piece_at(w, e, first + n);
        float factor = factor_of(w, &p), *out = w->out + e;
        for (size_t i = 0; i < p.n; i++)
            out[i] = p.to > p.from ? w->in[p.from * dim + p.at + i] : 0;
        for (size_t k = p.from + 1; k < p.to; k++)
            for (size_t i = 0; i < p.n; i++)
                out[i] += w->in[k * dim + p.at + i];
        for (size_t i = 0; i < p.n && factor != 1; i++)
            out[i] *= factor;
        e += p.n;
    }
}

void bags_sum(const struct bags *b, const struct bags_rule *rule, const struct crew *crew,
              const float *rows, float *out)
{
    struct work w = {.bags = b, .rule = rule, .in = rows, .out = out};
    crew_run(crew, b->n_cells * rule->dim, sum_range, &w);
}

static void spread_range(void *ctx, size_t first, size_t n)
{
    const struct work *w = ctx;
    size_t dim = w->rule->dim;
    for (size_t e = first; e < first + n;) {
        struct piece p = piece_at(w, e, first + n);
        float factor = w->weight * factor_of(w, &p);
        const float *in = w->in + e;
        for (size_t k = p.from; k < p.to; k++)
            for (size_t i = 0; i < p.n; i++)
                w->out[k * dim + p.at + i] = factor * in[i];
        e += p.n;
    }
}

void bags_spread(const struct bags *b, const struct bags_rule *rule, const struct crew *crew,
                 float weight, const float *grads, float *row_grads)
{
    struct work w = {b, rule, weight, grads, row_grads};
    crew_run(crew, b->n_cells * rule->dim, spread_range, &w);
}
