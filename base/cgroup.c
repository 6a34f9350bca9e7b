/* base/cgroup.c - see cgroup.h. In a container, /proc/self/cgroup may name a group by its path on
 * the host, or a group above the container's root, although only the container's own groups are
 * mounted. So missing paths are skipped, and the mounted root is always read. */
#include "base/cgroup.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cgroup_read_line(const char *dir, const char *name, char *line, int bytes)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return 0;
    FILE *f = fopen(path, "r");
    int ok = f && fgets(line, bytes, f);
    if (f)
        fclose(f);
    return ok;
}

static double lesser(double a, double b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

/* Returns the lowest limit of two kinds of groups: the group at `path` below `root`, and all groups
 * above it. */
static double least_of_path(const struct cgroup_limit *l, const char *root, const char *path,
                            int v2)
{
    char dir[PATH_MAX];
    double least = l->of_group(root, v2);
    if (path[0] != '/' || strstr(path, "/..") ||
        snprintf(dir, sizeof dir, "%s%s", root, path) >= (int)sizeof dir)
        return least;
    for (char *end; (end = strrchr(dir, '/')) && end >= dir + strlen(root); *end = 0)
        least = lesser(least, l->of_group(dir, v2));
    return least;
}

static int has_name(char *controllers, const char *name)
{
    char *rest = NULL;
    for (char *c = strtok_r(controllers, ",", &rest); c; c = strtok_r(NULL, ",", &rest))
        if (!strcmp(c, name))
            return 1;
    return 0;
}

/* Parses a line "4:cpu,cpuacct:/docker/17" of version 1, or "0::/docker/17" of version 2, and
 * returns the lowest limit of the groups that the line names. */
static double least_of_line(const struct cgroup_limit *l, const char *root, char *line)
{
    char dir[PATH_MAX];
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return 0;
    *path++ = 0;
    path[strcspn(path, "\n")] = 0;
    int v2 = controllers[1] == 0;
    const char *const mounts[] = {v2 ? "" : l->mounts[0], v2 ? "/unified" : l->mounts[1]};
    double least = 0;
    if (!v2 && !has_name(controllers + 1, l->controller))
        return 0;
    for (int i = 0; i < 2; i++)
        if (mounts[i] && snprintf(dir, sizeof dir, "%s%s", root, mounts[i]) < (int)sizeof dir)
            least = lesser(least, least_of_path(l, dir, path, v2));
    return least;
}

double cgroup_least(const struct cgroup_limit *limit, const char *self, const char *root)
{
    char *line = NULL;
    size_t bytes = 0;
    double least = 0;
    FILE *f = fopen(self, "r");
    while (f && getline(&line, &bytes, f) > 0)
        least = lesser(least, least_of_line(limit, root, line));
    if (f)
        fclose(f);
    free(line);
    return least;
}
