/* ps/rows/merge.c - see merge.h. The pass has three stages, each over all keys of the step, so that
 * rows can be requested from memory before they are needed: a heap merges the keys, one search
 * finds the rows, and one loop updates them. */
#include "ps/rows/merge.h"
#include "kernels/vector/finite.h"
#include "kernels/vector/row_round.h"
#include "kernels/vector/vector.h"
#include "ps/rows/limits.h"
#include <stdlib.h>

struct kept { /* copy of a contribution: keys, then gradients */
    struct merge_input input;
    char *memory;
    size_t bytes;
};

struct part { /* gradient of a key */
    uint32_t rank, at;
};

struct head { /* next key of one contribution */
    uint64_t key;
    uint32_t rank, at;
};

struct merge {
    int n_members;
    size_t dim;
    struct kept *kept;          /* copies by rank */
    struct merge_input *inputs; /* inputs of the pass by rank */
    struct head *heap;
    size_t capacity;    /* number of parts, and of keys, that the arrays below can hold */
    struct part *parts; /* all gradients, in the order of keys, then ranks */
    uint64_t *keys;
    uint32_t *first;              /* first part of each key, and the number of parts */
    struct row **rows, **pending; /* entries of each key in memory */
    float *sum;                   /* dim floats: sum of a key with several gradients */
    float *values;                /* dim floats: values of a row that has none in memory */
    uint64_t needed_rows;
    size_t not_finite; /* place in `keys` of the first row that is not finite; `capacity`: none */
};

enum status merge_create(int n_members, int dim, struct merge **out)
{
    size_t n = (size_t)n_members;
    struct merge *m = calloc(1, sizeof *m);
    if (!m)
        return ST_NOMEM;
    m->n_members = n_members;
    m->dim = (size_t)dim;
    m->kept = calloc(n, sizeof *m->kept);
    m->inputs = calloc(n, sizeof *m->inputs);
    m->heap = calloc(n, sizeof *m->heap);
    m->sum = calloc(m->dim, sizeof *m->sum);
    m->values = calloc(m->dim, sizeof *m->values);
    if (!m->kept || !m->inputs || !m->heap || !m->sum || !m->values) {
        merge_destroy(m);
        return ST_NOMEM;
    }
    *out = m;
    return ST_OK;
}

static void free_arrays(struct merge *m)
{
    free(m->parts);
    free(m->keys);
    free(m->first);
    free(m->rows);
    free(m->pending);
    m->parts = NULL;
    m->keys = NULL;
    m->first = NULL;
    m->rows = NULL;
    m->pending = NULL;
    m->capacity = 0;
}

void merge_destroy(struct merge *m)
{
    if (!m)
        return;
    for (int r = 0; m->kept && r < m->n_members; r++)
        free(m->kept[r].memory);
    free_arrays(m);
    free(m->kept);
    free(m->inputs);
    free(m->heap);
    free(m->sum);
    free(m->values);
    free(m);
}

enum status merge_room(struct merge *m, int rank, size_t n, uint64_t **keys, float **gradients)
{
    struct kept *k = &m->kept[rank];
    size_t bytes = n * (sizeof(uint64_t) + m->dim * sizeof(float));
    k->input = (struct merge_input){0};
    if (bytes > k->bytes || !k->memory) {
        char *memory = malloc(bytes + bytes / 4 + 1);
        if (!memory)
            return ST_NOMEM;
        free(k->memory);
        k->memory = memory;
        k->bytes = bytes + bytes / 4;
    }
    *keys = (uint64_t *)(void *)k->memory;
    *gradients = (float *)(void *)(*keys + n);
    return ST_OK;
}

void merge_set(struct merge *m, int rank, size_t n, float weight)
{
    struct kept *k = &m->kept[rank];
    k->input = (struct merge_input){n, weight, k->memory, k->memory + n * sizeof(uint64_t)};
}

enum status merge_keep(struct merge *m, int rank, const struct merge_input *in)
{
    uint64_t *keys;
    float *gradients;
    enum status st = merge_room(m, rank, in->n, &keys, &gradients);
    if (st == ST_OK && in->n > 0) {
        memcpy(keys, in->keys, in->n * sizeof *keys);
        memcpy(gradients, in->gradients, in->n * m->dim * sizeof *gradients);
    }
    if (st == ST_OK)
        merge_set(m, rank, in->n, in->weight);
    return st;
}

void merge_clear(struct merge *m)
{
    for (int r = 0; r < m->n_members; r++)
        m->kept[r].input = (struct merge_input){0};
}

/* Allocates arrays for n parts. */
static enum status reserve(struct merge *m, size_t n)
{
    if (n + 1 <= m->capacity)
        return ST_OK;
    free_arrays(m);
    size_t capacity = n + n / 4 + 1;
    m->parts = malloc(capacity * sizeof *m->parts);
    m->keys = malloc(capacity * sizeof *m->keys);
    m->first = malloc(capacity * sizeof *m->first);
    m->rows = malloc(capacity * sizeof *m->rows);
    m->pending = malloc(capacity * sizeof *m->pending);
    if (!m->parts || !m->keys || !m->first || !m->rows || !m->pending) {
        free_arrays(m);
        return ST_NOMEM;
    }
    m->capacity = capacity;
    return ST_OK;
}

static bool precedes(const struct head *a, const struct head *b)
{
    return a->key < b->key || (a->key == b->key && a->rank < b->rank);
}

