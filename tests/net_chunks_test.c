/* tests/net_chunks_test.c - the chunk table (I5): it covers all elements, servers have balanced
 * loads, differences are reported, and hostile sizes are refused. */
#include "base/rng.h"
#include "net/wire/chunks.h"
#include "tests/check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The deep MNIST network: one tensor holds 98% of it. */
static const struct net_param deep[] = {
    {.name = "conv1/weights", .shape = {4, {32, 1, 5, 5}}},
    {.name = "conv1/biases", .shape = {1, {32}}},
    {.name = "conv2/weights", .shape = {4, {64, 32, 5, 5}}},
    {.name = "conv2/biases", .shape = {1, {64}}},
    {.name = "fc1/weights", .shape = {2, {3136, 1024}}},
    {.name = "fc1/biases", .shape = {1, {1024}}},
    {.name = "fc2/weights", .shape = {2, {1024, 10}}},
    {.name = "fc2/biases", .shape = {1, {10}}},
};
enum { N_DEEP = sizeof deep / sizeof *deep };

static struct chunks *make(const struct net_param *p, int n, int64_t chunk_bytes)
{
    struct chunks *c = NULL;
    assert_int_equal(chunks_create(p, n, chunk_bytes, &c), ST_OK);
    return c;
}

/* Checks that every element of the flat block is in exactly one chunk, in order. A parameter either
 * has chunks of its own, or lies completely in one chunk with neighbours of the same rule. */
static void check_cover(const struct chunks *c)
{
    int64_t at = 0;
    for (int i = 0; i < c->n_chunks; i++) {
        assert_int_equal(c->chunks[i].first, at);
        assert_true(c->chunks[i].n_elems > 0);
        assert_true(c->chunks[i].n_elems * 4 <= c->chunk_bytes);
        at += c->chunks[i].n_elems;
    }
    assert_int_equal(at, c->n_elems);
    at = 0;
    for (int i = 0; i < c->n_params; i++) {
        const struct net_param *p = &c->params[i];
        assert_int_equal(p->first, at);
        assert_int_equal(p->n_elems, shape_elems(&p->shape));
        at += p->n_elems;
        const struct net_chunk *first = &c->chunks[p->first_chunk];
        const struct net_chunk *last = first + p->n_chunks - 1;
        assert_true(p->n_chunks > 0 && p->first_chunk + p->n_chunks <= c->n_chunks);
        assert_true(first->first <= p->first && last->first + last->n_elems >= at);
        if (first->param == i) {
            assert_int_equal(first->first, p->first);
        } else {
            assert_int_equal(p->n_chunks, 1);
            assert_true(first->n_elems * 4 <= CHUNKS_PACK_BYTES);
            assert_int_equal(c->params[first->param].rule, p->rule);
        }
    }
    assert_int_equal(at, c->n_elems);
}

/* Small neighbours share a chunk; large parameters and neighbours with different rules do not. */
static void small_neighbours_share_chunks(void **state)
{
    struct net_param p[1000];
    char names[1000][16];
    for (int i = 0; i < 1000; i++) {
        snprintf(names[i], sizeof names[i], "p%d", i);
        p[i] = (struct net_param){.name = names[i], .shape = {1, {256}}};
    }
    struct chunks *c = make(p, 1000, CHUNKS_DEFAULT_BYTES);
    check_cover(c);
    assert_int_equal(c->n_chunks, 16); /* each chunk has 64 parameters of 1 KB */
    chunks_destroy(c);
    c = make(p, 1000, 8192);
    check_cover(c);
    assert_int_equal(c->n_chunks, 125);
    chunks_destroy(c);
    p[1].rule = PARAM_AVERAGE;
    p[1].keep = 0.9f;
    p[2].rule = PARAM_AVERAGE;
    p[2].keep = 0.8f;
    p[4].shape.dim[0] = 100000;
    c = make(p, 6, CHUNKS_DEFAULT_BYTES);
    check_cover(c);
    const int first_chunk[] = {0, 1, 2, 3, 4, 5};
    for (int i = 0; i < 6; i++)
        assert_int_equal(c->params[i].first_chunk, first_chunk[i]);
    chunks_destroy(c);
    c = make(p + 5, 3, CHUNKS_DEFAULT_BYTES);
    assert_int_equal(c->n_chunks, 1);
    chunks_destroy(c);
}

