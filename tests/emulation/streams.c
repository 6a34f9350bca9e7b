/* tests/emulation/streams.c - see the header. */
#include "tests/emulation/streams.h"
#include "base/rng.h"
#include "tests/emulation/clock.h"
#include "tests/emulation/errors.h"
#include "tests/emulation/graph.h"
#include "tests/emulation/machine.h"
#include "tests/emulation/memory.h"
#include "tests/emulation/runtime.h"
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A copy, a wait for another stream, a collective, or run(args). */
struct task {
    void *to;
    const void *from;
    size_t bytes;
    struct CUstream_st *wait_for;
    uint64_t mark;
    enum emulation_engine engine; /* engine of the card that does the work */
    double ready_us;              /* virtual time at which awaited work ends */
    int (*work)(void *arg);
    void *arg;
    void (*run)(const void *args);
    void *owned;  /* freed with the task: args, or what a copy reads */
    uint64_t sum; /* checksum of the pinned memory that a copy reads, when it was queued; 0: it
                     reads none */
};

struct host_call {
    cudaHostFn_t call;
    void *arg;
    struct CUstream_st *stream;
    uint64_t mark;
    pthread_t thread;
    struct host_call *next;
};

enum temper { LAZY, EAGER, MIXED, N_TEMPERS };

struct CUstream_st {
    struct task *tasks; /* tasks[first] has number `done` */
    size_t first, cap;
    uint64_t done, issued;
    double end_us; /* virtual time at which all queued work ends */
    int device;
    enum temper temper;
    struct emulation_capture capture;
    struct host_call *host_calls;
    struct CUstream_st *next; /* next in the list of all streams */
};

struct CUevent_st {
    struct CUstream_st *stream; /* NULL: never recorded */
    uint64_t mark;
    double us;     /* virtual time of the event */
    int n_queries; /* number of queries since the event was recorded */
    /* if the event was last recorded in a capture: its position there, instead of stream and
     * mark */
    struct emulation_place place;
};

/* Guards all streams and events. Released while a piece of work waits for another thread. */
pthread_mutex_t emulation_streams = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t emulation_changed = PTHREAD_COND_INITIALIZER;
static struct CUstream_st *all;
static uint64_t seed, n_created, n_drawn;
static int random_order;

__attribute__((constructor)) static void order_read(void)
{
    const char *e = getenv("WEIR_EMULATION_ORDER");
    if (e == NULL || strcmp(e, "late") == 0)
        return;
    if (strncmp(e, "random:", 7) != 0)
        emulation_fail("WEIR_EMULATION_ORDER is neither late nor random:SEED");
    random_order = 1;
    seed = strtoull(e + 7, NULL, 10);
}

struct emulation_capture *emulation_capture(struct CUstream_st *s)
{
    return &s->capture;
}

void emulation_capture_end(const struct CUgraph_st *g)
{
    pthread_mutex_lock(&emulation_streams);
    for (struct CUstream_st *s = all; s != NULL; s = s->next)
        if (s->capture.graph == g)
            s->capture = (struct emulation_capture){NULL, 0};
    pthread_mutex_unlock(&emulation_streams);
}

int emulation_stream_device(const struct CUstream_st *s)
{
    return s->device;
}

/* ---- the caller holds the lock ---- */

static struct task *task_at(const struct CUstream_st *s, uint64_t number)
{
    return &s->tasks[s->first + (size_t)(number - s->done)];
}

static void task_end(struct CUstream_st *s)
{
    free(s->tasks[s->first].owned);
    s->first++;
    s->done++;
}

/* Returns a checksum of the bytes, which is never 0. */
static uint64_t sum_of(const void *at, size_t bytes)
{
    uint64_t sum = 14695981039346656037u, word;
    for (size_t k = 0; k < bytes; k += sizeof word) {
        size_t n = bytes - k < sizeof word ? bytes - k : sizeof word;
        word = 0;
        memcpy(&word, (const char *)at + k, n);
        sum = (sum ^ word) * 1099511628211u;
    }
    return sum | 1;
}

static __thread int is_query;

int emulation_is_query(void)
{
    return is_query;
}

/* Runs the stream's work before number `mark`. Another thread may run the same stream while the
 * lock is released. Returns 0 if this is a query, and some of the work cannot be done now. */
