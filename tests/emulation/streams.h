/* tests/emulation/streams.h - streams and events, and the order in which queued work is done.
 *
 * All work is queued: kernels, library calls, copies, waits, collectives. A stream does its own
 * work in order. Between streams only events define an order. WEIR_EMULATION_ORDER chooses one of
 * all allowed orders:
 * - "late" (default): no work is done before the host waits for it, or for a stream that waits for
 *   it;
 * - "random:SEED": the seed makes each stream late in this way, or as early as its events allow, or
 *   something between.
 * So a missing wait leads to old or overwritten values in one of the orders. The host must not
 * write bytes that a pending copy reads: such a write ends the program, in any order.
 * Threads: any; one thread at a time launches on a stream. */
#ifndef TESTS_EMULATION_STREAMS_H
#define TESTS_EMULATION_STREAMS_H
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;
/* A point of a stream, after all work that was queued before. */
struct emulation_point {
    struct CUstream_st *stream;
    uint64_t issued; /* number of pieces of work before it */
    double us;       /* its virtual time (clock.h) */
};
/* Queues run(args), even if the stream is captured. `args` is copied. */
void emulation_later(struct CUstream_st *s, void (*run)(const void *args), const void *args,
                     size_t bytes);
/* Creates a stream of the current device for the emulation's own use. */
struct CUstream_st *emulation_stream_create(void);
/* returns the point after all work queued so far */
struct emulation_point emulation_point(struct CUstream_st *s);
void emulation_wait_later(struct CUstream_st *s, const struct emulation_point *point);
/* Returns 0 if a launch on this stream can begin, otherwise CUDA's error. */
int emulation_before_launch(struct CUstream_st *s);
/* Does all work of the device's streams. */
void emulation_device_run(int device);
/* Ends the program if a pending copy reads or writes some of the host's bytes. */
void emulation_check_idle(const char *what, const void *at, size_t bytes);

#endif