static void chunks_cover_each_element_once(void **state)
{
    struct chunks *c = make(deep, N_DEEP, CHUNKS_DEFAULT_BYTES);
    assert_int_equal(c->n_elems, 3274634);
    check_cover(c);
    chunks_destroy(c);
    for (uint64_t round = 0; round < 50; round++) {
        uint64_t key = rng_key(round, RNG_TEST, 0);
        struct net_param p[6];
        char names[6][16];
        for (int i = 0; i < 6; i++) {
            snprintf(names[i], sizeof names[i], "p%d", i);
            p[i] = (struct net_param){.name = names[i]};
            p[i].shape.n_dims = (int)rng_below(key, (uint64_t)i, 3);
            for (int d = 0; d < p[i].shape.n_dims; d++)
                p[i].shape.dim[d] = 1 + (int64_t)rng_below(key, (uint64_t)(100 + i * 10 + d), 300);
        }
        c = make(p, 6, CHUNKS_MIN_BYTES + 4 * (int64_t)rng_below(key, 999, 1000));
        check_cover(c);
        chunks_destroy(c);
    }
}

static void shard_map_is_balanced(void **state)
{
    struct chunks *c = make(deep, N_DEEP, 1 << 16);
    int *server = malloc((size_t)c->n_chunks * sizeof *server);
    for (int n = 1; n <= 7; n++) {
        int64_t load[7] = {0}, least = INT64_MAX, most = 0;
        assert_int_equal(chunks_shard(c, n, server), ST_OK);
        for (int i = 0; i < c->n_chunks; i++) {
            assert_in_range(server[i], 0, n - 1);
            load[server[i]] += c->chunks[i].n_elems * 4;
        }
        for (int s = 0; s < n; s++) {
            least = load[s] < least ? load[s] : least;
            most = load[s] > most ? load[s] : most;
        }
        assert_true(most - least <= 1 << 16);
    }
    free(server);
    chunks_destroy(c);
}

/* Compares with a simple implementation of the rule in chunks.h. */
static void shard_map_follows_the_rule(void **state)
{
    struct chunks *c = make(deep, N_DEEP, 1 << 14);
    int *server = malloc((size_t)c->n_chunks * sizeof *server);
    char *done = calloc((size_t)c->n_chunks, 1);
    int64_t load[3] = {0};
    assert_int_equal(chunks_shard(c, 3, server), ST_OK);
    for (int k = 0; k < c->n_chunks; k++) {
        int next = -1, to = 0;
        for (int i = 0; i < c->n_chunks; i++)
            if (!done[i] && (next < 0 || c->chunks[i].n_elems > c->chunks[next].n_elems))
                next = i;
        for (int s = 1; s < 3; s++)
            if (load[s] < load[to])
                to = s;
        done[next] = 1;
        load[to] += c->chunks[next].n_elems;
        assert_int_equal(server[next], to);
    }
    assert_int_equal(chunks_shard(c, 0, server), ST_INVALID);
    free(done);
    free(server);
    chunks_destroy(c);
}

/* Differences between an old map and a new one, in elements. moved: elements that left a server
 * which stays in the job; above: elements of such servers above the average, before chunks moved
 * between them. */
struct moves {
    int64_t moved, above, largest, spread_before, spread;
};

static int64_t spread(const int64_t *load, int n)
{
    int64_t least = INT64_MAX, most = 0;
    for (int s = 0; s < n; s++) {
        least = load[s] < least ? load[s] : least;
        most = load[s] > most ? load[s] : most;
    }
    return most - least;
}

static void look_at_moves(const struct chunks *c, const int *old, const int *prev, int n,
                          const int *new, struct moves *m)
{
    int64_t kept[16] = {0}, load[16] = {0}, n_old = 0;
    *m = (struct moves){.moved = 0};
    for (int i = 0; i < c->n_chunks; i++) {
        int64_t elems = c->chunks[i].n_elems;
        int stays = -1;
        for (int s = 0; s < n; s++)
            stays = prev[s] == old[i] ? s : stays;
        assert_in_range(new[i], 0, n - 1);
        load[new[i]] += elems;
        if (stays >= 0)
            kept[stays] += elems;
        n_old += stays >= 0;
        m->moved += stays >= 0 && stays != new[i] ? elems : 0;
        m->largest = elems > m->largest ? elems : m->largest;
    }
    for (int s = 0; s < n; s++)
        m->above += kept[s] * n > c->n_elems ? kept[s] - c->n_elems / n : 0;
    m->spread_before = n_old == c->n_chunks ? spread(kept, n) : INT64_MAX;
    m->spread = spread(load, n);
}