static int stream_run(struct CUstream_st *s, uint64_t mark)
{
    while (s->done < mark) {
        uint64_t number = s->done;
        struct task t = *task_at(s, number);
        if (emulation_lost(s->device) != cudaSuccess && t.work == NULL) {
            task_end(s);
            continue;
        }
        int is_done = 1;
        if (t.wait_for != NULL && t.wait_for != s)
            is_done = stream_run(t.wait_for, t.mark) ? 1 : EMULATION_LATER;
        else if (t.work != NULL)
            is_done = t.work(t.arg);
        if (is_done == EMULATION_LATER)
            return 0;
        if (!is_done)
            emulation_fail("a collective that not all ranks came to");
        if (s->done != number)
            continue;
        if (t.sum != 0 && sum_of(t.from, t.bytes) != t.sum)
            emulation_fail("pinned memory was written to before a copy had read it");
        if (t.from != NULL)
            memcpy(t.to, t.from, t.bytes);
        if (t.run != NULL)
            t.run(t.owned);
        emulation_check_red();
        task_end(s);
    }
    return 1;
}

/* Returns true if the next piece of work can be done now, and needs no other thread. */
static int can_run(const struct CUstream_st *s)
{
    if (s->done == s->issued)
        return 0;
    const struct task *t = task_at(s, s->done);
    return t->work == NULL && (t->wait_for == NULL || t->wait_for->done >= t->mark);
}

/* Runs all streams that are not lazy after new work was queued, until none can run. */
static void others_run(void)
{
    int more = random_order;
    while (more) {
        more = 0;
        for (struct CUstream_st *s = all; s != NULL; s = s->next) {
            uint64_t draw = s->temper == MIXED ? rng_u64(seed, n_drawn++) % 4 : 0;
            if (s->temper == LAZY || draw != 0 || !can_run(s))
                continue;
            stream_run(s, s->done + 1);
            more |= s->temper == EAGER;
        }
    }
}

static void stream_add(struct CUstream_st *s, struct task task)
{
    size_t n = (size_t)(s->issued - s->done);
    double ready_us = task.ready_us > s->end_us ? task.ready_us : s->end_us;
    const void *host = task.engine == ENGINE_TO_CARD   ? task.from
                       : task.engine == ENGINE_TO_HOST ? task.to
                                                       : NULL;
    s->end_us = emulation_clock_add(task.engine, host, task.bytes, ready_us);
    if (s->first + n == s->cap) {
        struct task *more = calloc(2 * n + 16, sizeof *more);
        if (more == NULL)
            emulation_fail("no memory");
        if (n > 0)
            memcpy(more, s->tasks + s->first, n * sizeof *more);
        free(s->tasks);
        s->tasks = more;
        s->first = 0;
        s->cap = 2 * n + 16;
    }
    s->tasks[s->first + n] = task;
    s->issued++;
}

uint64_t emulation_queue(struct CUstream_st *s, int (*work)(void *arg), void *arg)
{
    stream_add(s, (struct task){.work = work, .arg = arg});
    return s->issued - 1;
}

int emulation_run_before(struct CUstream_st *s, uint64_t mark)
{
    return stream_run(s, mark);
}

/* ---- the caller does not hold the lock ---- */

/* Runs the work before `mark`, or all queued work if there is less. */
static cudaError_t stream_sync(struct CUstream_st *s, uint64_t mark)
{
    pthread_mutex_lock(&emulation_streams);
    emulation_clock_reach(s->end_us);
    stream_run(s, mark < s->issued ? mark : s->issued);
    pthread_mutex_unlock(&emulation_streams);
    return emulation_lost(s->device);
}

void emulation_finish(struct CUstream_st *s)
{
    stream_sync(s, UINT64_MAX);
}

static void stream_queue(struct CUstream_st *s, struct task task)
{
    pthread_mutex_lock(&emulation_streams);
    stream_add(s, task);
    others_run();
    pthread_mutex_unlock(&emulation_streams);
}

void emulation_wait_later(struct CUstream_st *s, const struct emulation_point *point)
{
    struct task t = {.wait_for = point->stream, .mark = point->issued, .ready_us = point->us};
    stream_queue(s, t);
}

struct emulation_point emulation_point(struct CUstream_st *s)
{
    pthread_mutex_lock(&emulation_streams);
    struct emulation_point point = {s, s->issued, s->end_us};
    pthread_mutex_unlock(&emulation_streams);
    return point;
}

