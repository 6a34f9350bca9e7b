/* ps/rows/bucket.c - see bucket.h. Initial values need only additions and one multiplication, so
 * that their bits are equal on all hosts. */
#include "ps/rows/bucket.h"
#include "base/log.h"
#include "base/rng.h"
#include <math.h>
#include <stdlib.h>

enum { READ_BLOCK = 256 }; /* number of keys that are found before their rows are read */

uint64_t bucket_init_key(uint64_t seed, const char *table)
{
    return rng_key(seed, RNG_ROWS, rng_text(table, strlen(table)));
}

/* Returns the sum of the twelve 16-bit numbers of counter `i`, minus its mean. The standard
 * deviation is 65536 (1 - 2^-33). */
static float centred_sum(uint64_t stream, size_t i)
{
    int32_t sum = -12 * 65535 / 2;
    for (uint64_t k = 0; k < 3; k++) {
        uint64_t bits = rng_u64(stream, 3 * i + k);
        sum += (int32_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) +
                         (bits >> 48));
    }
    return (float)sum;
}

void bucket_initial(const struct bucket_config *config, uint64_t key, float *values)
{
    uint64_t stream = rng_mix(config->init_key ^ rng_mix(key));
    size_t dim = (size_t)config->dim;
    if (config->init == BUCKET_ZEROS) {
        memset(values, 0, dim * sizeof *values);
        return;
    }
    for (size_t i = 0; i < dim; i++)
        values[i] = config->init == BUCKET_UNIFORM
                        ? (rng_uniform(stream, i) * 2 - 1) * config->init_scale
                        : centred_sum(stream, i) * (config->init_scale * 0x1p-16f);
}

static enum status check_config(const struct bucket_config *c)
{
    uint32_t n = c->n_buckets;
    if (c->dim < 1 || c->dim > OPTIM_ROWS_MAX_DIM) {
        LOG_E("table: dim %d is not within 1 and %d", c->dim, OPTIM_ROWS_MAX_DIM);
        return ST_INVALID;
    }
    if ((unsigned)c->init >= BUCKET_N_INITS || !isfinite(c->init_scale) || c->init_scale < 0) {
        LOG_E("table: the initial values are unknown, or init_scale is not 0 or above");
        return ST_INVALID;
    }
    if (n < 1 || (n & (n - 1)) != 0 || c->number >= n) {
        LOG_E("table: bucket %u of %u: the number of buckets must be a power of two", c->number, n);
        return ST_INVALID;
    }
    return optim_rows_check(&c->optimizer);
}

enum status bucket_create(const struct bucket_config *config, struct bucket **out)
{
    enum status st = check_config(config);
    if (st != ST_OK)
        return st;
    size_t dim = (size_t)config->dim, n_slots = optim_rows_slots(config->optimizer.kind, dim);
    struct bucket *b = calloc(1, sizeof *b);
    if (!b)
        return ST_NOMEM;
    b->config = *config;
    b->n_slots = n_slots;
    TRY(row_table_create((dim + n_slots) * sizeof(float), &b->rows));
    *out = b;
    b = NULL;
done:
    free(b);
    return st;
}

void bucket_destroy(struct bucket *b)
{
    if (!b)
        return;
    row_table_destroy(&b->rows);
    free(b);
}

const char *bucket_check_keys(const struct bucket *b, const void *keys, size_t n, size_t *at)
{
    uint32_t mask = b->config.n_buckets - 1;
    for (size_t i = 0; i < n; i++) {
        uint64_t key = row_key_at(keys, i);
        *at = i;
        if (i > 0 && key <= row_key_at(keys, i - 1))
            return "the keys are not ascending";
        if (((uint32_t)rng_mix(key) & mask) != b->config.number)
            return "a key belongs to another bucket";
    }
    return NULL;
}

void bucket_read(const struct bucket *b, const void *keys, size_t n, float *values)
{
    size_t dim = (size_t)b->config.dim;
    struct row *rows[READ_BLOCK];
    for (size_t first = 0; first < n; first += READ_BLOCK) {
        size_t count = n - first < READ_BLOCK ? n - first : READ_BLOCK;
        const char *part = (const char *)keys + first * sizeof(uint64_t);
        row_table_find(&b->rows, part, count, rows);
        for (size_t i = 0; i < count; i++, values += dim)
            if (rows[i])
                memcpy(values, rows[i]->data, dim * sizeof *values);
            else
                bucket_initial(&b->config, row_key_at(part, i), values);
    }
}

struct row *bucket_add_row(struct bucket *b, uint64_t key)
{
    struct row *row = row_table_add(&b->rows, key);
    bucket_initial(&b->config, key, row->data);
    memset(row->data + b->config.dim, 0, b->n_slots * sizeof *row->data);
    return row;
}

size_t bucket_bytes(const struct bucket *b)
{
    return sizeof *b + row_table_bytes(&b->rows);
}
