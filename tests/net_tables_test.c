/* tests/net_tables_test.c - buckets of tables in the table of chunks (I5): they follow the chunks
 * of the parameters, and their servers follow from the table of chunks and the number of servers
 * alone. Tables out of bounds are refused, and so are payloads that do not fit their counts. */
#include "base/rng.h"
#include "net/wire/lacking.h"
#include "net/wire/rows.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/table_rig.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TABLES = 3, MAX_SERVERS = 40 };
static const struct net_param params[] = {{.name = "w", .shape = {2, {70, 1000}}},
                                          {.name = "b", .shape = {1, {1000}}}};
static const struct net_table ads = {.name = "ads",
                                     .dim = 16,
                                     .n_buckets = 64,
                                     .max_rows = 250000,
                                     .step_rows = 65536,
                                     .optimizer = TABLE_RIG_SGD};

static struct chunks *make(const struct net_table *tables, int n)
{
    struct chunks *c = NULL;
    assert_int_equal(chunks_create(params, 2, 1 << 16, &c), ST_OK);
    assert_int_equal(tables_add(c, tables, n), ST_OK);
    return c;
}

static struct chunks *make_three(void)
{
    struct net_table tables[N_TABLES] = {ads, ads, ads};
    tables[1].name = "users";
    tables[1].n_buckets = 8;
    tables[2].name = "words";
    tables[2].n_buckets = 1;
    tables[2].step_rows = 100;
    return make(tables, N_TABLES);
}

static void buckets_follow_the_chunks_of_parameters(void **state)
{
    struct chunks *dense = make(NULL, 0), *c = make_three();
    assert_int_equal(dense->n_chunks, dense->n_dense);
    assert_int_equal(c->n_dense, dense->n_chunks);
    assert_int_equal(c->n_chunks, c->n_dense + 64 + 8 + 1);
    assert_int_equal(c->n_elems, dense->n_elems);
    for (int i = 0, chunk = c->n_dense; i < N_TABLES; i++) {
        assert_int_equal(c->tables[i].first_chunk, chunk);
        for (int b = 0; b < c->tables[i].n_buckets; b++, chunk++) {
            assert_ptr_equal(tables_of(c, chunk), &c->tables[i]);
            assert_int_equal(c->chunks[chunk].n_elems, 0);
            assert_int_equal(lacking_n_params(c, chunk), 0);
            assert_int_equal(chunks_dtype(c, chunk, DTYPE_BF16), DTYPE_BF16);
            assert_int_equal(chunks_dtype(c, chunk, DTYPE_INT8), DTYPE_F32);
        }
    }
    assert_int_equal(chunks_wire_bytes(c, DTYPE_INT8), chunks_wire_bytes(dense, DTYPE_INT8));
    chunks_destroy(c);
    chunks_destroy(dense);
}

/* A bucket's number is part of the format of checkpoints, so it must never change. */
static void keys_are_spread_over_buckets(void **state)
{
    static const uint64_t keys[] = {0, 1, 2, 12345, UINT64_MAX};
    static const int buckets[] = {47, 1, 14, 32, 32};
    int rows[64] = {0};
    for (int i = 0; i < 5; i++)
        assert_int_equal(tables_bucket(&ads, keys[i]), buckets[i]);
    for (uint64_t key = 0; key < 250000; key++)
        rows[tables_bucket(&ads, key)]++;
    for (int b = 0; b < 64; b++)
        assert_in_range(rows[b], 3906 - 375, tables_share(&ads, 250000));
    assert_int_equal(tables_share(&ads, 250000), 4298);
    assert_int_equal(tables_share(&ads, 64), 23); /* 1 + 6 + 16 */
}

/* Counts the buckets of each server in one table, and in all tables. */
static void count(const struct chunks *c, int table, const int *server, int n, int *of, int *total)
{
    memset(of, 0, (size_t)n * sizeof *of);
    for (int i = c->n_dense; i < c->n_chunks; i++) {
        assert_in_range(server[i], 0, n - 1);
        if (c->chunks[i].table == table)
            of[server[i]]++;
        if (c->chunks[i].table < table)
            total[server[i]]++;
    }
}

static void check_balance(const struct chunks *c, const int *server, int n)
{
    for (int t = 0; t < c->n_tables; t++) {
        int of[MAX_SERVERS], total[MAX_SERVERS] = {0}, b = c->tables[t].n_buckets;
        count(c, t, server, n, of, total);
        for (int s = 0; s < n; s++)
            assert_in_range(of[s], b / n, (b + n - 1) / n);
    }
}