void emulation_device_run(int device)
{
    pthread_mutex_lock(&emulation_streams);
    for (struct CUstream_st *s = all; s != NULL; s = s->next)
        if (s->device == device)
            stream_run(s, s->issued);
    pthread_mutex_unlock(&emulation_streams);
}

void emulation_check_idle(const char *what, const void *at, size_t bytes)
{
    const char *first = at, *end = first + bytes;
    pthread_mutex_lock(&emulation_streams);
    for (struct CUstream_st *s = all; s != NULL; s = s->next)
        for (uint64_t k = s->done; k < s->issued && emulation_lost(s->device) == cudaSuccess; k++) {
            const struct task *t = task_at(s, k);
            const char *to = t->to, *from = t->from;
            if (from != NULL &&
                ((to < end && to + t->bytes > first) || (from < end && from + t->bytes > first))) {
                fprintf(stderr, "emulation: %s: a copy that is not done uses the memory\n", what);
                abort();
            }
        }
    pthread_mutex_unlock(&emulation_streams);
}

int emulation_before_launch(struct CUstream_st *s)
{
    static _Atomic int n_launches[EMULATION_MAX_DEVICES];
    int device = emulation_device(), most = emulation_launches(device);
    if (s == NULL)
        emulation_fail("a launch on the default stream");
    if (s->device != device)
        emulation_fail("a launch on a stream of another device than the current one");
    if (most > 0 && n_launches[device]++ == most)
        emulation_lose(device, cudaErrorIllegalAddress);
    return (int)emulation_answer(cudaSuccess);
}

void emulation_later(struct CUstream_st *s, void (*run)(const void *args), const void *args,
                     size_t bytes)
{
    void *copy = malloc(bytes);
    if (copy == NULL)
        emulation_fail("no memory");
    memcpy(copy, args, bytes);
    stream_queue(s, (struct task){.run = run, .owned = copy, .engine = ENGINE_KERNEL});
}

void emulation_do_more(struct CUstream_st *s, void (*run)(const void *args), const void *args,
                       size_t bytes)
{
    if (s->capture.graph != NULL)
        emulation_graph_add(s, run, args, bytes);
    else
        emulation_later(s, run, args, bytes);
}

/* Begins a launch. fault: name by which a test lets it fail. kernel: its name in the timeline. */
static int launch_begin(struct CUstream_st *s, const char *fault, const char *kernel)
{
    int code = emulation_before_launch(s);
    if (code == 0 && emulation_fault(s->capture.graph != NULL ? "a captured launch" : fault))
        code = (int)emulation_answer(cudaErrorLaunchOutOfResources);
    if (code != 0)
        return code;
    if (s->capture.graph == NULL)
        emulation_clock_call();
    emulation_clock_name(kernel);
    return 0;
}

int emulation_do_as(const char *name, struct CUstream_st *s, void (*run)(const void *args),
                    const void *args, size_t bytes)
{
    int code = launch_begin(s, name, name);
    if (code == 0)
        emulation_do_more(s, run, args, bytes);
    return code;
}

int emulation_do(struct CUstream_st *s, const char *kernel, void (*run)(const void *args),
                 const void *args, size_t bytes)
{
    int code = launch_begin(s, "a launch", kernel);
    if (code == 0)
        emulation_do_more(s, run, args, bytes);
    return code;
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
    return (cudaError_t)emulation_do_as(__func__, s, set_bytes, &t, sizeof t);
}

