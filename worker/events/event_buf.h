/* worker/events/event_buf.h - the few bytes of protobuf that TensorBoard's event files are made of:
 * fields one behind the other, messages in messages. The length of a message stands before it in
 * four bytes, whatever it is: a longer varint than need be, which protobuf allows.
 * What does not fit sets `overflow`, and nothing more is added.
 * Owns:    nothing: the memory is the caller's. Threads: one. Errors: overflow. */
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
/* [n] packed. */
void event_buf_doubles(struct event_buf *b, int field, const double *value, int n);
/* A message in the message: returns what end wants. */
size_t event_buf_begin(struct event_buf *b, int field);
void event_buf_end(struct event_buf *b, size_t begun);

#endif
