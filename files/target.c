/* files/target.c - follows symbolic links one by one, up to the operating system's limit; see
 * target.h. */
#include "files/target.h"
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { MOST_LINKS = 40 }; /* the kernel's limit on links in a path */

int target_folder(const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= PATH_MAX)
        return ENAMETOOLONG;
    if (!slash)
        path = ".";
    snprintf(folder, PATH_MAX, "%.*s", n ? (int)n : 1, path);
    return 0;
}

/* Replaces the link at `path` by its target. Returns 0 or errno's value. */
static int follow(char path[PATH_MAX], const char *folder)
{
    char text[PATH_MAX], next[2 * PATH_MAX];
    ssize_t n = readlink(path, text, sizeof text - 1);
    if (n < 0)
        return errno;
    text[n] = 0;
    int bytes = text[0] == '/' ? snprintf(next, sizeof next, "%s", text)
                               : snprintf(next, sizeof next, "%s/%s", folder, text);
    if (bytes >= PATH_MAX)
        return ENAMETOOLONG;
    memcpy(path, next, (size_t)bytes + 1);
    return 0;
}

int target_find(const char *path, struct target *out)
{
    struct target t = {.in_place = 0};
    struct stat s;
    struct statfs system;
    char folder[PATH_MAX];
    int err = 0;
    if (strlen(path) >= sizeof t.path)
        return ENAMETOOLONG;
    memcpy(t.path, path, strlen(path) + 1);
    for (int n = 0; !t.in_place && lstat(t.path, &s) == 0 && S_ISLNK(s.st_mode) && !err; n++) {
        err = n == MOST_LINKS ? ELOOP : target_folder(t.path, folder);
        /* A link of procfs leads to an open file of a process, whatever its text is. */
        t.in_place = !err && statfs(folder, &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
        if (!err && !t.in_place)
            err = follow(t.path, folder);
    }
    if (err)
        return err;
    if (stat(t.path, &s) == 0) {
        if (S_ISDIR(s.st_mode))
            return EISDIR;
        t.in_place |= !S_ISREG(s.st_mode);
    }
    *out = t;
    return 0;
}