struct CUstream_st *emulation_stream_create(void)
{
    struct CUstream_st *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->device = emulation_device();
    pthread_mutex_lock(&emulation_streams);
    s->temper = (enum temper)(rng_u64(~seed, n_created++) % N_TEMPERS);
    s->next = all;
    all = s;
    pthread_mutex_unlock(&emulation_streams);
    return s;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    if (flags != cudaStreamNonBlocking)
        emulation_fail("a stream that the default stream blocks");
    *out = emulation_stream_create();
    return emulation_answer(*out != NULL ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    while (s->host_calls != NULL) {
        struct host_call *h = s->host_calls;
        s->host_calls = h->next;
        pthread_join(h->thread, NULL);
        free(h);
    }
    pthread_mutex_lock(&emulation_streams);
    if (emulation_lost(s->device) != cudaSuccess)
        stream_run(s, s->issued);
    if (s->done != s->issued)
        emulation_fail("a stream is destroyed with work in it");
    struct CUstream_st **at = &all;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    pthread_mutex_unlock(&emulation_streams);
    free(s->tasks);
    free(s);
    return emulation_answer(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    cudaError_t code = emulation_forbid();
    if (code != cudaSuccess)
        return code;
    if (s->capture.graph != NULL)
        return emulation_answer(
            emulation_graph_break(s->capture.graph, cudaErrorStreamCaptureUnsupported));
    return emulation_answer(stream_sync(s, UINT64_MAX));
}

static void *host_call_main(void *arg)
{
    struct host_call *h = arg;
    stream_sync(h->stream, h->mark);
    h->call(h->arg);
    return NULL;
}

/* Calls call(arg) in a thread. Later work in the stream does not wait for the call, but the
 * destruction of the stream does. */
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t call, void *arg)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    struct host_call *h = calloc(1, sizeof *h);
    if (h == NULL)
        return emulation_answer(cudaErrorMemoryAllocation);
    *h = (struct host_call){.call = call, .arg = arg, .stream = s, .mark = s->issued};
    h->next = s->host_calls;
    if (pthread_create(&h->thread, NULL, host_call_main, h) != 0)
        emulation_fail("no thread");
    s->host_calls = h;
    return emulation_answer(cudaSuccess);
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    *out = calloc(1, sizeof **out);
    return emulation_answer(*out != NULL ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    free(e);
    return emulation_answer(cudaSuccess);
}

/* Records a call on a captured stream, which each launch repeats. */
static cudaError_t capture_call(struct CUstream_st *s,
                                void (*queue)(struct CUstream_st *s, const void *args),
                                const void *args, size_t bytes)
{
    if (emulation_fault("a captured event or copy"))
        return emulation_answer(cudaErrorUnknown);
    emulation_graph_add_call(s, queue, args, bytes);
    return emulation_answer(cudaSuccess);
}

static void event_record(struct CUstream_st *s, const void *args)
{
    cudaEvent_t e = *(cudaEvent_t const *)args;
    pthread_mutex_lock(&emulation_streams);
    e->stream = s;
    e->mark = s->issued;
    e->us = s->end_us;
    e->n_queries = 0;
    e->place.capture = 0;
    pthread_mutex_unlock(&emulation_streams);
}

static void event_wait(struct CUstream_st *s, const void *args)
{
    cudaEvent_t e = *(cudaEvent_t const *)args;
    pthread_mutex_lock(&emulation_streams);
    if (e->stream != NULL) {
        stream_add(s, (struct task){.wait_for = e->stream, .mark = e->mark, .ready_us = e->us});
        others_run();
    }
    pthread_mutex_unlock(&emulation_streams);
}

/* Returns the name by which a test selects the call to fail. */
static const char *event_call(int is_captured, const char *name)
{
    return is_captured ? "a captured event or copy" : name;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    FAULT_AS(event_call(s->capture.graph != NULL, __func__), emulation_answer(cudaErrorUnknown));
    if (s->device != emulation_device())
        return emulation_answer(cudaErrorInvalidResourceHandle);
    if (s->capture.graph != NULL) {
        e->place = emulation_graph_record(s);
    } else {
        emulation_clock_call();
        event_record(s, &e);
    }
    return emulation_answer(cudaSuccess);
}

/* The flag "external" is only for captures. */
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags)
{
    if (flags != cudaEventRecordExternal)
        return flags == 0 ? cudaEventRecord(e, s) : emulation_answer(cudaErrorInvalidValue);
    if (s->capture.graph == NULL)
        return emulation_answer(cudaErrorInvalidValue);
    if (s->device != emulation_device())
        return emulation_answer(cudaErrorInvalidResourceHandle);
    return capture_call(s, event_record, &e, sizeof(cudaEvent_t));
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    cudaError_t code = emulation_forbid();
    if (code == cudaSuccess && e->place.capture != 0)
        code = emulation_answer(cudaErrorCapturedEvent);
    if (code != cudaSuccess)
        return code;
    emulation_clock_call();
    pthread_mutex_lock(&emulation_streams);
    if (e->stream != NULL) {
        emulation_clock_reach(e->us);
        stream_run(e->stream, e->mark);
        code = emulation_lost(e->stream->device);
    }
    pthread_mutex_unlock(&emulation_streams);
    return emulation_answer(code);
}

