/* tests/ps_planner_test.c - the first plan of a job and later plans: their shard map, the sources
 * of the values, and the position in the samples. */
#include "net/wire/tables.h"
#include "ps/service/planner.h"
#include "tests/check.h"
#include "tests/table_rig.h"
#include <stdlib.h>
#include <string.h>

static struct chunks *table(void)
{
    const struct net_param p[] = {{.name = "a", .shape = {2, {100, 300}}},
                                  {.name = "b", .shape = {1, {50000}}}};
    struct chunks *c = NULL;
    assert_int_equal(chunks_create(p, 2, 16384, &c), ST_OK);
    return c;
}

static struct hosts hosts(const char *text)
{
    struct hosts h;
    assert_int_equal(hosts_parse(text, "ps_hosts", &h), ST_OK);
    return h;
}

static struct net_plan *first(const char *servers, const struct checkpoint_manifest *from)
{
    struct chunks *c = table();
    struct net_join join = {.job = {.n_workers = 3, .train_steps = 100, .batch = 8}, .chunks = c};
    struct hosts h = hosts(servers);
    struct planner_first f = {
        .generation = 5, .join = &join, .servers = &h, .from = from, .restore = "weir-40.json"};
    struct net_plan *p = NULL;
    assert_int_equal(planner_make_first(&f, &p), ST_OK);
    hosts_free(&h);
    chunks_destroy(c);
    return p;
}

static struct net_plan *next(const struct net_plan *base, enum plan_source source,
                             const char *servers)
{
    static const int members[] = {0, 2, 7};
    struct hosts h = hosts(servers);
    struct planner_next n = {.generation = base->generation + 1,
                             .base = base,
                             .source = source,
                             .step = 60,
                             .position = net_plan_position(base, 60),
                             .restore = "weir-60.json",
                             .member = members,
                             .n_members = 3,
                             .servers = &h};
    struct net_plan *p = NULL;
    assert_int_equal(planner_make_next(&n, &p), ST_OK);
    hosts_free(&h);
    return p;
}

