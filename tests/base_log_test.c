/* tests/base_log_test.c - tests the thread of the log. A caller never waits. Lines stay whole and
 * in order. While a program reads them, none is lost; otherwise the log counts the lost lines. Also
 * tests the rate limit of lines. */
#include "base/bar.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "tests/capture.h"
#include "tests/check.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXT_BYTES = 4 << 20, N_THREADS = 4, N_LINES = 300, GENEROUS_MS = 60000 };

static char text[TEXT_BYTES];
static int saved = -1, pipe_fd[2];

/* Redirects stderr to a pipe, which the test must read. */
static void turn_away(void)
{
    assert_int_equal(pipe2(pipe_fd, O_CLOEXEC), 0);
    saved = dup(STDERR_FILENO);
    assert_true(dup2(pipe_fd[1], STDERR_FILENO) >= 0);
    close(pipe_fd[1]);
}

static void turn_back(void)
{
    dup2(saved, STDERR_FILENO);
    close(saved);
}

/* Reads until the pipe ends. */
static void *read_all(void *arg)
{
    size_t n = 0;
    ssize_t k;
    while ((k = read(pipe_fd[0], text + n, TEXT_BYTES - 1 - n)) > 0 || (k < 0 && errno == EINTR))
        n += k > 0 ? (size_t)k : 0;
    text[n] = 0;
    close(pipe_fd[0]);
    return NULL;
}

static void *log_many(void *arg)
{
    const int thread = *(int *)arg;
    for (int i = 0; i < N_LINES; i++)
        LOG_I("thread %d line %d end", thread, i);
    return NULL;
}

/* Checks that each line is whole; returns their number. */
static int check_lines(void)
{
    int next[N_THREADS] = {0}, n = 0, thread, line, end;
    for (char *at = text, *stop; (stop = strchr(at, '\n')); at = stop + 1, n++) {
        char *body = strstr(at, "thread ");
        end = 0;
        assert_true(body && body < stop);
        assert_int_equal(sscanf(body, "thread %d line %d end%n", &thread, &line, &end), 2);
        assert_ptr_equal(body + end, stop);
        assert_int_equal(line, next[thread]++);
    }
    return n;
}

