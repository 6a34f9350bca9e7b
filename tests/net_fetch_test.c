/* tests/net_fetch_test.c - chunks that move from server to server in as many messages as necessary.
 * The server may be slow, refuse, send invalid data, be down, or never answer; the client may be
 * cancelled, or may never read the answers. A bucket of a table arrives in parts, which have rows
 * and pending keys. */
#include "base/clock.h"
#include "net/exchange/fetch_client.h"
#include "net/rpc/server.h"
#include "net/rpc/unary.h"
#include "net/wire/message.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/net_raw.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>

enum { N_CHUNKS = 12, CHUNK_ELEMS = 1 << 20, LONG_MS = 600000 };

/* Faults that the server's answers can have. */
enum fault {
    FAULT_NONE,
    FAULT_REFUSE,
    FAULT_NOTHING,
    FAULT_OTHER_CHUNK,
    FAULT_MORE,
    FAULT_VERSION,
    FAULT_ODD_VALUE,
    FAULT_NO_VALUE,
    FAULT_ODD_SLOTS,
    N_FAULTS
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t called;
    enum fault fault;
    int n_calls;
    bool has_buckets; /* chunks 1 and 2 are buckets, and the second has no rows */
    int is_slow;      /* messages of more than one chunk do not arrive in time */
    uint64_t samples[3];
    struct buf *value, *slots; /* contents of each chunk: the same for all chunks */
    struct buf *idle;          /* counts of each chunk with slots */
    struct net_server *server;
    char addr[64];
} f = {.lock = PTHREAD_MUTEX_INITIALIZER, .called = PTHREAD_COND_INITIALIZER};

static int calls(void)
{
    pthread_mutex_lock(&f.lock);
    int n = f.n_calls;
    pthread_mutex_unlock(&f.lock);
    return n;
}

enum { N_ROWS = 20, PART_ROWS = 6, DIM = 2 };

static struct buf *make_buf(size_t bytes)
{
    struct buf *b;
    assert_int_equal(buf_create(bytes + 1, &b), ST_OK);
    b->bytes = bytes; /* may be 0 */
    return b;
}

/* Returns true if entry i of a bucket is a pending key, and not a row. */
static bool is_pending(int entry)
{
    return entry % 5 == 4;
}

/* Makes entries `first` to first + n - 1 of a bucket. A row has one slot. */
static struct net_fetch_item make_rows(int chunk, int first, int n)
{
    size_t n_rows = 0, n_pending = 0;
    for (int i = first; i < first + n; i++)
        *(is_pending(i) ? &n_pending : &n_rows) += 1;
    struct net_fetch_item item = {.chunk = chunk,
                                  .version = 40,
                                  .is_bucket = true,
                                  .value = make_buf(n_rows * DIM * sizeof(float)),
                                  .slots = make_buf(n_rows * sizeof(float)),
                                  .keys = make_buf(n_rows * sizeof(uint64_t)),
                                  .steps = make_buf(n_rows * sizeof(uint64_t)),
                                  .pending = make_buf(3 * n_pending * sizeof(uint64_t))};
    item.value_bytes = item.value->bytes;
    item.slots_bytes = item.slots->bytes;
    uint64_t *keys = item.keys->data, *steps = item.steps->data, *pending = item.pending->data;
    float *values = item.value->data, *slots = item.slots->data;
    for (int i = first; i < first + n; i++)
        if (is_pending(i)) {
            pending[0] = (uint64_t)(i * i);
            pending[n_pending] = (uint64_t)i;
            pending[2 * n_pending] = (uint64_t)(i + 7);
            pending++;
        } else {
            *keys++ = (uint64_t)(i * i);
            *steps++ = (uint64_t)i;
            *slots++ = (float)(i + 1000);
            for (int d = 0; d < DIM; d++)
                *values++ = (float)(i * DIM + d);
        }
    return item;
}

static void drop_rows(struct net_fetch_item *item)
{
    buf_unref(item->value);
    buf_unref(item->slots);
    buf_unref(item->keys);
    buf_unref(item->steps);
    buf_unref(item->pending);
}

