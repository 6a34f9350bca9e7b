/* tests/net_exchange_rows_test.c - rows of tables through the exchange client, against small
 * servers in the same process. A server adds each gradient to its row. */
#include "base/digest.h"
#include "base/log.h"
#include "net/exchange/rows.h"
#include "net/wire/rows.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/net_tiny.h"
#include "tests/table_rig.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_KEYS = 96, DIM = 3, N_BUCKETS = 8, ALL_CHUNKS = MODEL_CHUNKS + N_BUCKETS };
enum { STEP_ROWS = 100, MAX_SENT = 64 };

/* Deviation of a server from a correct answer. */
enum lie {
    LIE_NONE,
    LIE_SHORT,   /* one number is missing */
    LIE_ROWS,    /* another number of rows than the payload has */
    LIE_NAN,     /* the last number is not finite */
    LIE_DTYPE,   /* another format */
    LIE_PLACED,  /* the rows were written to the member's parameters */
    LIE_FUTURE,  /* a version that does not exist */
    LIE_EARLIER, /* zeros of an earlier version precede the answer */
    LIE_NO_PULL, /* pulls are not answered */
};

/* A request as the server received it. */
struct sent {
    struct net_piece piece;
    uint64_t generation;
    uint8_t *payload;
};

/* Rows of one server, and the requests to each bucket. The lock of the server guards it. */
struct rows {
    float row[2][N_KEYS][DIM]; /* of both tables */
    enum lie lie;
    int n_pushed, n_pulled; /* requests to buckets */
    int n_sent[N_BUCKETS];
    struct sent sent[N_BUCKETS][MAX_SENT];
};

struct rig {
    struct tiny_member m;
    struct tiny tiny[2];
    struct rows rows[2];
    int n;
    char addr[2][32], *addrs[2];
    struct hosts hosts;
    struct segment *segment; /* segment with the dense gradient; NULL: none */
};

static void note_sent(struct rows *r, int bucket, const struct net_frame_head *head,
                      const struct net_piece *piece)
{
    if (r->n_sent[bucket] == MAX_SENT)
        return;
    struct sent *s = &r->sent[bucket][r->n_sent[bucket]++];
    *s = (struct sent){.piece = *piece,
                       .generation = head->generation,
                       .payload = malloc(piece->payload.bytes + 1)};
    payload_copy(&piece->payload, s->payload);
}

/* Adds the gradients of a push to the rows, if they count. */
static enum piece_kind add_rows(struct tiny *t, const struct net_piece *piece,
                                const struct rows_parts *parts)
{
    struct rows *r = t->rows;
    int table = t->chunks->chunks[piece->chunk].table;
    uint64_t keys[N_KEYS];
    float values[N_KEYS * DIM];
    r->n_pulled += piece->kind == PIECE_PULL;
    if (piece->kind != PIECE_PUSH)
        return PIECE_VERSION;
    r->n_pushed++;
    t->n_shared += piece->shared_offset != 0;
    if ((int64_t)piece->step != t->version[piece->chunk])
        return PIECE_DUPLICATE;
    payload_copy(&parts->keys, keys);
    payload_decode(&parts->values, piece->dtype, piece->rows * (size_t)DIM, values, NULL);
    for (uint32_t i = 0; i < piece->rows; i++)
        for (int e = 0; e < DIM; e++)
            r->row[table][keys[i]][e] += values[i * DIM + (size_t)e];
    t->version[piece->chunk]++;
    return PIECE_APPLIED;
}

/* Encodes the rows of the read keys. */
static struct buf *read_rows(struct tiny *t, const struct net_piece *piece,
                             const struct rows_parts *parts)
{
    const struct rows *r = t->rows;
    int table = t->chunks->chunks[piece->chunk].table;
    uint64_t reads[N_KEYS];
    float values[N_KEYS * DIM];
    struct buf *b = NULL;
    size_t n = piece->reads * (size_t)DIM;
    payload_copy(&parts->reads, reads);
    for (uint32_t i = 0; i < piece->reads; i++)
        memcpy(&values[i * DIM], r->row[table][reads[i]], DIM * sizeof(float));
    if (r->lie == LIE_NAN && n > 0)
        values[n - 1] = NAN;
    if (tiny_new_buf(t, (int)piece->chunk, dtype_bytes(t->dtype, n), &b) != ST_OK)
        abort();
    dtype_encode(t->dtype, b->data, values, n);
    return b;
}