static struct chunks *random_table(uint64_t key)
{
    struct net_param p[24];
    char names[24][16];
    int n = 1 + (int)rng_below(key, 0, 24);
    for (int i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "p%d", i);
        p[i] = (struct net_param){.name = names[i], .shape = {2, {1, 1}}};
        for (int d = 0; d < 2; d++)
            p[i].shape.dim[d] = 1 + (int64_t)rng_below(key, (uint64_t)(10 + 2 * i + d), 250);
    }
    return make(p, n, CHUNKS_MIN_BYTES + 4 * (int64_t)rng_below(key, 1, 9000));
}

/* Servers join and leave at random: the loads stay within the bound, and only necessary moves are
 * made. */
static void reshard_moves_only_necessary_chunks(void **state)
{
    for (uint64_t round = 0; round < 300; round++) {
        uint64_t key = rng_key(round, RNG_TEST, 1);
        struct chunks *c = random_table(key);
        size_t bytes = (size_t)c->n_chunks * sizeof(int);
        int *old = malloc(bytes), *new = malloc(bytes), *again = malloc(bytes);
        int n_old = 1 + (int)rng_below(key, 2, 6);
        assert_int_equal(chunks_shard(c, n_old, old), ST_OK);
        for (int k = 0; k < 8; k++) {
            int prev[16], n = 0, joined;
            for (int s = 0; s < n_old; s++) /* the first server always stays */
                if (s == 0 || rng_below(key, (uint64_t)(100 + 16 * k + s), 4) > 0)
                    prev[n++] = s;
            joined = (int)rng_below(key, (uint64_t)(300 + k), 3);
            for (int i = 0; i < joined && n < 10; i++)
                prev[n++] = -1;
            struct moves m;
            assert_int_equal(chunks_reshard(c, n_old, old, prev, n, new), ST_OK);
            assert_int_equal(chunks_reshard(c, n_old, old, prev, n, again), ST_OK);
            assert_memory_equal(new, again, bytes);
            look_at_moves(c, old, prev, n, new, &m);
            assert_true(m.spread <= m.largest);
            assert_true(m.moved <= m.above + n * m.largest);
            if (m.spread_before <= m.largest)
                assert_int_equal(m.moved, 0);
            memcpy(old, new, bytes);
            n_old = n;
        }
        free(old);
        free(new);
        free(again);
        chunks_destroy(c);
    }
}

/* A server joins, and half of the elements move to it. When it leaves, the same elements move
 * back. */
static void reshard_back_moves_the_same_chunks(void **state)
{
    const int join[2] = {0, -1}, leave[1] = {0}, stay[2] = {1, 0};
    struct chunks *c = make(deep, N_DEEP, 1 << 16);
    size_t bytes = (size_t)c->n_chunks * sizeof(int);
    int *one = calloc(1, bytes), *two = malloc(bytes), *back = malloc(bytes);
    struct moves m;
    assert_int_equal(chunks_reshard(c, 1, one, join, 2, two), ST_OK);
    look_at_moves(c, one, join, 2, two, &m);
    assert_true(m.spread <= m.largest && m.moved <= c->n_elems / 2);
    assert_true(m.moved >= (c->n_elems - m.largest) / 2);
    assert_int_equal(chunks_reshard(c, 2, two, stay, 2, back), ST_OK);
    for (int i = 0; i < c->n_chunks; i++) /* the servers have only changed their numbers */
        assert_int_equal(back[i], 1 - two[i]);
    assert_int_equal(chunks_reshard(c, 2, two, leave, 1, back), ST_OK);
    assert_memory_equal(one, back, bytes);
    assert_int_equal(chunks_reshard(c, 2, two, leave, 0, back), ST_INVALID);
    const int fourth[4] = {0, 1, 2, -1};
    assert_int_equal(chunks_shard(c, 3, one), ST_OK);
    assert_int_equal(chunks_reshard(c, 3, one, fourth, 4, two), ST_OK);
    look_at_moves(c, one, fourth, 4, two, &m);
    assert_true(m.spread <= m.largest && m.moved <= c->n_elems / 4);
    free(one);
    free(two);
    free(back);
    chunks_destroy(c);
}