/* Adds the next part of a bucket. Returns true if the bucket has more rows. */
static bool put_part(const struct net_fetch_request *request, int i, struct net_fetch_reply *reply)
{
    int first = 0, all = request->chunk[i] == 1 ? N_ROWS : 0;
    while (i == 0 && request->has_after && first < all &&
           (uint64_t)(first * first) <= request->after)
        first++;
    int n = all - first < PART_ROWS ? all - first : PART_ROWS;
    struct net_fetch_item item = make_rows(request->chunk[i], first, n);
    item.has_more = first + n < all;
    net_fetch_put(reply, &item);
    drop_rows(&item);
    return item.has_more;
}

static void on_fetch(void *ctx, const struct net_fetch_request *request,
                     struct net_fetch_reply *reply)
{
    pthread_mutex_lock(&f.lock);
    f.n_calls++;
    pthread_cond_broadcast(&f.called);
    enum fault fault = f.fault;
    bool has_buckets = f.has_buckets;
    for (int n = f.n_calls; f.is_slow && request->n > 1 && f.n_calls == n;)
        pthread_cond_wait(&f.called, &f.lock);
    pthread_mutex_unlock(&f.lock);
    if (fault == FAULT_REFUSE || request->generation != 8)
        snprintf(reply->refused, sizeof reply->refused, "generation %d is not kept here",
                 (int)request->generation);
    for (int i = 0; fault != FAULT_NOTHING && i < request->n; i++) {
        if (has_buckets && (request->chunk[i] == 1 || request->chunk[i] == 2)) {
            if (put_part(request, i, reply))
                break;
            continue;
        }
        /* Chunks with even numbers have slots. */
        struct net_fetch_item item = {.chunk = request->chunk[i],
                                      .version = request->step + request->chunk[i] % 2,
                                      .value = f.value,
                                      .value_bytes = f.value->bytes};
        if (request->chunk[i] % 2 == 0) {
            item.slots = f.slots;
            item.slots_bytes = f.slots->bytes;
            item.samples = f.samples;
            item.n_samples = 3;
            item.idle = f.idle;
        }
        item.chunk += fault == FAULT_OTHER_CHUNK;
        item.version = fault == FAULT_VERSION ? -1 : item.version;
        item.value_bytes -= fault == FAULT_ODD_VALUE ? 2 : 0;
        item.value_bytes = fault == FAULT_NO_VALUE ? 0 : item.value_bytes;
        item.slots_bytes -= fault == FAULT_ODD_SLOTS && item.slots ? 4 : 0;
        if (net_fetch_put(reply, &item) != ST_OK)
            break;
        if (fault == FAULT_MORE)
            net_fetch_put(reply, &item);
    }
}

/* Starts the server. max_reply_bytes: limit of the bytes of all answers in flight; 0: the
 * default. */
static void serve(int port, int fetches, size_t max_reply_bytes)
{
    struct net_server_config cfg = {.addr = f.addr, .max_reply_bytes = max_reply_bytes};
    if (fetches)
        cfg.handler.fetch = on_fetch;
    snprintf(f.addr, sizeof f.addr, "127.0.0.1:%d", port);
    f.fault = FAULT_NONE;
    f.n_calls = 0;
    assert_int_equal(net_server_create(&cfg, &f.server), ST_OK);
    snprintf(f.addr, sizeof f.addr, "127.0.0.1:%d", net_server_port(f.server));
}

static int set_up(void **state)
{
    assert_int_equal(buf_create(CHUNK_ELEMS * sizeof(float), &f.value), ST_OK);
    assert_int_equal(buf_create(2 * CHUNK_ELEMS * sizeof(float), &f.slots), ST_OK);
    for (int i = 0; i < CHUNK_ELEMS; i++)
        ((float *)f.value->data)[i] = (float)i;
    for (int i = 0; i < 2 * CHUNK_ELEMS; i++)
        ((float *)f.slots->data)[i] = (float)-i;
    memcpy(f.samples, (uint64_t[]){UINT64_MAX, 7, 1 << 20}, sizeof f.samples);
    assert_int_equal(buf_create(2 * sizeof(uint64_t), &f.idle), ST_OK);
    memcpy(f.idle->data, (uint64_t[]){0, UINT64_MAX}, f.idle->bytes);
    serve(0, 1, 0);
    return 0;
}

