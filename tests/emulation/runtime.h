/* tests/emulation/runtime.h - emulates CUDA's runtime on a machine without a GPU, so that the whole
 * CUDA backend runs the conformance suite on the CPU (libweir_emulated.so). Device memory is the
 * host's, filled with NaN. All work is queued, and done in an order that the events allow and a
 * real card might choose (streams.h). A copy whose host side is partly pinned is refused, as in
 * CUDA. Calls that are forbidden during a capture fail, and errors stay like CUDA's (errors.h).
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
/* Queues work; or records it, if the stream is being captured (graph.c). args are copied. Returns
 * 0, or CUDA's error: the launch fails, as a fault of the name (errors.h), or as one of "a
 * launch". */
int emulation_do_as(const char *name, struct CUstream_st *stream, void (*run)(const void *args),
                    const void *args, size_t bytes);
int emulation_do(struct CUstream_st *stream, void (*run)(const void *args), const void *args,
                 size_t bytes);
/* Queues or records a part of such a launch, and never fails. */
void emulation_do_more(struct CUstream_st *stream, void (*run)(const void *args), const void *args,
                       size_t bytes);
/* Queues `work`, for libraries that defer work, too. The thread that runs the stream calls it with
 * the lock held; it may release the lock in a wait for emulation_changed; it returns 1 when it is
 * done. Returns its number in the stream. The next function runs the work before such a number. The
 * caller of all but the last two functions holds the lock. */
extern pthread_mutex_t emulation_streams;
extern pthread_cond_t emulation_changed;
uint64_t emulation_queue(struct CUstream_st *stream, int (*work)(void *arg), void *arg);
void emulation_run_before(struct CUstream_st *stream, uint64_t number);
int emulation_stream_device(const struct CUstream_st *stream);
/* Does all of the stream's work, for a call that blocks the host until then. The caller does not
 * hold the lock. */
void emulation_finish(struct CUstream_st *stream);
/* Ends the program unless [at, at + bytes) is device memory, of one allocation. */
void emulation_check_device(const char *what, const void *at, size_t bytes);
/* Fills memory that no other thread uses with NaN: at is a multiple of 8. */
void emulation_fill_nan(void *at, size_t bytes);
/* Ends the program with a message. */
void emulation_fail(const char *what) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif
#endif