/* The first query after a record reports that the work has not ended; the next one runs it. */
cudaError_t cudaEventQuery(cudaEvent_t e)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    cudaError_t code = emulation_forbid();
    if (code != cudaSuccess || e->stream == NULL)
        return code;
    pthread_mutex_lock(&emulation_streams);
    if (e->n_queries++ == 0) {
        code = cudaErrorNotReady;
    } else {
        emulation_clock_reach(e->us);
        is_query = 1;
        if (!stream_run(e->stream, e->mark))
            code = cudaErrorNotReady;
        is_query = 0;
    }
    if (emulation_lost(e->stream->device) != cudaSuccess)
        code = emulation_lost(e->stream->device);
    pthread_mutex_unlock(&emulation_streams);
    return emulation_answer(code);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    if (flags == cudaEventWaitExternal && s->capture.graph != NULL)
        return capture_call(s, event_wait, &e, sizeof(cudaEvent_t));
    int is_captured = s->capture.graph != NULL || e->place.capture != 0;
    FAULT_AS(event_call(is_captured, __func__), emulation_answer(cudaErrorUnknown));
    if (flags != 0) /* external is only for captures */
        return emulation_answer(cudaErrorInvalidValue);
    if (is_captured)
        return emulation_answer(emulation_graph_wait(s, e->place));
    emulation_clock_call();
    event_wait(s, &e);
    return emulation_answer(cudaSuccess);
}

/* ---- copies ---- */

static enum emulation_engine engine_of(enum cudaMemcpyKind way)
{
    return way == cudaMemcpyHostToDevice   ? ENGINE_TO_CARD
           : way == cudaMemcpyDeviceToHost ? ENGINE_TO_HOST
                                           : ENGINE_KERNEL;
}

/* A copy from memory that is not pinned reads it before the call returns, and writes the device
 * later. A copy to such memory is complete when the call returns. */
static cudaError_t copy_unpinned(struct task t, enum cudaMemcpyKind way, cudaStream_t s)
{
    if (way == cudaMemcpyHostToDevice) {
        t.owned = malloc(t.bytes);
        if (t.owned == NULL)
            emulation_fail("no memory");
        memcpy(t.owned, t.from, t.bytes);
        t.from = t.owned;
        stream_queue(s, t);
        return cudaSuccess;
    }
    stream_queue(s, t);
    return stream_sync(s, UINT64_MAX);
}

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    enum cudaMemcpyKind way;
};

/* Queues a copy between device memory and pinned memory. */
static void copy_queue(struct CUstream_st *s, const void *args)
{
    const struct copy *c = args;
    struct task t = {.to = c->to, .from = c->from, .bytes = c->bytes, .engine = engine_of(c->way)};
    if (c->way == cudaMemcpyHostToDevice)
        t.sum = sum_of(c->from, c->bytes);
    stream_queue(s, t);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind way,
                            cudaStream_t s)
{
    if (s->capture.graph == NULL)
        FAULT(emulation_answer(cudaErrorUnknown));
    const void *host = way == cudaMemcpyHostToDevice ? from : to;
    const void *device = way == cudaMemcpyHostToDevice ? to : from;
    struct copy c = {to, from, bytes, way};
    emulation_check_device("cudaMemcpyAsync", device, bytes);
    cudaError_t code = emulation_answer(cudaSuccess);
    if (code != cudaSuccess || bytes == 0)
        return code;
    if (way == cudaMemcpyDeviceToDevice) {
        emulation_check_device("cudaMemcpyAsync", to, bytes);
    } else {
        if (emulation_is_device(host, bytes))
            emulation_fail("cudaMemcpyAsync: device memory given as the host's");
        size_t pinned = emulation_pinned_bytes(host, bytes);
        if (pinned != 0 && pinned != bytes)
            return emulation_answer(cudaErrorInvalidValue);
        if (pinned == 0 && s->capture.graph != NULL)
            return emulation_answer(
                emulation_graph_break(s->capture.graph, cudaErrorStreamCaptureUnsupported));
        if (pinned == 0)
            return emulation_answer(copy_unpinned(
                (struct task){.to = to, .from = from, .bytes = bytes, .engine = engine_of(way)},
                way, s));
    }
    if (s->capture.graph != NULL)
        return capture_call(s, copy_queue, &c, sizeof c);
    emulation_clock_call();
    copy_queue(s, &c);
    return code;
}
