/* worker/events/event_buf.c - encodes protobuf fields into a buffer of fixed size. */
#include "worker/events/event_buf.h"
#include <string.h>

/* The low three bits of a field's key. */
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum { LENGTH_BYTES = 4 }; /* bytes of a nested message's length; enough for 256 MB */

void event_buf_raw(struct event_buf *b, const void *data, size_t n)
{
    if (b->overflow || n > b->cap - b->n) {
        b->overflow = 1;
        return;
    }
    if (n > 0)
        memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void varint(struct event_buf *b, uint64_t value)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[n++] = (uint8_t)(value | 0x80);
    bytes[n++] = (uint8_t)value;
    event_buf_raw(b, bytes, n);
}

static void key(struct event_buf *b, int field, int wire)
{
    varint(b, (uint64_t)field << 3 | (uint64_t)wire);
}

static void fixed(struct event_buf *b, uint64_t bits, int n_bytes)
{
    uint8_t bytes[8];
    for (int i = 0; i < n_bytes; i++)
        bytes[i] = (uint8_t)(bits >> 8 * i);
    event_buf_raw(b, bytes, (size_t)n_bytes);
}

static void plain_double(struct event_buf *b, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    fixed(b, bits, 8);
}

void event_buf_int(struct event_buf *b, int field, int64_t value)
{
    key(b, field, WIRE_VARINT);
    varint(b, (uint64_t)value);
}

void event_buf_double(struct event_buf *b, int field, double value)
{
    key(b, field, WIRE_64);
    plain_double(b, value);
}

void event_buf_float(struct event_buf *b, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    key(b, field, WIRE_32);
    fixed(b, bits, 4);
}

void event_buf_bytes(struct event_buf *b, int field, const void *data, size_t n)
{
    key(b, field, WIRE_BYTES);
    varint(b, n);
    event_buf_raw(b, data, n);
}

void event_buf_text(struct event_buf *b, int field, const char *text)
{
    event_buf_bytes(b, field, text, strlen(text));
}

void event_buf_doubles(struct event_buf *b, int field, const double *value, int n)
{
    key(b, field, WIRE_BYTES);
    varint(b, (uint64_t)n * 8);
    for (int i = 0; i < n; i++)
        plain_double(b, value[i]);
}

size_t event_buf_begin(struct event_buf *b, int field)
{
    const uint8_t none[LENGTH_BYTES] = {0};
    key(b, field, WIRE_BYTES);
    event_buf_raw(b, none, sizeof none);
    return b->n;
}

void event_buf_end(struct event_buf *b, size_t begun)
{
    if (b->overflow)
        return;
    uint64_t length = b->n - begun;
    for (int i = 0; i < LENGTH_BYTES; i++) {
        int more = i < LENGTH_BYTES - 1 ? 0x80 : 0;
        b->data[begun - LENGTH_BYTES + (size_t)i] = (uint8_t)((length >> 7 * i & 0x7f) | more);
    }
}