static int tear_down(void **state)
{
    net_server_destroy(f.server);
    buf_unref(f.value);
    buf_unref(f.slots);
    buf_unref(f.idle);
    return 0;
}

/* Chunks that a run has received. */
struct received {
    int n, good, fail_at;
    int chunk[N_CHUNKS];
};

static enum status receive(void *ctx, const struct net_fetched *c)
{
    struct received *t = ctx;
    if (t->n == t->fail_at)
        return ST_RANGE;
    size_t n_slots = c->chunk % 2 == 0 ? 2 * CHUNK_ELEMS : 0;
    t->good += c->version == 40 + c->chunk % 2 && c->n_value == CHUNK_ELEMS &&
               c->n_slots == n_slots && !memcmp(c->value, f.value->data, f.value->bytes) &&
               (n_slots == 0 || !memcmp(c->slots, f.slots->data, f.slots->bytes)) &&
               c->n_samples == (n_slots > 0 ? 3 : 0) &&
               (n_slots == 0 || !memcmp(c->samples, f.samples, sizeof f.samples)) &&
               c->n_idle == (n_slots > 0 ? 2 : 0) &&
               (n_slots == 0 || !memcmp(c->idle, f.idle->data, f.idle->bytes));
    t->chunk[t->n++] = c->chunk;
    return ST_OK;
}

struct run {
    struct fetch_client *client;
    struct received received;
    int64_t ms;
    enum status st;
    char why[CONTROL_TEXT_BYTES];
    pthread_t thread;
};

