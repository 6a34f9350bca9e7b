/* worker/events/event_buf.h - the part of protobuf that TensorBoard's event files need: a sequence
 * of fields, and nested messages. The length of a nested message always has four bytes, which
 * protobuf allows, so the bytes for it can be reserved before the content is known. If a field does
 * not fit, `overflow` is set and no further fields are added.
 * Owns:    nothing: the caller owns the memory.
 * Threads: one. Errors: overflow. */
#ifndef WORKER_EVENTS_EVENT_BUF_H
#define WORKER_EVENTS_EVENT_BUF_H
#include <stddef.h>
#include <stdint.h>

struct event_buf {
    uint8_t *data;
    size_t n, cap;
    int overflow;
};

void event_buf_raw(struct event_buf *b, const void *data, size_t n);
void event_buf_int(struct event_buf *b, int field, int64_t value);
void event_buf_double(struct event_buf *b, int field, double value);
void event_buf_float(struct event_buf *b, int field, float value);
void event_buf_bytes(struct event_buf *b, int field, const void *data, size_t n);
void event_buf_text(struct event_buf *b, int field, const char *text);
/* Writes [n] packed doubles. */
void event_buf_doubles(struct event_buf *b, int field, const double *value, int n);
/* Begins a nested message; returns the argument for event_buf_end. */
size_t event_buf_begin(struct event_buf *b, int field);
void event_buf_end(struct event_buf *b, size_t begun);

#endif
