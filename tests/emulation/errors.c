/* tests/emulation/errors.c - see the header. */
#include "tests/emulation/errors.h"
#include "tests/emulation/graph.h"
#include "tests/emulation/machine.h"
#include "tests/emulation/runtime.h"
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

static __thread cudaError_t last_error;
enum { MOST_CAPTURES = 16 };
/* graphs that the thread captures, the oldest first, then NULL */
static __thread struct CUgraph_st *captured[MOST_CAPTURES];
static __thread int current_device;
static _Atomic int lost[EMULATION_MAX_DEVICES];

static _Atomic long long n_calls, fault_at;
static const char *_Atomic fault_name, *_Atomic fault_only;

int emulation_fault(const char *name)
{
    if ((fault_only != NULL && strcmp(name, fault_only) != 0) || ++n_calls != fault_at)
        return 0;
    fault_name = name;
    return 1;
}

void emulation_fault_set(long long number)
{
    fault_name = NULL;
    fault_at = number;
    n_calls = 0;
}

long long emulation_fault_calls(void)
{
    return n_calls;
}

void emulation_fault_only(const char *name)
{
    fault_only = name;
}

const char *emulation_fault_name(void)
{
    return fault_name;
}

int emulation_device(void)
{
    return current_device;
}

void emulation_lose(int device, cudaError_t code)
{
    int expected = cudaSuccess;
    atomic_compare_exchange_strong(&lost[device], &expected, (int)code);
}

cudaError_t emulation_lost(int device)
{
    return (cudaError_t)lost[device];
}

cudaError_t emulation_answer(cudaError_t code)
{
    if (emulation_lost(current_device) != cudaSuccess)
        code = emulation_lost(current_device);
    if (code != cudaSuccess)
        last_error = code;
    return code;
}

void emulation_capturing(struct CUgraph_st *graph)
{
    for (int k = 0; k < MOST_CAPTURES; k++)
        if (captured[k] == NULL) {
            captured[k] = graph;
            return;
        }
    emulation_fail("more captures in a thread than are emulated");
}

void emulation_captures_no_more(const struct CUgraph_st *graph)
{
    int n = 0;
    for (int k = 0; k < MOST_CAPTURES; k++)
        if (captured[k] != graph)
            captured[n++] = captured[k];
    while (n < MOST_CAPTURES)
        captured[n++] = NULL;
}

struct CUgraph_st *emulation_captured(int k)
{
    return k < MOST_CAPTURES ? captured[k] : NULL;
}

cudaError_t emulation_forbid(void)
{
    cudaError_t code = cudaSuccess;
    for (int k = 0; k < MOST_CAPTURES && captured[k] != NULL; k++)
        code = emulation_graph_break(captured[k], cudaErrorStreamCaptureUnsupported);
    return emulation_answer(code);
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t code = emulation_answer(last_error);
    last_error = emulation_lost(current_device);
    return code;
}

cudaError_t cudaSetDevice(int device)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    if (device < 0 || device >= emulation_n_devices())
        return emulation_answer(cudaErrorInvalidDevice);
    current_device = device;
    return emulation_answer((cudaError_t)emulation_error(device));
}

cudaError_t cudaGetDevice(int *out)
{
    *out = current_device;
    return emulation_answer(cudaSuccess);
}

const char *cudaGetErrorString(cudaError_t code)
{
    return code == cudaErrorMemoryAllocation ? "out of memory" : "emulated error";
}

const char *cudaGetErrorName(cudaError_t code)
{
    return code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "emulated";
}
