/* tests/ps_bucket_moves_test.c - buckets of tables in the next generation. A bucket that moves
 * arrives in parts; after a failure the transfer continues after the last key that arrived. Parts
 * that another server must not send are refused, and nothing is lost. A bucket that stays on its
 * server is shared, goes back to the step at which the generation begins, and does so again if that
 * generation is abandoned. */
#include "base/log.h"
#include "base/rng.h"
#include "base/term.h"
#include "net/rpc/server.h"
#include "ps/service/shard_fetch.h"
#include "ps/service/shard_send.h"
#include "ps/store/chunk_state.h"
#include "ps/store/handover.h"
#include "ps/store/snapshot.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/store_rig.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A row and its slots need 8 KB, so the rows of bucket 1 need two messages. */
enum { DIM = 1024, N_ROWS = 2300, N_PENDING = 140, STEP = 40, N_CHUNKS = 3 };

/* Faults of the server's answers. */
enum fault {
    FAULT_NONE,
    FAULT_ORDER,
    FAULT_FOREIGN,
    FAULT_FROM_THE_BEGINNING,
    FAULT_DIM,
    FAULT_VERSION,
    FAULT_DENSE,
    FAULT_ROWS, /* the first answer has the dense chunk as a bucket */
    N_FAULTS
};

static struct {
    struct chunks *chunks;
    struct net_job job;
    struct store *store; /* stopped store of the generation before */
    struct net_server *server;
    char addr[64];
    struct shard_fetch *gather;

    pthread_mutex_t lock;
    int n_calls, refuse_at; /* number of calls; call that is refused */
    enum fault fault;       /* fault of the first answer with a part after a cursor */
    size_t n_sent;          /* rows and pending keys in all answers */
} f = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct chunks *make_chunks(int64_t max_rows)
{
    const struct net_param param = {.name = "w", .shape = {1, {64}}};
    struct net_table table = {.name = "ads",
                              .dim = DIM,
                              .n_buckets = 2,
                              .max_rows = max_rows,
                              .step_rows = 100,
                              .admit_after = 3};
    struct chunks *c;
    optim_rows_defaults(OPTIM_ROWS_ADAGRAD, &table.optimizer);
    assert_int_equal(chunks_create(&param, 1, 4096, &c), ST_OK);
    assert_int_equal(tables_add(c, &table, 1), ST_OK);
    assert_int_equal(c->n_chunks, N_CHUNKS);
    return c;
}

static struct store *open_store(const struct chunks *chunks)
{
    static const int server[N_CHUNKS];
    const struct store_config cfg = {.chunks = chunks,
                                     .job = &f.job,
                                     .server = server,
                                     .n_members = 1,
                                     .generation = 1,
                                     .max_bytes = (int64_t)1 << 32};
    return store_rig_open(&cfg, 0, 0);
}

/* Returns the chunk's state. */
static struct chunk_state *state_of(struct store *s, int chunk)
{
    return &s->owned[s->shelf_of[chunk]];
}

static struct bucket *bucket_of(struct store *s, int chunk)
{
    return state_of(s, chunk)->rows->shared->bucket;
}

/* Fills a bucket with n rows and pending keys. */
static void fill_bucket(struct store *s, int chunk, size_t n, size_t n_pending)
{
    size_t n_keys = n + n_pending, row = 0, pending = 0;
    uint64_t *keys = malloc(n_keys * sizeof *keys), *lists = malloc(5 * n_keys * sizeof *lists);
    float *values = malloc((n + 1) * DIM * sizeof *values);
    const struct handover_part part = {.version = STEP,
                                       .n_value = n * DIM,
                                       .n_slots = n * DIM,
                                       .entries = {.n = n,
                                                   .keys = lists,
                                                   .steps = lists + n_keys,
                                                   .values = values,
                                                   .slots = values,
                                                   .n_pending = n_pending,
                                                   .pending_keys = lists + 2 * n_keys,
                                                   .pending_steps = lists + 3 * n_keys,
                                                   .pending_counts = lists + 4 * n_keys}};
    const char *why;
    for (uint64_t i = 1, k = 0; k < n_keys; i++)
        if (rng_mix(rng_mix(i)) % 2 == (uint64_t)chunk - 1)
            keys[k++] = rng_mix(i);
    qsort(keys, n_keys, sizeof *keys, row_table_compare_keys);
    for (size_t i = 0; i < n_keys; i++)
        if (pending < n_pending && (i % 16 == 3 || row == n)) {
            lists[2 * n_keys + pending] = keys[i];
            lists[3 * n_keys + pending] = i % STEP;
            lists[4 * n_keys + pending++] = 1 + i % 2;
        } else {
            for (size_t d = 0; d < DIM; d++)
                values[row * DIM + d] = (float)(row + d);
            lists[n_keys + row] = i % (STEP + 1);
            lists[row++] = keys[i];
        }
    assert_int_equal(handover_add(s, chunk, &part, &why), ST_OK);
    free(keys);
    free(lists);
    free(values);
}

