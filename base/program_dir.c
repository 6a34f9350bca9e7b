/* base/program_dir.c - reads /proc/self/exe; see program_dir.h. */
#include "base/program_dir.h"
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#ifndef WEIR_BACKENDS_FROM_BIN
#define WEIR_BACKENDS_FROM_BIN "../lib/weir"
#define WEIR_DATA_FROM_BIN "../share/weir"
#endif

const char *const program_dir_backends = WEIR_BACKENDS_FROM_BIN;
const char *const program_dir_data = WEIR_DATA_FROM_BIN;

/* Finds the program's own path. Without /proc, as in a chroot, it is the path of the command. */
static bool find_own(char exe[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", exe, PATH_MAX - 1);
    int err = errno;
    if (n >= 0) {
        exe[n] = 0;
        return true;
    }
    const char *started = (const char *)getauxval(AT_EXECFN);
    if (started && realpath(started, exe))
        return true;
    errno = err;
    return false;
}

enum status program_dir_path(const char *name, char *out, size_t bytes)
{
    char exe[PATH_MAX];
    if (!find_own(exe))
        return ST_NOT_FOUND;
    char *slash = strrchr(exe, '/');
    if (slash)
        *slash = 0;
    if ((size_t)snprintf(out, bytes, "%s%s%s", exe, *name ? "/" : "", name) < bytes)
        return ST_OK;
    errno = ENAMETOOLONG;
    return ST_NOT_FOUND;
}