/* Changes the answer as r->lie requires. Returns the bytes of the payload to send. */
static size_t apply_lie(const struct rows *r, struct net_piece *answer, size_t bytes)
{
    if (r->lie == LIE_SHORT)
        bytes -= bytes > 0 ? 4 : 0;
    if (r->lie == LIE_ROWS)
        answer->rows += bytes > 0;
    if (r->lie == LIE_DTYPE)
        answer->dtype = DTYPE_BF16;
    if (r->lie == LIE_FUTURE)
        answer->step = UINT64_MAX;
    answer->placed = r->lie == LIE_PLACED;
    return bytes;
}

static void send_earlier(struct net_stream *stream, const struct net_frame_head *head,
                         const struct net_piece *answer, size_t bytes)
{
    struct net_piece earlier = *answer;
    struct buf *zeros = NULL;
    if (buf_create(bytes, &zeros) != ST_OK)
        abort();
    memset(zeros->data, 0, bytes);
    earlier.step--;
    earlier.crc32c = digest_crc32c(0, zeros->data, bytes);
    net_stream_send(stream, head, &earlier, zeros, 0, bytes);
    buf_unref(zeros);
}

static void on_rows(struct tiny *t, struct net_stream *stream, const struct net_frame_head *head,
                    const struct net_piece *piece)
{
    struct rows *r = t->rows;
    struct rows_parts parts;
    char why[ROWS_WHY_BYTES];
    if (rows_split(t->chunks, piece, &parts, why) != ST_OK ||
        (!piece->unsummed && payload_crc32c(&piece->payload) != piece->crc32c)) {
        net_stream_fail(stream, head, piece->chunk, "the payload is malformed");
        return;
    }
    pthread_mutex_lock(&t->lock);
    note_sent(r, (int)piece->chunk - t->chunks->n_dense, head, piece);
    struct net_piece answer = {.kind = add_rows(t, piece, &parts),
                               .chunk = piece->chunk,
                               .rows = piece->reads,
                               .dtype = t->dtype};
    answer.step = (uint64_t)t->version[piece->chunk];
    bool hold = t->hold || (r->lie == LIE_NO_PULL && piece->kind == PIECE_PULL);
    struct buf *b = NULL;
    if (hold) {
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->lock);
        return;
    }
    b = read_rows(t, piece, &parts);
    answer.crc32c = digest_crc32c(0, b->data, b->bytes);
    size_t bytes = apply_lie(r, &answer, b->bytes);
    int takes_back = t->bad_stamp > 0 && b->shared > 0 && bytes > 0;
    t->bad_stamp -= takes_back;
    bool is_late = r->lie == LIE_EARLIER && answer.step > 0;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    if (is_late)
        send_earlier(stream, head, &answer, bytes);
    net_stream_send(stream, head, &answer, b, 0, bytes);
    if (takes_back)
        segment_restamp(b->data);
    buf_unref(b);
}

