/* net/wire/chunks.c - see chunks.h. A parameter is cut into full chunks and a remainder, in order,
 * or joins the chunk of the parameters before it. Every size is checked before memory is allocated,
 * because a hostile peer may have sent the signature. */
#include "net/wire/chunks.h"
#include "base/log.h"
#include "kernels/vector/topk.h"
#include "net/wire/tables.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Elements of all parameters together; 2^40 is also the limit of one shape. */
static const int64_t max_elems = (int64_t)1 << 40;

bool chunks_name_ok(const char *name)
{
    size_t n = name ? strnlen(name, CHUNKS_MAX_NAME + 1) : 0;
    if (n == 0 || n > CHUNKS_MAX_NAME)
        return false;
    for (size_t i = 0; i < n; i++)
        if (name[i] <= ' ' || name[i] > '~')
            return false;
    return true;
}

static enum status check_param(const struct net_param *p, int index)
{
    if (!chunks_name_ok(p->name)) {
        LOG_E("parameter %d: its name is not 1 to %d printable characters without spaces", index,
              CHUNKS_MAX_NAME);
        return ST_INVALID;
    }
    if (p->shape.n_dims < 0 || p->shape.n_dims > SHAPE_MAX_DIMS) {
        LOG_E("parameter %d '%s': %d dimensions; at most %d are possible", index, p->name,
              p->shape.n_dims, SHAPE_MAX_DIMS);
        return ST_INVALID;
    }
    if (shape_elems(&p->shape) <= 0) {
        LOG_E("parameter %d '%s': its shape is empty or above 2^40 elements", index, p->name);
        return ST_INVALID;
    }
    if (p->rule != PARAM_TRAINED && p->rule != PARAM_AVERAGE) {
        LOG_E("parameter %d '%s': unknown rule %d", index, p->name, (int)p->rule);
        return ST_INVALID;
    }
    if (p->rule == PARAM_AVERAGE && !(p->keep >= 0 && p->keep <= 1)) {
        LOG_E("parameter %d '%s': keep %g is not between 0 and 1", index, p->name, (double)p->keep);
        return ST_INVALID;
    }
    if (p->has_factors && p->rule == PARAM_AVERAGE) {
        LOG_E(
            "parameter %d '%s': a statistic has no factors for the learning rate and the weight decay",
            index, p->name);
        return ST_INVALID;
    }
    if (p->has_factors &&
        !(optim_factor_ok(p->factors.rate) && optim_factor_ok(p->factors.decay))) {
        LOG_E(
            "parameter %d '%s': its factors for the learning rate and the weight decay, %g and %g, must be 0 or above",
            index, p->name, (double)p->factors.rate, (double)p->factors.decay);
        return ST_INVALID;
    }
    return ST_OK;
}

/* Checks the whole signature, and computes an upper bound of the number of chunks, without
 * allocating memory. */
static enum status check_signature(const struct net_param *params, int n_params,
                                   int64_t chunk_bytes, int64_t *n_chunks)
{
    if (n_params < 1 || n_params > CHUNKS_MAX_PARAMS) {
        LOG_E("the model has %d parameters; it must have from 1 to %d", n_params,
              CHUNKS_MAX_PARAMS);
        return ST_INVALID;
    }
    if (chunk_bytes < CHUNKS_MIN_BYTES || chunk_bytes > CHUNKS_MAX_BYTES || chunk_bytes % 4) {
        LOG_E("chunk_bytes %lld is not a multiple of 4 from %d to %d", (long long)chunk_bytes,
              CHUNKS_MIN_BYTES, CHUNKS_MAX_BYTES);
        return ST_INVALID;
    }
    int64_t elems = 0, chunks = 0, cap = chunk_bytes / 4;
    for (int i = 0; i < n_params; i++) {
        enum status st = check_param(&params[i], i);
        if (st != ST_OK)
            return st;
        int64_t n = shape_elems(&params[i].shape);
        elems += n;
        chunks += (n + cap - 1) / cap;
        if (elems > max_elems || chunks > CHUNKS_MAX_CHUNKS) {
            LOG_E("parameter %d '%s': the model has more than %d chunks of %lld bytes", i,
                  params[i].name, CHUNKS_MAX_CHUNKS, (long long)chunk_bytes);
            return ST_INVALID;
        }
    }
    *n_chunks = chunks;
    return ST_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum status check_unique_names(const struct net_param *params, int n_params)
{
    const char **names = malloc((size_t)n_params * sizeof *names);
    enum status st = ST_OK;
    if (!names)
        return ST_NOMEM;
    for (int i = 0; i < n_params; i++)
        names[i] = params[i].name;
    qsort(names, (size_t)n_params, sizeof *names, compare_names);
    for (int i = 1; i < n_params && st == ST_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            LOG_E("two parameters are named '%s'", names[i]);
            st = ST_INVALID;
        }
    }
    free(names);
    return st;
}

