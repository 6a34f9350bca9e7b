/* worker/events/event_samples.h - some samples of an evaluation, spread evenly over the set, with
 * the network's outputs. If a batch does not begin where the previous one ended, another evaluation
 * has begun, and the samples collected so far are dropped. Samples are shown as a table, and
 * pictures also as one picture.
 * Owns:    its own memory.
 * Threads: one. Errors: none: if memory is missing, no picture is written. */
#ifndef WORKER_EVENTS_EVENT_SAMPLES_H
#define WORKER_EVENTS_EVENT_SAMPLES_H
#include "worker/events/event_buf.h"
#include "worker/train/evaluate.h"

enum { EVENT_SAMPLES = 16 };

struct event_sample {
    int64_t item; /* index of the sample in the set; -1: not evaluated */
    int named;    /* predicted class */
    float output; /* output of the predicted class */
};

/* Samples of the last evaluation, a plain value; event_samples_clear sets its first state. */
struct event_samples {
    const struct dataset *set;     /* NULL: no set was evaluated */
    const struct dataset *running; /* set of the last batches, which ended before item `next` */
    int64_t next;
    int unsupported; /* the device cannot copy outputs to the host */
    struct event_sample sample[EVENT_SAMPLES];
};

void event_samples_clear(struct event_samples *s);
/* Collects the samples that will be shown, if they are among the evaluated samples first .. first +
 * n - 1. */
void event_samples_collect(struct event_samples *s, struct tower *e, int64_t first, int n);

enum { EVENT_SAMPLES_BYTES = 512 << 10 };
/* Adds an event with the collected samples, if there are any. what: name of the set, for example
 * "test". */
void event_samples_put(const struct event_samples *s, struct event_buf *b, double wall_time,
                       int64_t step, const char *what);

#endif
