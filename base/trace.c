/* base/trace.c - see trace.h.
 *
 * At its first event a thread gets a ring, under a lock; from then on only this thread writes to
 * the ring. For an event the thread reads trace_on, writes event n, and then increments n; the
 * accesses to trace_on and n are sequentially consistent. So after trace_close has cleared trace_on
 * and read n, the thread may still be writing event n, but no other. Event n has the same entry of
 * the ring as event n - TRACE_EVENTS. All other events before n are complete and do not change.
 * trace_close skips that one entry, and no thread waits for another. A ring is never freed, since
 * its thread may write to it at any time. */
#include "base/trace.h"
#include "base/log.h"
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct event {
    int64_t begin, end; /* times in ns */
    const char *name, *detail;
    int64_t item, step;
    enum trace_category category;
    int id; /* number of the event's row in the viewer; below 0: the row is that of the thread */
};

struct ring {
    const char *name; /* name of the thread; only the thread writes it, before its first event */
    int number;
    int tid;            /* the kernel's thread id, unique on the host, as viewers require */
    _Atomic uint64_t n; /* events so far; the next event is stored at n % TRACE_EVENTS */
    struct event events[TRACE_EVENTS];
};

static const struct {
    const char *name, *item;
} categories[] = {
#define X(id, name, item) {name, item},
    TRACE_MAP(X)
#undef X
};

_Atomic int trace_on;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards rings, n_rings and n_refused */
static struct ring *rings[TRACE_MAX_THREADS];
static int n_rings;
static int n_refused; /* threads that have no ring */

static FILE *file; /* only trace_open and trace_close use it and the variables below */
static const char *file_path, *process_role;
static int process_task;
static struct event *sorted; /* [TRACE_EVENTS], allocated by trace_open, so that trace_close needs
                              * no memory */

static _Thread_local struct ring *mine;
static _Thread_local int refused; /* this thread has no ring, and does not request one again */

enum status trace_open(const char *path, const char *role, int task)
{
    if (file || sorted) {
        LOG_E("trace file %s: this process has already written a trace", path);
        return ST_BUSY;
    }
    sorted = malloc(TRACE_EVENTS * sizeof *sorted);
    if (!sorted) {
        LOG_E("trace file %s: out of memory", path);
        return ST_NOMEM;
    }
    file = fopen(path, "we");
    if (!file) {
        LOG_E("trace file %s: cannot be written: %s", path, strerror(errno));
        free(sorted);
        sorted = NULL;
        return ST_INVALID;
    }
    file_path = path;
    process_role = role;
    process_task = task;
    atomic_store(&trace_on, 1);
    return ST_OK;
}

/* Creates a ring. Writes to all of the ring's memory, so that no event must wait for a page
 * fault. */
static struct ring *ring_create(const char *name, int number)
{
    struct ring *r = malloc(sizeof *r);
    if (!r)
        return NULL;
    memset(r, 0, sizeof *r);
    r->name = name;
    r->number = number;
    r->tid = (int)gettid();
    atomic_init(&r->n, 0);
    return r;
}

static struct ring *ring_get(const char *name, int number)
{
    if (mine || refused)
        return mine;
    struct ring *r = ring_create(name, number);
    pthread_mutex_lock(&lock);
    int taken = r && n_rings < TRACE_MAX_THREADS && atomic_load(&trace_on);
    if (taken)
        rings[n_rings++] = r;
    else
        n_refused++;
    pthread_mutex_unlock(&lock);
    if (!taken) {
        free(r);
        refused = 1;
        return NULL;
    }
    return mine = r;
}

void trace_record_name(const char *name, int number)
{
    ring_get(name, number);
}

void trace_record(int64_t begin, enum trace_category category, const char *const name[2], int id,
                  int64_t item, int64_t step)
{
    int64_t end = clock_now_ns();
    struct ring *r = ring_get(NULL, 0);
    if (!r || !atomic_load(&trace_on))
        return;
    uint64_t n = atomic_load_explicit(&r->n, memory_order_relaxed);
    r->events[n % TRACE_EVENTS] =
        (struct event){begin, end, name[0], name[1], item, step, category, id};
    atomic_store(&r->n, n + 1);
}

/* Writes the inside of a JSON string. Bytes that are not ASCII are escaped one by one, so that the
 * file is valid even if a name is not UTF-8. */
static void put_text(const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            fprintf(file, "\\u%04x", c);
        else
            fputc(c, file);
    }
}

