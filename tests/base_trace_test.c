/* tests/base_trace_test.c - the contents of trace files, and files that cannot be written. A
 * process can open only one trace, so each test traces in a child process and reads the file of the
 * child. */
#include "base/log.h"
#include "base/trace.h"
#include "tests/capture.h"
#include "tests/check.h"
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_THREADS = 4, N_WRITERS = 2, N_EVENTS = 500, N_MANY = TRACE_EVENTS + 1000 };

static char path[64];

/* Runs the body in a child, which must exit with 0; its output is in capture_text. */
static void in_child(void (*body)(void))
{
    capture_begin();
    pid_t pid = fork();
    if (pid == 0) {
        body();
        _exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    capture_end();
    if (status != 0)
        print_message("%s", capture_text);
    assert_int_equal(status, 0);
}

#define NEED(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                             \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static int set_up(void **state)
{
    snprintf(path, sizeof path, "/tmp/weir-trace-%d.json", (int)getpid());
    unlink(path);
    return 0;
}

static int tear_down(void **state)
{
    unlink(path);
    return 0;
}

static json_t *load(void)
{
    json_error_t err;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &err);
    if (!root)
        fail_msg("%s: line %d: %s", path, err.line, err.text);
    return root;
}

static const char *str(json_t *e, const char *key)
{
    const char *s = json_string_value(json_object_get(e, key));
    return s ? s : "";
}

static double num(json_t *e, const char *key)
{
    return json_number_value(json_object_get(e, key));
}

static json_int_t arg(json_t *e, const char *key)
{
    json_t *v = json_object_get(json_object_get(e, "args"), key);
    return v ? json_integer_value(v) : -1;
}

/* Returns the first event of the phase and name, or NULL. */
static json_t *find(json_t *root, const char *phase, const char *name)
{
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e)
    {
        if (strcmp(str(e, "ph"), phase) == 0 && strcmp(str(e, "name"), name) == 0)
            return e;
    }
    return NULL;
}

static void off(void)
{
    trace_thread_name("main", 0);
    int64_t t = trace_begin();
    NEED(t == 0);
    trace_end(t, TRACE_COMPUTE, "forward", NULL, 1, 2);
    trace_span(t, TRACE_SEND, "send", 0, 1, 2);
    NEED(trace_close() == ST_OK);
}

static void test_off(void **state)
{
    in_child(off);
    assert_int_equal(access(path, F_OK), -1);
    assert_string_equal(capture_text, "");
}

static void kinds(void)
{
    log_init("worker", 3, LOG_LEVEL_INFO);
    NEED(trace_open(path, "worker", 3) == ST_OK);
    NEED(access(path, F_OK) == 0);
    trace_thread_name("tower", 7);
    int64_t outer = trace_begin(), request = outer;
    NEED(outer > 0);
    int64_t inner = trace_begin();
    trace_end(inner, TRACE_COMPUTE, "forward", "a\"b\\c\n\x80", 4, 11);
    trace_end(outer, TRACE_WAIT, "outer", NULL, -1, -1);
    trace_span(request, TRACE_EXCHANGE, "push", 9, 9, 12);
    NEED(trace_close() == ST_OK);
    NEED(trace_begin() == 0);
    NEED(trace_close() == ST_OK);
    NEED(trace_open(path, "worker", 3) == ST_BUSY);
}