static void each_server_has_its_share_of_each_table(void **state)
{
    struct chunks *c = make_three(), *dense = make(NULL, 0);
    int *server = malloc((size_t)c->n_chunks * sizeof *server);
    int *plain = malloc((size_t)c->n_chunks * sizeof *plain);
    for (int n = 1; n <= MAX_SERVERS; n++) {
        assert_int_equal(chunks_shard(c, n, server), ST_OK);
        assert_int_equal(chunks_shard(dense, n, plain), ST_OK);
        assert_memory_equal(server, plain, (size_t)c->n_dense * sizeof *server);
        check_balance(c, server, n);
    }
    /* of 5 servers, 0 to 3 have 13 buckets of the first table and 4 has 12; so 4 is the first that
     * receives two of the second, and then 0 and 1, by their numbers */
    assert_int_equal(chunks_shard(c, 5, server), ST_OK);
    int of[5], total[5] = {0};
    count(c, 1, server, 5, of, total);
    assert_int_equal(total[4], 12);
    assert_int_equal(of[4], 2);
    assert_int_equal(of[0] + of[1], 4);
    assert_int_equal(of[2] + of[3], 2);
    free(plain);
    free(server);
    chunks_destroy(dense);
    chunks_destroy(c);
}

/* Returns the number of buckets that left a server which stays, and checks that each server loses
 * only what it has above its new number. */
static int check_moves(const struct chunks *c, const int *old, const int *prev, int n,
                       const int *server)
{
    int moved = 0;
    for (int t = 0; t < c->n_tables; t++) {
        int of[MAX_SERVERS], total[MAX_SERVERS] = {0};
        count(c, t, server, n, of, total);
        for (int s = 0; s < n; s++) {
            int had = 0, lost = 0;
            for (int i = c->n_dense; i < c->n_chunks; i++) {
                if (c->chunks[i].table != t || prev[s] < 0 || old[i] != prev[s])
                    continue;
                had++;
                lost += server[i] != s;
            }
            assert_int_equal(lost, had > of[s] ? had - of[s] : 0);
            moved += lost;
        }
    }
    return moved;
}

static void few_buckets_move_when_servers_join_or_leave(void **state)
{
    struct chunks *c = make_three();
    size_t bytes = (size_t)c->n_chunks * sizeof(int);
    int *old = malloc(bytes), *server = malloc(bytes), *again = malloc(bytes);
    int prev[MAX_SERVERS], n_old = 4;
    assert_int_equal(chunks_shard(c, n_old, old), ST_OK);
    for (int s = 0; s < n_old; s++)
        prev[s] = s;
    assert_int_equal(chunks_reshard(c, n_old, old, prev, n_old, server), ST_OK);
    assert_memory_equal(server, old, bytes); /* nothing moves without a reason */
    for (uint64_t round = 0; round < 300; round++) {
        uint64_t key = rng_key(7, RNG_TEST, round);
        int n = 0;
        for (int s = 0; s < n_old; s++) /* some leave, and those that stay have other numbers */
            if (rng_below(key, (uint64_t)s, 4) > 0)
                prev[n++] = n_old - 1 - s;
        for (int more = 1 + (int)rng_below(key, 99, 3); more > 0 && n < 12; more--)
            prev[n++] = -1;
        assert_int_equal(chunks_reshard(c, n_old, old, prev, n, server), ST_OK);
        assert_int_equal(chunks_reshard(c, n_old, old, prev, n, again), ST_OK);
        assert_memory_equal(server, again, bytes);
        check_balance(c, server, n);
        check_moves(c, old, prev, n, server);
        memcpy(old, server, bytes);
        n_old = n;
    }
    /* one of four servers leaves: only its buckets move */
    assert_int_equal(chunks_shard(c, 4, old), ST_OK);
    prev[0] = 0, prev[1] = 1, prev[2] = 3;
    assert_int_equal(chunks_reshard(c, 4, old, prev, 3, server), ST_OK);
    assert_int_equal(check_moves(c, old, prev, 3, server), 0);
    free(again);
    free(server);
    free(old);
    chunks_destroy(c);
}

static void refused(struct chunks *c, const struct net_table *table, const char *text)
{
    assert_int_equal(CAPTURE(tables_add(c, table, 1)), ST_INVALID);
    assert_int_equal(capture_lines(), 1);
    if (!strstr(capture_text, text))
        fail_msg("no '%s' in: %s", text, capture_text);
}