static void fill_dense(struct store *s)
{
    float values[64] = {1, 2, 3};
    const struct handover_copied dense = {.version = STEP, .value = values, .n_value = 64};
    assert_int_equal(handover_copy(s, 0, &dense), ST_OK);
}

/* Compares two versions of a bucket: all lists of a whole copy. */
static void assert_same(struct shared_bucket *a, uint64_t version_a, struct shared_bucket *b,
                        uint64_t version_b)
{
    struct bucket_part x, y;
    assert_int_equal(bucket_copy(a, version_a, NULL, SIZE_MAX, &x), ST_OK);
    assert_int_equal(bucket_copy(b, version_b, NULL, SIZE_MAX, &y), ST_OK);
    struct buf *const lists[][2] = {{x.keys, y.keys},
                                    {x.steps, y.steps},
                                    {x.values, y.values},
                                    {x.slots, y.slots},
                                    {x.pending, y.pending}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        assert_int_equal(!lists[i][0], !lists[i][1]);
        if (!lists[i][0])
            continue;
        assert_int_equal(lists[i][0]->bytes, lists[i][1]->bytes);
        assert_memory_equal(lists[i][0]->data, lists[i][1]->data, lists[i][0]->bytes);
    }
    bucket_part_free(&x);
    bucket_part_free(&y);
}

/* Puts a fault into an answer with a part of bucket 1. */
static void spoil(enum fault fault, struct net_fetch_item *item)
{
    uint64_t *keys = item->keys ? item->keys->data : NULL;
    switch (fault) {
    case FAULT_ORDER:
        keys[5] = keys[4];
        break;
    case FAULT_FOREIGN:
        while (rng_mix(keys[7]) % 2 == 0)
            keys[7]++;
        break;
    case FAULT_DIM:
        item->value_bytes /= 2;
        break;
    case FAULT_VERSION:
        item->version++;
        break;
    case FAULT_ROWS:
        item->is_bucket = true;
        item->value_bytes = 0;
        break;
    default:
        item->is_bucket = item->has_more = false;
    }
}

static void on_fetch(void *ctx, const struct net_fetch_request *request,
                     struct net_fetch_reply *reply)
{
    struct net_fetch_request from = *request;
    pthread_mutex_lock(&f.lock);
    bool is_spoilt = f.fault == FAULT_ROWS || (f.fault != FAULT_NONE && request->has_after);
    if (++f.n_calls == f.refuse_at)
        snprintf(reply->refused, sizeof reply->refused, "no more");
    if (is_spoilt)
        from.has_after = f.fault != FAULT_FROM_THE_BEGINNING;
    if (!reply->refused[0])
        shard_send_chunks(f.store, &from, reply);
    for (int i = 0; i < reply->n; i++) {
        const struct net_fetch_item *item = &reply->item[i];
        f.n_sent += item->keys ? item->keys->bytes / 8 : 0;
        f.n_sent += item->pending ? item->pending->bytes / 24 : 0;
    }
    if (is_spoilt && f.fault != FAULT_FROM_THE_BEGINNING)
        spoil(f.fault, &reply->item[0]);
    pthread_mutex_unlock(&f.lock);
}

static void reset(int refuse_at, enum fault fault)
{
    pthread_mutex_lock(&f.lock);
    f.n_calls = 0;
    f.n_sent = 0;
    f.refuse_at = refuse_at;
    f.fault = fault;
    pthread_mutex_unlock(&f.lock);
}

