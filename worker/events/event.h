/* worker/events/event.h - events as TensorBoard reads them, each a record of its file:
 *
 *     length (8 bytes, little-endian) | masked CRC-32C of these | Event | masked CRC-32C of that
 *
 * An Event is begun, gets the values of its step, and is ended. Texts that are not UTF-8 are read
 * as Latin-1, because protobuf accepts only UTF-8.
 * Owns: nothing. Threads: one for each buffer. Errors: the buffer's overflow. */
#ifndef WORKER_EVENTS_EVENT_H
#define WORKER_EVENTS_EVENT_H
#include "worker/events/event_buf.h"
#include "worker/events/event_histogram.h"
#include <stdbool.h>

/* Returns the CRC in the form that records have. */
uint32_t event_masked_crc(const void *data, size_t n);

struct event {
    struct event_buf *b;
    size_t record, summary; /* offsets at which the record and its summary begin */
};

/* Begins an event. wall_time: seconds since 1970. */
struct event event_begin(struct event_buf *b, double wall_time, int64_t step);
/* Ends the record in the buffer. Returns false if it did not fit; then the buffer is as before
 * it. */
bool event_end(struct event *e);

/* Writes the first event of a file. */
void event_file_version(struct event *e);
/* Declares that earlier events of this and later steps do not count any more. */
void event_session_start(struct event *e);
/* Writes a GraphDef. */
void event_graph(struct event *e, const uint8_t *graph, size_t n);

/* Adds a value to the event, as the functions below do: any number of values, and no other
 * content. */
void event_scalar(struct event *e, const char *tag, double value);
void event_histogram(struct event *e, const char *tag, const struct event_histogram *h);
struct event_png {
    int width, height;
    const uint8_t *data;
    size_t n;
};
void event_image(struct event *e, const char *tag, const struct event_png *png);
void event_markdown(struct event *e, const char *tag, const char *text);

/* A setting of the run: a text or, if that is NULL, a number. */
struct event_hparam {
    const char *name, *text;
    double number;
};
void event_hparams_start(struct event *e, const struct event_hparam *list, int n);
void event_hparams_end(struct event *e, int failed);

#endif
