/* tests/emulation/runtime.c - see the header: what of CUDA's runtime the backend calls. */
#include "tests/emulation/runtime.h"
#include "tests/emulation/graph.h"
#include "tests/emulation/machine.h"
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 512 };

void emulation_fail(const char *what)
{
    fprintf(stderr, "emulation: %s\n", what);
    abort();
}

/* ---- memory ---- */

enum kind { DEVICE, PINNED, REGISTERED };

static struct block {
    uintptr_t first, end;
    enum kind kind;
    int device; /* on which it was taken */
} blocks[MAX_BLOCKS];
static int n_blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the above */
static __thread int current_device;

static void block_add(void *at, size_t bytes, enum kind kind)
{
    pthread_mutex_lock(&lock);
    if (n_blocks == MAX_BLOCKS)
        emulation_fail("too many blocks of memory");
    blocks[n_blocks++] = (struct block){(uintptr_t)at, (uintptr_t)at + bytes, kind, current_device};
    if (kind == DEVICE)
        emulation_book(current_device, (long long)bytes);
    pthread_mutex_unlock(&lock);
}

static int block_remove(const void *at, enum kind kind)
{
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_blocks && !found; i++)
        if (blocks[i].first == (uintptr_t)at && blocks[i].kind == kind) {
            if (kind == DEVICE)
                emulation_book(blocks[i].device, -(long long)(blocks[i].end - blocks[i].first));
            blocks[i] = blocks[--n_blocks];
            found = 1;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

/* How many of the bytes are of this kind (two blocks that touch count together). */
static size_t bytes_of_kind(const void *at, size_t bytes, int device)
{
    uintptr_t first = (uintptr_t)at, end = first + bytes;
    size_t n = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_blocks; i++) {
        uintptr_t from = blocks[i].first > first ? blocks[i].first : first;
        uintptr_t to = blocks[i].end < end ? blocks[i].end : end;
        if ((blocks[i].kind == DEVICE) == device && from < to)
            n += to - from;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

void emulation_check_device(const char *what, const void *at, size_t bytes)
{
    if (bytes_of_kind(at, bytes, 1) != bytes) {
        fprintf(stderr, "emulation: %s: %zu bytes at %p are not all device memory\n", what, bytes,
                at);
        abort();
    }
}

static size_t free_bytes_now(void)
{
    pthread_mutex_lock(&lock);
    size_t n = emulation_free_bytes(current_device);
    pthread_mutex_unlock(&lock);
    return n;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    if (bytes > free_bytes_now())
        return cudaErrorMemoryAllocation;
    void *at = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (at == NULL)
        return cudaErrorMemoryAllocation;
    emulation_fill_nan(at, bytes);
    block_add(at, bytes, DEVICE);
    *out = at;
    return cudaSuccess;
}

cudaError_t cudaFree(void *at)
{
    if (!block_remove(at, DEVICE))
        return cudaErrorInvalidValue;
    free(at);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    *out = malloc(bytes);
    if (*out == NULL)
        return cudaErrorMemoryAllocation;
    memset(*out, 0xff, bytes);
    block_add(*out, bytes, PINNED);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *at)
{
    if (!block_remove(at, PINNED))
        return cudaErrorInvalidValue;
    free(at);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags)
{
    (void)flags;
    if (bytes_of_kind(at, bytes, 0) != 0)
        return cudaErrorHostMemoryAlreadyRegistered;
    block_add(at, bytes, REGISTERED);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *at)
{
    return block_remove(at, REGISTERED) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all)
{
    *all = emulation_total_bytes(current_device);
    *free_bytes = free_bytes_now();
    return cudaSuccess;
}

/* ---- streams and events ---- */

struct task {
    void *to;
    const void *from;
    size_t bytes;
    struct CUstream_st *wait_for; /* instead of a copy */
    uint64_t mark;
    int (*work)(void *arg); /* instead of a copy */
    void *arg;
};

struct host_call {
    cudaHostFn_t call;
    void *arg;
    struct CUstream_st *stream;
    uint64_t mark;
    pthread_t thread;
    struct host_call *next;
};

struct CUstream_st {
    struct task *tasks; /* tasks[0] is number `done` */
    uint64_t done, issued;
    size_t cap;
    int device;
    struct CUgraph_st *capture; /* NULL: not being captured */
    struct host_call *host_calls;
};

struct CUevent_st {
    struct CUstream_st *stream; /* NULL: never recorded */
    uint64_t mark;
};

struct CUgraph_st **emulation_capture(struct CUstream_st *s)
{
    return &s->capture;
}

/* Guards all streams and events; given back while a piece of work waits for another thread. */
pthread_mutex_t emulation_streams = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t emulation_changed = PTHREAD_COND_INITIALIZER;

/* With the lock held. Another thread may run the same stream while the lock is given back. */
static void stream_run(struct CUstream_st *s, uint64_t mark)
{
    while (s->done < mark) {
        uint64_t number = s->done;
        struct task t = s->tasks[0];
        if (t.wait_for != NULL && t.wait_for != s)
            stream_run(t.wait_for, t.mark);
        else if (t.work != NULL && !t.work(t.arg))
            emulation_fail("a collective that not all ranks came to");
        if (s->done != number)
            continue;
        if (t.from != NULL)
            memcpy(t.to, t.from, t.bytes);
        s->done++;
        memmove(s->tasks, s->tasks + 1, (size_t)(s->issued - s->done) * sizeof *s->tasks);
    }
}

static void stream_add(struct CUstream_st *s, struct task task)
{
    size_t n = (size_t)(s->issued - s->done);
    if (n == s->cap) {
        s->cap = s->cap * 2 + 16;
        s->tasks = realloc(s->tasks, s->cap * sizeof *s->tasks);
        if (s->tasks == NULL)
            emulation_fail("no memory");
    }
    s->tasks[n] = task;
    s->issued++;
}

/* Runs up to the mark, or all that was issued. */
static void stream_sync(struct CUstream_st *s, uint64_t mark)
{
    pthread_mutex_lock(&emulation_streams);
    stream_run(s, mark < s->issued ? mark : s->issued);
    pthread_mutex_unlock(&emulation_streams);
}

static void stream_queue(struct CUstream_st *s, struct task task)
{
    pthread_mutex_lock(&emulation_streams);
    stream_add(s, task);
    pthread_mutex_unlock(&emulation_streams);
}

uint64_t emulation_queue(struct CUstream_st *s, int (*work)(void *arg), void *arg)
{
    stream_add(s, (struct task){.work = work, .arg = arg});
    return s->issued - 1;
}

void emulation_run_before(struct CUstream_st *s, uint64_t mark)
{
    stream_run(s, mark);
}

int emulation_stream_device(const struct CUstream_st *s)
{
    return s->device;
}

int emulation_before_launch(struct CUstream_st *s)
{
    static _Atomic int n_launches[EMULATION_MAX_DEVICES];
    int most = emulation_launches(current_device);
    if (s == NULL)
        emulation_fail("a launch on the default stream");
    if (s->device != current_device)
        emulation_fail("a launch on a stream of another device than the current one");
    if (most > 0 && n_launches[current_device]++ >= most)
        return cudaErrorIllegalAddress;
    stream_sync(s, UINT64_MAX);
    return 0;
}

int emulation_do(struct CUstream_st *s, void (*run)(const void *args), const void *args,
                 size_t bytes)
{
    int code = emulation_before_launch(s);
    if (code != 0)
        return code;
    if (s->capture != NULL)
        emulation_graph_add(s->capture, run, args, bytes);
    else
        run(args);
    return 0;
}

static void set_bytes(const void *args)
{
    const struct task *t = args;
    memset(t->to, 0, t->bytes);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s)
{
    emulation_check_device("cudaMemsetAsync", to, bytes);
    if (value != 0)
        emulation_fail("cudaMemsetAsync: another value than 0");
    struct task t = {.to = to, .bytes = bytes};
    return (cudaError_t)emulation_do(s, set_bytes, &t, sizeof t);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    (void)flags;
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return cudaErrorMemoryAllocation;
    (*out)->device = current_device;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    while (s->host_calls != NULL) {
        struct host_call *h = s->host_calls;
        s->host_calls = h->next;
        pthread_join(h->thread, NULL);
        free(h);
    }
    if (s->done != s->issued)
        emulation_fail("a stream is destroyed with work in it");
    free(s->tasks);
    free(s);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    if (s->capture != NULL)
        return emulation_graph_break(s->capture, cudaErrorStreamCaptureUnsupported);
    stream_sync(s, UINT64_MAX);
    return cudaSuccess;
}

static void *host_call_main(void *arg)
{
    struct host_call *h = arg;
    stream_sync(h->stream, h->mark);
    h->call(h->arg);
    return NULL;
}

/* Only until the stream is destroyed, which waits for it; what is queued behind does not. */
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t call, void *arg)
{
    struct host_call *h = calloc(1, sizeof *h);
    if (h == NULL)
        return cudaErrorMemoryAllocation;
    *h = (struct host_call){.call = call, .arg = arg, .stream = s, .mark = s->issued};
    h->next = s->host_calls;
    if (pthread_create(&h->thread, NULL, host_call_main, h) != 0)
        emulation_fail("no thread");
    s->host_calls = h;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    (void)flags;
    *out = calloc(1, sizeof **out);
    return *out != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    free(e);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    if (s->capture != NULL) /* not emulated: a step that is captured has one stream */
        return emulation_graph_break(s->capture, cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&emulation_streams);
    e->stream = s;
    e->mark = s->issued;
    pthread_mutex_unlock(&emulation_streams);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    pthread_mutex_lock(&emulation_streams);
    if (e->stream != NULL)
        stream_run(e->stream, e->mark);
    pthread_mutex_unlock(&emulation_streams);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    (void)flags;
    if (s->capture != NULL)
        return emulation_graph_break(s->capture, cudaErrorStreamCaptureIsolation);
    pthread_mutex_lock(&emulation_streams);
    if (e->stream != NULL)
        stream_add(s, (struct task){.wait_for = e->stream, .mark = e->mark});
    pthread_mutex_unlock(&emulation_streams);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind way,
                            cudaStream_t s)
{
    if (s->capture != NULL)
        return emulation_graph_break(s->capture, cudaErrorStreamCaptureUnsupported);
    const void *host = way == cudaMemcpyHostToDevice ? from : to;
    const void *device = way == cudaMemcpyHostToDevice ? to : from;
    emulation_check_device("cudaMemcpyAsync", device, bytes);
    if (way == cudaMemcpyDeviceToDevice) {
        emulation_check_device("cudaMemcpyAsync", to, bytes);
        stream_queue(s, (struct task){.to = to, .from = from, .bytes = bytes});
        return cudaSuccess;
    }
    if (bytes_of_kind(host, bytes, 1) != 0)
        emulation_fail("cudaMemcpyAsync: device memory given as the host's");
    size_t pinned = bytes_of_kind(host, bytes, 0);
    if (pinned != 0 && pinned != bytes)
        return cudaErrorInvalidValue;
    stream_queue(s, (struct task){.to = to, .from = from, .bytes = bytes});
    if (pinned == 0) /* the caller waits for a copy of memory that is not pinned */
        stream_sync(s, UINT64_MAX);
    return cudaSuccess;
}

/* ---- the rest ---- */

cudaError_t cudaGetDeviceCount(int *out)
{
    *out = emulation_n_devices();
    if (emulation_driver_error() != 0)
        return (cudaError_t)emulation_driver_error();
    return *out > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= emulation_n_devices())
        return cudaErrorInvalidDevice;
    current_device = device;
    return (cudaError_t)emulation_error(device);
}

cudaError_t cudaGetDevice(int *out)
{
    *out = current_device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    int pci[3];
    if (device < 0 || device >= emulation_n_devices())
        return cudaErrorInvalidDevice;
    memset(out, 0, sizeof *out);
    emulation_identity(device, out->name, sizeof out->name, (unsigned char *)out->uuid.bytes, pci);
    out->pciDomainID = pci[0];
    out->pciBusID = pci[1];
    out->pciDeviceID = pci[2];
    out->totalGlobalMem = emulation_total_bytes(device);
    return cudaSuccess;
}

int emulation_current_is_wrong(void)
{
    return emulation_is_wrong(current_device);
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *out)
{
    *out = emulation_driver_version();
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *out)
{
    *out = 0;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t code)
{
    return code == cudaErrorMemoryAllocation ? "out of memory" : "emulated error";
}

const char *cudaGetErrorName(cudaError_t code)
{
    return code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "emulated";
}
