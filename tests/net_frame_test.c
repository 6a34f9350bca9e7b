/* tests/net_frame_test.c - compares the encoder and decoder of Frame with those of protobuf-c, with
 * the fields in any order and the bytes in any spans, and checks input that is not a frame. */
#include "base/digest.h"
#include "base/rng.h"
#include "net/wire/frame.h"
#include "net/wire/lacking.h"
#include "net/wire/weir.pb-c.h"
#include "tests/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_BYTES = 4096 };

struct seen {
    int n;
    struct net_piece piece[8]; /* first pieces; their payloads are not valid after decoding */
    uint8_t payload[8][64];    /* first bytes of their payloads */
    size_t payload_bytes[8];
    uint8_t lacking[LACKING_MAX_BYTES]; /* marks of the first piece */
    enum status answer;
};

static enum status keep(void *ctx, const struct net_frame_head *head, const struct net_piece *piece)
{
    struct seen *s = ctx;
    if (s->n < 8) {
        s->piece[s->n] = *piece;
        s->payload_bytes[s->n] = piece->payload.bytes;
        if (piece->payload.bytes <= sizeof s->payload[0])
            payload_copy(&piece->payload, s->payload[s->n]);
    }
    (void)payload_crc32c(&piece->payload);
    if (s->n == 0 && piece->lacking.bytes <= sizeof s->lacking)
        payload_copy(&piece->lacking, s->lacking);
    s->n++;
    return s->answer;
}

static enum status decode_spans(const struct net_span *spans, size_t n, struct net_frame_head *head,
                                struct seen *seen, char why[128])
{
    memset(seen, 0, sizeof *seen);
    why[0] = 0;
    return frame_decode(spans, n, head, keep, seen, why, 128);
}

static enum status decode(const uint8_t *data, size_t n, struct net_frame_head *head,
                          struct seen *seen, char why[128])
{
    struct net_span span = {data, n};
    return decode_spans(&span, 1, head, seen, why);
}

static const struct net_piece sample = {.kind = PIECE_PUSH,
                                        .chunk = 300,
                                        .step = 1234567890123,
                                        .weight = 64.5f,
                                        .crc32c = 0xdeadbeef,
                                        .why = "no such chunk",
                                        .dtype = DTYPE_BF16};
