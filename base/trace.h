/* base/trace.h - records the times of a program's work as spans in a file that Perfetto and
 * chrome://tracing open (Chrome trace JSON). docs/guide/tracing.md explains how to read it.
 *
 * Times are those of CLOCK_MONOTONIC, so that a viewer can show files of several processes of one
 * host together. A file contains the offset to the wall clock, to compare hosts. A program traces
 * once, from trace_open to trace_close. Without tracing a hook costs one relaxed load and a branch
 * or two; with tracing it reads the clock and writes 64 bytes. It uses no lock and no system call,
 * and allocates memory only at a thread's first event.
 *
 * Owns:    the last TRACE_EVENTS - 1 events of each thread, until the process ends.
 * Threads: any thread may trace; one thread calls trace_open and trace_close, also while other
 *          threads trace.
 * Errors:  ST_INVALID (a path that cannot be written), ST_IO, ST_FULL, ST_NOMEM; logged. */
#ifndef BASE_TRACE_H
#define BASE_TRACE_H
#include "base/clock.h"
#include "base/status.h"
#include <stdatomic.h>

enum { TRACE_EVENTS = 1 << 16, TRACE_MAX_THREADS = 256 };

/* Category, its name in the file, and the noun for the objects that `item` numbers. */
#define TRACE_MAP(X)                                                                               \
    X(TRACE_COMPUTE, "compute", "layer")                                                           \
    X(TRACE_CROSS, "cross", "layer") /* values are copied from one device of a tower to another */ \
    X(TRACE_WAIT, "wait", "layer")                                                                 \
    X(TRACE_PUSH, "push", "layer") /* sum of the towers' gradients, checksums, queueing */         \
    X(TRACE_EXCHANGE, "exchange", "chunk")                                                         \
    X(TRACE_SEND, "send", "chunk")                                                                 \
    X(TRACE_RECEIVE, "receive", "chunk")                                                           \
    X(TRACE_AGGREGATE, "aggregate", "chunk")                                                       \
    X(TRACE_APPLY, "apply", "chunk")                                                               \
    X(TRACE_READ, "read", "layer") /* samples are read, before their step */

enum trace_category {
#define X(id, name, item) id,
    TRACE_MAP(X)
#undef X
};

extern _Atomic int trace_on;

/* Opens the file, so that a path that cannot be written fails at once, and starts tracing.
 * The program's name in the trace is role:task. */
enum status trace_open(const char *path, const char *role, int task);
/* Ends tracing and writes the file; does nothing unless trace_open was called. The names in the
 * events must still exist. */
enum status trace_close(void);

/* Records an event. Only the functions below call it. id < 0: the event is in this thread's row of
 * the viewer; otherwise each (category, id) has a separate row. */
void trace_record(int64_t begin, enum trace_category category, const char *const name[2], int id,
                  int64_t item, int64_t step);
void trace_record_name(const char *name, int number);

/* Returns the time, or 0 if the program does not trace. */
static inline int64_t trace_begin(void)
{
    return atomic_load_explicit(&trace_on, memory_order_relaxed) ? clock_now_ns() : 0;
}

/* Records a span of this thread, from `begin` until now: "name", or "name detail". Both are
 * borrowed until trace_close; detail may be NULL. item: index of the layer or chunk. If item or
 * step is below 0, the event has none. */
static inline void trace_end(int64_t begin, enum trace_category category, const char *name,
                             const char *detail, int64_t item, int64_t step)
{
    if (begin) {
        const char *const names[2] = {name, detail};
        trace_record(begin, category, names, -1, item, step);
    }
}

/* Records a span that belongs to no single thread: a message or a request in flight. Spans of one
 * category and id must not overlap. */
static inline void trace_span(int64_t begin, enum trace_category category, const char *name, int id,
                              int64_t item, int64_t step)
{
    if (begin) {
        const char *const names[2] = {name, NULL};
        trace_record(begin, category, names, id, item, step);
    }
}

/* Sets this thread's name in the trace: "name number". If number is below 0, the kernel's thread id
 * is used instead. name is borrowed until trace_close. */
static inline void trace_thread_name(const char *name, int number)
{
    if (atomic_load_explicit(&trace_on, memory_order_relaxed))
        trace_record_name(name, number);
}

#endif
