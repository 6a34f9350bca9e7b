/* tests/emulation/errors.h - CUDA's errors as the runtime keeps them: the last one of each thread,
 * until it is asked for, and for each device one that stays (its context is lost), which every
 * later call on that device answers with. And what a thread may not call while it captures a
 * stream. Threads: any. */
#ifndef TESTS_EMULATION_ERRORS_H
#define TESTS_EMULATION_ERRORS_H
#include <cuda_runtime_api.h>

/* The thread's current device. */
int emulation_device(void);
/* What a call answers: code, or what the current device is lost by; noted as the last error. */
cudaError_t emulation_answer(cudaError_t code);
/* The device is lost from now on: what it has to do is not done any more. */
void emulation_lose(int device, cudaError_t code);
cudaError_t emulation_lost(int device); /* cudaSuccess: it is not */
/* The thread begins (NULL: ends) to capture; `graph` is what a forbidden call breaks. */
struct CUgraph_st;
void emulation_capturing(struct CUgraph_st *graph);
struct CUgraph_st *emulation_captured(void); /* what this thread captures; NULL: nothing */
/* To begin a call with that is illegal while the thread captures: cudaSuccess, or the answer. */
cudaError_t emulation_forbid(void);

/* A call that may fail begins with FAULT(what it answers then): the N-th of them does so once
 * emulation_fault_set(N) was called (0: none), which a test finds by its name; a second FAULT_AS()
 * is another way in which the same call may fail. */
#define FAULT(answer) FAULT_AS(__func__, answer)
#define FAULT_AS(name, answer)                                                                     \
    do {                                                                                           \
        if (emulation_fault(name))                                                                 \
            return answer;                                                                         \
    } while (0)
int emulation_fault(const char *name);
void emulation_fault_set(long long number);
long long emulation_fault_calls(void);       /* so many were made since */
void emulation_fault_only(const char *name); /* only calls of this name count; NULL: all do */
const char *emulation_fault_name(void);      /* the call that failed; NULL: none has yet */

#endif