static void rig_open_with(struct rig *r, int n_servers, enum dtype push, enum dtype version,
                          int64_t step_rows, int shared)
{
    struct net_table tables[2] = {{.name = "ads",
                                   .dim = DIM,
                                   .n_buckets = N_BUCKETS / 2,
                                   .max_rows = 1000,
                                   .step_rows = step_rows,
                                   .optimizer = TABLE_RIG_SGD}};
    memset(r, 0, sizeof *r);
    tiny_member_init(&r->m);
    tables[1] = tables[0];
    tables[1].name = "users";
    assert_int_equal(tables_add(r->m.chunks, tables, 2), ST_OK);
    assert_int_equal(r->m.chunks->n_chunks, ALL_CHUNKS);
    r->n = n_servers;
    for (int i = 0; i < n_servers; i++) {
        tiny_init(&r->tiny[i], r->m.chunks, i, n_servers);
        r->tiny[i].on_rows = on_rows;
        r->tiny[i].rows = &r->rows[i];
        r->tiny[i].dtype = version;
        if (shared)
            tiny_share(&r->tiny[i]);
        tiny_start(&r->tiny[i]);
        snprintf(r->addr[i], sizeof r->addr[i], "127.0.0.1:%d", r->tiny[i].port);
        r->addrs[i] = r->addr[i];
    }
    r->hosts = (struct hosts){n_servers, r->addrs};
    struct net_exchange_config cfg = {.ps_hosts = &r->hosts,
                                      .join = {.incarnation = 99, .chunks = r->m.chunks},
                                      .params = r->m.params,
                                      .wait_line_ms = 200,
                                      .shared_memory = shared};
    cfg.join.job = (struct net_job){
        .n_workers = 1, .train_steps = 10, .push_dtype = push, .version_dtype = version};
    optim_defaults(OPTIM_SGD, &cfg.join.job.optim);
    assert_int_equal(net_exchange_create(&cfg, &r->m.x), ST_OK);
}

static void rig_close(struct rig *r)
{
    net_exchange_destroy(r->m.x);
    for (int i = 0; i < r->n; i++) {
        tiny_free(&r->tiny[i]);
        for (int b = 0; b < N_BUCKETS; b++)
            for (int k = 0; k < r->rows[i].n_sent[b]; k++)
                free(r->rows[i].sent[b][k].payload);
    }
    tiny_member_free(&r->m);
}

static void rig_open(struct rig *r, int n_servers)
{
    rig_open_with(r, n_servers, DTYPE_F32, DTYPE_F32, STEP_ROWS, 0);
}

/* Keys of a bucket below N_KEYS that are multiples of `every`, and a gradient of each. */
struct part {
    size_t n;
    uint64_t keys[N_KEYS];
    float gradients[N_KEYS * DIM];
};

static float gradient_of(uint64_t key, int e)
{
    return (float)key + 0.25f * (float)e;
}

static void find_part(const struct chunks *c, int chunk, uint64_t every, struct part *p)
{
    const struct net_table *t = tables_of(c, chunk);
    p->n = 0;
    for (uint64_t key = 0; key < N_KEYS; key += every) {
        if (t->first_chunk + tables_bucket(t, key) != chunk)
            continue;
        for (int e = 0; e < DIM; e++)
            p->gradients[p->n * DIM + (size_t)e] = gradient_of(key, e);
        p->keys[p->n++] = key;
    }
}

/* Pushes gradients of the keys that are multiples of 2, and reads all keys. The buffers are
 * overwritten at once. */
static enum status push_rows(struct rig *r, int chunk, int64_t step, float weight)
{
    struct part even, all;
    find_part(r->m.chunks, chunk, 2, &even);
    find_part(r->m.chunks, chunk, 1, &all);
    const struct net_rows rows = {even.n, even.keys, even.gradients, all.n, all.keys};
    enum status st = net_exchange_push_rows(r->m.x, chunk, step, &rows, weight);
    memset(&even, 0xff, sizeof even);
    memset(&all, 0xff, sizeof all);
    return st;
}

/* Pushes all chunks and buckets. */
static void push_all(struct rig *r, int64_t step)
{
    for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++)
        assert_int_equal(push_rows(r, i, step, 1), ST_OK);
    tiny_push_all(&r->m, step);
}

/* Checks the rows of keys that are multiples of `every`, after n pushes of push_rows. */
static void assert_rows(struct rig *r, int chunk, uint64_t every, float n_pushes)
{
    struct part want;
    const uint64_t *keys;
    size_t n;
    const float *rows = net_exchange_rows(r->m.x, chunk, &keys, &n);
    find_part(r->m.chunks, chunk, every, &want);
    assert_int_equal(n, want.n);
    assert_memory_equal(keys, want.keys, n * sizeof *keys);
    for (size_t i = 0; i < n; i++)
        for (int e = 0; e < DIM; e++) {
            float expect = keys[i] % 2 ? 0 : n_pushes * gradient_of(keys[i], e);
            assert_float_equal(rows[i * DIM + (size_t)e], expect, 0);
        }
}

