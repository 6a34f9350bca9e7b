/* tests/net_tiny.c - see net_tiny.h. */
#include "tests/net_tiny.h"
#include "base/clock.h"
#include "base/digest.h"
#include "tests/check.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_own(const struct tiny *t, int chunk)
{
    return chunk % t->n_servers == t->index;
}

/* Writes the shard map and the addresses of the servers into a reply. */
static void tell_servers(const struct tiny *t, struct net_join_reply *reply)
{
    reply->n_chunks = t->n_chunks;
    reply->server = malloc((size_t)t->n_chunks * sizeof *reply->server);
    for (int i = 0; i < t->n_chunks; i++)
        reply->server[i] = i % t->n_servers;
    if (t->servers && hosts_copy((const char *const *)t->servers->addr, (size_t)t->servers->n,
                                 &reply->servers) != ST_OK)
        abort();
}

static void on_join(void *ctx, const struct net_join *req, const char *peer,
                    struct net_join_reply *reply)
{
    struct tiny *t = ctx;
    pthread_mutex_lock(&t->lock);
    t->n_join++;
    t->last_member = req->member;
    reply->place = t->place;
    reply->answer = (enum join_answer)t->answer;
    if (t->retries > 0) {
        t->retries--;
        reply->answer = JOIN_RETRY;
    }
    int64_t lowest = INT64_MAX;
    for (int i = 0; i < t->n_chunks; i++)
        if (is_own(t, i) && t->version[i] < lowest)
            lowest = t->version[i];
    if (reply->answer == JOIN_INIT && lowest >= 0)
        reply->answer = JOIN_WELCOME;
    reply->step = lowest;
    reply->generation = (uint64_t)t->generation;
    if (t->index == 0)
        tell_servers(t, reply);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    segment_name_of(t->segment, &reply->segment);
    snprintf(reply->why, sizeof reply->why, "tiny says %d", (int)reply->answer);
}