/* Each refusal is one line that names the setting. */
static void tables_out_of_bounds_are_refused(void **state)
{
    struct net_table many[TABLES_MAX + 1];
    char names[TABLES_MAX + 1][8];
    struct chunks *c = make(NULL, 0);
    int n_chunks = c->n_chunks;
#define REFUSED(field, value, text)                                                                \
    many[0] = ads;                                                                                 \
    many[0].field = value;                                                                         \
    refused(c, many, text)
    REFUSED(name, "", "table 0: its name is not");
    REFUSED(name, "a b", "table 0: its name is not");
    REFUSED(name, NULL, "table 0: its name is not");
    REFUSED(dim, 0, "table 'ads': dim 0 is not between 1 and 1024");
    REFUSED(dim, 1025, "table 'ads': dim 1025 is not");
    REFUSED(dim, 1024, "lower step_rows=65536 or raise buckets=64");
    REFUSED(n_buckets, 0, "table 'ads': buckets 0 is not");
    REFUSED(n_buckets, 48, "table 'ads': buckets 48 is not a power of two");
    REFUSED(n_buckets, 2048, "table 'ads': buckets 2048 is not");
    REFUSED(n_buckets, INT32_MIN, "table 'ads': buckets -2147483648 is not");
    REFUSED(max_rows, 0, "table 'ads': max_rows 0 is not between 1 and");
    REFUSED(max_rows, INT64_MAX, "table 'ads': max_rows 9223372036854775807 is not");
    REFUSED(step_rows, 0, "table 'ads': step_rows 0 is not between 1 and");
    REFUSED(step_rows, INT64_MAX, "table 'ads': step_rows 9223372036854775807 is not");
    REFUSED(optimizer.kind, OPTIM_ROWS_N_KINDS, "table 'ads': optimizer 6 is unknown");
    REFUSED(optimizer.common.learning_rate, 0, "table 'ads': learning_rate 0 is not above 0");
    REFUSED(optimizer.l2, -1, "table 'ads': l2 -1 is not 0 or above");
    REFUSED(optimizer.common.weight_decay, 1, "table 'ads': weight_decay 1 is not 0");
    REFUSED(init, ROW_INIT_N_KINDS, "table 'ads': init 3 is unknown; there are zeros|uniform");
    REFUSED(init_scale, -1, "table 'ads': init_scale -1 is not 0 or above");
    REFUSED(init_scale, NAN, "table 'ads': init_scale nan is not 0 or above");
    REFUSED(admit_after, -1, "table 'ads': admit_after -1 is not between 0 and");
    REFUSED(evict_after, TABLES_MAX_STEPS + 1, "table 'ads': evict_after 1099511627777 is not");
    REFUSED(when_full, ROW_FULL_N_KINDS, "table 'ads': when_full 2 is unknown; there are stop|");
    REFUSED(row_dtype, DTYPE_F16, "table 'ads': row_dtype fp16 is not one of fp32|bf16");
#undef REFUSED
    for (int i = 0; i <= TABLES_MAX; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        many[i] = ads;
        many[i].name = names[i];
        many[i].n_buckets = i < 16 ? TABLES_MAX_BUCKETS : 1;
        many[i].step_rows = 100;
    }
    assert_int_equal(tables_add(c, many, -1), ST_INVALID);
    assert_int_equal(tables_add(c, many + 1, TABLES_MAX), ST_OK); /* 15 * 1024 + 241 buckets */
    chunks_destroy(c);
    c = make(NULL, 0);
    assert_int_equal(tables_add(c, many, TABLES_MAX + 1), ST_INVALID);
    assert_int_equal(tables_add(c, many, 17), ST_INVALID); /* 16 * 1024 + 1 buckets */
    many[1].name = many[0].name;
    assert_int_equal(tables_add(c, many, 2), ST_INVALID);
    assert_int_equal(c->n_chunks, n_chunks);
    assert_int_equal(c->n_tables, 0);
    assert_int_equal(tables_add(c, many, 16), ST_INVALID); /* two tables still have one name */
    chunks_destroy(c);
}

