/* worker/events/event.h - events as TensorBoard reads them, each a record of its file:
 *
 *     length (8 bytes, little-endian) | masked CRC-32C of length | Event | masked CRC-32C of Event
 *
 * A caller begins an Event, adds the values of its step, and ends it. A text that is not UTF-8 is
 * converted as if it were Latin-1, because protobuf accepts only UTF-8.
 * Owns: nothing. Threads: one for each buffer. Errors: the buffer's overflow. */
#ifndef WORKER_EVENTS_EVENT_H
#define WORKER_EVENTS_EVENT_H
#include "worker/events/event_buf.h"
#include "worker/events/event_histogram.h"
#include <stdbool.h>

/* Returns the CRC-32C in the masked form that records contain. */
uint32_t event_masked_crc(const void *data, size_t n);

struct event {
    struct event_buf *b;
    size_t record, summary; /* offsets at which the record and its summary begin */
};

/* Begins an event. wall_time: seconds since 1970. */
struct event event_begin(struct event_buf *b, double wall_time, int64_t step);
/* Ends the record in the buffer. Returns false if the record did not fit; it is then removed from
 * the buffer. */
bool event_end(struct event *e);

/* Writes the first event of a file. */
void event_file_version(struct event *e);
/* Declares that all earlier events of this step and of later steps are invalid. */
void event_session_start(struct event *e);
/* Writes a GraphDef. */
void event_graph(struct event *e, const uint8_t *graph, size_t n);

/* Adds a value to the event. This function and those below may be called any number of times for an
 * event that has no other content. */
void event_scalar(struct event *e, const char *tag, double value);
void event_histogram(struct event *e, const char *tag, const struct event_histogram *h);
struct event_png {
    int width, height;
    const uint8_t *data;
    size_t n;
};
void event_image(struct event *e, const char *tag, const struct event_png *png);
void event_markdown(struct event *e, const char *tag, const char *text);

/* A setting of the run: a text, or a number if the text is NULL. */
struct event_hparam {
    const char *name, *text;
    double number;
};
void event_hparams_start(struct event *e, const struct event_hparam *list, int n);
void event_hparams_end(struct event *e, int failed);

#endif