static size_t n_sent(void)
{
    pthread_mutex_lock(&f.lock);
    size_t n = f.n_sent;
    pthread_mutex_unlock(&f.lock);
    return n;
}

static int set_up(void **state)
{
    struct net_server_config cfg = {.addr = "127.0.0.1:0", .handler = {.fetch = on_fetch}};
    f.job =
        (struct net_job){.n_workers = 1, .sync_mode = JOB_SYNC, .train_steps = 100, .aggregate = 1};
    optim_defaults(OPTIM_SGD, &f.job.optim);
    f.chunks = make_chunks(20000);
    f.store = open_store(f.chunks);
    fill_dense(f.store);
    fill_bucket(f.store, 1, N_ROWS, N_PENDING);
    fill_bucket(f.store, 2, 10, 2);
    handover_stop(f.store);
    assert_int_equal(net_server_create(&cfg, &f.server), ST_OK);
    snprintf(f.addr, sizeof f.addr, "127.0.0.1:%d", net_server_port(f.server));
    assert_int_equal(shard_fetch_create(&f.gather), ST_OK);
    return 0;
}

static int tear_down(void **state)
{
    shard_fetch_destroy(f.gather);
    net_server_destroy(f.server);
    store_destroy(f.store);
    chunks_destroy(f.chunks);
    return 0;
}

/* Tries to fetch all chunks to a store of its own. */
static enum status try_fetch(struct chunks *chunks, struct store **out)
{
    static int shard[N_CHUNKS], held_by[N_CHUNKS], member;
    char *server[] = {(char *)(uintptr_t) "127.0.0.1:1"}, *holder[] = {f.addr};
    const struct net_plan plan = {.generation = term_of(1, 2),
                                  .step = STEP,
                                  .job = f.job,
                                  .chunks = chunks,
                                  .n_members = 1,
                                  .member = &member,
                                  .servers = {1, server},
                                  .shard = shard,
                                  .source = PLAN_MEMORY,
                                  .before = term_of(1, 1),
                                  .holders = {1, holder},
                                  .held_by = held_by};
    const struct shard_fetch_request request = {
        .plan = &plan, .self = 0, .address = "127.0.0.1:1", .to = open_store(chunks)};
    *out = request.to;
    return shard_fetch_run(f.gather, &request);
}

static void check_fetched(struct store *s)
{
    for (int chunk = 1; chunk < N_CHUNKS; chunk++) {
        assert_int_equal(state_of(s, chunk)->version, STEP);
        assert_same(state_of(f.store, chunk)->rows->shared, STEP, state_of(s, chunk)->rows->shared,
                    STEP);
    }
    assert_int_equal(store_step(s), STEP);
}

static void bucket_moves_in_parts(void **state)
{
    struct store *s;
    reset(0, FAULT_NONE);
    assert_int_equal(CAPTURE(try_fetch(f.chunks, &s)), ST_OK);
    check_fetched(s);
    assert_int_equal(n_sent(), N_ROWS + N_PENDING + 12);
    assert_in_range(f.n_calls, 3, 4); /* the dense chunk; two parts; bucket 2 */
    assert_non_null(strstr(capture_text, "3 chunks, with the optimizer's state 19.0 MB"));
    store_destroy(s);
}

/* The server refuses its third answer, and in the next try the first one. Each entry is sent
 * once. */
static void transfer_continues_after_the_last_key(void **state)
{
    struct store *s;
    reset(3, FAULT_NONE);
    assert_int_equal(CAPTURE(try_fetch(f.chunks, &s)), ST_REFUSED);
    assert_non_null(strstr(capture_text, "2 of 3 chunks of generation 1.1 are still missing"));
    assert_int_equal(store_step(s), -1);
    store_destroy(s);
    size_t first = n_sent();
    assert_in_range(first, 1000, N_ROWS);
    reset(1, FAULT_NONE);
    assert_int_equal(CAPTURE(try_fetch(f.chunks, &s)), ST_REFUSED);
    store_destroy(s);
    assert_int_equal(n_sent(), 0);
    reset(0, FAULT_NONE);
    assert_int_equal(CAPTURE(try_fetch(f.chunks, &s)), ST_OK);
    check_fetched(s);
    assert_int_equal(first + n_sent(), N_ROWS + N_PENDING + 12);
    store_destroy(s);
}

