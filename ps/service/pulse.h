/* ps/service/pulse.h - how fast the steps of a server's store follow each other at present, and
 * since when none has been made. A generation that makes no step is no progress: many in a row
 * would hide that a job stands.
 * Owns:    nothing. Threads: none; under its user's lock. Errors: none. */
#ifndef PS_SERVICE_PULSE_H
#define PS_SERVICE_PULSE_H
#include <stdbool.h>
#include <stdint.h>

enum {
    PULSE_POINTS = 16,
    PULSE_GAP_MS = 625,    /* between two points: together they cover 10 s, or more */
    PULSE_STANDS_MS = 3000 /* least time without a step after which training stands */
};

struct pulse_point {
    int64_t ns, step;
};

struct pulse {
    uint64_t generation;
    int64_t highest;  /* step that was ever made; -1: none */
    int64_t moved_ns; /* time of that step; before any: of the first pulse_note */
    struct pulse_point point[PULSE_POINTS]; /* the generation's, the newest first */
    int n;
};

/* Looks at the step of a generation; step -1: it has no values yet. now_ns never falls. */
void pulse_note(struct pulse *p, uint64_t generation, int64_t step, int64_t now_ns);
/* Returns the milliseconds since a step was made. */
int64_t pulse_stood_ms(const struct pulse *p, int64_t now_ns);
/* True if no step was made for PULSE_STANDS_MS and for three times as long as steps take. */
bool pulse_stands(const struct pulse *p, int64_t now_ns);
/* Returns the steps per second between the points; 0: training stands, or there is one point. */
double pulse_rate(const struct pulse *p, int64_t now_ns);

struct service_pace {
    double steps_per_s;
    int64_t stood_ms; /* since the last step was made; without a job: since the service was made */
    int is_slow;      /* pulse_stands */
};

struct service;
/* Reports how fast this server makes steps at present, and whether training stands. */
void service_pace(struct service *s, struct service_pace *out);

#endif
