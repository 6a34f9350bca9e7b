/* worker/train/table_step.c - see table_step.h. Rows and their gradients have the order of the
 * step's keys. So if each cell has one key, the rows are the bags, and nothing is copied. */
#include "worker/train/table_step.h"
#include "base/log.h"
#include "member/row_reads.h"
#include <stdlib.h>
#include <string.h>

/* A tower's part of the step. */
struct part {
    struct bags now, next;
    size_t at;     /* index of its first key among the keys of the step */
    bool has_next; /* `next` is set */
    float *bags;   /* [bags_room] bags, then their gradients; not used if each cell has one key */
    size_t bags_room;
};

struct table_step {
    struct table_step_config cfg;
    struct bags_rule rule;
    struct part *part; /* [n_towers] */
    struct row_keys asked, next;
    uint64_t *all; /* [all_room] keys of several towers, while they are sorted */
    size_t all_room;
    uint32_t *done;      /* [n_buckets] see row_reads.h */
    float *rows, *grads; /* [rows_room] rows of the step's keys, and gradients */
    float *sums;         /* [sums_room] gradients of different keys */
    size_t rows_room, sums_room;
};

static enum status no_memory(const struct table_step *s, size_t n)
{
    LOG_E("out of memory for %zu rows of table '%s'", n, s->cfg.table->name);
    return ST_NOMEM;
}

enum status table_step_create(const struct table_step_config *cfg, struct table_step **out)
{
    struct table_step *s = calloc(1, sizeof *s);
    if (s) {
        s->cfg = *cfg;
        s->rule = (struct bags_rule){(size_t)cfg->table->dim, cfg->mean};
        s->part = calloc((size_t)cfg->n_towers, sizeof *s->part);
        s->done = calloc((size_t)cfg->table->n_buckets, sizeof *s->done);
    }
    if (!s || !s->part || !s->done) {
        LOG_E("out of memory for table '%s'", cfg->table->name);
        table_step_destroy(s);
        return ST_NOMEM;
    }
    *out = s;
    return ST_OK;
}

void table_step_destroy(struct table_step *s)
{
    if (!s)
        return;
    for (int i = 0; s->part && i < s->cfg.n_towers; i++)
        free(s->part[i].bags);
    free(s->part);
    row_keys_free(&s->asked);
    row_keys_free(&s->next);
    free(s->all);
    free(s->done);
    free(s->rows);
    free(s->grads);
    free(s->sums);
    free(s);
}

void table_step_buckets(const struct table_step *s, int *first, int *n)
{
    *first = s->cfg.table->first_chunk;
    *n = s->cfg.table->n_buckets;
}

void table_step_set(struct table_step *s, int tower, const struct bags *bags)
{
    s->part[tower].now = *bags;
}

void table_step_set_next(struct table_step *s, int tower, const struct bags *bags)
{
    s->part[tower].has_next = bags != NULL;
    if (bags)
        s->part[tower].next = *bags;
}

/* Replaces the block by one with memory for n floats, and some more, if it has fewer than n. Its
 * content is lost. */
static bool grow(float **block, size_t *room, size_t n)
{
    if (*block && n <= *room)
        return true;
    free(*block);
    *room = n + n / 4 + 1;
    *block = malloc(*room * sizeof **block);
    return *block != NULL;
}

/* Lists the keys of all towers. Returns the list, which is valid until the next call; NULL: there
 * is no memory. *n: their number. */
static const uint64_t *list_keys(struct table_step *s, bool is_next, size_t *n)
{
    size_t total = 0;
    for (int i = 0; i < s->cfg.n_towers; i++)
        total += is_next ? s->part[i].next.n_keys : s->part[i].now.n_keys;
    *n = total;
    if (!s->all || total > s->all_room) {
        free(s->all);
        s->all_room = total + total / 4 + 1;
        s->all = malloc(s->all_room * sizeof *s->all);
        if (!s->all)
            return NULL;
    }
    uint64_t *to = s->all;
    for (int i = 0; i < s->cfg.n_towers; i++) {
        const struct bags *b = is_next ? &s->part[i].next : &s->part[i].now;
        if (b->n_keys > 0)
            memcpy(to, b->keys, b->n_keys * sizeof *to);
        to += b->n_keys;
    }
    return s->all;
}

/* Sorts the keys of the step or of the next one. Often the push before has named the keys of the
 * step, and so has sorted them. */
static enum status sort_keys(struct table_step *s, bool is_next)
{
    const struct net_table *t = s->cfg.table;
    struct row_keys *k = is_next ? &s->next : &s->asked;
    int64_t share = tables_share(t, t->step_rows);
    size_t n;
    const uint64_t *keys = list_keys(s, is_next, &n);
    if (keys && !is_next && row_keys_are(&s->next, keys, n)) {
        struct row_keys swap = s->asked;
        s->asked = s->next;
        s->next = swap;
    } else if (!keys || n > (size_t)ROW_KEYS_MAX || row_keys_set(k, t, keys, n) != ST_OK) {
        return no_memory(s, n);
    }
    int above = s->cfg.reads_only ? -1 : row_keys_above(k, t, share);
    if (above < 0)
        return ST_OK;
    LOG_E(
        "table '%s', bucket %d: %zu keys in one step, at most %lld; raise step_rows=%lld or buckets=%d of the table, or lower --batch_size",
        t->name, above, row_keys_in(k, above), (long long)share, (long long)t->step_rows,
        t->n_buckets);
    return ST_INVALID;
}

