/* base/status.c - returns names and texts of the codes, and the codes for values of errno. */
#include "base/status.h"
#include "base/log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *status_name(enum status st)
{
    static const char *const names[] = {
#define X(name, text) #name,
        STATUS_MAP(X)
#undef X
    };
    return (unsigned)st < sizeof names / sizeof *names ? names[st] : "ST_?";
}

const char *status_text(enum status st)
{
    static const char *const texts[] = {
#define X(name, text) text,
        STATUS_MAP(X)
#undef X
    };
    return (unsigned)st < sizeof texts / sizeof *texts ? texts[st] : "unknown status";
}

int status_exit_code(enum status st)
{
    switch (st) {
    case ST_OK:
        return 0;
    case ST_UNAVAILABLE:
    case ST_DEADLINE:
    case ST_BUSY:
    case ST_NOMEM:
    case ST_IO:
    case ST_INTERNAL:
    case ST_FULL:
        return EXIT_RETRY;
    default:
        return EXIT_PERMANENT;
    }
}

enum status status_of_errno(int err)
{
    switch (err) {
    case ENOMEM:
        return ST_NOMEM;
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EEXIST:
    case EACCES:
    case EPERM:
    case EROFS:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO:
    case ENODEV:
    case EINVAL:
        return ST_INVALID;
    default:
        return ST_IO;
    }
}

enum status status_of_writing(int err)
{
    return err == ENOSPC || err == EDQUOT ? ST_FULL : ST_IO;
}

enum status status_of_reading(int err)
{
    switch (err) {
    case ENOENT:
        return ST_NOT_FOUND;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        return ST_NOMEM;
    default:
        return ST_IO;
    }
}

const char *status_errno_text(int err)
{
    static _Thread_local char text[160];
    if (err != EFBIG && err != EMFILE)
        return strerror(err);
    snprintf(
        text, sizeof text, "%s: %s", strerror(err),
        err == EFBIG
            ? "the file would exceed this process' limit on file sizes; raise the limit with ulimit -f"
            : "this process has no descriptor left; raise the limit with ulimit -n");
    return text;
}

void status_check_failed(const char *file, int line, const char *cond)
{
    LOG_E("bug at %s:%d: %s does not hold; please report this log line", file, line, cond);
    log_flush(LOG_END_MS);
    abort();
}
