/* tests/emulation/runtime.h - emulates CUDA's runtime on a machine without a GPU, so that the whole
 * CUDA backend runs the conformance suite on the CPU (libweir_emulated.so). Device memory is memory
 * of the host, filled with NaN. All work is queued, and done in an order that the events allow and
 * a real card might choose (streams.h). A copy whose host side is partly pinned is refused, as in
 * CUDA. Calls that are forbidden during a capture fail, and errors stay as in CUDA (errors.h).
 * Threads: any; one thread at a time launches on a stream. */
#ifndef TESTS_EMULATION_RUNTIME_H
#define TESTS_EMULATION_RUNTIME_H
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
/* Queues run(args), or records it if the stream is being captured (graph.c). `args` is copied.
 * Returns 0, or CUDA's error if the launch fails: a test selects it by `name` or, if it is a launch
 * of a kernel, as "a launch" (errors.h). */
int emulation_do_as(const char *name, struct CUstream_st *stream, void (*run)(const void *args),
                    const void *args, size_t bytes);
int emulation_do(struct CUstream_st *stream, const char *kernel, void (*run)(const void *args),
                 const void *args, size_t bytes);
/* Queues or records a further part of the launch that emulation_do_as() has begun. Never fails. */
void emulation_do_more(struct CUstream_st *stream, void (*run)(const void *args), const void *args,
                       size_t bytes);
/* Queues work(arg) for a library that defers work, and returns its number in the stream. The thread
 * that runs the stream calls work() with the lock held. work() may release the lock while it waits
 * for emulation_changed, and returns 1 when it is done. If it would have to wait and
 * emulation_is_query() is true, it returns EMULATION_LATER instead, because a query of CUDA does
 * not wait. emulation_run_before() runs all work before such a number; it returns 0 if a query
 * cannot do that work now. The caller of these functions holds the lock. */
enum { EMULATION_LATER = -1 };
extern pthread_mutex_t emulation_streams;
extern pthread_cond_t emulation_changed;
uint64_t emulation_queue(struct CUstream_st *stream, int (*work)(void *arg), void *arg);
int emulation_is_query(void);
int emulation_run_before(struct CUstream_st *stream, uint64_t number);
int emulation_stream_device(const struct CUstream_st *stream);
/* Does all of the stream's work, for a call that blocks the host until the work is done. The caller
 * does not hold the lock. */
void emulation_finish(struct CUstream_st *stream);
/* Ends the program unless [at, at + bytes) is device memory of one allocation. */
void emulation_check_device(const char *what, const void *at, size_t bytes);
/* Fills memory that no other thread uses with NaN. `at` is a multiple of 8. */
void emulation_fill_nan(void *at, size_t bytes);
/* Ends the program with a message. */
void emulation_fail(const char *what) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif
#endif
