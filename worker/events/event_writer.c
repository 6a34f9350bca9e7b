/* worker/events/event_writer.c - see event_writer.h. Of the ring, records lie in
 * [head, head + n_queued); the thread writes from there without the lock, since others only add
 * behind it. */
#include "worker/events/event_writer.h"
#include "base/clock.h"
#include "base/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RING = EVENT_WRITER_RING_BYTES, RETRY_MS = 10000, PATIENCE_MS = 5000 };
static const char prefix[] = "events.out.tfevents.";

struct event_writer {
    char folder[PATH_MAX], path[PATH_MAX + NAME_MAX];
    int64_t retry_ms, patience_ms;
    pthread_t thread;
    int fd;       /* of the thread; -1: not open yet */
    off_t offset; /* likewise: of whole records in the file */
    uint8_t *ring;
    pthread_cond_t changed;
    pthread_mutex_t lock; /* guards the following */
    size_t head, n_queued;
    int64_t n_left_out; /* records did not fit */
    int is_failing;     /* it was said */
    int closing, ended;
};

/* The name's second, or 0. */
static int64_t second_of(const char *name)
{
    return strncmp(name, prefix, sizeof prefix - 1) == 0
               ? strtoll(name + sizeof prefix - 1, NULL, 10)
               : 0;
}

int event_writer_folder(const char *folder)
{
    char path[PATH_MAX];
    struct stat is;
    snprintf(path, sizeof path, "%s", folder);
    for (char *c = path + 1; *c; c++) {
        if (*c != '/')
            continue;
        *c = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return errno;
        *c = '/';
    }
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return errno;
    if (stat(path, &is) != 0)
        return errno;
    return !S_ISDIR(is.st_mode) ? ENOTDIR : access(path, W_OK | X_OK) != 0 ? errno : 0;
}

