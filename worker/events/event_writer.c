/* worker/events/event_writer.c - the ring and the thread that writes it. [head, head + n_queued)
 * are the queued records, each preceded by its size. The thread writes these records to the file
 * without the lock, because callers only append after them. */
#include "worker/events/event_writer.h"
#include "base/clock.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/threads.h"
#include "worker/events/event.h"
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
enum { SIZE_BYTES = 4, SESSION_BYTES = 128 };
/* largest second in a file's name: the next number still has the same number of digits */
static const int64_t last_second = 9999999998;
static const char prefix[] = "events.out.tfevents.";

struct event_writer {
    char folder[PATH_MAX], path[PATH_MAX + NAME_MAX];
    int64_t retry_ms, patience_ms;
    pthread_t thread;
    int fd;       /* descriptor; only the thread uses it and the fields below; -1: not open */
    off_t offset; /* end of the complete records in the file */
    bool is_new;  /* the first records of the file are not written yet */
    int n_lost;   /* number of files that were deleted or cut */
    uint8_t *ring;
    pthread_cond_t changed;
    pthread_mutex_t lock; /* guards the fields below */
    size_t head, n_queued, n_puts;
    uint8_t session[SESSION_BYTES];
    size_t n_session;
    int owes_session;   /* TensorBoard's session record must be written before the next record */
    int64_t n_left_out; /* number of records that did not fit into the ring */
    bool is_failing;    /* a failure was logged, and writing has not succeeded since */
    int closing, ended;
    int close_error; /* errno of a failed close */
};

/* Returns the second in a file's name; 0: the name contains no second, or one above last_second. */
static int64_t second_of(const char *name)
{
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return 0;
    int64_t second = strtoll(name + sizeof prefix - 1, NULL, 10);
    return second <= last_second ? second : 0;
}

int event_writer_folder(const char *folder)
{
    char path[PATH_MAX];
    struct stat is;
    if (snprintf(path, sizeof path, "%s", folder) >= (int)sizeof path)
        return ENAMETOOLONG;
    if (!path[0])
        return ENOENT;
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

/* Opens the file. Returns 0, or errno's value. */
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
    w->offset = 0;
    w->is_new = true;
    return w->fd < 0 ? errno : 0;
}

/* Writes bytes from an offset on. Returns 0, or errno's value. */
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

/* Appends records. Returns 0, or errno's value; after a failure, truncates the file to its complete
 * records. */
static int append_records(struct event_writer *w, const uint8_t *const part[2], const size_t n[2])
{
    int err = write_at(w->fd, part[0], n[0], w->offset);
    if (!err)
        err = write_at(w->fd, part[1], n[1], w->offset + (off_t)n[0]);
    if (!err)
        w->offset += (off_t)(n[0] + n[1]);
    else if (ftruncate(w->fd, w->offset) != 0)
        return err; /* the next attempt truncates the file */
    return err;
}

/* Checks that the open file still has the length that was written. If the file was deleted or cut,
 * closes it, so that a new file is begun. */
static int check_file(struct event_writer *w)
{
    struct stat is;
    int err = w->fd >= 0 && fstat(w->fd, &is) != 0 ? errno : 0;
    if (w->fd < 0 || (err && err != ESTALE))
        return err;
    if (!err && is.st_nlink > 0 && is.st_size >= w->offset)
        return is.st_size > w->offset && ftruncate(w->fd, w->offset) != 0 ? errno : 0;
    LOG_W("%s was deleted or truncated: further events are written into a new file", w->path);
    close(w->fd);
    w->fd = -1;
    w->n_lost++;
    return 0;
}

/* Writes the version, and, if the file replaces a lost one, the session. Returns 0, or errno's
 * value. */
static int begin_file(struct event_writer *w)
{
    uint8_t room[128], session[SESSION_BYTES];
    struct event_buf b = {room, 0, sizeof room, 0};
    struct event e = event_begin(&b, (double)time(NULL), 0);
    event_file_version(&e);
    event_end(&e);
    pthread_mutex_lock(&w->lock);
    size_t n = w->n_lost > 0 ? w->n_session : 0;
    memcpy(session, w->session, n);
    pthread_mutex_unlock(&w->lock);
    int err = append_records(w, (const uint8_t *const[]){room, session}, (const size_t[]){b.n, n});
    w->is_new = err != 0;
    return err;
}

/* Writes the oldest n bytes of the ring. */
static int write_first(struct event_writer *w, size_t at, size_t n)
{
    size_t first = n < RING - at ? n : RING - at;
    int err = check_file(w);
    if (!err && w->fd < 0)
        err = open_file(w);
    if (!err && w->is_new)
        err = begin_file(w);
    if (!err)
        err = append_records(w, (const uint8_t *const[]){w->ring + at, w->ring},
                             (const size_t[]){first, n - first});
    return err;
}

/* Logs when writing begins to fail, and when it works again. */
static void log_change(const struct event_writer *w, int err)
{
    if (err)
        LOG_W(
            "cannot write events to %s: %s; training continues, and the worker retries every %" PRId64
            " s",
            w->fd >= 0 ? w->path : w->folder, status_errno_text(err), w->retry_ms / 1000);
    else
        LOG_I("writing events to %s works again", w->path);
}