static void test_all_lines(void **state)
{
    pthread_t threads[N_THREADS], reader;
    int number[N_THREADS];
    turn_away();
    log_start();
    log_start(); /* the second call has no effect */
    for (int i = 0; i < N_THREADS; i++) {
        number[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, log_many, &number[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) /* the pipe has no reader yet */
        pthread_join(threads[i], NULL);
    assert_int_equal(pthread_create(&reader, NULL, read_all, NULL), 0);
    int flushed = log_flush(GENEROUS_MS), stopped = log_stop(GENEROUS_MS);
    turn_back();
    pthread_join(reader, NULL);
    assert_true(flushed && stopped);
    assert_int_equal(check_lines(), N_THREADS * N_LINES);
}

static void test_full_pipe(void **state)
{
    enum { N = 20000 };
    pthread_t reader;
    turn_away();
    log_start();
    for (int i = 0; i < N; i++)
        LOG_I("line %d ..........................................................", i);
    int flushed = log_flush(1);
    assert_int_equal(pthread_create(&reader, NULL, read_all, NULL), 0);
    int flushed_later = log_flush(GENEROUS_MS);
    LOG_I("the last");
    int stopped = log_stop(GENEROUS_MS);
    turn_back();
    pthread_join(reader, NULL);
    assert_false(flushed);
    assert_true(flushed_later && stopped);
    int n = 0, line = -1;
    unsigned long long dropped = 0;
    char *at = text;
    for (; sscanf(at, "%*c %*s %*s line %d", &line) == 1; n++, at = strchr(at, '\n') + 1)
        assert_int_equal(line, n);
    assert_int_equal(sscanf(at, "%*c %*s %*s %llu log lines were dropped at this point", &dropped),
                     1);
    assert_true(n > 100);
    assert_int_equal(n + (int)dropped, N);
    at = strchr(at, '\n') + 1;
    assert_non_null(strstr(at, "the last\n"));
    assert_null(strchr(strchr(at, '\n') + 1, '\n'));
}

/* A program exits although its stderr is full. */
static void test_end_with_full_pipe(void **state)
{
    turn_away();
    log_start();
    for (int i = 0; i < 2000; i++)
        LOG_I("line %d ..........................................................", i);
    int stopped = log_stop(1);
    LOG_I("nobody waits to write this");
    turn_back();
    close(pipe_fd[0]);
    assert_false(stopped);
    turn_away(); /* a new pipe, as after a restart of the program */
    log_start();
    LOG_I("line");
    assert_true(log_stop(GENEROUS_MS));
    turn_back();
    read_all(NULL);
    assert_non_null(strstr(text, "line\n"));
}

/* A child after fork has no log thread, so the thread that logs writes the line. The child does not
 * write pending lines of its parent. */
static void test_fork(void **state)
{
    int status = -1;
    pthread_t reader;
    turn_away();
    log_start();
    for (int i = 0; i < 2000; i++) /* more than the pipe's capacity */
        LOG_I("parent's line ..........................................................");
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(fd, STDERR_FILENO);
        LOG_I("the child's");
        _exit(log_flush(GENEROUS_MS) && log_stop(GENEROUS_MS) ? 0 : 1);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(pthread_create(&reader, NULL, read_all, NULL), 0);
    int stopped = log_stop(GENEROUS_MS);
    turn_back();
    pthread_join(reader, NULL);
    assert_true(stopped);
    assert_int_equal(status, 0);
    int n = 0;
    for (char *at = text; (at = strstr(at, "parent's line")); at++)
        n++;
    assert_int_equal(n, 2000);
}

/* Starts a child that logs 100 lines, then exits or, if `bug` is set, aborts. Checks that its log
 * is complete, and returns its wait status. */
static int end_of_child(int bug)
{
    int status = -1;
    turn_away();
    pid_t pid = fork();
    if (pid == 0) {
        log_start();
        for (int i = 0; i < 100; i++)
            LOG_I("line %d", i);
        CHECK(!bug);
        exit(0);
    }
    turn_back();
    read_all(NULL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_non_null(strstr(text, " line 99\n"));
    return status;
}

static void log_complete_after_exit_and_abort(void **state)
{
    int status = end_of_child(0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    status = end_of_child(1);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(text, "!bug does not hold"));
}

static void test_limit(void **state)
{
    static const struct {
        int64_t ms;
        int n, written, withheld; /* attempted lines; then the expected counts */
    } rows[] = {
        {5, 3, 3, 0},
        {6, 12, 7, 5},
        {6, 1000, 0, 1005},
        {10004, 1, 0, 1006},
        {10005, 2, 1, 1007}, /* 10 s after the first line */
        {20004, 1, 0, 1008},
        {45005, 9, 3, 1014}, /* 35 s later: 3 lines use 30 s */
        {45006, 1, 0, 1015},
        {50005, 2, 1, 1016},      /* 5 s later: the unused 5 s count, too */
        {10000000, 15, 10, 1021}, /* no more than the burst accumulates */
        {10009999, 1, 0, 1022},
        {10010000, 1, 1, 1022},
    };
    struct log_limit l = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int written = 0;
        for (int k = 0; k < rows[i].n; k++)
            written += log_limit_take(&l, rows[i].ms * 1000000);
        assert_int_equal(written, rows[i].written);
        assert_int_equal(l.withheld, rows[i].withheld);
        assert_true(rows[i].n == rows[i].written || log_limit_next_ns(&l) > rows[i].ms * 1000000);
    }
    assert_int_equal(log_limit_next_ns(&l), 10020000000000);
}

static int count(const char *what)
{
    int n = 0;
    for (char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

static void rate_limit_withholds_lines(void **state)
{
    turn_away();
    log_start();
    for (int i = 0; i < 100; i++)
        LOG_FEW("worker %d refused", i);
    LOG_FEW("one of another kind");
    int stopped = log_stop(GENEROUS_MS);
    turn_back();
    read_all(NULL);
    assert_true(stopped);
    assert_int_equal(count("refused"), LOG_LIMIT_BURST + 1);
    assert_int_equal(count("worker 9 refused\n"), 1);
    assert_int_equal(count("worker 99 refused (and 89 more like it)\n"), 1);
    assert_int_equal(count("one of another kind\n"), 1);
}

/* The thread reports withheld lines as soon as the limit allows it, without another line of the
 * kind. */
static void withheld_lines_reported_later(void **state)
{
    static struct log_kind kind;
    char byte;
    size_t n = 0;
    turn_away();
    log_start();
    kind.limit.used = LOG_LIMIT_BURST; /* another line is allowed in 20 ms */
    kind.limit.since_ns = clock_now_ns() - LOG_LIMIT_MS * 1000000LL + 20000000;
    log_write_few(&kind, LOG_LEVEL_WARN, "late");
    while (read(pipe_fd[0], &byte, 1) == 1 && byte != '\n')
        text[n++] = byte;
    text[n] = 0;
    int stopped = log_stop(GENEROUS_MS);
    turn_back();
    close(pipe_fd[0]);
    assert_true(stopped);
    assert_int_equal(count("late"), 1);
}

/* The bar is drawn even if the terminal does not read. */
static void test_bar_of_full_pipe(void **state)
{
    pthread_t reader;
    struct bar b;
    turn_away();
    log_start();
    bar_begin(&b);
    alarm(GENEROUS_MS / 1000); /* limit for a test that hangs */
    for (int i = 0; i < 10000; i++)
        bar_draw(&b, 0.5, "a bar with a text that is not short: 10000 of them fill any pipe", 1);
    LOG_I("a line between");
    bar_draw(&b, 1, "the last text", 1);
    assert_int_equal(pthread_create(&reader, NULL, read_all, NULL), 0);
    bar_end(&b);
    assert_true(log_stop(GENEROUS_MS));
    turn_back();
    pthread_join(reader, NULL);
    alarm(0);
    assert_non_null(strstr(text, "\r\033[KI "));
    assert_non_null(strstr(text, "a line between\n\r\033[K["));
    assert_string_equal(text + strlen(text) - strlen("] the last text\n"), "] the last text\n");
}

static void test_last_error(void **state)
{
    char last[LOG_TEXT_BYTES], small[5];
    capture_begin();
    LOG_E("first");
    LOG_E("the %s", "cause");
    LOG_W("after it");
    capture_end();
    log_last_error(last, sizeof last);
    assert_string_equal(last, "the cause");
    log_last_error(small, sizeof small);
    assert_string_equal(small, "the ");
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    alarm(300); /* limit for the last one */
    return RUN_TESTS(test_all_lines, test_full_pipe, test_end_with_full_pipe, test_fork,
                     log_complete_after_exit_and_abort, test_limit, rate_limit_withholds_lines,
                     withheld_lines_reported_later, test_bar_of_full_pipe, test_last_error);
}