static void *run_main(void *arg)
{
    static int list[N_CHUNKS] = {11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const struct net_fetch_request request = {
        .generation = 8, .step = 40, .n = N_CHUNKS, .chunk = list};
    struct run *r = arg;
    r->st = fetch_client_run(r->client, &request, r->ms, receive, &r->received, r->why);
    return NULL;
}

static enum status run(struct run *r, struct fetch_client *client, int64_t ms)
{
    *r = (struct run){.client = client, .ms = ms, .received = {.fail_at = -1}};
    run_main(r);
    return r->st;
}

static void assert_all(const struct run *r)
{
    assert_int_equal(r->received.n, N_CHUNKS);
    assert_int_equal(r->received.good, N_CHUNKS);
    assert_int_equal(r->received.chunk[0], 11);
    for (int i = 1; i < N_CHUNKS; i++)
        assert_int_equal(r->received.chunk[i], i - 1);
}

static void chunks_arrive_in_several_messages(void **state)
{
    struct fetch_client *client;
    struct run r;
    int before = calls();
    assert_int_equal(fetch_client_create(f.addr, &client), ST_OK);
    assert_int_equal(run(&r, client, LONG_MS), ST_OK);
    assert_all(&r);
    /* The client requests one chunk alone. The other 11 need 6 messages, because a message has at
     * most 16 MiB: an odd chunk of 4 MiB, and an even chunk of 12 MiB with its slots. If a busy
     * machine is slow, the client requests single chunks in between, so up to two more messages are
     * allowed. */
    assert_in_range(calls() - before, 7, 9);
    assert_int_equal(run(&r, client, LONG_MS), ST_OK);
    assert_all(&r);
    r.received = (struct received){.fail_at = 3};
    run_main(&r);
    assert_int_equal(r.st, ST_RANGE);
    assert_int_equal(r.received.n, 3);
    fetch_client_destroy(client);
    fetch_client_destroy(NULL);
}

static void set_slow(int is_slow)
{
    pthread_mutex_lock(&f.lock);
    f.is_slow = is_slow;
    pthread_mutex_unlock(&f.lock);
}

/* A message that is late may have been too large for the link: then the client requests one chunk
 * at a time. */
static void late_message_reduces_request_to_one_chunk(void **state)
{
    struct fetch_client *client;
    struct run r;
    int before = calls();
    set_slow(1);
    assert_int_equal(fetch_client_create(f.addr, &client), ST_OK);
    assert_int_equal(run(&r, client, 3000), ST_OK);
    set_slow(0);
    assert_all(&r);
    /* The client requests the first chunk alone. If a busy machine sends even this chunk late, the
     * client never requests several chunks in a message. */
    assert_in_range(calls() - before, N_CHUNKS, 1 + N_CHUNKS);
    fetch_client_destroy(client);
}

static void invalid_replies_are_refused(void **state)
{
    struct fetch_client *client;
    struct run r;
    assert_int_equal(fetch_client_create(f.addr, &client), ST_OK);
    for (int fault = FAULT_REFUSE; fault < N_FAULTS; fault++) {
        pthread_mutex_lock(&f.lock);
        f.fault = (enum fault)fault;
        pthread_mutex_unlock(&f.lock);
        enum status st = run(&r, client, LONG_MS);
        if (st != (fault == FAULT_REFUSE ? ST_REFUSED : ST_PROTOCOL) || !r.why[0])
            fail_msg("fault %d: %s, '%s'", fault, status_name(st), r.why);
        assert_int_equal(r.received.good, r.received.n);
    }
    pthread_mutex_lock(&f.lock);
    f.fault = FAULT_REFUSE;
    pthread_mutex_unlock(&f.lock);
    run(&r, client, LONG_MS);
    assert_string_equal(r.why, "generation 8 is not kept here");
    pthread_mutex_lock(&f.lock);
    f.fault = FAULT_NONE;
    pthread_mutex_unlock(&f.lock);
    assert_int_equal(run(&r, client, LONG_MS), ST_OK);
    fetch_client_destroy(client);
}

/* Parts of buckets that a run has received. */
struct rows_received {
    int n_entries, n_parts, n_empty, n_dense;
};

static enum status receive_rows(void *ctx, const struct net_fetched *c)
{
    struct rows_received *r = ctx;
    size_t row = 0, pending = 0;
    int last = r->n_entries + (int)(c->n_rows + c->n_pending);
    r->n_dense += !c->is_bucket;
    r->n_empty += c->is_bucket && c->n_rows + c->n_pending == 0;
    r->n_parts += c->n_rows + c->n_pending > 0;
    for (int i = r->n_entries; i < last; i++) {
        bool waits = is_pending(i);
        assert_int_equal(c->chunk, 1);
        assert_int_equal(waits ? c->pending_keys[pending] : c->keys[row], i * i);
        assert_int_equal(waits ? c->pending_steps[pending] : c->steps[row], i);
        if (waits) {
            assert_int_equal(c->pending_counts[pending++], i + 7);
            continue;
        }
        assert_true(c->slots[row] == (float)(i + 1000));
        for (size_t d = 0; d < DIM; d++)
            assert_true(c->value[row * DIM + d] == (float)((size_t)i * DIM + d));
        row++;
    }
    r->n_entries = last;
    assert_int_equal(c->has_more, row > 0 && last < N_ROWS);
    return ST_OK;
}

static void set_buckets(bool has_buckets)
{
    pthread_mutex_lock(&f.lock);
    f.has_buckets = has_buckets;
    pthread_mutex_unlock(&f.lock);
}

static void bucket_arrives_in_parts(void **state)
{
    static int list[] = {0, 1, 2, 3};
    const struct net_fetch_request request = {.generation = 8, .step = 40, .n = 4, .chunk = list};
    struct rows_received got = {0};
    struct fetch_client *client;
    char why[CONTROL_TEXT_BYTES];
    set_buckets(true);
    assert_int_equal(fetch_client_create(f.addr, &client), ST_OK);
    assert_int_equal(fetch_client_run(client, &request, LONG_MS, receive_rows, &got, why), ST_OK);
    assert_int_equal(got.n_entries, N_ROWS);
    assert_int_equal(got.n_parts, (N_ROWS + PART_ROWS - 1) / PART_ROWS);
    assert_int_equal(got.n_empty, 1);
    assert_int_equal(got.n_dense, 2);
    fetch_client_destroy(client);
    set_buckets(false);
}

static enum status count_rows(void *ctx, const struct net_fetched *c)
{
    *(size_t *)ctx += c->n_rows + c->n_pending;
    return ST_OK;
}

/* Encodes and decodes a reply with these parts of buckets 5 and 6, in answer to a request with a
 * cursor. */
static enum status unpack_rows(struct net_fetch_item *item, int n, uint64_t after)
{
    static const int list[] = {5, 6};
    size_t n_rows = 0, bytes = 0;
    uint8_t *data = NULL;
    char why[MESSAGE_WHY_BYTES];
    struct net_fetch_reply reply = {.n = n, .room = n, .item = item};
    struct message_fetched to = {.n = 2,
                                 .chunk = list,
                                 .receive = count_rows,
                                 .ctx = &n_rows,
                                 .has_after = after > 0,
                                 .after = after};
    assert_int_equal(message_fetch_reply_pack(&reply, &data, &bytes), ST_OK);
    enum status st = message_fetch_reply_unpack(data, bytes, &to, why);
    free(data);
    if (st == ST_OK)
        assert_int_equal(n_rows, 8);
    return st;
}

static void invalid_parts_of_buckets_are_refused(void **state)
{
    /* rows 100, 121, 144 and the pending key 81; rows 1, 4, 9 and the pending key 16 */
    struct net_fetch_item item[2] = {make_rows(5, 9, 4), make_rows(6, 1, 4)};
    uint64_t *keys = item[0].keys->data, *pending = item[0].pending->data;
    assert_int_equal(unpack_rows(item, 2, 0), ST_OK);
    assert_int_equal(unpack_rows(item, 2, 80), ST_OK);
    assert_int_equal(unpack_rows(item, 2, 81), ST_INVALID);
    pending[0] = 150;
    assert_int_equal(unpack_rows(item, 2, 99), ST_OK);
    assert_int_equal(unpack_rows(item, 2, 100), ST_INVALID);
    keys[2] = keys[1];
    assert_int_equal(unpack_rows(item, 2, 0), ST_INVALID);
    keys[2] = 144;
    item[1].has_more = true;
    assert_int_equal(unpack_rows(item, 2, 0), ST_OK);
    item[0].has_more = true;
    assert_int_equal(unpack_rows(item, 2, 0), ST_INVALID); /* no chunk follows such a part */
    item[0].has_more = false;
    struct buf *const odd[] = {item[1].steps, item[1].pending};
    for (size_t i = 0; i < 2; i++) {
        odd[i]->bytes -= sizeof(uint64_t);
        assert_int_equal(unpack_rows(item, 2, 0), ST_INVALID);
        odd[i]->bytes += sizeof(uint64_t);
    }
    item[1].value_bytes -= sizeof(float);
    assert_int_equal(unpack_rows(item, 2, 0), ST_INVALID);
    item[1].value_bytes = 0;
    assert_int_equal(unpack_rows(item, 2, 0), ST_INVALID);
    drop_rows(&item[1]);
    item[1] = make_rows(6, 0, 0);
    item[1].has_more = true;
    assert_int_equal(unpack_rows(item, 2, 0), ST_INVALID); /* the next part would be the same */
    drop_rows(&item[0]);
    drop_rows(&item[1]);
}

/* The cursor of the next request is the highest key, of a row or of a pending key. */
static void cursor_is_the_highest_key_of_a_part(void **state)
{
    static const int list[] = {5};
    for (int i = 0; i < 2; i++) {
        struct net_fetch_item item = make_rows(5, 9, 4);
        struct net_fetch_reply reply = {.n = 1, .room = 1, .item = &item};
        struct message_fetched to = {.n = 1, .chunk = list, .receive = count_rows};
        size_t n_rows = 0, bytes = 0;
        uint8_t *data = NULL;
        char why[MESSAGE_WHY_BYTES];
        to.ctx = &n_rows;
        item.has_more = true;
        if (i == 1)
            ((uint64_t *)item.pending->data)[0] = 150;
        assert_int_equal(message_fetch_reply_pack(&reply, &data, &bytes), ST_OK);
        assert_int_equal(message_fetch_reply_unpack(data, bytes, &to, why), ST_OK);
        assert_true(to.has_after && to.after == (i == 1 ? 150 : 144));
        assert_int_equal(to.n_received, 0);
        free(data);
        drop_rows(&item);
    }
}

static enum status receive_none(void *ctx, const struct net_fetched *c)
{
    ++*(int *)ctx;
    return ST_OK;
}

static void wrong_checksum_is_detected(void **state)
{
    char why[MESSAGE_WHY_BYTES];
    int one[] = {2}, n = 0;
    struct net_fetch_reply reply = {.n = 0};
    const struct net_fetch_item item = {.chunk = 2,
                                        .version = 5,
                                        .value = f.value,
                                        .slots = f.slots,
                                        .value_bytes = 16,
                                        .slots_bytes = 32};
    struct message_fetched to = {.n = 1, .chunk = one, .receive = receive_none, .ctx = &n};
    uint8_t *data;
    size_t bytes;
    assert_int_equal(net_fetch_put(&reply, &item), ST_OK);
    assert_int_equal(message_fetch_reply_pack(&reply, &data, &bytes), ST_OK);
    net_fetch_reply_free(&reply);
    assert_int_equal(message_fetch_reply_unpack(data, bytes, &to, why), ST_OK);
    assert_int_equal(n, 1);
    data[bytes - 1] ^= 0x40; /* a byte of the slots */
    assert_int_equal(message_fetch_reply_unpack(data, bytes, &to, why), ST_CORRUPT);
    assert_int_equal(n, 1);
    data[bytes - 1] ^= 0x40;
    data[bytes - 34 - 3] ^= 1; /* a byte of the value */
    assert_int_equal(message_fetch_reply_unpack(data, bytes, &to, why), ST_CORRUPT);
    assert_non_null(strstr(why, "chunk 2"));
    free(data);
}

static void invalid_requests_are_refused(void **state)
{
    int far[] = {0, CHUNKS_MAX_CHUNKS}, below[] = {-1}, good[] = {CHUNKS_MAX_CHUNKS - 1};
    const struct {
        uint64_t generation;
        int64_t step;
        int n, *chunk;
    } cases[] = {{8, 40, 1, good}, {0, 40, 1, good}, {8, -1, 1, good}, {8, INT64_MAX, 1, good},
                 {8, 40, 0, good}, {8, 40, 2, far},  {8, 40, 1, below}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct net_fetch_request sent = {.generation = cases[i].generation,
                                               .step = cases[i].step,
                                               .n = cases[i].n,
                                               .chunk = cases[i].chunk,
                                               .has_after = true,
                                               .after = UINT64_MAX - 1};
        struct net_fetch_request got = {.chunk = NULL};
        char why[MESSAGE_WHY_BYTES] = "";
        uint8_t *data;
        size_t bytes;
        assert_int_equal(message_fetch_pack(&sent, &data, &bytes), ST_OK);
        assert_int_equal(message_fetch_unpack(data, bytes, &got, why), i ? ST_INVALID : ST_OK);
        assert_true(i == 0 ? got.has_after && got.after == sent.after : why[0] != 0);
        free(got.chunk);
        free(data);
    }
}

static void server_without_chunks_refuses(void **state)
{
    struct fetch_client *client;
    struct run r;
    net_server_destroy(f.server);
    serve(0, 0, 0);
    assert_int_equal(fetch_client_create(f.addr, &client), ST_OK);
    assert_int_equal(CAPTURE(run(&r, client, LONG_MS)), ST_PROTOCOL);
    assert_non_null(strstr(r.why, "sends no chunks"));
    fetch_client_destroy(client);
    net_server_destroy(f.server);
    serve(0, 1, 0);
}

static void unreachable_server_is_retried(void **state)
{
    struct fetch_client *client;
    struct run r = {.ms = LONG_MS, .received = {.fail_at = -1}};
    int port = net_server_port(f.server);
    net_server_destroy(f.server);
    assert_int_equal(fetch_client_create(f.addr, &client), ST_OK);
    assert_int_equal(run(&r, client, 300), ST_DEADLINE);
    assert_true(r.why[0]);
    r = (struct run){.client = client, .ms = LONG_MS, .received = {.fail_at = -1}};
    assert_int_equal(pthread_create(&r.thread, NULL, run_main, &r), 0);
    serve(port, 1, 0);
    pthread_join(r.thread, NULL);
    assert_int_equal(r.st, ST_OK);
    assert_all(&r);
    fetch_client_destroy(client);
}

static void run_ends_at_deadline_or_when_cancelled(void **state)
{
    struct fetch_client *client;
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof sa;
    char addr[64];
    int fd = socket(AF_INET, SOCK_STREAM, 0); /* accepts connections, and sends nothing */
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &size), 0);
    snprintf(addr, sizeof addr, "127.0.0.1:%d", ntohs(sa.sin_port));
    assert_int_equal(fetch_client_create(addr, &client), ST_OK);
    struct run r;
    assert_int_equal(run(&r, client, 300), ST_DEADLINE);
    r = (struct run){.client = client, .ms = LONG_MS, .received = {.fail_at = -1}};
    assert_int_equal(pthread_create(&r.thread, NULL, run_main, &r), 0);
    fetch_client_cancel(client);
    pthread_join(r.thread, NULL);
    assert_int_equal(r.st, ST_CANCELLED);
    fetch_client_cancel(client); /* no run is active: cancels the next one */
    assert_int_equal(run(&r, client, LONG_MS), ST_CANCELLED);
    assert_int_equal(run(&r, client, 100), ST_DEADLINE);
    fetch_client_destroy(client);
    close(fd);
}