static void assert_no_rows(struct rig *r, int chunk)
{
    const uint64_t *keys;
    size_t n = 1;
    assert_null(net_exchange_rows(r->m.x, chunk, &keys, &n));
    assert_int_equal(n, 0);
}

static void start(struct rig *r, int64_t step)
{
    struct net_start s;
    assert_int_equal(net_exchange_start(r->m.x, &s), ST_OK);
    assert_int_equal(s.step, step);
    for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++) {
        assert_int_equal(net_exchange_version(r->m.x, i), step);
        assert_no_rows(r, i);
    }
}

static void wait_all(struct rig *r, int64_t version)
{
    assert_int_equal(net_exchange_wait(r->m.x, 0, ALL_CHUNKS, version), ST_OK);
    for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++)
        assert_int_equal(net_exchange_version(r->m.x, i), version);
}

/* Returns request k to bucket `chunk`, from the server that has it. */
static struct sent request(struct rig *r, int chunk, int k)
{
    struct tiny *t = &r->tiny[chunk % r->n];
    const struct rows *rows = t->rows;
    pthread_mutex_lock(&t->lock);
    int n = rows->n_sent[chunk - MODEL_CHUNKS];
    struct sent s = rows->sent[chunk - MODEL_CHUNKS][k];
    pthread_mutex_unlock(&t->lock);
    assert_in_range(k, 0, n - 1);
    return s;
}

/* All numbers are exact in each format. */
static void rows_follow_pushes_and_pulls(void **state)
{
    static const enum dtype formats[][2] = {
        {DTYPE_F32, DTYPE_F32}, {DTYPE_F16, DTYPE_F32}, {DTYPE_F32, DTYPE_F16}};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (int n = 1; n <= 2; n++) {
            struct rig r;
            struct net_exchange_stats stats;
            rig_open_with(&r, n, formats[f][0], formats[f][1], STEP_ROWS, 0);
            start(&r, 0);
            for (int64_t s = 0; s < 3; s++) {
                push_all(&r, s);
                wait_all(&r, s + 1);
                for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++)
                    assert_rows(&r, i, 1, (float)(s + 1));
            }
            for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++) {
                struct part third;
                const struct sent first = request(&r, i, 0), push = request(&r, i, 1);
                find_part(r.m.chunks, i, 3, &third);
                assert_int_equal(net_exchange_pull_rows(r.m.x, i, 3, third.keys, third.n), ST_OK);
                assert_no_rows(&r, i);                          /* until the answer is here */
                assert_int_equal(first.piece.kind, PIECE_PULL); /* no INIT */
                assert_int_equal(first.piece.rows + first.piece.reads, 0);
                assert_int_equal(push.piece.dtype, formats[f][0]);
            }
            wait_all(&r, 3);
            for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++) {
                const struct sent pull = request(&r, i, 4);
                assert_rows(&r, i, 3, 3);
                assert_int_equal(pull.piece.kind, PIECE_PULL);
                assert_int_equal(pull.piece.step, 4); /* version 3 or later */
                assert_int_equal(pull.piece.dtype, formats[f][1]);
            }
            net_exchange_stats(r.m.x, &stats);
            assert_int_equal(stats.applied, 3 * ALL_CHUNKS);
            assert_int_equal(stats.duplicate + stats.stale + stats.reconnects, 0);
            rig_close(&r);
        }
}