static void test_kinds(void **state)
{
    in_child(kinds);
    json_t *root = load(), *e = find(root, "X", "forward a\"b\\c\n\xc2\x80");
    assert_non_null(e);
    assert_string_equal(str(e, "cat"), "compute");
    assert_int_equal(arg(e, "step"), 11);
    assert_int_equal(arg(e, "layer"), 4);
    json_t *o = find(root, "X", "outer");
    assert_non_null(o);
    assert_int_equal(json_object_size(json_object_get(o, "args")), 0);
    assert_true(num(o, "ts") <= num(e, "ts"));
    assert_true(num(o, "ts") + num(o, "dur") >= num(e, "ts") + num(e, "dur"));
    json_t *all = json_object_get(root, "traceEvents");
    for (size_t i = 0; i + 1 < json_array_size(all); i++)
        if (json_array_get(all, i) == o) /* outer spans are sorted before inner ones */
            assert_ptr_equal(json_array_get(all, i + 1), e);
    assert_ptr_not_equal(json_array_get(all, json_array_size(all) - 1), o);
    json_t *b = find(root, "b", "push"), *end = find(root, "e", "push");
    assert_true(b && end);
    assert_int_equal(arg(b, "chunk"), 9);
    assert_int_equal(arg(b, "step"), 12);
    assert_string_equal(str(json_object_get(b, "id2"), "local"), "9");
    assert_true(json_equal(json_object_get(b, "id2"), json_object_get(end, "id2")));
    assert_true(num(end, "ts") >= num(b, "ts"));
    json_t *process = find(root, "M", "process_name"), *thread = find(root, "M", "thread_name");
    assert_string_equal(str(json_object_get(process, "args"), "name"), "worker:3");
    assert_string_equal(str(json_object_get(thread, "args"), "name"), "tower 7");
    assert_int_equal((int)num(thread, "tid"), (int)num(e, "tid"));
    json_t *other = json_object_get(root, "otherData");
    assert_string_equal(str(other, "process"), "worker:3");
    assert_true(num(other, "wall_minus_clock_ns") > 1e18 - 9e17);
    assert_int_equal(num(other, "lost_events"), 0);
    json_decref(root);
}

static void *trace_some(void *arg)
{
    trace_thread_name("thread", *(int *)arg);
    for (int i = 0; i < N_EVENTS; i++) {
        int64_t t = trace_begin();
        trace_end(t, TRACE_AGGREGATE, "aggregate", NULL, *(int *)arg, i);
    }
    return NULL;
}

static void run_threads(int n, void *(*body)(void *), pthread_t *threads, int *numbers)
{
    for (int i = 0; i < n; i++) {
        numbers[i] = i;
        NEED(pthread_create(&threads[i], NULL, body, &numbers[i]) == 0);
    }
}

static void threads(void)
{
    pthread_t thread[N_THREADS];
    int number[N_THREADS];
    NEED(trace_open(path, "ps", 0) == ST_OK);
    run_threads(N_THREADS, trace_some, thread, number);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(thread[i], NULL);
    NEED(trace_close() == ST_OK);
}

/* The events of each thread are complete and in order, and each thread has its own id. */
static void test_threads(void **state)
{
    int seen[N_THREADS] = {0}, tid[N_THREADS] = {0}, n = 0;
    double last[N_THREADS] = {0};
    in_child(threads);
    json_t *root = load(), *e;
    size_t i;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e)
    {
        if (strcmp(str(e, "ph"), "X") != 0)
            continue;
        int who = (int)arg(e, "chunk");
        assert_in_range(who, 0, N_THREADS - 1);
        assert_int_equal(arg(e, "step"), seen[who]);
        assert_true(num(e, "ts") >= last[who]);
        last[who] = num(e, "ts");
        if (seen[who]++ == 0)
            tid[who] = (int)num(e, "tid");
        assert_int_equal(num(e, "tid"), tid[who]);
        n++;
    }
    assert_int_equal(n, N_THREADS * N_EVENTS);
    for (int a = 0; a < N_THREADS; a++)
        for (int b = 0; b < a; b++)
            assert_int_not_equal(tid[a], tid[b]);
    json_decref(root);
}

static void overflow(void)
{
    NEED(trace_open(path, "ps", 0) == ST_OK);
    for (int i = 0; i < N_MANY; i++) {
        int64_t t = trace_begin();
        trace_end(t, TRACE_APPLY, "apply", NULL, 0, i);
    }
    NEED(trace_close() == ST_OK);
}