static const uint8_t sample_payload[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const struct net_frame_head sample_head = {7, 2, 0x1122334455667788};

static size_t encode(const struct net_frame_head *head, const struct net_piece *pieces, int n,
                     const uint8_t *payload, size_t payload_bytes, uint8_t *out)
{
    size_t at = frame_encode_head(head, out);
    assert_in_range(at, 0, FRAME_HEAD_MAX);
    for (int i = 0; i < n; i++) {
        size_t bytes = frame_encode_piece_head(&pieces[i], payload_bytes, out + at);
        assert_in_range(bytes, 2, PIECE_HEAD_MAX + pieces[i].lacking.bytes);
        at += bytes;
        if (payload_bytes)
            memcpy(out + at, payload, payload_bytes);
        at += payload_bytes;
    }
    return at;
}

static size_t encode_by_protobuf(const struct net_frame_head *head, const struct net_piece *piece,
                                 const uint8_t *payload, size_t payload_bytes, uint8_t *out)
{
    Weir__V1__Piece p = WEIR__V1__PIECE__INIT, *list[1] = {&p};
    p.kind = (Weir__V1__Piece__Kind)piece->kind;
    p.chunk = piece->chunk;
    p.step = piece->step;
    p.weight = piece->weight;
    p.crc32c = piece->crc32c;
    p.why = (char *)(uintptr_t)piece->why;
    p.dtype = (Weir__V1__Piece__Dtype)piece->dtype;
    p.shared_offset = piece->shared_offset;
    p.shared_bytes = piece->shared_bytes;
    p.shared = piece->shared;
    p.placed = piece->placed;
    p.rows = piece->rows;
    p.reads = piece->reads;
    p.shared_stamp = piece->shared_stamp;
    p.ask_taken = piece->ask_taken;
    p.samples = piece->samples;
    if (piece->has_rate) {
        p.rate_factor_case = WEIR__V1__PIECE__RATE_FACTOR_RATE;
        p.rate = piece->rate;
    }
    p.lacking.len = piece->lacking.bytes;
    p.lacking.data = p.lacking.len ? (uint8_t *)(uintptr_t)piece->lacking.span->data : NULL;
    p.payload.data = (uint8_t *)(uintptr_t)payload;
    p.payload.len = payload_bytes;
    Weir__V1__Frame f = WEIR__V1__FRAME__INIT;
    f.generation = head->generation;
    f.member = head->member;
    f.incarnation = head->incarnation;
    f.n_pieces = 1;
    f.pieces = list;
    return weir__v1__frame__pack(&f, out);
}

static uint64_t pick(uint64_t key, uint64_t *n)
{
    static const uint64_t edges[] = {0,          1,          127,        128,
                                     16383,      16384,      1 << 21,    0x7fffffff,
                                     0x80000000, 0xffffffff, 1ull << 32, UINT64_MAX};
    uint64_t r = rng_u64(key, (*n)++);
    return r % 3 ? edges[(r >> 8) % (sizeof edges / sizeof edges[0])] : rng_u64(key, (*n)++);
}

/* Sets marks of any bytes; returns their number, often 0. */
static size_t draw_marks(uint64_t *n, uint8_t marks[LACKING_MAX_BYTES])
{
    memset(marks, (int)(pick(1, n) % 256), LACKING_MAX_BYTES);
    return pick(1, n) % 2 ? pick(1, n) % LACKING_MAX_BYTES : 0;
}

static void assert_lacking(const struct seen *seen, const uint8_t *marks, size_t n)
{
    assert_int_equal(seen->piece[0].lacking.bytes, n);
    assert_memory_equal(seen->lacking, marks, n);
}

static void draw_shared(uint64_t *n, float rate, struct net_piece *piece)
{
    if (pick(1, n) % 2 == 0)
        return;
    piece->shared_offset = pick(1, n);
    piece->shared_bytes = (uint32_t)pick(1, n);
    piece->shared = pick(1, n) % 2, piece->placed = pick(1, n) % 2;
    piece->shared_stamp = pick(1, n);
    piece->ask_taken = (int)(pick(1, n) % 2);
    piece->samples = pick(1, n);
    piece->has_rate = pick(1, n) % 2;
    piece->rate = piece->has_rate ? rate : 0;
}

static void draw_rows(uint64_t *n, struct net_piece *piece)
{
    bool any = pick(1, n) % 2;
    piece->rows = any ? (uint32_t)pick(1, n) : 0;
    piece->reads = any ? (uint32_t)pick(1, n) : 0;
}

static void encoder_writes_same_bytes_as_protobuf(void **state)
{
    static uint8_t ours[1 << 17], theirs[1 << 17], payload[1 << 16];
    static const size_t sizes[] = {0, 1, 4, 100, 127, 128, 16000, 16384, 65536};
    static const float weights[] = {0.0f, -0.0f, 1.0f, 1e-45f, 3e38f};
    for (uint64_t i = 0, n = 0; i < 3000; i++) {
        struct net_piece piece = {.kind = (enum piece_kind)(pick(1, &n) % 23),
                                  .chunk = (uint32_t)pick(1, &n),
                                  .step = pick(1, &n),
                                  .weight = weights[pick(1, &n) % 5],
                                  .crc32c = (uint32_t)pick(1, &n),
                                  .dtype = (enum dtype)(pick(1, &n) & 0x7fffffff)};
        draw_shared(&n, weights[pick(1, &n) % 5], &piece);
        draw_rows(&n, &piece);
        uint8_t marks[LACKING_MAX_BYTES];
        const struct net_span span = {marks, draw_marks(&n, marks)};
        piece.lacking = (struct net_payload){&span, 0, span.n};
        size_t why = pick(1, &n) % (FRAME_MAX_WHY + 1);
        memset(piece.why, 'w', pick(1, &n) % 2 ? why : 0);
        struct net_frame_head head = {pick(1, &n), (uint32_t)pick(1, &n), pick(1, &n)};
        size_t bytes = sizes[pick(1, &n) % 9];
        size_t a = encode(&head, &piece, 1, payload, bytes, ours);
        size_t b = encode_by_protobuf(&head, &piece, payload, bytes, theirs);
        assert_int_equal(a, b);
        if (span.n == 0 && !piece.placed && !piece.rows &&
            !piece.reads) /* else protobuf writes fields behind the payload */
            assert_memory_equal(ours, theirs, a);
        struct net_frame_head got = {0, 0, 0};
        struct seen seen;
        char text[128];
        assert_int_equal(decode(theirs, b, &got, &seen, text), ST_OK);
        assert_int_equal(seen.n, 1);
        assert_true(got.generation == head.generation && got.member == head.member &&
                    got.incarnation == head.incarnation);
        assert_int_equal(seen.piece[0].kind, piece.kind);
        assert_int_equal(seen.piece[0].chunk, piece.chunk);
        assert_true(seen.piece[0].step == piece.step);
        assert_true(seen.piece[0].weight == piece.weight);
        assert_int_equal(seen.piece[0].crc32c, piece.crc32c);
        assert_int_equal(seen.piece[0].dtype, piece.dtype);
        assert_true(seen.piece[0].shared_offset == piece.shared_offset);
        assert_int_equal(seen.piece[0].shared_bytes, piece.shared_bytes);
        assert_true(seen.piece[0].shared == piece.shared && seen.piece[0].placed == piece.placed);
        assert_true(seen.piece[0].shared_stamp == piece.shared_stamp);
        assert_int_equal(seen.piece[0].ask_taken, piece.ask_taken);
        assert_true(seen.piece[0].samples == piece.samples &&
                    seen.piece[0].has_rate == piece.has_rate);
        assert_memory_equal(&seen.piece[0].rate, &piece.rate, sizeof piece.rate);
        assert_true(seen.piece[0].rows == piece.rows && seen.piece[0].reads == piece.reads);
        assert_string_equal(seen.piece[0].why, piece.why);
        assert_int_equal(seen.payload_bytes[0], bytes);
        assert_lacking(&seen, marks, span.n);
    }
}

static void protobuf_reads_encoded_frames(void **state)
{
    uint8_t bytes[SMALL_BYTES];
    size_t n = encode(&sample_head, &sample, 1, sample_payload, sizeof sample_payload, bytes);
    Weir__V1__Frame *f = weir__v1__frame__unpack(NULL, n, bytes);
    assert_non_null(f);
    assert_true(f->generation == 7 && f->member == 2 && f->incarnation == 0x1122334455667788);
    assert_int_equal(f->n_pieces, 1);
    assert_int_equal(f->pieces[0]->kind, WEIR__V1__PIECE__KIND__PUSH);
    assert_int_equal(f->pieces[0]->chunk, 300);
    assert_int_equal(f->pieces[0]->dtype, WEIR__V1__PIECE__DTYPE__BF16);
    assert_true(f->pieces[0]->step == sample.step && f->pieces[0]->weight == 64.5f);
    assert_int_equal(f->pieces[0]->payload.len, sizeof sample_payload);
    assert_memory_equal(f->pieces[0]->payload.data, sample_payload, sizeof sample_payload);
    weir__v1__frame__free_unpacked(f, NULL);
}

static void assert_sample(enum status st, const struct net_frame_head *head,
                          const struct seen *seen, int n)
{
    assert_int_equal(st, ST_OK);
    assert_true(head->generation == sample_head.generation && head->member == sample_head.member &&
                head->incarnation == sample_head.incarnation);
    assert_int_equal(seen->n, n);
    for (int i = 0; i < n; i++) {
        const struct net_piece *p = &seen->piece[i];
        assert_int_equal(p->kind, sample.kind);
        assert_int_equal(p->chunk, sample.chunk);
        assert_true(p->step == sample.step && p->weight == sample.weight);
        assert_int_equal(p->crc32c, sample.crc32c);
        assert_int_equal(p->dtype, sample.dtype);
        assert_string_equal(p->why, sample.why);
        assert_int_equal(seen->payload_bytes[i], sizeof sample_payload);
        assert_memory_equal(seen->payload[i], sample_payload, sizeof sample_payload);
    }
}

static size_t put(uint8_t *out, const void *data, size_t n)
{
    memcpy(out, data, n);
    return n;
}

/* Calls fn with every order of 0 .. n-1 (Heap's algorithm). */
static void each_order(int *order, int n, int k, void (*fn)(const int *order, int n))
{
    if (k == 1) {
        fn(order, n);
        return;
    }
    for (int i = 0; i < k; i++) {
        each_order(order, n, k - 1, fn);
        int other = k % 2 ? 0 : i, t = order[other];
        order[other] = order[k - 1];
        order[k - 1] = t;
    }
}

static size_t raw_piece(const int *order, int n, uint8_t *out)
{
    static const struct {
        size_t n;
        uint8_t bytes[24];
    } fields[9] = {
        {2, {0x08, 2}},
        {3, {0x10, 0xac, 0x02}},
        {7, {0x18, 0xcb, 0x89, 0xec, 0x8f, 0xf7, 0x23}},
        {5, {0x25, 0, 0, 0x81, 0x42}},
        {5, {0x2d, 0xef, 0xbe, 0xad, 0xde}},
        {2, {0x38, 1}},
        {15, {0x32, 13, 'n', 'o', ' ', 's', 'u', 'c', 'h', ' ', 'c', 'h', 'u', 'n', 'k'}},
        {14, {0x7a, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
        {5, {0xfa, 0x01, 2, 0xff, 0xff}}}; /* field 31, unknown */
    size_t at = 0;
    for (int i = 0; i < n; i++)
        at += put(out + at, fields[order[i]].bytes, fields[order[i]].n);
    return at;
}

static void check_piece_order(const int *order, int n)
{
    uint8_t bytes[256];
    size_t at = frame_encode_head(&sample_head, bytes);
    uint8_t piece[128];
    size_t m = raw_piece(order, n, piece);
    bytes[at++] = 0x22;
    bytes[at++] = (uint8_t)m;
    at += put(bytes + at, piece, m);
    struct net_frame_head head;
    struct seen seen;
    char why[128];
    enum status st = decode(bytes, at, &head, &seen, why);
    assert_sample(st, &head, &seen, 1);
}

static void check_frame_order(const int *order, int n)
{
    static const int in_order[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    uint8_t piece[128], bytes[512];
    size_t m = raw_piece(in_order, 8, piece), at = 0;
    for (int i = 0; i < n; i++) {
        static const uint8_t generation[] = {0x08, 7}, member[] = {0x10, 2},
                             incarnation[] = {0x19, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11},
                             unknown[] = {0x3d, 1, 2, 3, 4};
        if (order[i] == 0)
            at += put(bytes + at, generation, sizeof generation);
        else if (order[i] == 1)
            at += put(bytes + at, member, sizeof member);
        else if (order[i] == 2)
            at += put(bytes + at, incarnation, sizeof incarnation);
        else if (order[i] == 3)
            at += put(bytes + at, unknown, sizeof unknown);
        else {
            bytes[at++] = 0x22;
            bytes[at++] = (uint8_t)m;
            at += put(bytes + at, piece, m);
        }
    }
    struct net_frame_head head;
    struct seen seen;
    char why[128];
    enum status st = decode(bytes, at, &head, &seen, why);
    assert_sample(st, &head, &seen, 2);
}

static void fields_decode_in_any_order(void **state)
{
    int order[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    each_order(order, 9, 9, check_piece_order);
    int frame[6] = {0, 1, 2, 3, 4, 5};
    each_order(frame, 6, 6, check_frame_order);
}

static void frames_decode_from_any_spans(void **state)
{
    uint8_t bytes[SMALL_BYTES];
    struct net_piece two[2] = {sample, sample};
    size_t n = encode(&sample_head, two, 2, sample_payload, sizeof sample_payload, bytes);
    struct net_frame_head head;
    struct seen seen;
    char why[128];
    for (size_t i = 0; i <= n; i++)
        for (size_t j = i; j <= n; j++) {
            struct net_span spans[4] = {
                {bytes, i}, {bytes, 0}, {bytes + i, j - i}, {bytes + j, n - j}};
            enum status st = decode_spans(spans, 4, &head, &seen, why);
            assert_sample(st, &head, &seen, 2);
        }
    struct net_span single[SMALL_BYTES];
    for (size_t i = 0; i < n; i++)
        single[i] = (struct net_span){bytes + i, 1};
    enum status st = decode_spans(single, n, &head, &seen, why);
    assert_sample(st, &head, &seen, 2);
}

static void truncated_frames_are_refused(void **state)
{
    uint8_t bytes[SMALL_BYTES];
    size_t n = encode(&sample_head, &sample, 1, sample_payload, sizeof sample_payload, bytes);
    size_t head_bytes = frame_encode_head(&sample_head, bytes);
    struct net_frame_head head;
    struct seen seen;
    char why[128];
    for (size_t i = 0; i < n; i++) {
        uint8_t *exact = malloc(i ? i : 1); /* lets a sanitizer detect a read behind the end */
        memcpy(exact, bytes, i);
        enum status st = decode(exact, i, &head, &seen, why);
        int whole = i == 0 || i == 2 || i == 4 || i == head_bytes;
        assert_int_equal(st, whole ? ST_OK : ST_PROTOCOL);
        assert_int_equal(why[0] != 0, !whole);
        assert_int_equal(seen.n, 0);
        free(exact);
    }
}

static void assert_refused(const uint8_t *bytes, size_t n, const char *reason)
{
    struct net_frame_head head;
    struct seen seen;
    char why[128];
    assert_int_equal(decode(bytes, n, &head, &seen, why), ST_PROTOCOL);
    if (!strstr(why, reason))
        fail_msg("reason '%s', not '%s'", why, reason);
}

#define REFUSED(reason, ...)                                                                       \
    do {                                                                                           \
        static const uint8_t raw[] = {__VA_ARGS__};                                                \
        assert_refused(raw, sizeof raw, reason);                                                   \
    } while (0)

static void malformed_frames_are_refused(void **state)
{
    REFUSED("does not fit", 0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1);
    REFUSED("does not fit", 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2);
    REFUSED("field 2 is 4294967296", 0x10, 0x80, 0x80, 0x80, 0x80, 0x10);
    REFUSED("wire type 3", 0x2b, 0x2c);
    REFUSED("wire type 0, not 1", 0x18, 1);
    REFUSED("wire type 2, not 0", 0x0a, 1, 1);
    REFUSED("field number 0", 0x00, 1);
    REFUSED("only 1 bytes are left", 0x22, 0x7f, 1);
    REFUSED("field 1 is 2147483648", 0x22, 6, 0x08, 0x80, 0x80, 0x80, 0x80, 0x08);
    REFUSED("only 0 bytes are left", 0x22, 3, 0x7a, 0x80, 0x01, 0x08, 1);
    REFUSED("only 0 bytes are left", 0x22, 11, 0x7a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0xff, 0x01);
}

static void frames_beyond_limits_are_refused(void **state)
{
    static uint8_t bytes[FRAME_MAX_BYTES + 8];
    struct net_frame_head head = {0, 0, 0};
    struct seen seen;
    char why[128];
    struct net_piece init = {.kind = PIECE_INIT};
    size_t n = frame_encode_piece_head(&init, FRAME_MAX_BYTES - 12, bytes);
    assert_int_equal(n, 12); /* tag, 4, kind 2, tag, 4 */
    assert_int_equal(decode(bytes, FRAME_MAX_BYTES, &head, &seen, why), ST_OK);
    assert_int_equal(seen.payload_bytes[0], FRAME_MAX_BYTES - 12);
    assert_refused(bytes, FRAME_MAX_BYTES + 1, "more than 8388608 bytes");

    uint8_t *many = bytes;
    for (int i = 0; i <= FRAME_MAX_PIECES; i++) {
        many[2 * i] = 0x22;
        many[2 * i + 1] = 0;
    }
    assert_int_equal(decode(many, 2 * FRAME_MAX_PIECES, &head, &seen, why), ST_OK);
    assert_int_equal(seen.n, FRAME_MAX_PIECES);
    assert_refused(many, 2 * FRAME_MAX_PIECES + 2, "more than 1024 pieces");

    uint8_t text[600] = {0x22, 0x83, 0x04, 0x32, 0x80, 0x04}; /* the field `why`, with 512 bytes */
    assert_refused(text, 3 + 515, "the limit is 511");
}

static void callback_error_ends_decoding(void **state)
{
    uint8_t bytes[SMALL_BYTES];
    struct net_piece two[2] = {sample, sample};
    size_t n = encode(&sample_head, two, 2, sample_payload, sizeof sample_payload, bytes);
    struct net_span span = {bytes, n};
    struct net_frame_head head;
    struct seen seen = {.answer = ST_CANCELLED};
    char why[128];
    assert_int_equal(frame_decode(&span, 1, &head, keep, &seen, why, sizeof why), ST_CANCELLED);
    assert_int_equal(seen.n, 1);
}

/* If a frame decodes, protobuf-c must decode it, too, to the same number of pieces. */
static void random_frames_decode_like_protobuf(void **state)
{
    uint8_t good[SMALL_BYTES], bytes[SMALL_BYTES];
    struct net_piece two[2] = {sample, sample};
    size_t n = encode(&sample_head, two, 2, sample_payload, sizeof sample_payload, good);
    int n_ok = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        size_t m = n;
        memcpy(bytes, good, n);
        int flips = (int)(rng_u64(2, 8 * i) % 4);
        for (int f = 0; f < flips; f++)
            bytes[rng_u64(2, 8 * i + 1 + f) % n] = (uint8_t)rng_u64(2, 8 * i + 5 + f);
        if (i % 4 == 0)
            for (m = 0; m < i % 64; m++)
                bytes[m] = (uint8_t)rng_u64(3, i * 64 + m);
        struct net_frame_head head;
        struct seen seen;
        char why[128];
        enum status st = decode(bytes, m, &head, &seen, why);
        Weir__V1__Frame *f = weir__v1__frame__unpack(NULL, m, bytes);
        if (st == ST_OK) {
            n_ok++;
            if (f)
                assert_int_equal(f->n_pieces, seen.n);
        } else {
            assert_int_equal(st, ST_PROTOCOL);
        }
        if (f)
            weir__v1__frame__free_unpacked(f, NULL);
    }
    assert_in_range(n_ok, 10000, 99000);
}

static void collect(void *ctx, size_t first, const void *src, size_t n)
{
    memcpy((float *)ctx + first, src, n * sizeof(float));
}

static void collect_halves(void *ctx, size_t first, const void *src, size_t n)
{
    memcpy((uint16_t *)ctx + first, src, n * sizeof(uint16_t));
}

static void payload_runs_cover_each_element(void **state)
{
    float from[11], to[11], decoded[22];
    uint16_t halves[22];
    uint8_t bytes[3 + sizeof from];
    for (int i = 0; i < 11; i++)
        from[i] = (float)i + 0.25f;
    memcpy(bytes + 3, from, sizeof from);
    size_t n = sizeof bytes;
    for (size_t i = 0; i <= n; i++)
        for (size_t j = i; j <= n; j++) {
            struct net_span spans[4] = {
                {bytes, i}, {bytes + i, j - i}, {NULL, 0}, {bytes + j, n - j}};
            size_t skip = 3, first = 0;
            while (skip >= spans[first].n)
                skip -= spans[first++].n;
            struct net_payload p = {&spans[first], skip, sizeof from};
            memset(to, 0, sizeof to);
            payload_each_run(&p, DTYPE_F32, 11, 1, collect, to);
            assert_memory_equal(to, from, sizeof from);
            memset(to, 0, sizeof to);
            payload_copy(&p, to);
            assert_memory_equal(to, from, sizeof from);
            payload_each_run(&p, DTYPE_BF16, 22, 1, collect_halves, halves);
            assert_memory_equal(halves, from, sizeof from);
            uint32_t crc = 1;
            payload_decode(&p, DTYPE_BF16, 22, decoded, &crc);
            assert_int_equal(crc, digest_crc32c(0, from, sizeof from));
            for (int k = 0; k < 22; k++) {
                uint32_t bits = (uint32_t)halves[k] << 16;
                assert_memory_equal(&decoded[k], &bits, sizeof bits);
            }
            memset(to, 0, sizeof to);
            payload_decode(&p, DTYPE_F32, 11, to, &crc);
            assert_memory_equal(to, from, sizeof from);
            assert_int_equal(crc, digest_crc32c(0, from, sizeof from));
            assert_int_equal(payload_crc32c(&p), digest_crc32c(0, from, sizeof from));
        }
    struct net_payload none = {NULL, 0, 0};
    assert_int_equal(payload_crc32c(&none), 0);
    payload_each_run(&none, DTYPE_F32, 0, 1, collect, to);
}

struct runs {
    size_t unit, next;
    float got[700];
};

static void collect_decoded(void *ctx, size_t first, const void *src, size_t n)
{
    struct runs *r = ctx;
    assert_int_equal(first, r->next);
    assert_int_equal(first % r->unit, 0);
    dtype_decode(r->unit == 256 ? DTYPE_INT4 : DTYPE_F32, r->got + first, src, n);
    r->next = first + n;
}

/* Payloads of blocks with a scale, and of floats in units of such blocks, in spans that end
 * anywhere. */
static void payload_blocks_stay_whole(void **state)
{
    static float from[700], decoded[700];
    static uint8_t bytes[sizeof from];
    for (int i = 0; i < 700; i++)
        from[i] = (float)(i % 97) - 48;
    for (int lengths = 0; lengths < 4; lengths++) {
        size_t n = (size_t[]){700, 512, 256, 3}[lengths], len = dtype_bytes(DTYPE_INT4, n);
        dtype_encode(DTYPE_INT4, bytes, from, n);
        dtype_decode(DTYPE_INT4, decoded, bytes, n);
        for (size_t i = 0; i <= len; i += 1 + i / 50)
            for (size_t j = i; j <= len; j += 1 + (j - i) / 3) {
                struct net_span spans[3] = {{bytes, i}, {bytes + i, j - i}, {bytes + j, len - j}};
                struct net_payload p = {spans, 0, len};
                struct runs r = {.unit = 256};
                payload_each_run(&p, DTYPE_INT4, n, 256, collect_decoded, &r);
                assert_int_equal(r.next, n);
                assert_memory_equal(r.got, decoded, n * sizeof(float));
            }
        memcpy(bytes, from, n * sizeof(float));
        for (size_t i = 0; i <= n * sizeof(float); i += 1 + i / 5) {
            struct net_span spans[2] = {{bytes, i}, {bytes + i, n * sizeof(float) - i}};
            struct net_payload p = {spans, 0, n * sizeof(float)};
            struct runs r = {.unit = 128};
            payload_each_run(&p, DTYPE_F32, n, 128, collect_decoded, &r);
            assert_int_equal(r.next, n);
            assert_memory_equal(r.got, from, n * sizeof(float));
        }
    }
}

int main(void)
{
    return RUN_TESTS(encoder_writes_same_bytes_as_protobuf, protobuf_reads_encoded_frames,
                     fields_decode_in_any_order, frames_decode_from_any_spans,
                     truncated_frames_are_refused, malformed_frames_are_refused,
                     frames_beyond_limits_are_refused, callback_error_ends_decoding,
                     random_frames_decode_like_protobuf, payload_runs_cover_each_element,
                     payload_blocks_stay_whole);
}