/* A push without keys, or of weight 0, advances the version and changes no row. */
static void empty_pushes_count(void **state)
{
    struct rig r;
    const struct net_rows none = {.n = 0};
    rig_open(&r, 1);
    start(&r, 0);
    for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++)
        assert_int_equal(net_exchange_push_rows(r.m.x, i, 0, &none, 1), ST_OK);
    assert_int_equal(net_exchange_wait(r.m.x, MODEL_CHUNKS, N_BUCKETS, 1), ST_OK);
    for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++) {
        assert_no_rows(&r, i);
        assert_int_equal(push_rows(&r, i, 1, 0), ST_OK);
    }
    assert_int_equal(net_exchange_wait(r.m.x, MODEL_CHUNKS, N_BUCKETS, 2), ST_OK);
    for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++)
        assert_rows(&r, i, 1, 0);
    rig_close(&r);
}

/* The stream breaks while every answer is pending. The requests are sent again with the same bytes,
 * although the caller's buffers have changed, and count once (I3). */
static void repeated_requests_are_the_same(void **state)
{
    struct rig r;
    rig_open(&r, 1);
    start(&r, 0);
    struct tiny *t = &r.tiny[0];
    tiny_set(t, &t->hold, 1);
    push_all(&r, 0);
    tiny_await(t, &r.rows[0].n_pushed, N_BUCKETS);
    tiny_stop(t);
    t->hold = 0;
    tiny_start(t);
    wait_all(&r, 1);
    for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++) {
        const struct sent a = request(&r, i, 1), b = request(&r, i, 2);
        assert_int_equal(a.piece.kind, PIECE_PUSH);
        assert_int_equal(a.generation, b.generation);
        assert_true(a.piece.kind == b.piece.kind && a.piece.step == b.piece.step &&
                    a.piece.rows == b.piece.rows && a.piece.reads == b.piece.reads &&
                    a.piece.weight == b.piece.weight &&
                    a.piece.payload.bytes == b.piece.payload.bytes);
        assert_memory_equal(a.payload, b.payload, a.piece.payload.bytes);
        assert_rows(&r, i, 1, 1);
    }
    struct net_exchange_stats stats;
    net_exchange_stats(r.m.x, &stats);
    assert_int_equal(stats.duplicate, ALL_CHUNKS);
    assert_int_equal(stats.reconnects, 1);
    rig_close(&r);
}

/* A generation ends while pushes are pending. The next one begins without rows, at the servers'
 * step, and the caller pulls again. */
static void next_generation_begins_without_rows(void **state)
{
    struct rig r;
    struct part all;
    rig_open(&r, 2);
    start(&r, 0);
    for (int64_t s = 0; s < 4; s++) {
        push_all(&r, s);
        wait_all(&r, s + 1);
    }
    for (int i = 0; i < 2; i++)
        tiny_go_back(&r.tiny[i], 2);
    for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++) {
        enum status st = push_rows(&r, i, 4, 1);
        assert_true(st == ST_OK || st == ST_REBASED);
    }
    assert_int_equal(net_exchange_wait(r.m.x, MODEL_CHUNKS, 1, 5), ST_REBASED);
    assert_int_equal(push_rows(&r, MODEL_CHUNKS, 4, 1), ST_REBASED);
    start(&r, 2);
    for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++) {
        find_part(r.m.chunks, i, 1, &all);
        assert_int_equal(net_exchange_pull_rows(r.m.x, i, 2, all.keys, all.n), ST_OK);
    }
    wait_all(&r, 2);
    for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++)
        assert_rows(&r, i, 1, 4); /* these servers keep their rows */
    push_all(&r, 2);
    wait_all(&r, 3);
    rig_close(&r);
}