static void test_overflow(void **state)
{
    int kept = TRACE_EVENTS - 1, n = 0;
    in_child(overflow);
    assert_non_null(strstr(capture_text, "1001 events and 0 threads did not fit"));
    json_t *root = load(), *e;
    assert_int_equal(num(json_object_get(root, "otherData"), "lost_events"), N_MANY - kept);
    size_t i;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e)
    {
        if (strcmp(str(e, "ph"), "X") == 0)
            assert_int_equal(arg(e, "step"), N_MANY - kept + n++);
    }
    assert_int_equal(n, kept);
    json_decref(root);
}

static _Atomic int stop_writers;
static pthread_barrier_t all_rings_full;

static void *trace_on_and_on(void *arg)
{
    for (int64_t i = 0; !atomic_load(&stop_writers); i++) {
        int64_t t = clock_now_ns();
        trace_end(t, TRACE_SEND, "send", NULL, i, i);
        if (i == TRACE_EVENTS + 100 && arg)
            pthread_barrier_wait(&all_rings_full);
    }
    return NULL;
}

/* Closes the file while threads with full rings write and one more thread starts. */
static void close_while_writing(void)
{
    pthread_t thread[N_WRITERS], late;
    int number[N_WRITERS];
    pthread_barrier_init(&all_rings_full, NULL, N_WRITERS + 1);
    NEED(trace_open(path, "ps", 0) == ST_OK);
    run_threads(N_WRITERS, trace_on_and_on, thread, number);
    pthread_barrier_wait(&all_rings_full);
    NEED(pthread_create(&late, NULL, trace_on_and_on, NULL) == 0);
    NEED(trace_close() == ST_OK);
    atomic_store(&stop_writers, 1);
    for (int i = 0; i < N_WRITERS; i++)
        pthread_join(thread[i], NULL);
    pthread_join(late, NULL);
}

/* Returns the number of a thread: 0 for the thread with the first event, and so on. */
static int number_of(int tid, int *tids, int *n)
{
    for (int i = 0; i < *n; i++)
        if (tids[i] == tid)
            return i;
    assert_true(*n < N_WRITERS + 1);
    tids[*n] = tid;
    return (*n)++;
}

/* In the file the steps of each thread are consecutive. */
static void test_close_while_writing(void **state)
{
    in_child(close_while_writing);
    json_int_t next[N_WRITERS + 1];
    int n = 0, n_tids = 0, tids[N_WRITERS + 1];
    for (int i = 0; i < N_WRITERS + 1; i++)
        next[i] = -1;
    json_t *root = load(), *e;
    size_t i;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e)
    {
        if (strcmp(str(e, "ph"), "X") != 0)
            continue;
        int who = number_of((int)num(e, "tid"), tids, &n_tids);
        if (next[who] >= 0)
            assert_int_equal(arg(e, "step"), next[who]);
        assert_int_equal(arg(e, "chunk"), arg(e, "step"));
        next[who] = arg(e, "step") + 1;
        n++;
    }
    assert_true(n >= N_WRITERS * (TRACE_EVENTS - 1));
    json_decref(root);
}

static void bad_path(void)
{
    NEED(trace_open("/nonexistent/trace.json", "ps", 0) == ST_INVALID);
    NEED(trace_begin() == 0);
    NEED(trace_close() == ST_OK);
}

static void test_bad_path(void **state)
{
    in_child(bad_path);
    assert_int_equal(capture_lines(), 1);
    assert_non_null(
        strstr(capture_text,
               "trace file /nonexistent/trace.json: cannot be written: No such file or directory"));
}

static void full_disk(void)
{
    NEED(trace_open("/dev/full", "ps", 0) == ST_OK);
    trace_end(trace_begin(), TRACE_APPLY, "apply", NULL, 0, 0);
    NEED(trace_close() == ST_FULL);
}

static void test_full_disk(void **state)
{
    in_child(full_disk);
    assert_int_equal(capture_lines(), 1);
    assert_non_null(
        strstr(capture_text, "trace file /dev/full: could not be written completely: No space"));
}

int main(void)
{
    return RUN_EACH(set_up, tear_down, test_off, test_kinds, test_threads, test_overflow,
                    test_close_while_writing, test_bad_path, test_full_disk);
}
