/* net/wire/frame.c - see frame.h.
 *
 * Implements Protocol Buffers' wire format for the one message that carries payloads, since the
 * generated code would copy each payload twice. A frame is read in two passes. The first pass reads
 * the frame's own fields, and checks these fields and the lengths of the pieces. The second pass
 * reads each piece. A cursor is a position in the spans and the number of bytes that may still be
 * read; the cursor of a sub-message has a smaller number. The decoder refuses groups (wire types 3
 * and 4), a known field with another wire type, and values too large for their field, some of which
 * protobuf accepts. */
#include "net/wire/frame.h"
#include "net/wire/lacking.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

enum {
    FRAME_GENERATION = 1,
    FRAME_MEMBER = 2,
    FRAME_INCARNATION = 3,
    FRAME_PIECES = 4,
    PIECE_F_KIND = 1,
    PIECE_F_CHUNK = 2,
    PIECE_F_STEP = 3,
    PIECE_F_WEIGHT = 4,
    PIECE_F_CRC = 5,
    PIECE_F_WHY = 6,
    PIECE_F_DTYPE = 7,
    PIECE_F_SHARED_OFFSET = 8,
    PIECE_F_SHARED_BYTES = 9,
    PIECE_F_SHARED = 10,
    PIECE_F_SHARED_STAMP = 11,
    PIECE_F_ASK_TAKEN = 12,
    PIECE_F_SAMPLES = 13,
    PIECE_F_RATE = 14,
    PIECE_F_PAYLOAD = 15,
    PIECE_F_LACKING = 16,
    PIECE_F_PLACED = 17,
    PIECE_F_ROWS = 18,
    PIECE_F_READS = 19,
};

struct cursor {
    const struct net_span *span;
    size_t at;   /* offset in *span */
    size_t left; /* bytes to the end of the message; the spans hold at least as many */
};

struct reader {
    char *why;
    size_t why_bytes;
};

static enum status refuse_message(struct reader *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static enum status refuse_message(struct reader *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->why, r->why_bytes, fmt, ap);
    va_end(ap);
    return ST_PROTOCOL;
}

static enum status refuse_truncated(struct reader *r, const char *what)
{
    return refuse_message(r, "the message ends in the middle of a %s", what);
}

/* Skips n bytes; the caller has checked n <= left. */
static void skip_bytes(struct cursor *c, size_t n)
{
    c->left -= n;
    while (n > 0) {
        size_t here = c->span->n - c->at;
        if (n < here) {
            c->at += n;
            return;
        }
        n -= here;
        c->span++;
        c->at = 0;
    }
}

static uint8_t next_byte(struct cursor *c)
{
    while (c->at == c->span->n) {
        c->span++;
        c->at = 0;
    }
    c->left--;
    return c->span->data[c->at++];
}

static enum status read_varint(struct reader *r, struct cursor *c, uint64_t *out)
{
    uint64_t v = 0;
    for (int shift = 0;; shift += 7) {
        if (c->left == 0)
            return refuse_truncated(r, "number");
        uint8_t b = next_byte(c);
        if (shift == 63 && b > 1)
            return refuse_message(r, "a number does not fit 64 bits");
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *out = v;
            return ST_OK;
        }
    }
}

static enum status read_fixed(struct reader *r, struct cursor *c, int bytes, uint64_t *out)
{
    if (c->left < (size_t)bytes)
        return refuse_truncated(r, "number");
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)next_byte(c) << (8 * i);
    *out = v;
    return ST_OK;
}

static enum status read_length(struct reader *r, struct cursor *c, size_t *out)
{
    uint64_t n = 0;
    enum status st = read_varint(r, c, &n);
    if (st != ST_OK)
        return st;
    if (n > c->left)
        return refuse_message(r, "a field has %llu bytes, but only %zu bytes are left",
                              (unsigned long long)n, c->left);
    *out = (size_t)n;
    return ST_OK;
}

static enum status read_tag(struct reader *r, struct cursor *c, uint32_t *field, uint32_t *wire)
{
    uint64_t tag = 0;
    enum status st = read_varint(r, c, &tag);
    if (st != ST_OK)
        return st;
    if (tag >> 32 || tag >> 3 == 0)
        return refuse_message(r, "field number %llu is invalid", (unsigned long long)(tag >> 3));
    *field = (uint32_t)(tag >> 3);
    *wire = (uint32_t)(tag & 7);
    return ST_OK;
}

