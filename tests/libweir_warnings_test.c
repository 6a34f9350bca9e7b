/* tests/libweir_warnings_test.c - tests the warnings of libweir on the stderr of a program that
 * uses libweir. */
#include "libweir/warnings.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/fake_time.h"
#include <signal.h>
#include <sys/socket.h>

static volatile sig_atomic_t n_signals;

static void on_pipe(int signum)
{
    n_signals++;
}

static int print(const char *text)
{
    warnings_print(text);
    return 0;
}

/* Prints with `fd` as stderr, and closes it. */
static void print_to(int fd, const char *text)
{
    int saved = dup(STDERR_FILENO);
    dup2(fd, STDERR_FILENO);
    close(fd);
    warnings_print(text);
    dup2(saved, STDERR_FILENO);
    close(saved);
}

static void test_stderr_without_reader_raises_no_signal(void **state)
{
    int fd[2];
    sigset_t pending;
    signal(SIGPIPE, on_pipe);
    assert_int_equal(pipe(fd), 0);
    close(fd[0]);
    print_to(fd[1], "a pipe that nobody reads");
    /* the other end is open: poll reports room, but a write raises SIGPIPE */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    assert_int_equal(shutdown(fd[1], SHUT_WR), 0);
    print_to(fd[1], "a socket that is closed for writing");
    close(fd[0]);
    assert_int_equal(n_signals, 0);
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGPIPE), 0);
    signal(SIGPIPE, SIG_DFL);
}

static void test_signal_of_the_program_stays_pending(void **state)
{
    int fd[2];
    sigset_t set, pending;
    signal(SIGPIPE, on_pipe);
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGPIPE);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    assert_int_equal(shutdown(fd[1], SHUT_WR), 0);
    print_to(fd[1], "one more");
    close(fd[0]);
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGPIPE), 1);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    assert_int_equal(n_signals, 1);
    signal(SIGPIPE, SIG_DFL);
}

static void test_another_text_is_printed(void **state)
{
    CAPTURE(print("waiting for ps:0 (a:1), 3 s so far: refused"));
    assert_string_equal(capture_text, "weir: waiting for ps:0 (a:1), 3 s so far: refused\n");
    CAPTURE(print("waiting for ps:0 (a:1), 7 s so far: refused"));
    assert_string_equal(capture_text, "");
    CAPTURE(print("waiting for ps:1 (a:2), 3 s so far: refused"));
    assert_string_equal(capture_text, "weir: waiting for ps:1 (a:2), 3 s so far: refused\n");
    CAPTURE(print("the certificate expires in 3 days"));
    assert_string_equal(capture_text, "weir: the certificate expires in 3 days\n");
    CAPTURE(print("waiting for ps:1 (a:2), 8 s so far: refused"));
    assert_string_equal(capture_text, "");
}

/* A warning each second, for 10 minutes: printed at once, after 30, 90, 210 and 450 s. */
static void test_pauses_of_one_text_double(void **state)
{
    capture_begin();
    fake_time_stop();
    for (int i = 0; i < 600; i++, fake_time_move(1000))
        warnings_print("the disk is full");
    fake_time_move(20000);
    warnings_print("the disk is full"); /* after 21 s without this text it counts as a new one */
    fake_time_release();
    capture_end();
    assert_int_equal(capture_lines(), 6);
}

static void test_many_texts_forget_the_oldest(void **state)
{
    char text[64];
    capture_begin();
    for (int i = 0; i < 26; i++) {
        snprintf(text, sizeof text, "text %c", 'a' + i);
        warnings_print(text);
        warnings_print(text);
    }
    capture_end();
    assert_int_equal(capture_lines(), 26);
}

int main(void)
{
    return RUN_TESTS(test_stderr_without_reader_raises_no_signal,
                     test_signal_of_the_program_stays_pending, test_another_text_is_printed,
                     test_pauses_of_one_text_double, test_many_texts_forget_the_oldest);
}
