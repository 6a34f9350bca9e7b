/* tests/timeline_rig.h - runs a worker's training steps of deep_mnist on the emulated CUDA backend
 * in virtual time (tests/emulation/clock.h), with an imitated server. The trainer, the backend and
 * the order of their calls are the real ones; the durations are a table (timeline_rig.c).
 * Threads: one run at a time. Errors: fail the running test. */
#ifndef TESTS_TIMELINE_RIG_H
#define TESTS_TIMELINE_RIG_H
#include "kernels/backend.h"
#include "tests/emulation/clock.h"

enum { TIMELINE_MAX_CHUNKS = 32, TIMELINE_STEPS = 5 };

struct timeline_config {
    const struct backend *backend;
    void *so;        /* library of the backend */
    uint32_t tuning; /* kernels/tuning.h */
    double copy_bytes_per_us;
    double server_us; /* time from one chunk's update to the next on the server, for 1 MB */
};

/* Times of one chunk's exchange in a step: the worker's push, the update on the server, and the
 * copy of the new version into the worker's parameters. */
struct timeline_chunk {
    size_t bytes;
    const void *gradient, *value; /* their places in the worker's memory */
    double push_us, update_us, updated_us, copy_us, copied_us;
};

/* The last step but one. */
struct timeline {
    double begin_us, end_us; /* begin of the step, and of the next one */
    int n_chunks;
    struct timeline_chunk chunk[TIMELINE_MAX_CHUNKS], before[TIMELINE_MAX_CHUNKS]; /* before: of the
                                                                                      step before */
    const struct emulation_span *spans; /* [n_spans] the card's work in all steps */
    int n_spans;
    int n_host_checks; /* number of the worker's own checks of gradients in all steps */
    int n_digests;     /* number of blocks of versions that the worker compared in all steps */
};

void timeline_run(const struct timeline_config *cfg, struct timeline *out);
/* Writes the timeline as a picture (SVG). */
void timeline_draw(const struct timeline *t, const char *title, const char *path);

#endif