static void compare(const struct net_param *there, int n, int64_t chunk_bytes, const char *expect)
{
    char why[256] = "";
    struct chunks *a = make(deep, N_DEEP, 1 << 20), *b = make(there, n, chunk_bytes);
    assert_int_equal(chunks_compare(a, b, why, sizeof why), *expect ? ST_MISMATCH : ST_OK);
    assert_string_equal(why, expect);
    chunks_destroy(a);
    chunks_destroy(b);
}

static void compare_names_first_difference(void **state)
{
    struct net_param p[N_DEEP];
    memcpy(p, deep, sizeof p);
    compare(p, N_DEEP, 1 << 20, "");
    compare(p, N_DEEP, 1 << 19, "chunk_bytes: 1048576 on the servers, 524288 on the worker");
    compare(p, N_DEEP - 1, 1 << 20, "parameter 7 'fc2/biases' exists only on the servers");
    p[2].shape.dim[2] = p[2].shape.dim[3] = 3;
    p[5].shape.dim[0] = 7; /* a second difference, which is not reported */
    compare(p, N_DEEP, 1 << 20,
            "parameter 2 'conv2/weights': shape 64x32x5x5 on the servers, 64x32x3x3 on the worker");
    p[1].name = "b";
    compare(p, N_DEEP, 1 << 20,
            "parameter 1: named 'conv1/biases' on the servers, 'b' on the worker");
    p[0].rule = PARAM_AVERAGE;
    compare(p, N_DEEP, 1 << 20,
            "parameter 0 'conv1/weights': rule trained on the servers, average on the worker");
    p[0].keep = 1;
    compare(p, N_DEEP, 1 << 20,
            "parameter 0 'conv1/weights': rule trained on the servers, frozen on the worker");
}

static void compare_names_different_factors(void **state)
{
    struct net_param p[N_DEEP];
    memcpy(p, deep, sizeof p);
    for (int i = 0; i < N_DEEP; i++) { /* the default, set by name */
        p[i].has_factors = true;
        p[i].factors = (struct optim_factors){1, 1};
    }
    compare(p, N_DEEP, 1 << 20, "");
    p[3].factors.decay = 0;
    compare(
        p, N_DEEP, 1 << 20,
        "parameter 3 'conv2/biases': factor 1 of the weight decay on the servers, 0 on the worker");
    p[3].factors.rate = 0.25f;
    compare(
        p, N_DEEP, 1 << 20,
        "parameter 3 'conv2/biases': factor 1 of the learning rate on the servers, 0.25 on the worker");
}

/* Neighbours share a chunk only if their factors are equal. */
static void neighbours_with_different_factors_share_no_chunk(void **state)
{
    static const struct optim_factors factors[] = {{1, 1}, {1, 1}, {1, 0}, {1, 0},
                                                   {2, 0}, {1, 1}, {1, 1}};
    static const int first_chunk[] = {0, 0, 1, 1, 2, 3, 3};
    enum { N = sizeof factors / sizeof *factors };
    struct net_param p[N];
    char names[N][16];
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "p%d", i);
        p[i] = (struct net_param){.name = names[i],
                                  .shape = {1, {8}},
                                  .has_factors = i != 1 && i != 6,
                                  .factors = factors[i]};
    }
    struct chunks *c = make(p, N, CHUNKS_DEFAULT_BYTES);
    check_cover(c);
    assert_true(chunks_have_factors(c));
    for (int i = 0; i < N; i++) {
        assert_int_equal(c->params[i].first_chunk, first_chunk[i]);
        assert_memory_equal(&c->params[i].factors, &factors[i], sizeof factors[i]);
    }
    chunks_destroy(c);
    c = make(p, 2, CHUNKS_DEFAULT_BYTES);
    assert_false(chunks_have_factors(c));
    chunks_destroy(c);
}

static void refuse(struct net_param p, int64_t chunk_bytes)
{
    struct chunks *c = NULL;
    assert_int_equal(chunks_create(&p, 1, chunk_bytes, &c), ST_INVALID);
    assert_null(c);
}