static void copies_are_equal_and_differences_named(void **state)
{
    struct net_table other[2] = {ads, ads};
    struct chunks *c = make(&ads, 1), *d = NULL;
    char why[256];
    assert_int_equal(chunks_copy(c, &d), ST_OK);
    assert_int_equal(d->n_chunks, c->n_chunks);
    assert_string_equal(d->tables->name, "ads");
    assert_int_equal(chunks_compare(c, d, why, sizeof why), ST_OK);
    chunks_destroy(d);
    other[1].name = "users";
    d = make(other, 2);
    assert_int_equal(chunks_compare(c, d, why, sizeof why), ST_MISMATCH);
    assert_string_equal(why, "table 1 'users': only on the worker");
    assert_int_equal(chunks_compare(d, c, why, sizeof why), ST_MISMATCH);
    assert_string_equal(why, "table 1 'users': only on the servers");
    chunks_destroy(d);
    other[0].dim = 8;
    d = make(other, 1);
    assert_int_equal(chunks_compare(c, d, why, sizeof why), ST_MISMATCH);
    assert_string_equal(why, "table 'ads': dim 16 on the servers, 8 on the worker");
    chunks_destroy(d);
    d = make(other + 1, 1);
    assert_int_equal(chunks_compare(c, d, why, sizeof why), ST_MISMATCH);
    assert_string_equal(why, "table 0: named 'ads' on the servers, 'users' on the worker");
    chunks_destroy(d);
    chunks_destroy(c);
}

/* The first difference is named in the words of the settings. total_steps is no setting, and
 * admit_after=0 is admit_after=1. */
static void different_settings_are_named(void **state)
{
    struct net_table other;
    struct optim_config steps = ads.optimizer.common;
    struct chunks *c = make(&ads, 1), *d;
    char why[256];
    steps.n_boundaries = 2;
    steps.boundary[0] = 9;
    steps.boundary[1] = 11;
#define DIFFERS(field, value, text)                                                                \
    other = ads;                                                                                   \
    other.field = value;                                                                           \
    d = make(&other, 1);                                                                           \
    assert_int_equal(chunks_compare(c, d, why, sizeof why), ST_MISMATCH);                          \
    assert_string_equal(why, "table 'ads': " text " on the worker");                               \
    chunks_destroy(d)
    DIFFERS(optimizer.kind, OPTIM_ROWS_FTRL, "optimizer sgd on the servers, ftrl");
    DIFFERS(optimizer.common.learning_rate, 0.1f, "learning_rate 0.01 on the servers, 0.1");
    DIFFERS(optimizer.common.momentum, 0.5f, "momentum 0 on the servers, 0.5");
    DIFFERS(optimizer.common.beta1, 0.5f, "beta1 0 on the servers, 0.5");
    DIFFERS(optimizer.common.beta2, 0.5f, "beta2 0 on the servers, 0.5");
    DIFFERS(optimizer.common.epsilon, 0.5f, "epsilon 1e-08 on the servers, 0.5");
    DIFFERS(optimizer.common.clip_value, 2, "clip_value 0 on the servers, 2");
    DIFFERS(optimizer.common.schedule, SCHEDULE_COSINE,
            "lr_schedule constant on the servers, cosine");
    DIFFERS(optimizer.common.warmup_steps, 10, "lr_warmup_steps 0 on the servers, 10");
    DIFFERS(optimizer.common.lr_decay, 0.5f, "lr_decay 0.1 on the servers, 0.5");
    DIFFERS(optimizer.common.lr_decay_steps, 7, "lr_decay_steps 0 on the servers, 7");
    DIFFERS(optimizer.common, steps, "lr_boundaries none on the servers, 9,11");
    DIFFERS(optimizer.ftrl_beta, 2, "ftrl_beta 0 on the servers, 2");
    DIFFERS(optimizer.l1, 2, "l1 0 on the servers, 2");
    DIFFERS(optimizer.l2, 2, "l2 0 on the servers, 2");
    DIFFERS(init, ROW_INIT_NORMAL, "init zeros on the servers, normal");
    DIFFERS(init_scale, 0.25f, "init_scale 0 on the servers, 0.25");
    DIFFERS(admit_after, 3, "admit_after 1 on the servers, 3");
    DIFFERS(evict_after, 3, "evict_after 0 on the servers, 3");
    DIFFERS(when_full, ROW_FULL_EVICT, "when_full stop on the servers, evict");
    DIFFERS(row_dtype, DTYPE_BF16, "row_dtype fp32 on the servers, bf16");
#undef DIFFERS
    other = ads;
    other.admit_after = 1;
    other.optimizer.common.total_steps = 100;
    d = make(&other, 1);
    assert_int_equal(chunks_compare(c, d, why, sizeof why), ST_OK);
    chunks_destroy(d);
    chunks_destroy(c);
}

