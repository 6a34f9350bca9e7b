/* net/rpc/grpc_runtime.c - see grpc_runtime.h. */
#include "net/rpc/grpc_runtime.h"
#include "base/log.h"
#include "base/process.h"
#include "base/threads.h"
#include "base/trace.h"
#include <grpc/support/log.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct grpc_runtime_pollers {
    grpc_completion_queue *queue;
    int n_threads;
    pthread_t threads[GRPC_RUNTIME_MAX_THREADS];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void log_grpc(gpr_log_func_args *args)
{
    LOG_D("grpc: %s", args->message);
}

static void set_up_once(void)
{
    /* gRPC's log lines report the same failures as this program's lines, but without the cause, so
     * they are turned off. An operator who needs them sets GRPC_VERBOSITY. A program that has
     * loaded libweir keeps them, because it may use gRPC for its own calls. */
    if (process_is_ours() && !getenv("GRPC_VERBOSITY")) {
        gpr_set_log_function(log_grpc);
        gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
    }
}

void grpc_runtime_init(void)
{
    pthread_once(&once, set_up_once);
    grpc_init();
}

void grpc_runtime_shutdown(void)
{
    grpc_shutdown();
}

grpc_channel_args grpc_runtime_args(const struct grpc_runtime_setting *settings, size_t n,
                                    grpc_arg *args)
{
    for (size_t i = 0; i < n; i++) {
        args[i] = (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)settings[i].key};
        args[i].value.integer = settings[i].value;
    }
    return (grpc_channel_args){n, args};
}

void grpc_runtime_op_init(struct grpc_runtime_op *op,
                          void (*done)(struct grpc_runtime_op *op, bool ok))
{
    op->done = done;
    atomic_init(&op->armed, 0);
}

void grpc_runtime_op_arm(struct grpc_runtime_op *op)
{
    atomic_store_explicit(&op->armed, 1, memory_order_release);
}

bool grpc_runtime_op_start(struct grpc_runtime_op *op, grpc_call *call, const grpc_op *ops,
                           size_t n_ops)
{
    grpc_runtime_op_arm(op);
    grpc_call_error err = grpc_call_start_batch(call, ops, n_ops, op, NULL);
    if (err != GRPC_CALL_OK)
        LOG_D("gRPC refused a batch of %zu operations: %s", n_ops, grpc_call_error_to_string(err));
    return err == GRPC_CALL_OK;
}

static void *poll_queue(void *arg)
{
    struct grpc_runtime_pollers *p = arg;
    trace_thread_name("network", -1);
    for (;;) {
        grpc_event ev =
            grpc_completion_queue_next(p->queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        if (ev.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        if (ev.type != GRPC_OP_COMPLETE)
            continue;
        struct grpc_runtime_op *op = ev.tag;
        atomic_load_explicit(&op->armed, memory_order_acquire);
        op->done(op, ev.success);
    }
}

enum status grpc_runtime_pollers_create(int n_threads, struct grpc_runtime_pollers **out)
{
    if (n_threads < 1 || n_threads > GRPC_RUNTIME_MAX_THREADS)
        return ST_INVALID;
    struct grpc_runtime_pollers *p = calloc(1, sizeof *p);
    if (!p) {
        LOG_E("out of memory for %d network threads", n_threads);
        return ST_NOMEM;
    }
    p->queue = grpc_completion_queue_create_for_next(NULL);
    for (; p->n_threads < n_threads; p->n_threads++) {
        int err = pthread_create(&p->threads[p->n_threads], NULL, poll_queue, p);
        if (err) {
            LOG_E("network thread %d of %d cannot be started: %s", p->n_threads + 1, n_threads,
                  threads_error(err));
            grpc_runtime_pollers_destroy(p);
            return ST_NOMEM;
        }
    }
    *out = p;
    return ST_OK;
}

grpc_completion_queue *grpc_runtime_pollers_queue(struct grpc_runtime_pollers *p)
{
    return p->queue;
}

void grpc_runtime_pollers_destroy(struct grpc_runtime_pollers *p)
{
    if (!p)
        return;
    grpc_completion_queue_shutdown(p->queue);
    for (int i = 0; i < p->n_threads; i++)
        pthread_join(p->threads[i], NULL);
    if (p->n_threads == 0)
        poll_queue(p); /* gRPC requires that the queue is drained before it is destroyed */
    grpc_completion_queue_destroy(p->queue);
    free(p);
}

enum status grpc_runtime_spans_of(grpc_byte_buffer *message, struct net_span **spans, size_t *room,
                                  size_t *n)
{
    size_t count = message->data.raw.slice_buffer.count;
    if (count > *room) {
        struct net_span *grown = realloc(*spans, count * sizeof **spans);
        if (!grown)
            return ST_NOMEM;
        *spans = grown;
        *room = count;
    }
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, message))
        return ST_NOMEM;
    grpc_slice *slice;
    size_t i = 0;
    while (i < count && grpc_byte_buffer_reader_peek(&reader, &slice)) {
        (*spans)[i].data = GRPC_SLICE_START_PTR(*slice);
        (*spans)[i++].n = GRPC_SLICE_LENGTH(*slice);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    *n = i;
    return ST_OK;
}

enum status grpc_runtime_bytes_of(grpc_byte_buffer *message, uint8_t **data, size_t *bytes)
{
    size_t n = grpc_byte_buffer_length(message), at = 0;
    uint8_t *copy = malloc(n ? n : 1);
    grpc_byte_buffer_reader reader;
    if (!copy || !grpc_byte_buffer_reader_init(&reader, message)) {
        free(copy);
        return ST_NOMEM;
    }
    grpc_slice *slice;
    while (grpc_byte_buffer_reader_peek(&reader, &slice)) {
        memcpy(copy + at, GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice));
        at += GRPC_SLICE_LENGTH(*slice);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    *data = copy;
    *bytes = n;
    return ST_OK;
}

void grpc_runtime_slice_text(grpc_slice s, char *text, size_t room)
{
    size_t n = GRPC_SLICE_LENGTH(s) < room - 1 ? GRPC_SLICE_LENGTH(s) : room - 1;
    const uint8_t *from = GRPC_SLICE_START_PTR(s);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)(from[i] < 0x20 || from[i] == 0x7f ? ' ' : from[i]);
    text[n] = 0;
}

void grpc_runtime_status_text(grpc_slice s, char *text, size_t room)
{
    grpc_runtime_slice_text(s, text, room);
    grpc_slice_unref(s);
}