static void hostile_signatures_are_refused(void **state)
{
    char longname[300];
    memset(longname, 'a', sizeof longname);
    longname[299] = 0;
    int64_t huge = (int64_t)1 << 40;
    refuse((struct net_param){.name = "", .shape = {0, {0}}}, 1 << 20);
    refuse((struct net_param){.name = NULL}, 1 << 20);
    refuse((struct net_param){.name = "a b"}, 1 << 20);
    refuse((struct net_param){.name = "a\n"}, 1 << 20);
    refuse((struct net_param){.name = longname}, 1 << 20);
    refuse((struct net_param){.name = "w", .shape = {1, {0}}}, 1 << 20);
    refuse((struct net_param){.name = "w", .shape = {1, {-4}}}, 1 << 20);
    refuse((struct net_param){.name = "w", .shape = {2, {huge, huge}}}, 1 << 20);
    refuse((struct net_param){.name = "w", .shape = {1, {INT64_MAX}}}, 1 << 20);
    refuse((struct net_param){.name = "w", .shape = {1, {huge}}}, CHUNKS_MIN_BYTES);
    refuse((struct net_param){.name = "w", .shape = {7, {1}}}, 1 << 20);
    refuse((struct net_param){.name = "w", .shape = {-1, {1}}}, 1 << 20);
    refuse((struct net_param){.name = "w", .rule = PARAM_AVERAGE, .keep = 1.5f}, 1 << 20);
    refuse((struct net_param){.name = "w", .rule = (enum net_param_rule)9}, 1 << 20);
    static const float bad[] = {-1, NAN, INFINITY};
    for (int i = 0; i < 3; i++) {
        const struct optim_factors rate = {bad[i], 1}, decay = {1, bad[i]};
        refuse((struct net_param){.name = "w", .has_factors = true, .factors = rate}, 1 << 20);
        refuse((struct net_param){.name = "w", .has_factors = true, .factors = decay}, 1 << 20);
    }
    refuse(
        (struct net_param){
            .name = "w", .rule = PARAM_AVERAGE, .has_factors = true, .factors = {1, 0}},
        1 << 20);
    refuse((struct net_param){.name = "w"}, 0);
    refuse((struct net_param){.name = "w"}, CHUNKS_MIN_BYTES + 2);
    refuse((struct net_param){.name = "w"}, CHUNKS_MAX_BYTES + 4);
    struct net_param twice[2] = {{.name = "w"}, {.name = "w"}};
    struct chunks *c = NULL;
    assert_int_equal(chunks_create(twice, 2, 1 << 20, &c), ST_INVALID);
    assert_int_equal(chunks_create(twice, 0, 1 << 20, &c), ST_INVALID);
    assert_int_equal(chunks_create(twice, CHUNKS_MAX_PARAMS + 1, 1 << 20, &c), ST_INVALID);
}

static void default_bytes_fit_the_model(void **state)
{
    assert_int_equal(chunks_default_bytes(3274634, 1), CHUNKS_DEFAULT_BYTES);
    assert_int_equal(chunks_default_bytes(3274634, 2), CHUNKS_DEFAULT_BYTES);
    assert_int_equal(chunks_default_bytes(3274634, 4), 818656);
    assert_int_equal(chunks_default_bytes(3274634, 100), CHUNKS_PACK_BYTES);
    assert_int_equal(chunks_default_bytes(1, 1), CHUNKS_DEFAULT_BYTES);
    assert_int_equal(chunks_default_bytes(1, 7), CHUNKS_PACK_BYTES);
    assert_int_equal(chunks_default_bytes((int64_t)1 << 40, 100), CHUNKS_DEFAULT_BYTES);
    for (int n = 2; n < 40; n++) { /* chunks_create accepts each value */
        int64_t bytes = chunks_default_bytes(1000003 + n, n);
        assert_true(bytes % 4 == 0 && bytes >= CHUNKS_MIN_BYTES && bytes <= CHUNKS_MAX_BYTES);
    }
}

int main(void)
{
    return RUN_TESTS(chunks_cover_each_element_once, small_neighbours_share_chunks,
                     default_bytes_fit_the_model, shard_map_is_balanced, shard_map_follows_the_rule,
                     compare_names_first_difference, compare_names_different_factors,
                     neighbours_with_different_factors_share_no_chunk,
                     hostile_signatures_are_refused, reshard_moves_only_necessary_chunks,
                     reshard_back_moves_the_same_chunks);
}
