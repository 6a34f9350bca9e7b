/* tests/emulation/errors.h - errors in CUDA's runtime: the last error of each thread, until it is
 * read, and for each device one that stays (its context is lost), which every later call on that
 * device returns. Also the calls that are forbidden while a thread captures a stream. Threads:
 * any. */
#ifndef TESTS_EMULATION_ERRORS_H
#define TESTS_EMULATION_ERRORS_H
#include <cuda_runtime_api.h>

/* Returns the thread's current device. */
int emulation_device(void);
/* Returns the result of a call: code, or the error by which the current device is lost; records it
 * as the last error. */
cudaError_t emulation_answer(cudaError_t code);
/* Marks the device as lost: its remaining work is not done any more. */
void emulation_lose(int device, cudaError_t code);
cudaError_t emulation_lost(int device); /* cudaSuccess: it is not lost */
/* Begins to capture in this thread (NULL: ends); a forbidden call invalidates `graph`. */
struct CUgraph_st;
void emulation_capturing(struct CUgraph_st *graph);
struct CUgraph_st *emulation_captured(void); /* graph that this thread captures; NULL: none */
/* Returns an error for a call that is illegal while the thread captures, otherwise cudaSuccess. */
cudaError_t emulation_forbid(void);

/* A call that may fail begins with FAULT(its error): the N-th of these calls fails after
 * emulation_fault_set(N) (0: none); a test selects calls by name. A second FAULT_AS() is another
 * way in which the same call may fail. */
#define FAULT(answer) FAULT_AS(__func__, answer)
#define FAULT_AS(name, answer)                                                                     \
    do {                                                                                           \
        if (emulation_fault(name))                                                                 \
            return answer;                                                                         \
    } while (0)
int emulation_fault(const char *name);
void emulation_fault_set(long long number);
long long emulation_fault_calls(void);       /* calls since then */
void emulation_fault_only(const char *name); /* counts only calls of this name; NULL: all */
const char *emulation_fault_name(void);      /* the call that failed; NULL: none so far */

#endif