/* Splits a piece to bucket 3 of the table `ads`, whose payload of `bytes` bytes is in spans of 7.
 */
static enum status split(struct net_piece piece, const uint8_t *payload, size_t bytes,
                         uint8_t *joined, char why[ROWS_WHY_BYTES])
{
    static struct net_span spans[1024];
    struct chunks *c = make(&ads, 1);
    struct rows_parts parts;
    for (size_t i = 0; i * 7 <= bytes; i++)
        spans[i] = (struct net_span){payload + i * 7, bytes - i * 7 < 7 ? bytes - i * 7 : 7};
    piece.chunk = (uint32_t)c->n_dense + 3;
    piece.payload = (struct net_payload){spans, 0, bytes};
    enum status st = rows_split(c, &piece, &parts, why);
    if (st == ST_OK) {
        assert_int_equal(parts.keys.bytes, 8 * piece.rows);
        assert_int_equal(parts.reads.bytes, 8 * piece.reads);
        payload_copy(&parts.keys, joined);
        payload_copy(&parts.reads, joined + parts.keys.bytes);
        payload_copy(&parts.values, joined + parts.keys.bytes + parts.reads.bytes);
    }
    chunks_destroy(c);
    return st;
}

static void payload_of_bucket_is_split(void **state)
{
    static uint8_t payload[5000], joined[5000];
    char why[ROWS_WHY_BYTES];
    for (size_t i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)(i * 31 + i / 256);
    for (uint32_t rows = 0; rows <= 20; rows++) {
        for (uint32_t reads = 0; reads <= 20; reads += 4) {
            for (enum dtype d = DTYPE_F32; d <= DTYPE_F16; d++) {
                const struct net_piece piece = {
                    .kind = PIECE_PUSH, .weight = 1, .dtype = d, .rows = rows, .reads = reads};
                size_t bytes = 8 * (rows + reads) + dtype_bytes(d, rows * 16);
                memset(joined, 0, sizeof joined);
                assert_int_equal(split(piece, payload, bytes, joined, why), ST_OK);
                assert_memory_equal(joined, payload, bytes);
                assert_int_equal(split(piece, payload, bytes + 1, joined, why), ST_PROTOCOL);
                if (bytes > 0)
                    assert_int_equal(split(piece, payload, bytes - 1, joined, why), ST_PROTOCOL);
            }
        }
    }
}

static void counts_of_keys_are_bounded(void **state)
{
    static uint8_t payload[7000], joined[7000];
    char why[ROWS_WHY_BYTES];
    struct net_piece pull = {.kind = PIECE_PULL, .reads = 1232};
    assert_int_equal(tables_share(&ads, ads.step_rows), 1232);
    assert_int_equal(split(pull, payload, 7000, joined, why), ST_PROTOCOL);
    assert_string_equal(why, "table 'ads', bucket 3: payload of 7000 bytes, not 9856");
    pull.reads = 1233;
    assert_int_equal(split(pull, payload, 0, joined, why), ST_PROTOCOL);
    assert_string_equal(why, "table 'ads', bucket 3: 1233 keys, at most 1232 (step_rows=65536)");
    pull.reads = 0;
    pull.rows = UINT32_MAX;
    assert_int_equal(split(pull, payload, 0, joined, why), ST_PROTOCOL);
    pull.rows = 1;
    assert_int_equal(split(pull, payload, 72, joined, why), ST_PROTOCOL);
    assert_string_equal(why,
                        "table 'ads', bucket 3: only a PUSH with a weight has keys with gradients");
    pull.kind = PIECE_PUSH;
    assert_int_equal(split(pull, payload, 72, joined, why), ST_PROTOCOL);
    pull.weight = 1;
    assert_int_equal(split(pull, payload, 72, joined, why), ST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_follow_the_chunks_of_parameters),
        cmocka_unit_test(keys_are_spread_over_buckets),
        cmocka_unit_test(each_server_has_its_share_of_each_table),
        cmocka_unit_test(few_buckets_move_when_servers_join_or_leave),
        cmocka_unit_test(tables_out_of_bounds_are_refused),
        cmocka_unit_test(copies_are_equal_and_differences_named),
        cmocka_unit_test(different_settings_are_named),
        cmocka_unit_test(payload_of_bucket_is_split),
        cmocka_unit_test(counts_of_keys_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