/* An answer that is not what the request allows ends the exchange, with one sentence. */
static void wrong_answers_end_the_exchange(void **state)
{
    static const struct {
        enum lie lie;
        const char *sentence;
    } cases[] = {
        {LIE_SHORT, "bytes for table 'users', bucket 1, step 1; this worker requested"},
        {LIE_ROWS, "bytes for table 'users', bucket 1, step 1; this worker requested"},
        {LIE_NAN, "sent a row of table 'users' that is not finite: key "},
        {LIE_DTYPE, "numbers in fp32"},
        {LIE_PLACED, "bytes for table 'users', bucket 1, step 1; this worker requested"},
        {LIE_FUTURE, "step 18446744073709551615; this worker requested"},
    };
    const int chunk = MODEL_CHUNKS + N_BUCKETS / 2 + 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rig r;
        rig_open(&r, 1);
        start(&r, 0);
        pthread_mutex_lock(&r.tiny[0].lock);
        r.rows[0].lie = cases[i].lie;
        pthread_mutex_unlock(&r.tiny[0].lock);
        capture_begin();
        enum status pushed = push_rows(&r, chunk, 0, 1);
        enum status st = net_exchange_wait(r.m.x, chunk, 1, 1);
        capture_end();
        assert_int_equal(pushed, ST_OK);
        assert_int_equal(st, ST_PROTOCOL);
        assert_int_equal(capture_lines(), 1);
        if (!strstr(capture_text, cases[i].sentence))
            fail_msg("case %zu: '%s' does not contain '%s'", i, capture_text, cases[i].sentence);
        assert_int_equal(push_rows(&r, chunk, 0, 1), ST_PROTOCOL);
        rig_close(&r);
    }
}

/* An answer of an earlier version changes nothing; the right one follows. */
static void answers_of_earlier_versions_are_ignored(void **state)
{
    struct rig r;
    rig_open(&r, 1);
    start(&r, 0);
    push_all(&r, 0);
    wait_all(&r, 1);
    pthread_mutex_lock(&r.tiny[0].lock);
    r.rows[0].lie = LIE_EARLIER;
    pthread_mutex_unlock(&r.tiny[0].lock);
    push_all(&r, 1);
    wait_all(&r, 2);
    for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++)
        assert_rows(&r, i, 1, 2);
    struct net_exchange_stats stats;
    net_exchange_stats(r.m.x, &stats);
    assert_int_equal(stats.applied, 2 * ALL_CHUNKS);
    rig_close(&r);
}

static void requests_out_of_bounds_are_refused(void **state)
{
    struct rig r;
    static uint64_t keys[72];
    static float gradients[72 * DIM];
    struct net_rows many = {.n = 72, .keys = keys, .gradients = gradients};
    rig_open(&r, 1);
    assert_int_equal(push_rows(&r, MODEL_CHUNKS, 0, 1), ST_BUSY);
    start(&r, 0);
    const struct net_table *t = tables_of(r.m.chunks, MODEL_CHUNKS);
    assert_int_equal(tables_share(t, t->step_rows), 71);
    assert_int_equal(net_exchange_push_rows(r.m.x, MODEL_CHUNKS, 0, &many, 1), ST_RANGE);
    assert_int_equal(net_exchange_pull_rows(r.m.x, MODEL_CHUNKS, 0, keys, 72), ST_RANGE);
    assert_int_equal(push_rows(&r, MODEL_CHUNKS, -1, 1), ST_RANGE);
    assert_int_equal(net_exchange_pull_rows(r.m.x, MODEL_CHUNKS - 1, 0, keys, 1), ST_RANGE);
    assert_int_equal(net_exchange_pull_rows(r.m.x, ALL_CHUNKS, 0, keys, 1), ST_RANGE);
    assert_int_equal(net_exchange_push(r.m.x, MODEL_CHUNKS, 0, r.m.gradient, 1), ST_RANGE);
    assert_int_equal(net_exchange_pull(r.m.x, MODEL_CHUNKS, 0), ST_RANGE);
    assert_no_rows(&r, 0);
    struct tiny *server = &r.tiny[0];
    tiny_set(server, &server->hold, 1);
    assert_int_equal(push_rows(&r, MODEL_CHUNKS, 0, 1), ST_OK);
    assert_int_equal(net_exchange_pull_rows(r.m.x, MODEL_CHUNKS, 7, keys, 70), ST_BUSY);
    assert_true(net_exchange_is_busy(r.m.x, MODEL_CHUNKS));
    net_exchange_flush(r.m.x);
    tiny_await(server, &r.rows[0].n_pushed, 1);
    tiny_stop(server);
    server->hold = 0;
    tiny_start(server);
    assert_int_equal(net_exchange_wait(r.m.x, MODEL_CHUNKS, 1, 1), ST_OK);
    assert_rows(&r, MODEL_CHUNKS, 1, 1); /* the refused request changed nothing */
    rig_close(&r);
}

