/* base/descriptors.c - tests the limit by opening descriptors; see descriptors.h. */
#include "base/descriptors.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

static void log_failure(int n, int made, int err)
{
    struct rlimit l;
    if (err == EMFILE && getrlimit(RLIMIT_NOFILE, &l) == 0)
        LOG_E(
            "this process needs %d more descriptors, and can open %d: the limit is %llu; raise it with ulimit -n",
            n, made, (unsigned long long)l.rlim_cur);
    else
        LOG_E("this process needs %d more descriptors, and can open %d: %s", n, made,
              status_errno_text(err));
}

enum status descriptors_reserve(int n)
{
    int *fds = malloc(((size_t)n + 1) * sizeof *fds);
    int made = 0, err = 0;
    if (!fds) {
        LOG_E("out of memory for a list of %d descriptors", n);
        return ST_NOMEM;
    }
    for (; made < n; made++) {
        fds[made] = made == 0 ? eventfd(0, EFD_CLOEXEC) : fcntl(fds[0], F_DUPFD_CLOEXEC, 0);
        if (fds[made] < 0)
            break;
    }
    if (made < n)
        err = errno;
    for (int i = 0; i < made; i++)
        close(fds[i]);
    free(fds);
    if (!err)
        return ST_OK;
    log_failure(n, made, err);
    return ST_NOMEM;
}
