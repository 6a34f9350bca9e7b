/* base/slow_wait.c - see slow_wait.h. The thread waits for the end, for fd and for the time of the
 * next line in one poll(). */
#include "base/slow_wait.h"
#include "base/clock.h"
#include "base/log.h"
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { FIRST_LINE_MS = 3000, LINE_MS = 30000 };

struct slow_wait {
    const char *folder;
    int fd;     /* descriptor to watch; -1: none, or it was already readable */
    int end_fd; /* readable when the wait is over */
    void (*ready)(void *ctx);
    void *ctx;
    pthread_t thread;
};

static void *wait_main(void *arg)
{
    struct slow_wait *w = arg;
    int64_t begin = clock_now_ns(), line = begin + FIRST_LINE_MS * 1000000LL;
    for (;;) {
        int64_t now = clock_now_ns();
        if (now >= line) {
            LOG_W(
                "%s is still being read, for %d s now; if it is a network folder, check that its server answers",
                w->folder, (int)((now - begin) / 1000000000));
            line = now + LINE_MS * 1000000LL;
        }
        struct pollfd fds[2] = {{.fd = w->end_fd, .events = POLLIN},
                                {.fd = w->fd, .events = POLLIN}};
        poll(fds, 2, (int)((line - now) / 1000000) + 1);
        if (fds[0].revents)
            return NULL;
        if (fds[1].revents) {
            w->fd = -1;
            w->ready(w->ctx);
        }
    }
}

struct slow_wait *slow_wait_begin(const char *folder, int fd, void (*ready)(void *ctx), void *ctx)
{
    struct slow_wait *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    *w = (struct slow_wait){.folder = folder, .fd = fd, .ready = ready, .ctx = ctx};
    w->end_fd = eventfd(0, EFD_CLOEXEC);
    if (w->end_fd >= 0 && pthread_create(&w->thread, NULL, wait_main, w) == 0)
        return w;
    if (w->end_fd >= 0)
        close(w->end_fd);
    free(w);
    return NULL;
}

void slow_wait_end(struct slow_wait *w)
{
    const uint64_t one = 1;
    if (!w)
        return;
    if (write(w->end_fd, &one, sizeof one) != sizeof one)
        return; /* write() cannot fail, because the counter is 0 */
    pthread_join(w->thread, NULL);
    close(w->end_fd);
    free(w);
}
