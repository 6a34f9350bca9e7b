/* net/wire/chunks_shard.c - see chunks.h: assigns chunks to servers. A new map assigns chunks in
 * order of falling size, each to the server with the fewest elements so far. A map made from an
 * older one keeps the chunks of the servers that stay, and assigns the chunks of removed servers in
 * the same way. If the loads then differ too much, each server above the average releases chunks,
 * largest first, but does not fall below the average. The released chunks are assigned in the same
 * way. Moves from the fullest to the emptiest server correct the remaining difference. tables_place
 * assigns the buckets of tables. */
#include "base/log.h"
#include "net/wire/tables.h"
#include <stdbool.h>
#include <stdlib.h>

static int larger_first(const void *a, const void *b, void *table)
{
    const struct chunks *c = table;
    int i = *(const int *)a, j = *(const int *)b;
    int64_t m = c->chunks[i].n_elems, n = c->chunks[j].n_elems;
    return m != n ? (m < n ? 1 : -1) : (i > j) - (i < j);
}

struct load {
    int64_t elems;
    int server;
};

static bool load_less(const struct load *a, const struct load *b)
{
    return a->elems != b->elems ? a->elems < b->elems : a->server < b->server;
}

/* Moves entry i of the heap down until the heap is in order. */
static void sift_down(struct load *heap, int i, int n)
{
    for (;;) {
        int least = i;
        for (int child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++)
            if (load_less(&heap[child], &heap[least]))
                least = child;
        if (least == i)
            return;
        struct load t = heap[i];
        heap[i] = heap[least];
        heap[least] = t;
        i = least;
    }
}

/* State while a map is made. */
struct shard {
    const struct chunks *c;
    int n_servers;
    int *server;       /* [n_chunks] server of each chunk; -1: not assigned */
    int *order;        /* chunks in order of falling size */
    struct load *heap; /* scratch, n_servers */
    int64_t *elems;    /* elements of each server */
    int64_t largest;   /* elements of the largest chunk */
};

static void shard_free(struct shard *m)
{
    free(m->order);
    free(m->heap);
    free(m->elems);
}

static enum status shard_init(struct shard *m, const struct chunks *c, int n_servers, int *server)
{
    *m = (struct shard){.c = c, .n_servers = n_servers, .server = server};
    if (n_servers < 1) {
        LOG_E("chunks cannot be spread over %d servers", n_servers);
        return ST_INVALID;
    }
    m->order = malloc((size_t)c->n_dense * sizeof *m->order);
    m->heap = malloc((size_t)n_servers * sizeof *m->heap);
    m->elems = calloc((size_t)n_servers, sizeof *m->elems);
    if (!m->order || !m->heap || !m->elems) {
        shard_free(m);
        return ST_NOMEM;
    }
    for (int i = 0; i < c->n_dense; i++)
        m->order[i] = i;
    qsort_r(m->order, (size_t)c->n_dense, sizeof *m->order, larger_first, (void *)c);
    m->largest = c->chunks[m->order[0]].n_elems;
    return ST_OK;
}

/* Assigns each chunk without a server to the server with the fewest elements, largest chunk
 * first. */
static void place_all(struct shard *m)
{
    for (int i = 0; i < m->n_servers; i++)
        m->heap[i] = (struct load){m->elems[i], i};
    for (int i = m->n_servers / 2 - 1; i >= 0; i--)
        sift_down(m->heap, i, m->n_servers);
    for (int i = 0; i < m->c->n_dense; i++) {
        int chunk = m->order[i];
        if (m->server[chunk] >= 0)
            continue;
        m->server[chunk] = m->heap[0].server;
        m->heap[0].elems += m->c->chunks[chunk].n_elems;
        m->elems[m->heap[0].server] = m->heap[0].elems;
        sift_down(m->heap, 0, m->n_servers);
    }
}

enum status chunks_shard(const struct chunks *c, int n_servers, int *server)
{
    struct shard m;
    enum status st = shard_init(&m, c, n_servers, server);
    if (st != ST_OK)
        return st;
    for (int i = 0; i < c->n_chunks; i++)
        server[i] = -1;
    place_all(&m);
    shard_free(&m);
    return tables_place(c, n_servers, server);
}

/* Finds the servers with the most and with the fewest elements. Returns true if these differ by
 * more than the largest chunk. */
static bool find_ends(const struct shard *m, int *full, int *empty)
{
    *full = *empty = 0;
    for (int i = 1; i < m->n_servers; i++) {
        if (m->elems[i] > m->elems[*full])
            *full = i;
        if (m->elems[i] < m->elems[*empty])
            *empty = i;
    }
    return m->elems[*full] - m->elems[*empty] > m->largest;
}

/* Releases chunks of each server while the server's load does not fall below the average. */
static void release_surplus(struct shard *m)
{
    int64_t average = (m->c->n_elems + m->n_servers - 1) / m->n_servers;
    for (int i = 0; i < m->c->n_dense; i++) {
        int chunk = m->order[i], s = m->server[chunk];
        int64_t n = m->c->chunks[chunk].n_elems;
        if (m->elems[s] - n < average)
            continue;
        m->elems[s] -= n;
        m->server[chunk] = -1;
    }
}

/* Moves one chunk from the fullest to the emptiest server: the smallest that brings the two loads
 * near enough; if no chunk does, the largest. The moved chunk is smaller than the difference of the
 * loads, so the loads approach each other. */
static void move_one(struct shard *m, int full, int empty)
{
    int best = -1;
    int64_t need = m->elems[full] - m->elems[empty] - m->largest;
    for (int i = 0; i < m->c->n_dense; i++) {
        int chunk = m->order[i];
        if (m->server[chunk] != full)
            continue;
        if (best >= 0 && 2 * m->c->chunks[chunk].n_elems < need)
            break;
        best = chunk;
    }
    m->server[best] = empty;
    m->elems[full] -= m->c->chunks[best].n_elems;
    m->elems[empty] += m->c->chunks[best].n_elems;
}

enum status chunks_reshard(const struct chunks *c, int n_old, const int *old_map, const int *prev,
                           int n_new, int *server)
{
    struct shard m;
    int full, empty;
    enum status st = shard_init(&m, c, n_new, server);
    if (st != ST_OK)
        return st;
    int *now =
        malloc(((size_t)n_old + 1) * sizeof *now); /* new index of each old server; -1: removed */
    if (!now) {
        shard_free(&m);
        return ST_NOMEM;
    }
    for (int i = 0; i < n_old; i++)
        now[i] = -1;
    for (int i = 0; i < n_new; i++)
        if (prev[i] >= 0 && prev[i] < n_old)
            now[prev[i]] = i;
    for (int i = 0; i < c->n_chunks; i++) {
        server[i] = now[old_map[i]];
        if (server[i] >= 0)
            m.elems[server[i]] += c->chunks[i].n_elems;
    }
    place_all(&m);
    if (find_ends(&m, &full, &empty)) {
        release_surplus(&m);
        place_all(&m);
    }
    while (find_ends(&m, &full, &empty))
        move_one(&m, full, empty);
    free(now);
    shard_free(&m);
    return tables_place(c, n_new, server);
}