static void first_plan_balances_the_chunks(void **state)
{
    struct net_plan *p = first("a:1,b:1", NULL);
    assert_int_equal(p->source, PLAN_FIRST);
    assert_int_equal(p->generation, 5);
    assert_int_equal(p->n_members, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(p->member[i], i);
    assert_int_equal(p->step, 0);
    assert_int_equal(planner_bytes(p, 0) + planner_bytes(p, 1), 80000 * 4);
    assert_true(labs((long)(planner_bytes(p, 0) - planner_bytes(p, 1))) <= 16384);
    net_plan_free(p);
}

/* A plan has the checkpoint's position, even if other workers trained before it. Old checkpoints
 * have no position. */
static void plan_has_the_position_of_the_checkpoint(void **state)
{
    struct checkpoint_manifest m = {.step = 40, .job = {.n_workers = 2, .batch = 10}};
    struct net_plan *p = first("a:1", &m);
    assert_int_equal(p->source, PLAN_CHECKPOINT);
    assert_int_equal(p->step, 40);
    assert_int_equal(p->position, 40 * 2 * 10);
    assert_string_equal(p->restore, "weir-40.json");
    net_plan_free(p);
    m.progress.known = 1;
    m.progress.position = 12345;
    struct net_contribution by[] = {{1, 30, 4}};
    m.progress.contributed = by;
    m.progress.n_contributed = 1;
    p = first("a:1", &m);
    assert_int_equal(p->position, 12345);
    assert_int_equal(net_plan_contributed(p, 1, 40).version, 30);
    assert_int_equal(net_plan_contributed(p, 1, 40).generation, 4);
    net_plan_free(p);
}

/* Without a shared folder each chunk moves to a server that can read it. */
static void chunks_move_to_servers_that_can_read_them(void **state)
{
    static const unsigned char own[] = {1, 0, 0, 0, 1, 0}, /* rows: files 0, 1; columns: a, b, c */
        shared[] = {1, 1, 0, 0, 0, 1}, lost[] = {1, 0, 0, 0, 0, 0};
    struct net_plan *then = first("a:1,b:1", NULL), *p = first("a:1,b:1,c:1", NULL);
    struct checkpoint_manifest m = {.n_files = 2, .chunks = then->chunks, .shard = then->shard};
    assert_int_equal(planner_restrict(p, &m, own), ST_OK);
    assert_memory_equal(p->shard, then->shard, (size_t)p->chunks->n_chunks * sizeof *p->shard);
    net_plan_free(p);
    p = first("a:1,b:1,c:1", NULL);
    assert_int_equal(planner_restrict(p, &m, shared), ST_OK);
    for (int i = 0; i < p->chunks->n_chunks; i++)
        assert_int_equal(p->shard[i] == 2, then->shard[i] == 1);
    assert_true(planner_bytes(p, 0) > 0 && planner_bytes(p, 1) > 0);
    assert_int_equal(planner_restrict(p, &m, lost), ST_NOT_FOUND);
    net_plan_free(p);
    /* If chunks are cut differently, one chunk lies in both files. */
    struct chunks *c = NULL;
    assert_int_equal(chunks_create(then->chunks->params, 2, 65536, &c), ST_OK);
    p = first("a:1,b:1,c:1", NULL);
    chunks_destroy(p->chunks);
    p->chunks = c;
    assert_int_equal(chunks_shard(c, 3, p->shard), ST_OK);
    assert_int_equal(planner_restrict(p, &m, own), ST_NOT_FOUND);
    m.shard = NULL; /* the manifest records no shard map */
    assert_int_equal(planner_restrict(p, &m, own), ST_NOT_FOUND);
    net_plan_free(p);
    net_plan_free(then);
}

static struct net_plan *first_with_table(const char *servers)
{
    const struct net_table table = {.name = "t",
                                    .dim = 4,
                                    .n_buckets = 8,
                                    .max_rows = 100,
                                    .step_rows = 10,
                                    .optimizer = TABLE_RIG_SGD};
    struct net_plan *p = first(servers, NULL);
    assert_int_equal(tables_add(p->chunks, &table, 1), ST_OK);
    p->shard = realloc(p->shard, (size_t)p->chunks->n_chunks * sizeof *p->shard);
    assert_non_null(p->shard);
    assert_int_equal(chunks_shard(p->chunks, p->servers.n, p->shard), ST_OK);
    return p;
}

/* Each bucket moves to a server that can read its file, and to the one with the fewest buckets. */
static void buckets_move_to_servers_that_can_read_them(void **state)
{
    static const unsigned char shared[] = {1, 1, 0, 0, 0, 1}, both[] = {0, 1, 1, 0, 1, 1};
    struct net_plan *then = first_with_table("a:1,b:1"), *p = first_with_table("a:1,b:1,c:1");
    struct checkpoint_manifest m = {.n_files = 2, .chunks = then->chunks, .shard = then->shard};
    int n_dense = p->chunks->n_dense, n[3] = {0};
    assert_int_equal(p->chunks->n_chunks, n_dense + 8);
    assert_int_equal(planner_restrict(p, &m, shared), ST_OK);
    for (int i = n_dense; i < n_dense + 8; i++)
        assert_int_equal(p->shard[i] == 2, then->shard[i] == 1);
    net_plan_free(p);
    p = first_with_table("a:1,b:1,c:1");
    assert_int_equal(planner_restrict(p, &m, both), ST_OK); /* server a reads no file */
    for (int i = n_dense; i < n_dense + 8; i++)
        n[p->shard[i]]++;
    assert_int_equal(n[0], 0);
    assert_int_equal(n[1], 4);
    assert_int_equal(n[2], 4);
    net_plan_free(p);
    net_plan_free(then);
}

/* A plan with an early end, and all later plans, contain the early end and the workers' number of
 * steps. */
static void early_end_stays_in_later_plans(void **state)
{
    static const int members[] = {0};
    struct net_plan *p = first("a:1", NULL), *q = NULL, *again = NULL;
    struct planner_next n = {.generation = 6,
                             .base = p,
                             .source = PLAN_MEMORY,
                             .step = 60,
                             .member = members,
                             .n_members = 1,
                             .servers = &p->servers,
                             .train_steps = 60};
    assert_int_equal(planner_make_next(&n, &q), ST_OK);
    assert_true(q->job.train_steps == 60 && q->job.asked_steps == 100);
    n.base = q;
    n.generation = 7;
    n.servers = &q->servers;
    n.train_steps = 0;
    assert_int_equal(planner_make_next(&n, &again), ST_OK);
    assert_true(again->job.train_steps == 60 && again->job.asked_steps == 100);
    net_plan_free(again);
    net_plan_free(q);
    net_plan_free(p);
}

/* Chunks stay on their servers as far as possible. The plan names the earlier server of each chunk
 * that moves. */
static void next_plan_moves_few_chunks(void **state)
{
    int64_t all = 0;
    struct planner_moved moved;
    struct net_plan *p = first("a:1,b:1", NULL);
    struct net_plan *q = next(p, PLAN_MEMORY, "a:1,b:1,c:1");
    assert_int_equal(q->generation, 6);
    assert_int_equal(q->before, 5);
    assert_int_equal(q->step, 60);
    assert_int_equal(q->position, 60 * 3 * 8);
    assert_int_equal(net_plan_rank(q, 7), 2);
    assert_int_equal(net_plan_rank(q, 1), -1);
    assert_int_equal(q->n_contributed, 3); /* members 0 to 2 have contributed, 7 is new */
    assert_int_equal(net_plan_contributed(q, 1, 70).version, 60);
    assert_int_equal(net_plan_contributed(q, 7, 60).version, 0);
    assert_int_equal(net_plan_contributed(q, 7, 70).version, 70);
    assert_int_equal(q->holders.n, 2);
    for (int i = 0; i < q->chunks->n_chunks; i++) {
        assert_int_equal(q->held_by[i], p->shard[i]);
        if (q->shard[i] != p->shard[i])
            assert_int_equal(q->shard[i], 2); /* no chunk moves between servers that stay */
    }
    for (int i = 0; i < 2; i++) {
        planner_moves(p, q, p->servers.addr[i], 0, &moved);
        all += moved.bytes;
        planner_moves(p, q, p->servers.addr[i], 1, &moved);
        assert_int_equal(moved.n_chunks, 0);
    }
    planner_moves(p, q, "c:1", 1, &moved);
    assert_int_equal(moved.bytes, all);
    assert_int_equal(moved.bytes, planner_bytes(q, 2));
    assert_true(moved.n_chunks > 0 && moved.n_buckets == 0);
    struct net_plan *r = next(q, PLAN_MEMORY, "a:1,c:1"); /* c:1 has another number now */
    for (int i = 0; i < r->chunks->n_chunks; i++)
        if (q->shard[i] != 1)
            assert_string_equal(r->servers.addr[r->shard[i]], q->servers.addr[q->shard[i]]);
    planner_moves(q, r, "b:1", 0, &moved);
    assert_int_equal(moved.bytes, planner_bytes(q, 1));
    net_plan_free(p);
    net_plan_free(q);
    net_plan_free(r);
}

/* The rows of a bucket need 32 bytes and a part of the index each; its bound is the share of 100.
 */
static void plan_counts_buckets_and_their_bytes(void **state)
{
    struct net_plan *p = first_with_table("a:1,b:1");
    struct net_plan *q = next(p, PLAN_MEMORY, "a:1,b:1,c:1");
    struct planner_moved moved;
    double rows = 2 * (double)tables_share(&q->chunks->tables[0], 100) * (16 + 16 + 32.0 / 3);
    planner_moves(p, q, "c:1", 1, &moved);
    assert_int_equal(moved.n_buckets, 2);
    assert_true(moved.n_chunks > 0);
    assert_float_equal(planner_bytes(q, 2), (double)moved.bytes + rows, 1e-6);
    net_plan_free(p);
    net_plan_free(q);
}

static void plan_from_checkpoint_has_its_contributions(void **state)
{
    struct net_plan *p = first("a:1,b:1", NULL);
    struct net_plan *q = next(p, PLAN_CHECKPOINT, "a:1,b:1");
    assert_int_equal(q->before, 0);
    assert_int_equal(q->holders.n, 0);
    assert_null(q->held_by);
    assert_int_equal(q->n_contributed, 0); /* the checkpoint records no contributions */
    assert_string_equal(q->restore, "weir-60.json");
    assert_memory_equal(p->shard, q->shard, (size_t)p->chunks->n_chunks * sizeof *p->shard);
    net_plan_free(p);
    net_plan_free(q);
}

int main(void)
{
    return RUN_TESTS(first_plan_balances_the_chunks, plan_has_the_position_of_the_checkpoint,
                     chunks_move_to_servers_that_can_read_them,
                     buckets_move_to_servers_that_can_read_them, next_plan_moves_few_chunks,
                     plan_counts_buckets_and_their_bytes,
                     plan_from_checkpoint_has_its_contributions, early_end_stays_in_later_plans);
}