/* Waits until there is a record to write or the writer is closing. */
static void wait_for_work(struct event_writer *w, int64_t not_before_ns) REQUIRES(w->lock)
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

/* Returns the size of the oldest record, which is stored before it. The caller holds the lock. */
static size_t first_size(const struct event_writer *w)
{
    size_t n = 0;
    for (size_t i = 0; i < SIZE_BYTES; i++)
        n |= (size_t)w->ring[(w->head + i) % RING] << 8 * i;
    return n;
}

/* Closes the file; the close may report that an earlier write failed. The caller must not hold the
 * lock, because a close may hang. */
static int close_file(struct event_writer *w)
{
    int err = w->fd >= 0 && close(w->fd) != 0 ? errno : 0;
    w->fd = -1;
    return err;
}

static void *writer_main(void *arg)
{
    struct event_writer *w = arg;
    int64_t not_before_ns = 0;
    pthread_mutex_lock(&w->lock);
    for (int given_up = 0; !given_up;) {
        wait_for_work(w, not_before_ns);
        if (w->n_puts == 0)
            break;
        size_t at = (w->head + SIZE_BYTES) % RING, n = first_size(w);
        int is_last = w->closing, was_failing = w->is_failing;
        pthread_mutex_unlock(&w->lock);
        int err = write_first(w, at, n);
        if (err && !was_failing)
            log_change(w, err);
        not_before_ns = err ? clock_deadline_ns(w->retry_ms) : 0;
        pthread_mutex_lock(&w->lock);
        given_up = err && is_last;
        if (!err) {
            w->head = (at + n) % RING;
            w->n_queued -= SIZE_BYTES + n;
            w->n_puts--;
        }
        /* the failure is not over while records are still queued */
        int is_over = was_failing && w->n_puts == 0;
        w->is_failing = err || (was_failing && !is_over);
        if (is_over) {
            pthread_mutex_unlock(&w->lock);
            log_change(w, 0);
            pthread_mutex_lock(&w->lock);
        }
    }
    pthread_mutex_unlock(&w->lock);
    int err = close_file(w);
    pthread_mutex_lock(&w->lock);
    w->close_error = err;
    w->ended = 1;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void release_writer(struct event_writer *w)
{
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
    int err = pthread_create(&w->thread, NULL, writer_main, w);
    if (err) {
        LOG_E("--logdir: its thread cannot be started: %s", threads_error(err));
        release_writer(w);
        return ST_NOMEM;
    }
    *out = w;
    return ST_OK;
}

/* Appends to the ring, which has enough free bytes. The caller holds the lock. */
static void add_bytes(struct event_writer *w, const void *data, size_t n)
{
    size_t tail = (w->head + w->n_queued) % RING;
    size_t first = n < RING - tail ? n : RING - tail;
    memcpy(w->ring + tail, data, first);
    memcpy(w->ring, (const uint8_t *)data + first, n - first);
    w->n_queued += n;
}

void event_writer_session(struct event_writer *w, const void *record, size_t n)
{
    CHECK(n <= SESSION_BYTES);
    pthread_mutex_lock(&w->lock);
    memcpy(w->session, record, n);
    w->n_session = n;
    w->owes_session = 1;
    pthread_mutex_unlock(&w->lock);
}

bool event_writer_put(struct event_writer *w, const void *records, size_t n)
{
    pthread_mutex_lock(&w->lock);
    size_t owed = w->owes_session ? w->n_session : 0, all = owed + n;
    int fits = n < RING && SIZE_BYTES + all <= RING - w->n_queued;
    int is_first = !fits && w->n_left_out == 0;
    if (fits) {
        const uint8_t size[SIZE_BYTES] = {(uint8_t)all, (uint8_t)(all >> 8), (uint8_t)(all >> 16),
                                          (uint8_t)(all >> 24)};
        add_bytes(w, size, sizeof size);
        add_bytes(w, w->session, owed);
        add_bytes(w, records, n);
        w->n_puts++;
        w->owes_session = 0;
        pthread_cond_broadcast(&w->changed);
    } else {
        w->n_left_out++;
    }
    pthread_mutex_unlock(&w->lock);
    if (is_first)
        LOG_W(
            "events for %s are left out, because earlier events are not written yet; training continues",
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
    size_t n_queued = w->n_queued - w->n_puts * SIZE_BYTES;
    int err = w->close_error;
    int64_t n_left_out = w->n_left_out;
    pthread_mutex_unlock(&w->lock);
    if (n_queued > 0 || n_left_out > 0 || !ended)
        LOG_W("events are missing in %s: %" PRId64
              " were left out, and the last %zu bytes are not written%s",
              w->folder, n_left_out, n_queued, ended ? "" : ": the disk does not answer");
    if (err)
        LOG_W("events may be missing in %s: closing it failed: %s", w->path,
              status_errno_text(err));
    if (ended) {
        pthread_join(w->thread, NULL);
        release_writer(w);
    } else {
        pthread_detach(w->thread); /* the thread hangs in the kernel, and keeps the ring */
    }
}