/* Reads the rows of s->asked from the servers. */
static enum status read_servers(struct table_step *s, int64_t step)
{
    bool exact = !s->cfg.own_pace;
    memcpy(s->done, s->asked.first, (size_t)s->cfg.table->n_buckets * sizeof *s->done);
    struct row_reads r = {.updates = s->cfg.updates,
                          .table = s->cfg.table,
                          .keys = &s->asked,
                          .done = s->done,
                          .version = exact ? step : 0,
                          .exact = exact,
                          .rows = s->rows,
                          .deadline_ns = INT64_MAX};
    return row_reads_run(&r);
}

enum status table_step_read(struct table_step *s, int64_t step)
{
    enum status st = ST_OK;
    const struct table_reader *reader = s->cfg.reader;
    size_t at = 0, room = s->rows_room, n = 0;
    const uint64_t *keys = reader ? list_keys(s, false, &n) : NULL;
    if (reader && !keys)
        return no_memory(s, n);
    TRY(reader ? ST_OK : sort_keys(s, false));
    for (int i = 0; i < s->cfg.n_towers; i++) {
        s->part[i].at = at;
        at += s->part[i].now.n_keys;
    }
    if (!grow(&s->rows, &room, at * s->rule.dim) ||
        !grow(&s->grads, &s->rows_room, at * s->rule.dim))
        return no_memory(s, at);
    st = reader ? reader->read(reader->ctx, s->cfg.index, keys, n, s->rows) : read_servers(s, step);
done:
    return st;
}

enum status table_step_output(struct table_step *s, int tower, const struct crew *crew,
                              const float **out)
{
    struct part *p = &s->part[tower];
    const float *rows = s->rows + p->at * s->rule.dim;
    *out = rows;
    if (!p->now.first)
        return ST_OK;
    if (!grow(&p->bags, &p->bags_room, p->now.n_cells * s->rule.dim))
        return no_memory(s, p->now.n_cells);
    bags_sum(&p->now, &s->rule, crew, rows, p->bags);
    *out = p->bags;
    return ST_OK;
}

float *table_step_grads(struct table_step *s, int tower)
{
    const struct part *p = &s->part[tower];
    return p->now.first ? p->bags : s->grads + p->at * s->rule.dim;
}

void table_step_spread(struct table_step *s, int tower, const struct crew *crew, float weight)
{
    const struct part *p = &s->part[tower];
    bags_spread(&p->now, &s->rule, crew, weight, table_step_grads(s, tower),
                s->grads + p->at * s->rule.dim);
}

enum status table_step_sum(struct table_step *s, float **sums, size_t *n)
{
    *n = s->asked.n * s->rule.dim;
    if (!grow(&s->sums, &s->sums_room, *n))
        return no_memory(s, s->asked.n);
    row_keys_sum(&s->asked, s->rule.dim, s->grads, s->sums);
    *sums = s->sums;
    return ST_OK;
}

static enum status push_bucket(struct table_step *s, int bucket, int64_t step, int64_t train_steps,
                               float weight, bool names)
{
    const struct updates *x = s->cfg.updates;
    int chunk = s->cfg.table->first_chunk + bucket;
    int64_t version = s->cfg.own_pace ? x->ops->version(x->ctx, chunk) : step;
    if (version >= train_steps)
        return ST_OK;
    size_t first = s->asked.first[bucket];
    struct net_rows rows = {.n = row_keys_in(&s->asked, bucket),
                            .keys = s->asked.keys + first,
                            .gradients = s->sums + first * s->rule.dim};
    if (names) {
        rows.n_reads = row_keys_in(&s->next, bucket);
        rows.reads = s->next.keys + s->next.first[bucket];
    }
    /* below 0 with own_pace: the generation has ended since the step began */
    return version < 0 ? ST_REBASED : x->ops->push_rows(x->ctx, chunk, version, &rows, weight);
}

enum status table_step_push(struct table_step *s, int64_t step, int64_t train_steps, float weight)
{
    enum status st = ST_OK;
    bool names = true;
    for (int i = 0; i < s->cfg.n_towers; i++)
        names &= s->part[i].has_next;
    if (names)
        TRY(sort_keys(s, true));
    for (int b = 0; b < s->cfg.table->n_buckets; b++)
        TRY(push_bucket(s, b, step, train_steps, weight, names));
    s->cfg.updates->ops->flush(s->cfg.updates->ctx);
done:
    for (int i = 0; i < s->cfg.n_towers; i++)
        s->part[i].has_next = false;
    return st;
}
