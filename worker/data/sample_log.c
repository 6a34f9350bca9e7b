/* worker/data/sample_log.c - appends lines, each with one write, so a worker that is killed leaves
 * only complete lines, to which its next process appends. */
#include "worker/data/sample_log.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sample_log {
    int fd;
    const char *path; /* path of the file; must never be freed */
};

enum status sample_log_open(const char *path, struct sample_log **out)
{
    struct sample_log *r = malloc(sizeof *r);
    if (!r) {
        LOG_E("--record_samples: out of memory");
        return ST_NOMEM;
    }
    r->path = path;
    r->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (r->fd < 0) {
        enum status st = status_of_errno(errno);
        LOG_E("--record_samples: cannot open %s: %s", path, strerror(errno));
        free(r);
        return st;
    }
    *out = r;
    return ST_OK;
}

void sample_log_close(struct sample_log *r)
{
    if (!r)
        return;
    close(r->fd);
    free(r);
}

enum status sample_log_step(struct sample_log *r, uint64_t generation, int64_t step,
                            uint64_t position, int n)
{
    char line[96];
    if (!r)
        return ST_OK;
    int bytes = snprintf(line, sizeof line, "%" PRIu64 " %" PRId64 " %" PRIu64 " %d\n", generation,
                         step, position, n);
    ssize_t written = write(r->fd, line, (size_t)bytes);
    if (written == bytes)
        return ST_OK;
    LOG_E("--record_samples: cannot write %s: %s", r->path,
          written < 0 ? status_errno_text(errno) : "not enough space for a complete line");
    return ST_IO;
}
