/* tests/emulation/streams.h - streams and events, and the order in which queued work is done.
 *
 * All work is queued: kernels, library calls, copies, waits, collectives. A stream does its own
 * work in order; between streams only events define an order, and WEIR_EMULATION_ORDER chooses one
 * of all allowed orders: late (default)  no work is done before the host waits for it, or for a
 * stream that waits for it random:SEED     the seed makes each stream as late as that, as early as
 * its events allow, or something between So a missing wait shows as old or overwritten values, in
 * one of the orders; and the host must not write bytes that a pending copy reads: then the program
 * ends, whether the copy is done or not. Threads: any; one thread at a time launches on a
 * stream. */
#ifndef TESTS_EMULATION_STREAMS_H
#define TESTS_EMULATION_STREAMS_H
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;
/* Queues run(args), whose bytes are copied; ignores whether the stream is captured. */
void emulation_later(struct CUstream_st *s, void (*run)(const void *args), const void *args,
                     size_t bytes);
/* Creates a stream of the current device, without a caller's call. */
struct CUstream_st *emulation_stream_create(void);
uint64_t emulation_issued(struct CUstream_st *s); /* number of pieces of work queued on it so far */
/* Queues a wait for the work that is queued on another stream so far. */
void emulation_wait_later(struct CUstream_st *s, struct CUstream_st *other, uint64_t issued);
/* Returns CUDA's error; 0: a launch on this stream can begin. */
int emulation_before_launch(struct CUstream_st *s);
/* Does all work of the device's streams. */
void emulation_device_run(int device);
/* Ends the program if a pending copy reads or writes some of the host's bytes. */
void emulation_check_idle(const char *what, const void *at, size_t bytes);

#endif