/* A server sends what it must not. The sentence names the fault, and the next try continues after
 * the last valid part. */
static void invalid_parts_are_refused_and_lose_nothing(void **state)
{
    static const char *const reasons[N_FAULTS] = {
        [FAULT_ORDER] = "the keys of a bucket do not ascend",
        [FAULT_FROM_THE_BEGINNING] = "the keys of a bucket do not ascend",
        [FAULT_FOREIGN] = "a key belongs to another bucket",
        [FAULT_DIM] = "the rows of a bucket have another size than this job's table",
        [FAULT_VERSION] = "a received chunk does not fit the request",
        [FAULT_DENSE] = "a received chunk does not fit the request",
        [FAULT_ROWS] = "a received chunk does not fit the request",
    };
    for (int fault = FAULT_NONE + 1; fault < N_FAULTS; fault++) {
        struct store *s;
        reset(0, (enum fault)fault);
        enum status st = CAPTURE(try_fetch(f.chunks, &s));
        if (st != ST_PROTOCOL || !strstr(capture_text, reasons[fault]))
            fail_msg("fault %d: %s, '%s'", fault, status_name(st), capture_text);
        size_t n = bucket_of(s, 1)->rows.n + bucket_of(s, 1)->pending.n;
        if (fault != FAULT_ROWS)
            assert_in_range(n, 1000, N_ROWS); /* the first part */
        store_destroy(s);
        reset(0, FAULT_NONE);
        assert_int_equal(CAPTURE(try_fetch(f.chunks, &s)), ST_OK);
        check_fetched(s);
        assert_int_equal(n + n_sent(), N_ROWS + N_PENDING + 12);
        store_destroy(s);
    }
}

/* A server sends more rows than the job's bound allows. */
static void bucket_above_its_bound_is_refused(void **state)
{
    struct chunks *chunks = make_chunks(2 * (N_ROWS + N_PENDING - 400));
    struct store *s;
    reset(0, FAULT_NONE);
    assert_int_equal(CAPTURE(try_fetch(chunks, &s)), ST_PROTOCOL);
    assert_non_null(strstr(capture_text, "the bucket has more rows than max_rows allows"));
    assert_true(bucket_of(s, 1)->rows.n < N_ROWS);
    store_destroy(s);
    chunks_destroy(chunks);
    shard_fetch_forget(f.gather);
}

/* A part that is added twice is refused, and changes nothing. */
static void repeated_part_changes_nothing(void **state)
{
    struct store *s = open_store(f.chunks);
    struct shared_bucket *whole = state_of(f.store, 1)->rows->shared;
    struct bucket_part p;
    const char *why;
    assert_int_equal(bucket_copy(whole, STEP, NULL, 100, &p), ST_OK);
    struct handover_part part = {.version = STEP,
                                 .entries = p.entries,
                                 .n_value = p.entries.n * DIM,
                                 .n_slots = p.entries.n * DIM,
                                 .has_more = true};
    assert_int_equal(handover_add(s, 1, &part, &why), ST_OK);
    assert_int_equal(store_step(s), -1);
    for (int i = 0; i < 2; i++) {
        part.has_more = i == 0;
        assert_int_equal(handover_add(s, 1, &part, &why), ST_PROTOCOL);
        assert_string_equal(why, "a key is not above the last key that arrived before");
        assert_int_equal(bucket_of(s, 1)->rows.n, p.entries.n);
        assert_true(handover_cursor(s, 1).is_partial);
    }
    struct handover_chunk t;
    assert_int_equal(handover_take(s, 1, STEP, &t), ST_RANGE);
    part.entries.n = part.entries.n_pending = part.n_value = part.n_slots = 0;
    part.version = STEP + 1;
    assert_int_equal(handover_add(s, 1, &part, &why), ST_PROTOCOL);
    part.version = STEP;
    assert_int_equal(handover_add(s, 1, &part, &why), ST_OK); /* the last part may be empty */
    assert_int_equal(state_of(s, 1)->version, STEP);
    assert_int_equal(handover_add(s, 1, &part, &why), ST_PROTOCOL);
    assert_string_equal(why, "a bucket arrives that is already complete");
    bucket_part_free(&p);
    store_destroy(s);
}