static bool same_factors(const struct net_param *a, const struct net_param *b)
{
    return a->factors.rate == b->factors.rate && a->factors.decay == b->factors.decay;
}

static bool same_rule(const struct net_param *a, const struct net_param *b)
{
    return a->rule == b->rule && same_factors(a, b) &&
           (a->rule == PARAM_TRAINED || a->keep == b->keep);
}

/* Returns true if the next parameter joins the last chunk. */
static bool joins_last(const struct chunks *c, const struct net_param *p)
{
    int64_t cap = (c->chunk_bytes < CHUNKS_PACK_BYTES ? c->chunk_bytes : CHUNKS_PACK_BYTES) / 4;
    if (c->n_chunks == 0)
        return false;
    const struct net_chunk *last = &c->chunks[c->n_chunks - 1];
    const struct net_param *first = &c->params[last->param];
    return last->first == first->first && last->n_elems + p->n_elems <= cap && same_rule(first, p);
}

static void add_chunks(struct chunks *c, struct net_param *p, int index)
{
    int64_t cap = c->chunk_bytes / 4;
    if (joins_last(c, p)) {
        p->first_chunk = c->n_chunks - 1;
        p->n_chunks = 1;
        c->chunks[p->first_chunk].n_elems += p->n_elems;
        return;
    }
    p->first_chunk = c->n_chunks;
    for (int64_t at = 0; at < p->n_elems; at += cap) {
        int64_t n = p->n_elems - at < cap ? p->n_elems - at : cap;
        c->chunks[c->n_chunks++] =
            (struct net_chunk){.param = index, .first = p->first + at, .n_elems = n};
    }
    p->n_chunks = c->n_chunks - p->first_chunk;
}

static enum status fill_table(struct chunks *c, const struct net_param *params, int n_params)
{
    for (int i = 0; i < n_params; i++) {
        struct net_param *p = &c->params[i];
        *p = params[i];
        p->name = strdup(params[i].name);
        c->n_params = i + 1;
        if (!p->name)
            return ST_NOMEM;
        if (!p->has_factors)
            p->factors = (struct optim_factors){1, 1};
        p->has_factors = p->factors.rate != 1 || p->factors.decay != 1;
        p->n_elems = shape_elems(&p->shape);
        p->first = c->n_elems;
        add_chunks(c, p, i);
        c->n_elems += p->n_elems;
    }
    return ST_OK;
}

enum status chunks_create(const struct net_param *params, int n_params, int64_t chunk_bytes,
                          struct chunks **out)
{
    enum status st = ST_OK;
    struct chunks *c = NULL;
    int64_t n_chunks = 0;
    TRY(check_signature(params, n_params, chunk_bytes, &n_chunks));
    TRY(check_unique_names(params, n_params));
    c = calloc(1, sizeof *c);
    TRY(c ? ST_OK : ST_NOMEM);
    c->chunk_bytes = chunk_bytes;
    c->params = calloc((size_t)n_params, sizeof *c->params);
    c->chunks = calloc((size_t)n_chunks, sizeof *c->chunks);
    TRY(c->params && c->chunks ? ST_OK : ST_NOMEM);
    TRY(fill_table(c, params, n_params));
    c->n_dense = c->n_chunks;
    *out = c;
    return ST_OK;
done:
    chunks_destroy(c);
    return st;
}

enum status chunks_copy(const struct chunks *from, struct chunks **out)
{
    struct chunks *c = NULL;
    enum status st = chunks_create(from->params, from->n_params, from->chunk_bytes, &c);
    if (st == ST_OK)
        st = tables_add(c, from->tables, from->n_tables);
    if (st != ST_OK)
        chunks_destroy(c);
    else
        *out = c;
    return st;
}

void chunks_destroy(struct chunks *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n_params; i++)
        free((char *)c->params[i].name);
    free(c->params);
    free(c->chunks);
    tables_free(c->tables, c->n_tables);
    free(c);
}

bool chunks_have_factors(const struct chunks *c)
{
    for (int i = 0; i < c->n_params; i++)
        if (c->params[i].has_factors)
            return true;
    return false;
}

int64_t chunks_default_bytes(int64_t n_elems, int n_servers)
{
    /* n_elems / n_servers, read as bytes, is a quarter of the size of one server's elements */
    int64_t share = n_elems / n_servers;
    share -= share % 4;
    if (n_servers == 1 || share > CHUNKS_DEFAULT_BYTES)
        return CHUNKS_DEFAULT_BYTES;
    return share < CHUNKS_PACK_BYTES ? CHUNKS_PACK_BYTES : share;
}

static void shape_text(const struct shape *s, char *out, size_t n)
{
    size_t at = 0;
    snprintf(out, n, "scalar");
    for (int i = 0; i < s->n_dims && at < n; i++)
        at += (size_t)snprintf(out + at, n - at, "%s%lld", i ? "x" : "", (long long)s->dim[i]);
}