/* Makes a call while other answers are unread, and checks that it fails with the reason. Calls may
 * still succeed at first. */
static void assert_explained(uint8_t *data, size_t bytes)
{
    const struct net_unary_bytes request = {data, bytes};
    struct net_unary *u;
    char why[MESSAGE_WHY_BYTES] = "";
    enum status st = ST_OK;
    assert_int_equal(net_unary_create(f.addr, FETCH_MESSAGE_BYTES, &u), ST_OK);
    for (int i = 0; i < 20 && st == ST_OK; i++) {
        struct net_unary_bytes reply = {NULL, 0};
        st = net_unary_call(u, "/weir.v1.Weir/Fetch", &request, LONG_MS, &reply, why);
        free(reply.data);
    }
    assert_int_equal(st, ST_UNAVAILABLE);
    assert_non_null(strstr(why, "too many answers that clients have not read"));
    net_unary_destroy(u);
}

/* Answers that a client does not read use limited memory, and the server ends them after a
 * while. */
static void unread_answers_are_bounded(void **state)
{
    enum { MANY = 3 };
    static struct raw many[MANY];
    static int list[N_CHUNKS];
    const struct net_fetch_request request = {
        .generation = 8, .step = 40, .n = N_CHUNKS, .chunk = list};
    struct fetch_client *client;
    struct run r;
    uint8_t *data;
    size_t bytes;
    net_server_destroy(f.server);
    serve(0, 1, 24 << 20); /* memory for one and a half answers */
    assert_int_equal(message_fetch_pack(&request, &data, &bytes), ST_OK);
    for (int i = 0; i < MANY; i++) {
        raw_open(&many[i], net_server_port(f.server), "/weir.v1.Weir/Fetch");
        raw_send(&many[i], data, bytes);
        raw_half_close(&many[i]);
    }
    pthread_mutex_lock(&f.lock);
    while (f.n_calls < MANY)
        pthread_cond_wait(&f.called, &f.lock);
    pthread_mutex_unlock(&f.lock);
    assert_explained(data, bytes);
    free(data);
    assert_int_equal(fetch_client_create(f.addr, &client), ST_OK);
    assert_int_equal(run(&r, client, RAW_CALL_MS / 2), ST_OK); /* before the unread calls end */
    assert_all(&r);
    fetch_client_destroy(client);
    for (int i = 0; i < MANY; i++) {
        raw_cancel(&many[i]);
        raw_close(&many[i]);
    }
}

int main(void)
{
    return RUN_GROUP(set_up, tear_down, chunks_arrive_in_several_messages,
                     late_message_reduces_request_to_one_chunk, invalid_replies_are_refused,
                     bucket_arrives_in_parts, invalid_parts_of_buckets_are_refused,
                     cursor_is_the_highest_key_of_a_part, wrong_checksum_is_detected,
                     invalid_requests_are_refused, server_without_chunks_refuses,
                     unreachable_server_is_retried, run_ends_at_deadline_or_when_cancelled,
                     unread_answers_are_bounded);
}
