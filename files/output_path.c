/* files/output_path.c - compares output paths by device and inode if the files exist, and otherwise
 * by cleaned name; see output_path.h. */
#include "files/output_path.h"
#include "base/log.h"
#include "files/durable.h"
#include "files/target.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum status output_path_check(const char *flag, const char *path)
{
    struct target to;
    char folder[PATH_MAX] = "";
    int err = path ? durable_try(path) : 0;
    if (!err)
        return ST_OK;
    if (err == EISDIR)
        LOG_E("--%s=%.400s is a folder; write the name of a file", flag, path);
    else if (target_find(path, &to) != 0 || target_folder(to.path, folder) != 0 || to.in_place)
        LOG_E("--%s=%.400s cannot be written to: %s; choose another file", flag, path,
              status_errno_text(err));
    else if (status_of_writing(err) == ST_FULL)
        LOG_E(
            "--%s=%.400s: the folder %.400s is full: %s; free some space, or choose another folder",
            flag, path, folder, status_errno_text(err));
    else
        LOG_E(
            "--%s=%.400s: cannot create a file in the folder %.400s: %s; create or choose a folder",
            flag, path, folder, status_errno_text(err));
    return status_of_errno(err);
}

/* Writes the path without links, "." and "..". The file need not exist. */
static void clean(const char *path, char out[2 * PATH_MAX])
{
    struct target to;
    char folder[PATH_MAX], whole[PATH_MAX];
    if (target_find(path, &to) == 0)
        path = to.path;
    const char *slash = strrchr(path, '/');
    if (target_folder(path, folder) == 0 && realpath(folder, whole))
        snprintf(out, 2 * PATH_MAX, "%s/%s", whole, slash ? slash + 1 : path);
    else
        snprintf(out, 2 * PATH_MAX, "%s", path);
}

static int is_same(const char *a, const char *b)
{
    struct stat of_a, of_b;
    char clean_a[2 * PATH_MAX], clean_b[2 * PATH_MAX];
    int has_a = stat(a, &of_a) == 0, has_b = stat(b, &of_b) == 0;
    if (has_a && has_b)
        return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino && !S_ISCHR(of_a.st_mode);
    if (has_a || has_b)
        return 0;
    clean(a, clean_a);
    clean(b, clean_b);
    return strcmp(clean_a, clean_b) == 0;
}

enum status output_paths_differ(const struct output_path *list, int n_outputs, int n)
{
    for (int i = 0; i < n_outputs; i++) {
        const struct output_path *a = &list[i];
        for (int k = i + 1; k < n; k++) {
            const struct output_path *b = &list[k];
            if (!a->path || !b->path || !is_same(a->path, b->path))
                continue;
            if (k < n_outputs)
                LOG_E("--%s=%.400s and --%s=%.400s are the same file; choose different names",
                      a->flag, a->path, b->flag, b->path);
            else
                LOG_E(
                    "--%s=%.400s would overwrite the file that --%s=%.400s reads; choose another name",
                    a->flag, a->path, b->flag, b->path);
            return ST_INVALID;
        }
    }
    return ST_OK;
}
