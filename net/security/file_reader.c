/* net/security/file_reader.c - see file_reader.h. Requests are counted: a read serves all requests
 * that were made before it began, so that simultaneous callers share one read. */
#include "net/security/file_reader.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include <openssl/crypto.h>
#include <signal.h>

static const char *file_of(struct file_reader *r)
{
    const char *file = atomic_load(&r->file);
    return file ? file : "a file of certificates or tokens";
}

static void *reader_main(void *arg)
{
    struct file_reader *r = arg;
    pthread_mutex_lock(&r->lock);
    while (r->n_done < r->n_asked) {
        uint64_t serves = r->n_asked;
        r->began_ns = clock_now_ns();
        pthread_mutex_unlock(&r->lock);
        r->read(r);
        /* Frees OpenSSL's state of this thread now, because the process may exit before the thread
         * does. */
        OPENSSL_thread_stop();
        pthread_mutex_lock(&r->lock);
        const char *late = r->late;
        r->late = NULL;
        r->n_done = serves;
        pthread_cond_broadcast(&r->changed);
        r->began_ns = clock_now_ns(); /* the read that has ended does not make the next one late */
        if (late) {
            pthread_mutex_unlock(&r->lock);
            LOG_I("%s can be read again", late);
            pthread_mutex_lock(&r->lock);
        }
    }
    r->is_running = false;
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* Starts a detached thread that leaves all signals to other threads. Returns an errno. */
static int start_thread(struct file_reader *r)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    sigfillset(&all);
    int err = pthread_attr_init(&attr);
    if (err)
        return err;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(&thread, &attr, reader_main, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return err;
}

/* Requests a read. Returns the request's number; 0: no thread could be started. */
static uint64_t request(struct file_reader *r, const char *keeps)
{
    int err = 0;
    pthread_mutex_lock(&r->lock);
    if (!r->is_set_up)
        clock_cond_init(&r->changed);
    r->is_set_up = true;
    if (!r->is_running) {
        r->began_ns = clock_now_ns();
        err = start_thread(r);
        r->is_running = err == 0;
    }
    uint64_t number = err ? 0 : ++r->n_asked;
    pthread_mutex_unlock(&r->lock);
    if (err)
        LOG_FEW("no thread can be started to read %s: %s; %s", file_of(r), status_errno_text(err),
                keeps);
    return number;
}

/* Waits until the request is served, or the current read is late. */
static void wait_for(struct file_reader *r, uint64_t number, const char *keeps)
{
    const char *late = NULL;
    pthread_mutex_lock(&r->lock);
    while (r->n_done < number && !r->late) {
        int64_t deadline_ns = r->began_ns + INT64_C(1000000) * FILE_READER_WAIT_MS;
        if (clock_now_ns() < deadline_ns) {
            clock_cond_wait(&r->changed, &r->lock, deadline_ns);
            continue;
        }
        r->late = late = file_of(r);
    }
    pthread_mutex_unlock(&r->lock);
    if (late)
        LOG_W("%s cannot be read: its file system has not answered for %d s; %s", late,
              FILE_READER_WAIT_MS / 1000, keeps);
}

void file_reader_look(struct file_reader *r)
{
    uint64_t number = request(r, r->keeps);
    if (number > 0)
        wait_for(r, number, r->keeps);
}

void file_reader_look_first(struct file_reader *r)
{
    static const char waits[] = "waiting for it";
    uint64_t number = request(r, waits);
    if (number == 0) {
        r->read(r);
        return;
    }
    wait_for(r, number, waits);
    pthread_mutex_lock(&r->lock);
    while (r->n_done < number)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
}