/* Moves the head at `at` down until no head below it precedes it. */
static void sift_down(struct head *heap, size_t n, size_t at)
{
    struct head moved = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && precedes(&heap[child + 1], &heap[child]))
            child++;
        if (!precedes(&heap[child], &moved))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static size_t fill_heap(struct merge *m)
{
    size_t n = 0;
    for (int r = 0; r < m->n_members; r++)
        if (m->inputs[r].n > 0)
            m->heap[n++] =
                (struct head){.key = row_key_at(m->inputs[r].keys, 0), .rank = (uint32_t)r};
    for (size_t at = n / 2; at-- > 0;)
        sift_down(m->heap, n, at);
    return n;
}

/* Fills keys, first and parts. Returns the number of keys. */
static size_t merge_keys(struct merge *m)
{
    size_t n_heads = fill_heap(m), n_keys = 0;
    uint32_t n_parts = 0;
    while (n_heads > 0) {
        struct head *top = m->heap;
        const struct merge_input *in = &m->inputs[top->rank];
        if (n_keys == 0 || m->keys[n_keys - 1] != top->key) {
            m->keys[n_keys] = top->key;
            m->first[n_keys++] = n_parts;
        }
        m->parts[n_parts++] = (struct part){top->rank, top->at};
        if (++top->at < in->n)
            top->key = row_key_at(in->keys, top->at);
        else
            *top = m->heap[--n_heads];
        sift_down(m->heap, n_heads, 0);
    }
    m->first[n_keys] = n_parts;
    return n_keys;
}

static const char *gradient_of(const struct merge *m, const struct part *part)
{
    const char *gradients = m->inputs[part->rank].gradients;
    return gradients + part->at * m->dim * sizeof(float);
}

/* Updates a row by the gradients of key i. Returns false if it is not finite then. */
static bool update_row(const struct merge *m, const struct bucket *b,
                       const struct optim_rows_step *step, size_t i, struct row *row, float scale)
{
    float *sum = m->sum, *slots = bucket_slots(b, row);
    bool is_float = b->config.dtype == DTYPE_F32;
    float *values = is_float ? row->data : m->values;
    const struct part *part = m->parts + m->first[i], *last = m->parts + m->first[i + 1] - 1;
    const float *others = part < last ? sum : NULL;
    if (part < last) {
        vector_scale(sum, gradient_of(m, part), m->inputs[part->rank].weight, m->dim);
        while (++part < last)
            vector_add_scaled(sum, gradient_of(m, part), m->inputs[part->rank].weight, m->dim);
    }
    optim_rows_run(step, &(struct optim_run){.n = m->dim,
                                             .sum = gradient_of(m, last),
                                             .weight = m->inputs[last->rank].weight,
                                             .scale = scale,
                                             .others = others,
                                             .old = bucket_values(b, row, values),
                                             .slots = slots,
                                             .new_slots = slots,
                                             .slot_stride = m->dim,
                                             .new_ = values});
    /* the row is in the cache now */
    if (is_float)
        return finite_all(row->data, m->dim + b->n_slots);
    uint64_t stream = row_round_stream(&b->config.init, row->key, row->step);
    return row_round_bf16(stream, values, m->dim, row->data) && finite_all(slots, b->n_slots);
}

/* Chooses the inputs of the pass. Returns the number of their gradients. */
static size_t choose_inputs(struct merge *m, int rank, const struct merge_input *last)
{
    size_t n = 0;
    for (int r = 0; r < m->n_members; r++) {
        m->inputs[r] = r == rank ? *last : m->kept[r].input;
        if (!(m->inputs[r].weight > 0))
            m->inputs[r].n = 0;
        n += m->inputs[r].n;
    }
    return n;
}

enum status merge_run(struct merge *m, struct bucket *b, int rank, const struct merge_input *last,
                      float scale, float rate)
{
    enum status st = ST_OK;
    struct optim_rows_step step;
    TRY(reserve(m, choose_inputs(m, rank, last)));
    struct limits_step limits = {merge_keys(m), m->keys, m->rows, m->pending, 0};
    row_table_find(&b->rows, m->keys, limits.n, m->rows);
    st = limits_begin(b, &limits);
    m->needed_rows = limits.needed_rows;
    TRY(st);
    m->not_finite = m->capacity;
    optim_rows_begin(&b->config.optimizer, b->version + 1, rate, &step);
    for (size_t i = 0; i < limits.n; i++) {
        struct row *row = limits_row(b, &limits, i);
        if (row && !update_row(m, b, &step, i, row, scale) && i < m->not_finite)
            m->not_finite = i;
    }
    bucket_end(b);
    limits_sweep(b);
    merge_clear(m);
done:
    return st;
}

bool merge_not_finite(const struct merge *m, uint64_t *key)
{
    bool found = m->not_finite < m->capacity;
    if (found)
        *key = m->keys[m->not_finite];
    return found;
}

uint64_t merge_needed_rows(const struct merge *m)
{
    return m->needed_rows;
}

size_t merge_bytes(const struct merge *m)
{
    size_t bytes = m->capacity * (sizeof *m->parts + sizeof *m->keys + sizeof *m->first +
                                  sizeof *m->rows + sizeof *m->pending);
    for (int r = 0; r < m->n_members; r++)
        bytes += m->kept[r].bytes;
    return bytes;
}