static void put_head(const struct event *e, const char *phase, int64_t at_ns, int tid)
{
    fprintf(file,
            ",\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%" PRId64
            ".%03d,\"cat\":\"%s\",\"name\":\"",
            phase, (int)getpid(), tid, at_ns / 1000, (int)(at_ns % 1000),
            categories[e->category].name);
    put_text(e->name);
    if (e->detail) {
        fputc(' ', file);
        put_text(e->detail);
    }
    fputc('"', file);
    if (e->id >= 0)
        fprintf(file, ",\"id2\":{\"local\":\"%d\"}", e->id);
}

static void put_args(const struct event *e)
{
    const char *comma = "";
    fprintf(file, ",\"args\":{");
    if (e->step >= 0) {
        fprintf(file, "\"step\":%" PRId64, e->step);
        comma = ",";
    }
    if (e->item >= 0)
        fprintf(file, "%s\"%s\":%" PRId64, comma, categories[e->category].item, e->item);
    fprintf(file, "}}");
}

static void put_event(const struct event *e, int tid)
{
    int64_t ns = e->end - e->begin;
    if (e->id < 0) {
        put_head(e, "X", e->begin, tid);
        fprintf(file, ",\"dur\":%" PRId64 ".%03d", ns / 1000, (int)(ns % 1000));
        put_args(e);
    } else {
        put_head(e, "b", e->begin, tid);
        put_args(e);
        put_head(e, "e", e->end, tid);
        fputc('}', file);
    }
}

/* Compares events by their start; if two start at the same time, the longer event is first, since
 * it encloses the shorter one. */
static int by_time(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end < y->end) - (x->end > y->end);
}

/* Writes a thread's events to the file. Returns the number of earlier events that were
 * overwritten. */
static uint64_t put_ring(struct ring *r)
{
    uint64_t n = atomic_load(&r->n);
    uint64_t first = n < TRACE_EVENTS ? 0 : n - TRACE_EVENTS + 1;
    fprintf(file, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{",
            (int)getpid(), r->tid);
    fprintf(file, "\"name\":\"");
    put_text(r->name ? r->name : "thread");
    fprintf(file, " %d\"}}", r->name && r->number >= 0 ? r->number : r->tid);
    for (uint64_t i = first; i < n; i++)
        sorted[i - first] = r->events[i % TRACE_EVENTS];
    qsort(sorted, (size_t)(n - first), sizeof *sorted, by_time);
    for (uint64_t i = first; i < n; i++)
        put_event(&sorted[i - first], r->tid);
    return first;
}

static void put_end(uint64_t n_lost, int n_lost_threads)
{
    struct timespec wall;
    char host[256] = "";
    int64_t mono = clock_now_ns();
    clock_gettime(CLOCK_REALTIME, &wall);
    gethostname(host, sizeof host - 1);
    fprintf(file, "\n],\n\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"process\":\"%s:%d\",",
            process_role, process_task);
    fprintf(file, "\"host\":\"");
    put_text(host);
    fprintf(file,
            "\",\"clock\":\"CLOCK_MONOTONIC\",\"wall_minus_clock_ns\":%" PRId64
            ",\"lost_events\":%" PRIu64 ",\"lost_threads\":%d}}\n",
            (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec - mono, n_lost, n_lost_threads);
}

enum status trace_close(void)
{
    uint64_t n_lost = 0;
    if (!file)
        return ST_OK;
    pthread_mutex_lock(&lock);
    atomic_store(&trace_on, 0);
    int n = n_rings, n_lost_threads = n_refused;
    pthread_mutex_unlock(&lock);
    fprintf(
        file,
        "{\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"%s:%d\"}}",
        (int)getpid(), process_role, process_task);
    for (int i = 0; i < n; i++)
        n_lost += put_ring(rings[i]);
    put_end(n_lost, n_lost_threads);
    int err = ferror(file) ? errno : 0;
    if (fclose(file) != 0 && !err)
        err = errno;
    file = NULL;
    if (err) {
        LOG_E("trace file %s: could not be written completely: %s", file_path,
              status_errno_text(err));
        return status_of_writing(err);
    }
    LOG_I("trace written to %s", file_path);
    if (n_lost || n_lost_threads)
        LOG_W(
            "trace file %s: %" PRIu64
            " events and %d threads did not fit and are not in the file; the newest %d events of each thread are kept",
            file_path, n_lost, n_lost_threads, TRACE_EVENTS - 1);
    return ST_OK;
}