static void on_leave(void *ctx, const struct net_leave *leave)
{
    struct tiny *t = ctx;
    pthread_mutex_lock(&t->lock);
    t->n_soon += leave->soon;
    t->n_leave += !leave->soon;
    t->last_member = leave->member;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

#define PLACE_BYTES(t) ((size_t)(t)->chunks->chunk_bytes + SEGMENT_STAMP_BYTES)

/* A chunk has two places in the segment, which its versions use in turn. */
enum status tiny_new_buf(struct tiny *t, int chunk, size_t bytes, struct buf **out)
{
    if (!t->segment)
        return buf_create(bytes, out);
    size_t place = 2 * (size_t)chunk + (size_t)(t->version[chunk] + 1) % 2;
    size_t at = place * PLACE_BYTES(t) + SEGMENT_STAMP_BYTES;
    char *data = (char *)segment_data(t->segment) + at;
    segment_restamp(data);
    return buf_create_shared(data, bytes, at + 1, out);
}

/* Makes the chunk's next version: the payload `from`, or the old values plus one. */
static void renew(struct tiny *t, int chunk, const struct net_payload *from)
{
    struct buf *b = NULL, *old = t->value[chunk];
    size_t bytes = from ? from->bytes : old->bytes;
    if (tiny_new_buf(t, chunk, bytes, &b) != ST_OK)
        abort();
    if (from)
        payload_copy(from, b->data);
    for (size_t i = 0; !from && i < bytes / sizeof(float); i++)
        ((float *)b->data)[i] = ((float *)old->data)[i] + 1;
    buf_unref(old);
    t->value[chunk] = b;
    t->version[chunk]++;
}

/* Returns the first value of the piece's payload; 0: the piece has none. */
static float first_of(const struct net_piece *p)
{
    uint8_t coded[CHUNKS_MAX_BYTES / 256];
    float first = 0;
    if (p->payload.bytes == 0 || p->payload.bytes > sizeof coded || dtype_block(p->dtype) > 1)
        return 0;
    payload_copy(&p->payload, coded);
    dtype_decode(p->dtype, &first, coded, 1);
    return first;
}

static enum piece_kind take(struct tiny *t, const struct net_frame_head *head,
                            const struct net_piece *p)
{
    int c = (int)p->chunk;
    if (p->kind == PIECE_INIT && t->version[c] < 0)
        renew(t, c, &p->payload);
    if (p->kind != PIECE_PUSH)
        return p->kind == PIECE_PULL_AVERAGE ? PIECE_AVERAGE : PIECE_VERSION;
    if (t->n_push < TINY_ORDER)
        t->order[t->n_push] = p->chunk;
    t->n_push++;
    t->n_shared += p->shared_offset != 0;
    t->n_asked += p->ask_taken;
    if (!p->unsummed && payload_crc32c(&p->payload) != p->crc32c)
        abort();
    if (t->incarnation[c] && t->incarnation[c] != head->incarnation)
        abort();
    t->incarnation[c] = head->incarnation;
    if (t->lose)
        return PIECE_APPLIED;
    if ((int64_t)p->step == t->version[c]) {
        t->pushed[c] = first_of(p);
        renew(t, c, NULL);
        return PIECE_APPLIED;
    }
    t->n_duplicate++;
    return PIECE_DUPLICATE;
}

/* If the piece is of another generation, answers it with REBASE and returns true. */
static bool rebase(struct tiny *t, struct net_stream *stream, const struct net_frame_head *head,
                   const struct net_piece *piece)
{
    const struct net_piece answer = {.kind = PIECE_REBASE, .chunk = piece->chunk};
    pthread_mutex_lock(&t->lock);
    bool other = head->generation != (uint64_t)t->generation;
    pthread_mutex_unlock(&t->lock);
    if (other)
        net_stream_send(stream, head, &answer, NULL, 0, 0);
    return other;
}

/* Writes the chunk's version to the member's values, if t->writes is set. Returns true if the
 * answer must report it. The caller holds the lock. */
static bool place(struct tiny *t, const struct net_piece *p)
{
    const struct net_chunk *c = &t->chunks->chunks[p->chunk];
    size_t bytes = (size_t)c->n_elems * sizeof(float);
    struct segment *values = p->placed ? segment_values(p->memory) : NULL;
    if (!t->writes || (!values && t->writes != 2))
        return false;
    if (values) {
        segment_unref(t->values);
        t->values = segment_ref(values);
        float *to = (float *)segment_data(values) + c->first;
        if (t->writes == 3)
            memset(to, 0, bytes);
        else
            memcpy(to, t->value[p->chunk]->data, bytes);
    }
    t->n_placed++;
    return true;
}

/* Returns a reference to the value in t->dtype; NULL for NULL. */
static struct buf *encode(const struct tiny *t, struct buf *value)
{
    size_t n = value ? value->bytes / sizeof(float) : 0;
    struct buf *coded = NULL;
    if (!value || t->dtype == DTYPE_F32)
        return value ? buf_ref(value) : NULL;
    if (buf_create(dtype_bytes(t->dtype, n), &coded) != ST_OK)
        abort();
    dtype_encode(t->dtype, coded->data, value->data, n);
    return coded;
}

static uint64_t answered_version(const struct tiny *t, const struct net_piece *piece)
{
    uint64_t version = (uint64_t)t->version[piece->chunk];
    return version - (t->older && piece->kind == PIECE_PULL && piece->step == version);
}

/* Checks a piece. Returns true if on_piece must answer it. */
static bool accepts(struct tiny *t, struct net_stream *stream, const struct net_frame_head *head,
                    const struct net_piece *piece)
{
    bool has_rows = piece->chunk >= (uint32_t)t->chunks->n_dense;
    if (piece->chunk >= (uint32_t)t->n_chunks ||
        (!has_rows && piece->payload.bytes > 0 &&
         piece->payload.bytes !=
             dtype_bytes(piece->dtype, (size_t)t->chunks->chunks[piece->chunk].n_elems))) {
        net_stream_fail(stream, head, piece->chunk, "no such chunk or length");
        return false;
    }
    if (rebase(t, stream, head, piece))
        return false;
    if (has_rows)
        t->on_rows(t, stream, head, piece);
    return !has_rows;
}

static void on_piece(void *ctx, struct net_stream *stream, const struct net_frame_head *head,
                     const struct net_piece *piece)
{
    struct tiny *t = ctx;
    if (!accepts(t, stream, head, piece))
        return;
    struct net_piece answer = {.chunk = piece->chunk};
    pthread_mutex_lock(&t->lock);
    t->n_piece++;
    t->last_rank = (int)head->member;
    answer.kind = take(t, head, piece);
    answer.step = answered_version(t, piece);
    answer.dtype = t->dtype;
    struct buf *value = encode(t, t->value[piece->chunk]);
    answer.placed = answer.kind == PIECE_APPLIED && place(t, piece);
    int hold = t->hold || t->lose || !value, over = t->end && t->version[piece->chunk] >= t->end;
    size_t bytes = value && !over ? value->bytes : 0;
    if (value)
        answer.crc32c = digest_crc32c(0, value->data, value->bytes);
    answer.kind = over ? PIECE_REBASE : answer.kind;
    if (t->bad_crc > 0 && !hold) {
        t->bad_crc--;
        answer.crc32c ^= 1;
    }
    if (t->bad_length > 0 && !hold) {
        t->bad_length--;
        bytes -= 4;
    }
    if (t->bad_place > 0 && !hold && value->shared) {
        t->bad_place--;
        value->shared += (uint64_t)1 << 40;
    }
    if (t->kind != PIECE_NONE && piece->kind == PIECE_PUSH) {
        answer.kind = (enum piece_kind)t->kind;
        snprintf(answer.why, sizeof answer.why, "tiny does not like it");
    }
    int say_taken = t->say_taken && piece->ask_taken, take_back = t->bad_stamp > 0 && !hold;
    t->bad_stamp -= take_back;
    t->held = hold ? stream : t->held;
    t->held_head = *head;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    const struct net_piece taken = {
        .kind = PIECE_TAKEN, .chunk = piece->chunk, .step = piece->step};
    if (say_taken)
        net_stream_send(stream, head, &taken, NULL, 0, 0);
    if (!hold)
        net_stream_send(stream, head, &answer, answer.placed ? NULL : value, 0, bytes);
    if (take_back) /* answers are sent only when the client's whole frame is processed */
        segment_restamp(value->data);
    buf_unref(value);
}

static void on_closed(void *ctx, struct net_stream *stream)
{
    struct tiny *t = ctx;
    pthread_mutex_lock(&t->lock);
    t->n_closed++;
    t->held = stream == t->held ? NULL : t->held;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

void tiny_init(struct tiny *t, const struct chunks *chunks, int index, int n_servers)
{
    memset(t, 0, sizeof *t);
    assert_in_range(chunks->n_chunks, 1, TINY_CHUNKS);
    t->chunks = chunks;
    t->n_chunks = chunks->n_chunks;
    t->n_servers = n_servers;
    t->index = index;
    t->answer = JOIN_INIT;
    t->generation = 1;
    pthread_mutex_init(&t->lock, NULL);
    clock_cond_init(&t->changed);
    t->last_member = t->last_rank = -5;
    for (int i = 0; i < TINY_CHUNKS; i++)
        t->version[i] = i < chunks->n_dense || i >= chunks->n_chunks ? -1 : 0;
}

void tiny_share(struct tiny *t)
{
    char why[SEGMENT_WHY_BYTES];
    size_t bytes = 2 * (size_t)t->n_chunks * PLACE_BYTES(t);
    assert_int_equal(segment_create(bytes, &t->segment, why), ST_OK);
}

void tiny_start(struct tiny *t)
{
    char addr[32];
    snprintf(addr, sizeof addr, "127.0.0.1:%d", t->port);
    struct net_server_config cfg = {.addr = addr,
                                    .handler = {.ctx = t,
                                                .join = on_join,
                                                .leave = on_leave,
                                                .piece = on_piece,
                                                .stream_closed = on_closed}};
    assert_int_equal(net_server_create(&cfg, &t->server), ST_OK);
    t->port = net_server_port(t->server);
    assert_true(t->port > 0);
}

void tiny_stop(struct tiny *t)
{
    net_server_destroy(t->server);
    t->server = NULL;
}

void tiny_free(struct tiny *t)
{
    tiny_stop(t);
    for (int i = 0; i < TINY_CHUNKS; i++)
        buf_unref(t->value[i]);
    segment_unref(t->segment);
    segment_unref(t->values);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
}

void tiny_await(struct tiny *t, const int *counter, int n)
{
    int64_t deadline = clock_deadline_ns(20000);
    pthread_mutex_lock(&t->lock);
    while (*counter < n && clock_cond_wait(&t->changed, &t->lock, deadline) == 0)
        ;
    int got = *counter;
    pthread_mutex_unlock(&t->lock);
    assert_in_range(got, n, 1 << 30);
}

int tiny_get(struct tiny *t, const int *field)
{
    pthread_mutex_lock(&t->lock);
    int value = *field;
    pthread_mutex_unlock(&t->lock);
    return value;
}

void tiny_set(struct tiny *t, int *field, int value)
{
    pthread_mutex_lock(&t->lock);
    *field = value;
    pthread_mutex_unlock(&t->lock);
}

/* Starts a generation at `step`. The caller holds the lock. */
static void go_back(struct tiny *t, int64_t step)
{
    t->generation++;
    for (int i = 0; i < t->n_chunks; i++) {
        const struct net_chunk *c = &t->chunks->chunks[i];
        struct buf *b;
        if (i >= t->chunks->n_dense)
            t->version[i] = step;
        if (!t->value[i])
            continue;
        if (buf_create((size_t)c->n_elems * sizeof(float), &b) != ST_OK)
            abort();
        for (int64_t k = 0; k < c->n_elems; k++)
            ((float *)b->data)[k] = (float)(c->first + k + step);
        buf_unref(t->value[i]);
        t->value[i] = b;
        t->version[i] = step;
    }
}

void tiny_go_back(struct tiny *t, int64_t step)
{
    pthread_mutex_lock(&t->lock);
    go_back(t, step);
    pthread_mutex_unlock(&t->lock);
}

void tiny_forget(struct tiny *t)
{
    pthread_mutex_lock(&t->lock);
    t->generation++;
    for (int i = 0; i < t->n_chunks; i++) {
        buf_unref(t->value[i]);
        t->value[i] = NULL;
        t->version[i] = -1;
    }
    pthread_mutex_unlock(&t->lock);
}

void tiny_go_on(struct tiny *t, int64_t step, int index, const struct hosts *servers,
                const struct net_place *place)
{
    pthread_mutex_lock(&t->lock); /* no answer may contain the new map with the old generation */
    t->index = index;
    t->n_servers = servers->n;
    t->servers = servers;
    t->place = *place;
    t->end = 0;
    for (int i = 0; i < t->n_chunks; i++) { /* the server has all chunks, as after a fetch */
        size_t bytes = (size_t)t->chunks->chunks[i].n_elems * sizeof(float);
        if (!t->value[i] && buf_create(bytes, &t->value[i]) != ST_OK)
            abort();
    }
    go_back(t, step);
    pthread_mutex_unlock(&t->lock);
}

void tiny_rebase_late(struct tiny *t, int chunk)
{
    const struct net_piece answer = {.kind = PIECE_REBASE, .chunk = (uint32_t)chunk};
    pthread_mutex_lock(&t->lock); /* keeps the stream from being closed */
    assert_non_null(t->held);
    net_stream_send(t->held, &t->held_head, &answer, NULL, 0, 0);
    pthread_mutex_unlock(&t->lock);
}

void tiny_fill(struct tiny *t)
{
    pthread_mutex_lock(&t->lock);
    size_t bytes = (size_t)t->chunks->chunks[0].n_elems * sizeof(float);
    if (!t->value[0] && buf_create(bytes, &t->value[0]) != ST_OK)
        abort();
    memset(t->value[0]->data, 7, bytes);
    t->version[0] = 0;
    pthread_mutex_unlock(&t->lock);
}

void tiny_member_init(struct tiny_member *m)
{
    const struct net_param param = {.name = "w", .shape = {1, {MODEL_ELEMS}}};
    *m = (struct tiny_member){.x = NULL};
    assert_int_equal(chunks_create(&param, 1, MODEL_CHUNK_BYTES, &m->chunks), ST_OK);
    assert_int_equal(m->chunks->n_chunks, MODEL_CHUNKS);
    m->params = malloc(MODEL_ELEMS * sizeof(float));
    m->gradient = malloc(MODEL_ELEMS * sizeof(float));
    for (int i = 0; i < MODEL_ELEMS; i++) {
        m->params[i] = (float)i;
        m->gradient[i] = 1;
    }
}

void tiny_member_free(struct tiny_member *m)
{
    chunks_destroy(m->chunks);
    free(m->params);
    free(m->gradient);
}

void tiny_push_all(struct tiny_member *m, int64_t step)
{
    for (int i = 0; i < MODEL_CHUNKS; i++)
        assert_int_equal(
            net_exchange_push(m->x, i, step, m->gradient + m->chunks->chunks[i].first, 1), ST_OK);
    net_exchange_flush(m->x);
}

void tiny_assert_params(const struct tiny_member *m, float added)
{
    for (int i = 0; i < MODEL_ELEMS; i++)
        if (m->params[i] != (float)i + added)
            fail_msg("params[%d] is %g, not %g", i, (double)m->params[i], (double)(i + added));
}

void tiny_step_on(struct tiny_member *m, int64_t from, int64_t to)
{
    for (int64_t s = from; s < to; s++) {
        tiny_push_all(m, s);
        assert_int_equal(net_exchange_wait(m->x, 0, MODEL_CHUNKS, s + 1), ST_OK);
    }
    tiny_assert_params(m, (float)to);
}