/* Makes the next version of bucket 2. */
static void train(struct store *s)
{
    struct chunk_state *c = state_of(s, 2);
    struct shared_bucket *shared = c->rows->shared;
    static float gradients[6 * DIM];
    uint64_t keys[6];
    size_t n = 0;
    const struct merge_input in = {.n = 6, .weight = 1, .keys = keys, .gradients = gradients};
    for (uint64_t i = 1; n < 6; i++) {
        uint64_t key = (uint64_t)c->version % 3 * 1000 + i;
        if (rng_mix(key) % 2 == 1)
            keys[n++] = key;
    }
    for (size_t i = 0; i < sizeof gradients / sizeof *gradients; i++)
        gradients[i] = (float)(i % 7) / 8 + 1;
    pthread_mutex_lock(&shared->lock);
    assert_int_equal(merge_run(c->rows->merge, shared->bucket, 0, &in, 1, 1), ST_OK);
    pthread_mutex_unlock(&shared->lock);
    c->version++;
}

/* Makes a store of the next generation from version `step` of bucket 2. */
static struct store *begin_next(struct store *before, int64_t step)
{
    struct handover_chunk t;
    struct store *s = open_store(f.chunks);
    assert_int_equal(handover_take(before, 2, step, &t), ST_OK);
    assert_int_equal(handover_give(s, 2, &t), ST_OK);
    assert_int_equal(state_of(s, 2)->version, step);
    handover_drop(&t);
    return s;
}

/* Makes a bucket at version STEP + 1, and `plain`, a copy of version STEP. */
static struct store *make_before(struct store **plain)
{
    struct store *s = open_store(f.chunks);
    *plain = open_store(f.chunks);
    fill_bucket(s, 2, 10, 2);
    fill_bucket(*plain, 2, 10, 2);
    train(s);
    handover_stop(s);
    return s;
}

static struct shared_bucket *shared_of(struct store *s)
{
    return state_of(s, 2)->rows->shared;
}

/* Generations that begin at STEP after the bucket has made STEP + 1, one after the other. */
static void bucket_that_stays_goes_back_to_the_step_of_the_plan(void **state)
{
    struct store *plain, *before = make_before(&plain);
    struct handover_chunk t;
    for (int i = 0; i < 3; i++) {
        struct store *s = begin_next(before, STEP);
        assert_ptr_equal(shared_of(s), shared_of(before));
        assert_same(shared_of(s), STEP, shared_of(plain), STEP);
        for (int k = 0; k < i; k++)
            train(s); /* then the generation is abandoned */
        assert_int_equal(handover_take(before, 2, STEP + 1, &t), ST_RANGE);
        assert_same(shared_of(before), STEP, shared_of(plain), STEP);
        handover_stop(s);
        store_destroy(s);
    }
    struct store *s = begin_next(before, STEP);
    handover_empty(before); /* the generation is settled */
    assert_int_equal(handover_take(before, 2, STEP, &t), ST_RANGE);
    assert_int_equal(shared_of(s)->bucket->n_holds, 0);
    for (int k = 0; k < 5; k++) {
        train(s);
        train(plain);
        assert_same(shared_of(s), STEP + k + 1, shared_of(plain), STEP + k + 1);
    }
    store_destroy(before);
    store_destroy(s);
    store_destroy(plain);
}

/* The bucket still has the version before the step at which the next generation begins, but the
 * next store does not offer it, as it offers no such version of a dense chunk. */
static void next_store_offers_no_earlier_version(void **state)
{
    struct store *plain, *before = make_before(&plain), *s = begin_next(before, STEP + 1);
    struct handover_chunk t;
    assert_ptr_equal(shared_of(s), shared_of(before));
    assert_true(bucket_is_readable(shared_of(s)->bucket, STEP));
    assert_false(chunk_rows_is_readable(state_of(s, 2)->rows, STEP));
    assert_true(chunk_rows_is_readable(state_of(s, 2)->rows, STEP + 1));
    assert_int_equal(handover_take(s, 2, STEP, &t), ST_RANGE);
    train(s);
    assert_true(chunk_rows_is_readable(state_of(s, 2)->rows, STEP + 1));
    store_destroy(before);
    store_destroy(s);
    store_destroy(plain);
}

