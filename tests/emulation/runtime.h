/* tests/emulation/runtime.h - a machine without a GPU playing CUDA's runtime, so that the whole
 * CUDA backend runs the conformance suite on the CPU (libweir_emulated.so). Device memory is the
 * host's, filled with NaN. Kernels and library calls run at once (graph.h: unless they are
 * captured); copies and waits are put off as long as their events allow, so that a wait that is
 * missing shows as old values. A copy whose host side is partly pinned is refused, as CUDA does.
 * Threads: any; one stream's launches come from one thread at a time. */
#ifndef TESTS_EMULATION_RUNTIME_H
#define TESTS_EMULATION_RUNTIME_H
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
/* Queues work: it is run at once, after the stream's copies and waits; or noted, if the stream is
 * being captured (graph.c). args are copied. 0, or CUDA's error: the launch fails. */
int emulation_do(struct CUstream_st *stream, void (*run)(const void *args), const void *args,
                 size_t bytes);
int emulation_before_launch(struct CUstream_st *stream); /* its copies and waits are done now */
/* For libraries that put work off, too; all but emulation_stream_device with the lock held: queues
 * `work`, which is called by whoever runs the stream, with the lock held, which it may give back in
 * a wait for emulation_changed; 1: it is done. Returns its number in the stream; and what lies
 * before such a number is run. */
extern pthread_mutex_t emulation_streams;
extern pthread_cond_t emulation_changed;
uint64_t emulation_queue(struct CUstream_st *stream, int (*work)(void *arg), void *arg);
void emulation_run_before(struct CUstream_st *stream, uint64_t number);
int emulation_stream_device(const struct CUstream_st *stream);
/* Ends the program unless [at, at + bytes) is device memory. */
void emulation_check_device(const char *what, const void *at, size_t bytes);
/* Of memory that nobody else has: at is a multiple of 8. */
void emulation_fill_nan(void *at, size_t bytes);
/* 1: products on the current device shall come out wrong. */
int emulation_current_is_wrong(void);
/* Ends the program with a message. */
void emulation_fail(const char *what) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif
#endif