static bool shape_equal(const struct shape *a, const struct shape *b)
{
    return a->n_dims == b->n_dims &&
           memcmp(a->dim, b->dim, (size_t)a->n_dims * sizeof *a->dim) == 0;
}

static const char *rule_text(const struct net_param *p)
{
    return p->rule == PARAM_TRAINED ? "trained" : net_param_is_frozen(p) ? "frozen" : "average";
}

/* Returns true, with the difference in `why`, if parameter i differs. */
static bool param_differs(const struct net_param *a, const struct net_param *b, int i, char *why,
                          size_t n)
{
    char sa[160], sb[160];
    if (strcmp(a->name, b->name) != 0) {
        snprintf(why, n, "parameter %d: named '%s' on the servers, '%s' on the worker", i, a->name,
                 b->name);
    } else if (!shape_equal(&a->shape, &b->shape)) {
        shape_text(&a->shape, sa, sizeof sa);
        shape_text(&b->shape, sb, sizeof sb);
        snprintf(why, n, "parameter %d '%s': shape %s on the servers, %s on the worker", i, a->name,
                 sa, sb);
    } else if (a->rule != b->rule || net_param_is_frozen(a) != net_param_is_frozen(b)) {
        snprintf(why, n, "parameter %d '%s': rule %s on the servers, %s on the worker", i, a->name,
                 rule_text(a), rule_text(b));
    } else if (a->rule == PARAM_AVERAGE && a->keep != b->keep) {
        snprintf(why, n, "parameter %d '%s': keep %g on the servers, %g on the worker", i, a->name,
                 (double)a->keep, (double)b->keep);
    } else if (a->factors.rate != b->factors.rate) {
        snprintf(
            why, n,
            "parameter %d '%s': factor %g of the learning rate on the servers, %g on the worker", i,
            a->name, (double)a->factors.rate, (double)b->factors.rate);
    } else if (a->factors.decay != b->factors.decay) {
        snprintf(
            why, n,
            "parameter %d '%s': factor %g of the weight decay on the servers, %g on the worker", i,
            a->name, (double)a->factors.decay, (double)b->factors.decay);
    } else {
        return false;
    }
    return true;
}

enum status chunks_compare(const struct chunks *servers, const struct chunks *worker, char *why,
                           size_t why_bytes)
{
    int common = servers->n_params < worker->n_params ? servers->n_params : worker->n_params;
    for (int i = 0; i < common; i++)
        if (param_differs(&servers->params[i], &worker->params[i], i, why, why_bytes))
            return ST_MISMATCH;
    if (servers->n_params != worker->n_params) {
        const struct chunks *longer = servers->n_params > common ? servers : worker;
        snprintf(why, why_bytes, "parameter %d '%s' exists only %s", common,
                 longer->params[common].name,
                 longer == servers ? "on the servers" : "on the worker");
        return ST_MISMATCH;
    }
    if (servers->chunk_bytes != worker->chunk_bytes) {
        snprintf(why, why_bytes, "chunk_bytes: %lld on the servers, %lld on the worker",
                 (long long)servers->chunk_bytes, (long long)worker->chunk_bytes);
        return ST_MISMATCH;
    }
    return tables_compare(servers, worker, why, why_bytes);
}

enum dtype chunks_dtype(const struct chunks *c, int chunk, enum dtype d)
{
    bool averages = chunk < c->n_dense && c->params[c->chunks[chunk].param].rule == PARAM_AVERAGE;
    size_t n = (size_t)c->chunks[chunk].n_elems;
    /* A small chunk is sent whole, because it often holds biases, each of which matters. */
    bool is_few = d == DTYPE_TOPK && n < TOPK_SHARE;
    bool gains = !averages && !is_few && dtype_bytes(d, n) < dtype_bytes(DTYPE_F32, n);
    return dtype_block(d) > 1 && !gains ? DTYPE_F32 : d;
}

/* Returns the offset of a chunk. Each chunk begins a new block. The last block of a chunk may be
 * shorter, but occupies the space of a full block. */
static size_t blocks_at(enum dtype d, int64_t elems, int chunk)
{
    return dtype_bytes(d, ((size_t)elems / dtype_block(d) + (size_t)chunk) * dtype_block(d));
}

size_t chunks_wire_bytes(const struct chunks *c, enum dtype d)
{
    size_t n = (size_t)c->n_elems;
    return dtype_block(d) > 1 ? blocks_at(d, c->n_elems, c->n_dense) : dtype_bytes(d, n);
}

size_t chunks_wire_at(const struct chunks *c, enum dtype d, int chunk)
{
    int64_t first = c->chunks[chunk].first;
    return dtype_block(d) > 1 ? blocks_at(d, first, chunk) : dtype_bytes(d, (size_t)first);
}
