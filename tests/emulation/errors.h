/* tests/emulation/errors.h - errors in CUDA's runtime. Each thread has a last error until it is
 * read. A device whose context is lost has an error that stays, and every later call on that device
 * returns it. This file also has the refusal of calls that are forbidden while a thread captures a
 * stream. Threads: any. */
#ifndef TESTS_EMULATION_ERRORS_H
#define TESTS_EMULATION_ERRORS_H
#include <cuda_runtime_api.h>

/* Returns the thread's current device. */
int emulation_device(void);
/* Returns the result of a call: `code`, or the error by which the current device was lost. Records
 * the result as the last error. */
cudaError_t emulation_answer(cudaError_t code);
/* Marks the device as lost: its remaining work will not be done. */
void emulation_lose(int device, cudaError_t code);
cudaError_t emulation_lost(int device); /* cudaSuccess: not lost */
/* Begins and ends a capture in this thread, which may capture several graphs at once. A forbidden
 * call invalidates all of them. */
struct CUgraph_st;
void emulation_capturing(struct CUgraph_st *graph);
void emulation_captures_no_more(const struct CUgraph_st *graph);
struct CUgraph_st *emulation_captured(int k); /* k-th graph that is captured; NULL: there are k */
/* Returns an error for a call that is illegal while the thread captures, otherwise cudaSuccess. */
cudaError_t emulation_forbid(void);

/* A call that may fail begins with FAULT(error). After emulation_fault_set(N) the N-th of these
 * calls fails (0: none does). A test may select calls by name. If a call can fail in a second way,
 * its function also has a FAULT_AS() with a name for that way. */
#define FAULT(answer) FAULT_AS(__func__, answer)
#define FAULT_AS(name, answer)                                                                     \
    do {                                                                                           \
        if (emulation_fault(name))                                                                 \
            return answer;                                                                         \
    } while (0)
int emulation_fault(const char *name);
void emulation_fault_set(long long number);
long long emulation_fault_calls(void);       /* number of calls since emulation_fault_set() */
void emulation_fault_only(const char *name); /* counts only calls of this name; NULL: all */
const char *emulation_fault_name(void);      /* name of the failed call; NULL: none so far */

#endif