static enum status skip_field(struct reader *r, struct cursor *c, uint32_t field, uint32_t wire)
{
    enum status st = ST_OK;
    uint64_t ignored;
    size_t n = 0;
    switch (wire) {
    case WIRE_VARINT:
        return read_varint(r, c, &ignored);
    case WIRE_FIXED64:
        return read_fixed(r, c, 8, &ignored);
    case WIRE_FIXED32:
        return read_fixed(r, c, 4, &ignored);
    case WIRE_BYTES:
        st = read_length(r, c, &n);
        if (st == ST_OK)
            skip_bytes(c, n);
        return st;
    default:
        return refuse_message(r, "field %u has wire type %u", field, wire);
    }
}

static enum status want_wire(struct reader *r, uint32_t field, uint32_t wire, enum wire_type want)
{
    if (wire == (uint32_t)want)
        return ST_OK;
    return refuse_message(r, "field %u has wire type %u, not %u", field, wire, (unsigned)want);
}

static enum status read_number(struct reader *r, struct cursor *c, uint32_t field, uint32_t wire,
                               uint64_t max, uint64_t *out)
{
    enum status st = want_wire(r, field, wire, WIRE_VARINT);
    uint64_t v = 0;
    if (st == ST_OK)
        st = read_varint(r, c, &v);
    if (st != ST_OK)
        return st;
    if (v > max)
        return refuse_message(r, "field %u is %llu, larger than %llu", field, (unsigned long long)v,
                              (unsigned long long)max);
    *out = v;
    return ST_OK;
}

static enum status read_uint32(struct reader *r, struct cursor *c, uint32_t field, uint32_t wire,
                               uint32_t *out)
{
    uint64_t v = *out;
    enum status st = read_number(r, c, field, wire, UINT32_MAX, &v);
    *out = (uint32_t)v;
    return st;
}

static enum status read_bool(struct reader *r, struct cursor *c, uint32_t field, uint32_t wire,
                             bool *out)
{
    uint64_t v = 0;
    enum status st = read_number(r, c, field, wire, UINT64_MAX, &v);
    *out = v != 0;
    return st;
}

static enum status read_fixed32(struct reader *r, struct cursor *c, uint32_t field, uint32_t wire,
                                uint32_t *out)
{
    enum status st = want_wire(r, field, wire, WIRE_FIXED32);
    uint64_t v = 0;
    if (st == ST_OK)
        st = read_fixed(r, c, 4, &v);
    if (st == ST_OK)
        *out = (uint32_t)v;
    return st;
}

static enum status read_float(struct reader *r, struct cursor *c, uint32_t field, uint32_t wire,
                              float *out)
{
    uint32_t bits = 0;
    enum status st = read_fixed32(r, c, field, wire, &bits);
    if (st == ST_OK)
        memcpy(out, &bits, sizeof bits);
    return st;
}

static enum status read_why(struct reader *r, struct cursor *c, uint32_t wire, char *why)
{
    enum status st = want_wire(r, PIECE_F_WHY, wire, WIRE_BYTES);
    size_t n = 0;
    if (st == ST_OK)
        st = read_length(r, c, &n);
    if (st != ST_OK)
        return st;
    if (n > FRAME_MAX_WHY)
        return refuse_message(r, "field `why` has %zu bytes, the limit is %d", n, FRAME_MAX_WHY);
    for (size_t i = 0; i < n; i++)
        why[i] = (char)next_byte(c);
    why[n] = 0;
    return ST_OK;
}

/* Reads the length of a field of bytes, notes where these bytes are, and skips them. */
static enum status read_run(struct reader *r, struct cursor *c, uint32_t field, uint32_t wire,
                            struct net_payload *p)
{
    enum status st = want_wire(r, field, wire, WIRE_BYTES);
    size_t n = 0;
    if (st == ST_OK)
        st = read_length(r, c, &n);
    if (st != ST_OK)
        return st;
    *p = (struct net_payload){c->span, c->at, n};
    skip_bytes(c, n);
    return ST_OK;
}

