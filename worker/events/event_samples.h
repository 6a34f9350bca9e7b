/* worker/events/event_samples.h - some samples of an evaluation, spread evenly over the set, with
 * the network's outputs. Each batch must follow the one before; otherwise it is another evaluation,
 * and the samples collected so far are dropped. Shown as a picture if they are pictures, and as a
 * table.
 * Owns:    its own memory.
 * Threads: one. Errors: none: without memory there is no picture. */
#ifndef WORKER_EVENTS_EVENT_SAMPLES_H
#define WORKER_EVENTS_EVENT_SAMPLES_H
#include "worker/events/event_buf.h"
#include "worker/train/evaluate.h"

enum { EVENT_SAMPLES = 16 };

struct event_sample {
    int64_t item; /* index in the set; -1: not evaluated */
    int named;    /* predicted class */
    float output; /* output of the predicted class */
};

/* A value; begins with event_samples_clear. */
struct event_samples {
    const struct dataset *set;     /* NULL: no set was evaluated */
    const struct dataset *running; /* set of the batches seen last, up to `next` */
    int64_t next;
    int unsupported; /* the device provides no outputs */
    struct event_sample sample[EVENT_SAMPLES];
};

void event_samples_clear(struct event_samples *s);
/* Collects from the evaluated samples first .. first + n those that are shown. */
void event_samples_collect(struct event_samples *s, struct tower *e, int64_t first, int n);

enum { EVENT_SAMPLES_BYTES = 512 << 10 };
/* Adds an event with the collected samples, if there are any. what: "test". */
void event_samples_put(const struct event_samples *s, struct event_buf *b, double wall_time,
                       int64_t step, const char *what);

#endif
