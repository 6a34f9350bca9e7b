/* tests/emulation/streams.h - streams and events, and when what is queued on them is done.
 *
 * All work is queued: kernels, library calls, copies, waits, collectives. A stream does its own in
 * order; between streams only events say what comes first, and WEIR_EMULATION_ORDER which of all
 * orders that are allowed is taken:
 *   late (default)  nothing is done before somebody waits for it: the host, or a stream that the
 *                   host waits for
 *   random:SEED     each stream is by the seed as late as that, as early as its events allow, or
 *                   something between
 * So a wait that is missing shows as old or overwritten values, in one of the orders; and the host
 * may not write what a copy has yet to read: then the program ends, whatever becomes of the copy.
 * Threads: any; one stream's launches come from one thread at a time. */
#ifndef TESTS_EMULATION_STREAMS_H
#define TESTS_EMULATION_STREAMS_H
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;
/* Queues run(args), whose bytes are copied; never looks whether the stream is captured. */
void emulation_later(struct CUstream_st *s, void (*run)(const void *args), const void *args,
                     size_t bytes);
/* A stream of the current device, as nobody's call makes it. */
struct CUstream_st *emulation_stream_create(void);
uint64_t emulation_issued(struct CUstream_st *s); /* so much was queued on it so far */
/* Queues a wait for what was queued on another stream until then. */
void emulation_wait_later(struct CUstream_st *s, struct CUstream_st *other, uint64_t issued);
/* CUDA's error; 0: a launch on this stream can begin. */
int emulation_before_launch(struct CUstream_st *s);
/* Does all that the device's streams have to do. */
void emulation_device_run(int device);
/* Ends the program if a copy that is not done yet reads or writes some of the host's bytes. */
void emulation_check_idle(const char *what, const void *at, size_t bytes);

#endif