/* errno's value, or 0; then the file is open. */
static int open_file(struct event_writer *w)
{
    char host[65] = "";
    int64_t second = (int64_t)time(NULL);
    int err = event_writer_folder(w->folder);
    if (err)
        return err;
    DIR *d = opendir(w->folder);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (second_of(e->d_name) >= second)
            second = second_of(e->d_name) + 1;
    if (d)
        closedir(d);
    if (gethostname(host, sizeof host - 1) != 0 || strchr(host, '/'))
        snprintf(host, sizeof host, "localhost");
    snprintf(w->path, sizeof w->path, "%s/%s%010" PRId64 ".%s.%ld.0", w->folder, prefix, second,
             host, (long)getpid());
    w->fd = open(w->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return w->fd < 0 ? errno : 0;
}

/* Likewise, of bytes from an offset on. */
static int write_at(int fd, const uint8_t *data, size_t n, off_t at)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pwrite(fd, data + done, n - done, at + (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? errno : ENOSPC;
        done += (size_t)got;
    }
    return 0;
}

/* Likewise; a failed write leaves no part of a record. */
static int write_records(struct event_writer *w, size_t head, size_t n)
{
    size_t first = n < RING - head ? n : RING - head;
    int err = w->fd < 0 ? open_file(w) : 0;
    if (!err)
        err = write_at(w->fd, w->ring + head, first, w->offset);
    if (!err)
        err = write_at(w->fd, w->ring, n - first, w->offset + (off_t)first);
    if (!err)
        w->offset += (off_t)n;
    else if (w->fd >= 0 && ftruncate(w->fd, w->offset) != 0)
        return err; /* the next try writes over it */
    return err;
}

/* Says what changed. */
static void tell(const struct event_writer *w, int err)
{
    if (err)
        LOG_W("no events can be written to %s: %s; training goes on, and it is tried again every "
              "%" PRId64 " s",
              w->fd >= 0 ? w->path : w->folder, status_errno_text(err), w->retry_ms / 1000);
    else
        LOG_I("events are written to %s again", w->path);
}

/* Until there is something to write, or the end; under the lock. */
static void wait_for_work(struct event_writer *w, int64_t not_before_ns)
{
    for (;;) {
        int waits = clock_now_ns() < not_before_ns;
        if (w->closing || (w->n_queued > 0 && !waits))
            return;
        if (w->n_queued > 0)
            clock_cond_wait(&w->changed, &w->lock, not_before_ns);
        else
            pthread_cond_wait(&w->changed, &w->lock);
    }
}

static void *writer_main(void *arg)
{
    struct event_writer *w = arg;
    int64_t not_before_ns = 0;
    pthread_mutex_lock(&w->lock);
    for (int given_up = 0; !given_up;) {
        wait_for_work(w, not_before_ns);
        size_t head = w->head, n = w->n_queued;
        if (n == 0)
            break;
        int is_last = w->closing, was_failing = w->is_failing;
        pthread_mutex_unlock(&w->lock);
        int err = write_records(w, head, n);
        if (!err != !was_failing)
            tell(w, err);
        not_before_ns = err ? clock_deadline_ns(w->retry_ms) : 0;
        pthread_mutex_lock(&w->lock);
        w->is_failing = err != 0;
        given_up = err && is_last;
        if (!err) {
            w->head = (head + n) % RING;
            w->n_queued -= n;
        }
    }
    w->ended = 1;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void release(struct event_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w->ring);
    free(w);
}

enum status event_writer_create(const struct event_writer_config *cfg, struct event_writer **out)
{
    struct event_writer *w = calloc(1, sizeof *w);
    uint8_t *ring = malloc(RING);
    if (!w || !ring) {
        free(w);
        free(ring);
        LOG_E("--logdir: out of memory");
        return ST_NOMEM;
    }
    snprintf(w->folder, sizeof w->folder, "%s", cfg->folder);
    w->retry_ms = cfg->retry_ms ? cfg->retry_ms : RETRY_MS;
    w->patience_ms = cfg->patience_ms ? cfg->patience_ms : PATIENCE_MS;
    w->fd = -1;
    w->ring = ring;
    clock_cond_init(&w->changed);
    pthread_mutex_init(&w->lock, NULL);
    if (pthread_create(&w->thread, NULL, writer_main, w) != 0) {
        LOG_E("--logdir: cannot start a thread: too many threads or no memory");
        release(w);
        return ST_NOMEM;
    }
    *out = w;
    return ST_OK;
}

int event_writer_put(struct event_writer *w, const void *records, size_t n)
{
    pthread_mutex_lock(&w->lock);
    int fits = n <= RING - w->n_queued, is_first = !fits && w->n_left_out == 0;
    if (fits) {
        size_t tail = (w->head + w->n_queued) % RING;
        size_t first = n < RING - tail ? n : RING - tail;
        memcpy(w->ring + tail, records, first);
        memcpy(w->ring, (const uint8_t *)records + first, n - first);
        w->n_queued += n;
        pthread_cond_broadcast(&w->changed);
    } else {
        w->n_left_out++;
    }
    pthread_mutex_unlock(&w->lock);
    if (is_first)
        LOG_W("events for %s are left out: what is to be written before is not written yet; "
              "training goes on",
              w->folder);
    return fits;
}

void event_writer_destroy(struct event_writer *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->closing = 1;
    pthread_cond_broadcast(&w->changed);
    int64_t deadline_ns = clock_deadline_ns(w->patience_ms);
    while (!w->ended && clock_cond_wait(&w->changed, &w->lock, deadline_ns) != ETIMEDOUT)
        ;
    int ended = w->ended;
    size_t n_queued = w->n_queued;
    int64_t n_left_out = w->n_left_out;
    pthread_mutex_unlock(&w->lock);
    if (n_queued > 0 || n_left_out > 0)
        LOG_W("events are missing in %s: %" PRId64 " were left out, and the last %zu bytes are not "
              "written%s",
              w->folder, n_left_out, n_queued, ended ? "" : ": the disk does not answer");
    if (ended) {
        pthread_join(w->thread, NULL);
        release(w);
    } else {
        pthread_detach(w->thread); /* it hangs in the kernel, with the ring: nothing ends it */
    }
}
