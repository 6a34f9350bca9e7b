/* base/output_path.c - see output_path.h. */
#include "base/output_path.h"
#include "base/log.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The path's folder; 0 if it is too long. */
static int folder_of(const char *path, char *folder)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= PATH_MAX)
        return 0;
    if (!slash)
        snprintf(folder, PATH_MAX, ".");
    else
        snprintf(folder, PATH_MAX, "%.*s", n ? (int)n : 1, path);
    return 1;
}

enum status output_path_check(const char *flag, const char *path)
{
    char folder[PATH_MAX];
    struct stat s;
    if (!path)
        return ST_OK;
    if (stat(path, &s) == 0) {
        if (!S_ISDIR(s.st_mode))
            return ST_OK;
        LOG_E("--%s=%.400s is a folder; give the name of a file", flag, path);
        return ST_INVALID;
    }
    if (!folder_of(path, folder)) {
        LOG_E("--%s=%.400s: the path is too long; give a shorter one", flag, path);
        return ST_INVALID;
    }
    if (access(folder, W_OK | X_OK) == 0)
        return ST_OK;
    LOG_E("--%s=%.400s: no file can be made in the folder %.400s: %s; make it, or give another",
          flag, path, folder, status_errno_text(errno));
    return ST_INVALID;
}