/* A checkpoint holds the later version, which the next generation does not have. */
static void bucket_with_a_later_hold_is_copied(void **state)
{
    struct store *plain, *before = make_before(&plain), *later = open_store(f.chunks);
    fill_bucket(later, 2, 10, 2);
    train(later);
    assert_int_equal(bucket_hold(shared_of(before)->bucket, STEP + 1), ST_OK);
    struct store *s = begin_next(before, STEP);
    assert_ptr_not_equal(shared_of(s), shared_of(before));
    assert_same(shared_of(s), STEP, shared_of(plain), STEP);
    train(s);
    train(s);
    train(plain);
    train(plain);
    assert_same(shared_of(s), STEP + 2, shared_of(plain), STEP + 2);
    assert_same(shared_of(before), STEP + 1, shared_of(later), STEP + 1);
    bucket_release(shared_of(before)->bucket, STEP + 1);
    store_destroy(before);
    store_destroy(s);
    store_destroy(plain);
    store_destroy(later);
}

enum { ROUNDS = 200 };

/* Copies the version that the store before has handed over, again and again. */
static void *copy_held(void *arg)
{
    struct shared_bucket *shared = arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct bucket_part p;
        assert_int_equal(bucket_copy(shared, STEP, NULL, SIZE_MAX, &p), ST_OK);
        assert_int_equal(p.entries.n, 10);
        bucket_part_free(&p);
    }
    return NULL;
}

/* A checkpoint or another server still reads the bucket, while generations begin with it. */
static void bucket_is_copied_while_generations_begin(void **state)
{
    struct store *plain, *before = make_before(&plain), *s = begin_next(before, STEP);
    pthread_t thread;
    store_destroy(s);
    assert_int_equal(pthread_create(&thread, NULL, copy_held, shared_of(before)), 0);
    for (int i = 0; i < ROUNDS; i++) {
        s = begin_next(before, STEP);
        train(s);
        store_destroy(s);
    }
    pthread_join(thread, NULL);
    store_destroy(before);
    store_destroy(plain);
}

static void ignore(void *ctx)
{
}

/* The next generation makes other versions with the numbers of those that the stopped store had. */
static void stopped_store_offers_one_version_to_checkpoints(void **state)
{
    static const int server[N_CHUNKS] = {1, 1, 0};
    const struct store_config cfg = {.chunks = f.chunks,
                                     .job = &f.job,
                                     .server = server,
                                     .n_members = 1,
                                     .generation = 1,
                                     .max_bytes = (int64_t)1 << 32};
    struct store *before = store_rig_open(&cfg, 0, 0), *s;
    struct snapshot *snapshot;
    fill_bucket(before, 2, 10, 2);
    train(before);
    handover_stop(before);
    s = begin_next(before, STEP);
    train(s);
    assert_int_equal(snapshot_create(before, ignore, NULL, &snapshot), ST_OK);
    assert_int_equal(snapshot_begin(snapshot, STEP + 1), ST_RANGE);
    assert_int_equal(snapshot_begin(snapshot, STEP), ST_OK);
    snapshot_destroy(snapshot);
    assert_int_equal(snapshot_create(s, ignore, NULL, &snapshot), ST_OK);
    assert_int_equal(snapshot_begin(snapshot, STEP - 1), ST_RANGE);
    snapshot_destroy(snapshot);
    store_destroy(s);
    store_destroy(before);
}

int main(void)
{
    log_init("test", -1, LOG_LEVEL_INFO);
    return RUN_GROUP(
        set_up, tear_down, bucket_moves_in_parts, transfer_continues_after_the_last_key,
        invalid_parts_are_refused_and_lose_nothing, bucket_above_its_bound_is_refused,
        repeated_part_changes_nothing, bucket_that_stays_goes_back_to_the_step_of_the_plan,
        next_store_offers_no_earlier_version, bucket_with_a_later_hold_is_copied,
        bucket_is_copied_while_generations_begin, stopped_store_offers_one_version_to_checkpoints);
}
