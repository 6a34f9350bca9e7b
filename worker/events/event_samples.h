/* worker/events/event_samples.h - some samples of an evaluation, spread evenly over the set, with
 * what the network says of them, each batch following the one before (else it is another
 * evaluation, and what was taken is dropped): a picture where they are pictures, and a table.
 * Owns:    its own memory. Threads: one. Errors: none: without memory there is no picture. */
#ifndef WORKER_EVENTS_EVENT_SAMPLES_H
#define WORKER_EVENTS_EVENT_SAMPLES_H
#include "worker/events/event_buf.h"
#include "worker/train/evaluate.h"

enum { EVENT_SAMPLES = 16 };

struct event_sample {
    int64_t item; /* of the set; -1: not evaluated */
    int named;    /* class */
    float output; /* of that class */
};

/* A value; begins with event_samples_clear. */
struct event_samples {
    const struct dataset *set;     /* NULL: none was evaluated */
    const struct dataset *running; /* what batches were seen of last, up to `next` */
    int64_t next;
    int unsupported; /* the device gives no outputs */
    struct event_sample sample[EVENT_SAMPLES];
};

void event_samples_clear(struct event_samples *s);
/* Samples first .. first + n were evaluated; takes those of its own. */
void event_samples_collect(struct event_samples *s, struct tower *e, int64_t first, int n);

enum { EVENT_SAMPLES_BYTES = 512 << 10 };
/* Adds an event of what was taken, if anything was. what: "test". */
void event_samples_put(const struct event_samples *s, struct event_buf *b, double wall_time,
                       int64_t step, const char *what);

#endif