/* Unanswered pulls with more keys than the window do not keep contributions from the server, which
 * may need these for the answers. */
static void pulls_do_not_stall_pushes(void **state)
{
    enum { N = 147000 };
    struct rig r;
    uint64_t *keys = malloc(N * sizeof *keys);
    for (uint64_t i = 0; i < N; i++)
        keys[i] = i;
    rig_open_with(&r, 1, DTYPE_F32, DTYPE_F32, 580000, 1);
    start(&r, 0);
    pthread_mutex_lock(&r.tiny[0].lock);
    r.rows[0].lie = LIE_NO_PULL;
    pthread_mutex_unlock(&r.tiny[0].lock);
    for (int i = MODEL_CHUNKS; i < MODEL_CHUNKS + 2; i++)
        assert_int_equal(net_exchange_pull_rows(r.m.x, i, 1, keys, N), ST_OK);
    tiny_await(&r.tiny[0], &r.rows[0].n_pulled, N_BUCKETS + 2);
    tiny_push_all(&r.m, 0);
    tiny_await(&r.tiny[0], &r.tiny[0].n_push, MODEL_CHUNKS);
    assert_int_equal(net_exchange_wait(r.m.x, 0, MODEL_CHUNKS, 1), ST_OK);
    rig_close(&r);
    free(keys);
}

/* Payloads pass by reference in both directions, and a buffer that the server reuses before it is
 * read is requested again. */
static void shared_payloads_pass_by_reference(void **state)
{
    struct rig r;
    struct net_exchange_stats before, after;
    rig_open_with(&r, 2, DTYPE_F32, DTYPE_F32, STEP_ROWS, 1);
    start(&r, 0);
    net_exchange_stats(r.m.x, &before);
    size_t bytes = 0;
    int n_shared = 0;
    for (int64_t s = 0; s < 3; s++) {
        for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++) {
            struct part even, all;
            find_part(r.m.chunks, i, 2, &even);
            find_part(r.m.chunks, i, 1, &all);
            bytes += (even.n + all.n) * (sizeof(uint64_t) + DIM * sizeof(float));
            assert_int_equal(push_rows(&r, i, s, 1), ST_OK);
        }
        assert_int_equal(net_exchange_wait(r.m.x, MODEL_CHUNKS, N_BUCKETS, s + 1), ST_OK);
        for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++)
            assert_rows(&r, i, 1, (float)(s + 1));
    }
    net_exchange_stats(r.m.x, &after);
    assert_int_equal(after.shared_bytes - before.shared_bytes, bytes);
    for (int i = 0; i < 2; i++)
        n_shared += tiny_get(&r.tiny[i], &r.tiny[i].n_shared);
    assert_int_equal(n_shared, 3 * N_BUCKETS);
    tiny_set(&r.tiny[0], &r.tiny[0].bad_stamp, 2);
    for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++)
        assert_int_equal(push_rows(&r, i, 3, 1), ST_OK);
    assert_int_equal(net_exchange_wait(r.m.x, MODEL_CHUNKS, N_BUCKETS, 4), ST_OK);
    for (int i = MODEL_CHUNKS; i < ALL_CHUNKS; i++)
        assert_rows(&r, i, 1, 4);
    net_exchange_stats(r.m.x, &after);
    assert_in_range(after.reconnects, 1, 2);
    rig_close(&r);
}

int main(void)
{
    log_init("test", -1, LOG_LEVEL_INFO);
    return RUN_TESTS(rows_follow_pushes_and_pulls, empty_pushes_count,
                     repeated_requests_are_the_same, next_generation_begins_without_rows,
                     wrong_answers_end_the_exchange, answers_of_earlier_versions_are_ignored,
                     requests_out_of_bounds_are_refused, pulls_do_not_stall_pushes,
                     shared_payloads_pass_by_reference);
}
