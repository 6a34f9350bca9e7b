/* ps/service/pulse.h - measures the present pace of the steps of a server's store, and the time
 * since the last step. A new generation alone is no progress: otherwise many generations in a row
 * would hide that training stands still.
 * Owns:    nothing.
 * Threads: none; its user's lock guards it.
 * Errors:  none. */
#ifndef PS_SERVICE_PULSE_H
#define PS_SERVICE_PULSE_H
#include <stdbool.h>
#include <stdint.h>

enum {
    PULSE_POINTS = 16,
    PULSE_GAP_MS = 625, /* time between two points; all points together cover at least 10 s */
    /* least time without a step after which training counts as standing still */
    PULSE_STANDS_MS = 3000
};

struct pulse_point {
    int64_t ns, step;
};

struct pulse {
    uint64_t generation;
    int64_t highest; /* highest step so far; -1: none */
    /* time of the last new step; before the first step: time of the first pulse_note */
    int64_t moved_ns;
    /* steps of the generation with their times, the newest first */
    struct pulse_point point[PULSE_POINTS];
    int n;
};

/* Records the step of a generation; -1: it has no values yet. now_ns never decreases. */
void pulse_note(struct pulse *p, uint64_t generation, int64_t step, int64_t now_ns);
/* Returns the milliseconds since a step was made. */
int64_t pulse_stood_ms(const struct pulse *p, int64_t now_ns);
/* Returns true if no step was made for PULSE_STANDS_MS and for three times a step's duration. */
bool pulse_stands(const struct pulse *p, int64_t now_ns);
/* Returns the steps per second between the points; 0: training stands still, or there is one
 * point. */
double pulse_rate(const struct pulse *p, int64_t now_ns);

struct service_pace {
    double steps_per_s;
    /* ms since the last step; without a job: ms since the service was created */
    int64_t stood_ms;
    bool is_slow; /* result of pulse_stands */
};

struct service;
/* Reports how fast this server makes steps at present, and whether training stands still. */
void service_pace(struct service *s, struct service_pace *out);

#endif