static enum status read_piece_field(struct reader *r, struct cursor *c, struct net_piece *p)
{
    uint32_t field = 0, wire = 0;
    uint64_t v = 0;
    enum status st = read_tag(r, c, &field, &wire);
    if (st != ST_OK)
        return st;
    switch (field) {
    case PIECE_F_KIND:
        st = read_number(r, c, field, wire, INT32_MAX, &v);
        p->kind = (enum piece_kind)v;
        return st;
    case PIECE_F_CHUNK:
        return read_uint32(r, c, field, wire, &p->chunk);
    case PIECE_F_STEP:
        return read_number(r, c, field, wire, UINT64_MAX, &p->step);
    case PIECE_F_WEIGHT:
        return read_float(r, c, field, wire, &p->weight);
    case PIECE_F_CRC:
        return read_fixed32(r, c, field, wire, &p->crc32c);
    case PIECE_F_WHY:
        return read_why(r, c, wire, p->why);
    case PIECE_F_DTYPE:
        st = read_number(r, c, field, wire, INT32_MAX, &v);
        p->dtype = (enum dtype)v;
        return st;
    case PIECE_F_SHARED_OFFSET:
        return read_number(r, c, field, wire, UINT64_MAX, &p->shared_offset);
    case PIECE_F_SHARED_BYTES:
        return read_uint32(r, c, field, wire, &p->shared_bytes);
    case PIECE_F_SHARED:
        return read_bool(r, c, field, wire, &p->shared);
    case PIECE_F_PLACED:
        return read_bool(r, c, field, wire, &p->placed);
    case PIECE_F_SHARED_STAMP:
        return read_number(r, c, field, wire, UINT64_MAX, &p->shared_stamp);
    case PIECE_F_ASK_TAKEN:
        return read_bool(r, c, field, wire, &p->ask_taken);
    case PIECE_F_SAMPLES:
        return read_number(r, c, field, wire, UINT64_MAX, &p->samples);
    case PIECE_F_RATE:
        p->has_rate = true;
        return read_float(r, c, field, wire, &p->rate);
    case PIECE_F_ROWS:
        return read_uint32(r, c, field, wire, &p->rows);
    case PIECE_F_READS:
        return read_uint32(r, c, field, wire, &p->reads);
    case PIECE_F_LACKING:
        return read_run(r, c, field, wire, &p->lacking);
    case PIECE_F_PAYLOAD:
        return read_run(r, c, field, wire, &p->payload);
    default:
        return skip_field(r, c, field, wire);
    }
}

/* Reads the length of a piece, and then the piece. At the start `c` is just after the piece's tag;
 * at the end it is just after the piece. */
static enum status read_piece(struct reader *r, struct cursor *c, struct net_piece *p)
{
    p->kind = PIECE_NONE;
    p->chunk = p->crc32c = 0;
    p->step = 0;
    p->weight = 0;
    p->dtype = DTYPE_F32;
    p->unsummed = 0;
    p->why[0] = 0;
    p->payload = (struct net_payload){NULL, 0, 0};
    p->shared_offset = 0;
    p->shared_bytes = 0;
    p->shared_stamp = 0;
    p->shared = p->placed = false;
    p->ask_taken = 0;
    p->samples = 0;
    p->has_rate = false;
    p->rate = 0;
    p->lacking = (struct net_payload){NULL, 0, 0};
    p->rows = p->reads = 0;
    size_t n = 0;
    enum status st = read_length(r, c, &n);
    if (st != ST_OK)
        return st;
    struct cursor inner = *c;
    inner.left = n;
    while (st == ST_OK && inner.left > 0)
        st = read_piece_field(r, &inner, p);
    if (st == ST_OK)
        skip_bytes(c, n);
    return st;
}

static enum status read_head(struct reader *r, struct cursor c, struct net_frame_head *head)
{
    int n_pieces = 0;
    enum status st = ST_OK;
    *head = (struct net_frame_head){0, 0, 0};
    while (st == ST_OK && c.left > 0) {
        uint32_t field = 0, wire = 0;
        uint64_t v = 0;
        st = read_tag(r, &c, &field, &wire);
        if (st != ST_OK)
            break;
        switch (field) {
        case FRAME_GENERATION:
            st = read_number(r, &c, field, wire, UINT64_MAX, &head->generation);
            break;
        case FRAME_MEMBER:
            st = read_number(r, &c, field, wire, UINT32_MAX, &v);
            head->member = (uint32_t)v;
            break;
        case FRAME_INCARNATION:
            st = want_wire(r, field, wire, WIRE_FIXED64);
            if (st == ST_OK)
                st = read_fixed(r, &c, 8, &head->incarnation);
            break;
        case FRAME_PIECES:
            st = want_wire(r, field, wire, WIRE_BYTES);
            if (st == ST_OK && ++n_pieces > FRAME_MAX_PIECES)
                st = refuse_message(r, "the frame has more than %d pieces", FRAME_MAX_PIECES);
            if (st == ST_OK)
                st = skip_field(r, &c, field, wire);
            break;
        default:
            st = skip_field(r, &c, field, wire);
        }
    }
    return st;
}

