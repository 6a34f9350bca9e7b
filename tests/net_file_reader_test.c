/* tests/net_file_reader_test.c - the reader of file_reader.h, with a read that hangs until the test
 * releases it. */
#include "base/log.h"
#include "net/security/file_reader.h"
#include "tests/capture.h"
#include "tests/check.h"
#include <errno.h>
#include <signal.h>

#define FILE_NAME "/mnt/gone/token"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t released;
    bool hangs, signals_blocked;
    int n_reads;
} s = {.lock = PTHREAD_MUTEX_INITIALIZER, .released = PTHREAD_COND_INITIALIZER};
static bool no_threads;

int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    return no_threads ? EAGAIN : __real_pthread_create(t, attr, run, arg);
}

static void read_file(struct file_reader *r)
{
    sigset_t blocked;
    atomic_store(&r->file, FILE_NAME);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    pthread_mutex_lock(&s.lock);
    s.signals_blocked = sigismember(&blocked, SIGTERM) == 1;
    while (s.hangs)
        pthread_cond_wait(&s.released, &s.lock);
    s.n_reads++;
    pthread_mutex_unlock(&s.lock);
}

static void set_hangs(bool hangs)
{
    pthread_mutex_lock(&s.lock);
    s.hangs = hangs;
    s.n_reads = 0;
    pthread_cond_broadcast(&s.released);
    pthread_mutex_unlock(&s.lock);
}

static int n_reads(void)
{
    pthread_mutex_lock(&s.lock);
    int n = s.n_reads;
    pthread_mutex_unlock(&s.lock);
    return n;
}

static int look(struct file_reader *r)
{
    file_reader_look(r);
    return n_reads();
}

static void each_look_reads_the_file(void **state)
{
    static struct file_reader r = FILE_READER(read_file, "the old one stays");
    set_hangs(false);
    for (int i = 1; i <= 3; i++)
        assert_int_equal(look(&r), i);
    assert_true(s.signals_blocked);
}

/* The first look waits and writes a line. Later looks do neither until the file system answers. */
static void file_that_hangs_stops_no_look(void **state)
{
    static struct file_reader r = FILE_READER(read_file, "the old one stays");
    set_hangs(true);
    assert_int_equal(CAPTURE(look(&r)), 0);
    assert_non_null(
        strstr(capture_text, FILE_NAME
               " cannot be read: its file system has not answered for 1 s; the old one stays\n"));
    for (int i = 0; i < 100; i++) {
        assert_int_equal(CAPTURE(look(&r)), 0);
        assert_string_equal(capture_text, "");
    }
    capture_begin();
    set_hangs(false);
    while (look(&r) < 2) /* a read does not serve a look that was requested after its start */
        ;
    capture_end();
    assert_non_null(strstr(capture_text, FILE_NAME " can be read again\n"));
}

static void *release(void *arg)
{
    struct file_reader *r = arg;
    for (bool is_late = false; !is_late;) {
        pthread_mutex_lock(&r->lock);
        is_late = r->late != NULL;
        pthread_mutex_unlock(&r->lock);
    }
    set_hangs(false);
    return NULL;
}

static int look_first(struct file_reader *r)
{
    file_reader_look_first(r);
    return n_reads();
}

static void first_look_waits_for_the_file(void **state)
{
    static struct file_reader r = FILE_READER(read_file, "the old one stays");
    pthread_t thread;
    set_hangs(true);
    assert_int_equal(pthread_create(&thread, NULL, release, &r), 0);
    assert_true(CAPTURE(look_first(&r)) >= 1);
    pthread_join(thread, NULL);
    assert_non_null(
        strstr(capture_text, FILE_NAME
               " cannot be read: its file system has not answered for 1 s; waiting for it\n"));
}

/* Returns true while the reader's thread runs. The thread ends soon after the look that it has
 * served. */
static bool is_running(struct file_reader *r)
{
    pthread_mutex_lock(&r->lock);
    bool is_running = r->is_running;
    pthread_mutex_unlock(&r->lock);
    return is_running;
}

static void without_a_thread_the_old_values_stay(void **state)
{
    static struct file_reader r = FILE_READER(read_file, "the old one stays");
    set_hangs(false);
    assert_int_equal(look(&r), 1);
    no_threads = true;
    while (is_running(&r))
        ;
    assert_int_equal(CAPTURE(look(&r)), 1);
    assert_non_null(strstr(capture_text, "no thread can be started to read " FILE_NAME ": "));
    assert_non_null(strstr(capture_text, "; the old one stays\n"));
    assert_int_equal(look_first(&r), 2); /* without old values the caller's thread reads the file */
    no_threads = false;
}

int main(void)
{
    return RUN_TESTS(each_look_reads_the_file, file_that_hangs_stops_no_look,
                     first_look_waits_for_the_file, without_a_thread_the_old_values_stay);
}