enum status frame_decode(const struct net_span *spans, size_t n_spans, struct net_frame_head *head,
                         enum status (*on_piece)(void *ctx, const struct net_frame_head *head,
                                                 const struct net_piece *piece),
                         void *ctx, char *why, size_t why_bytes)
{
    struct reader reader = {why, why_bytes};
    struct reader *r = &reader;
    struct cursor c = {spans, 0, 0};
    for (size_t i = 0; i < n_spans; i++) {
        if (spans[i].n > FRAME_MAX_BYTES - c.left)
            return refuse_message(r, "the frame has more than %d bytes", FRAME_MAX_BYTES);
        c.left += spans[i].n;
    }
    struct net_frame_head h;
    enum status st = read_head(r, c, &h);
    if (st != ST_OK)
        return st;
    *head = h;
    struct net_piece piece;
    while (st == ST_OK && c.left > 0) {
        uint32_t field = 0, wire = 0;
        st = read_tag(r, &c, &field, &wire);
        if (st != ST_OK)
            return st;
        if (field != FRAME_PIECES) {
            st = skip_field(r, &c, field, wire);
            continue;
        }
        st = read_piece(r, &c, &piece);
        if (st == ST_OK)
            st = on_piece(ctx, head, &piece);
    }
    return st;
}

/* The encoder writes fields in the order of their numbers, except that the payload is last, and
 * leaves out zero values. */

static uint8_t *put_varint(uint8_t *out, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        *out++ = (uint8_t)(v | 0x80);
    *out++ = (uint8_t)v;
    return out;
}

static uint8_t *put_fixed(uint8_t *out, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *out++ = (uint8_t)(v >> (8 * i));
    return out;
}

static uint8_t *put_tag(uint8_t *out, unsigned field, enum wire_type wire)
{
    return put_varint(out, field << 3 | (unsigned)wire);
}

static uint8_t *put_number(uint8_t *out, unsigned field, uint64_t v)
{
    return v ? put_varint(put_tag(out, field, WIRE_VARINT), v) : out;
}

static uint8_t *put_float(uint8_t *out, unsigned field, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return put_fixed(put_tag(out, field, WIRE_FIXED32), bits, 4);
}

size_t frame_encode_head(const struct net_frame_head *head, uint8_t *out)
{
    uint8_t *p = put_number(out, FRAME_GENERATION, head->generation);
    p = put_number(p, FRAME_MEMBER, head->member);
    if (head->incarnation)
        p = put_fixed(put_tag(p, FRAME_INCARNATION, WIRE_FIXED64), head->incarnation, 8);
    return (size_t)(p - out);
}

size_t frame_encode_piece_head(const struct net_piece *piece, size_t payload_bytes, uint8_t *out)
{
    uint8_t fields[PIECE_HEAD_MAX + LACKING_MAX_BYTES], *p = fields;
    p = put_number(p, PIECE_F_KIND, (uint64_t)piece->kind);
    p = put_number(p, PIECE_F_CHUNK, piece->chunk);
    p = put_number(p, PIECE_F_STEP, piece->step);
    if (piece->weight != 0)
        p = put_float(p, PIECE_F_WEIGHT, piece->weight);
    if (piece->crc32c)
        p = put_fixed(put_tag(p, PIECE_F_CRC, WIRE_FIXED32), piece->crc32c, 4);
    size_t why_bytes = strnlen(piece->why, FRAME_MAX_WHY);
    if (why_bytes) {
        p = put_varint(put_tag(p, PIECE_F_WHY, WIRE_BYTES), why_bytes);
        memcpy(p, piece->why, why_bytes);
        p += why_bytes;
    }
    p = put_number(p, PIECE_F_DTYPE, (uint64_t)piece->dtype);
    p = put_number(p, PIECE_F_SHARED_OFFSET, piece->shared_offset);
    p = put_number(p, PIECE_F_SHARED_BYTES, piece->shared_bytes);
    p = put_number(p, PIECE_F_SHARED, piece->shared != 0);
    p = put_number(p, PIECE_F_SHARED_STAMP, piece->shared_stamp);
    p = put_number(p, PIECE_F_ASK_TAKEN, piece->ask_taken != 0);
    p = put_number(p, PIECE_F_SAMPLES, piece->samples);
    if (piece->has_rate) /* written even if the factor is 0 */
        p = put_float(p, PIECE_F_RATE, piece->rate);
    if (piece->lacking.bytes) {
        p = put_varint(put_tag(p, PIECE_F_LACKING, WIRE_BYTES), piece->lacking.bytes);
        payload_copy(&piece->lacking, p);
        p += piece->lacking.bytes;
    }
    p = put_number(p, PIECE_F_PLACED, piece->placed);
    p = put_number(p, PIECE_F_ROWS, piece->rows);
    p = put_number(p, PIECE_F_READS, piece->reads);
    if (payload_bytes)
        p = put_varint(put_tag(p, PIECE_F_PAYLOAD, WIRE_BYTES), payload_bytes);
    size_t n = (size_t)(p - fields);
    uint8_t *q = put_varint(put_tag(out, FRAME_PIECES, WIRE_BYTES), n + payload_bytes);
    memcpy(q, fields, n);
    return (size_t)(q - out) + n;
}
