/* base/cores.c - see cores.h. In a container the file names a group as the host sees it, or one
 * above its own root; what is mounted is then the container's own: a path that is not there is
 * passed over, and the root is always looked at. */
#include "base/cores.h"
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first words of a file of one line; 0: it is not there. */
static int read_line(const char *dir, const char *name, char *line, int bytes)
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

/* Of one group: cores' worth of time; 0: no limit. */
static double group_quota(const char *dir, int v2)
{
    char a[64], b[64];
    double quota = 0, period = 0;
    if (v2) {
        if (!read_line(dir, "cpu.max", a, sizeof a) || sscanf(a, "%lf %lf", &quota, &period) != 2)
            return 0; /* "max 100000" */
    } else if (!read_line(dir, "cpu.cfs_quota_us", a, sizeof a) ||
               !read_line(dir, "cpu.cfs_period_us", b, sizeof b) || sscanf(a, "%lf", &quota) != 1 ||
               sscanf(b, "%lf", &period) != 1) {
        return 0;
    }
    return quota > 0 && period > 0 ? quota / period : 0; /* -1: none */
}

static double lesser(double a, double b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

/* Of the group at `path` below `root` and of each above it. */
static double path_quota(const char *root, const char *path, int v2)
{
    char dir[PATH_MAX];
    double quota = group_quota(root, v2);
    if (path[0] != '/' || strstr(path, "/..") ||
        snprintf(dir, sizeof dir, "%s%s", root, path) >= (int)sizeof dir)
        return quota;
    for (char *end; (end = strrchr(dir, '/')) && end >= dir + strlen(root); *end = 0)
        quota = lesser(quota, group_quota(dir, v2));
    return quota;
}

static int names_cpu(char *controllers)
{
    char *rest = NULL;
    for (char *c = strtok_r(controllers, ",", &rest); c; c = strtok_r(NULL, ",", &rest))
        if (!strcmp(c, "cpu"))
            return 1;
    return 0;
}

/* A line "4:cpu,cpuacct:/docker/17" of version 1, or "0::/docker/17" of version 2. */
static double line_quota(const char *root, char *line)
{
    char dir[PATH_MAX];
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return 0;
    *path++ = 0;
    path[strcspn(path, "\n")] = 0;
    int v2 = controllers[1] == 0;
    const char *const mounts[] = {v2 ? "" : "/cpu", v2 ? "/unified" : "/cpu,cpuacct"};
    double quota = 0;
    if (!v2 && !names_cpu(controllers + 1))
        return 0;
    for (int i = 0; i < 2; i++)
        if (snprintf(dir, sizeof dir, "%s%s", root, mounts[i]) < (int)sizeof dir)
            quota = lesser(quota, path_quota(dir, path, v2));
    return quota;
}

double cores_quota(const char *self, const char *root)
{
    char *line = NULL;
    size_t bytes = 0;
    double quota = 0;
    FILE *f = fopen(self, "r");
    while (f && getline(&line, &bytes, f) > 0)
        quota = lesser(quota, line_quota(root, line));
    if (f)
        fclose(f);
    free(line);
    return quota;
}

/* A machine may have more CPUs than a cpu_set_t has bits. */
static int count_affinity(int otherwise)
{
    for (int n = CPU_SETSIZE; n <= 64 * CPU_SETSIZE; n *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)n);
        size_t bytes = CPU_ALLOC_SIZE((size_t)n);
        int count = set && sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        if (set)
            CPU_FREE(set);
        if (count > 0)
            return count;
    }
    return otherwise;
}

int cores_share(const struct cores *c, int n, int one_group)
{
    int own = c->n < c->n_affinity ? !one_group : c->n < c->n_machine;
    if (n < 2 || own)
        return c->n;
    return c->n > n ? c->n / n : 1;
}

struct cores cores_count(int n_machine, int n_affinity, double quota)
{
    struct cores c = {n_affinity, n_machine, n_affinity, quota};
    /* half a core more is worth a thread: it is throttled less than it brings */
    if (quota > 0 && quota < n_affinity)
        c.n = (int)quota + (quota > (int)quota);
    return c;
}

struct cores cores_usable(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int n_machine = online > 0 ? (int)online : 1;
    return cores_count(n_machine, count_affinity(n_machine),
                       cores_quota("/proc/self/cgroup", "/sys/fs/cgroup"));
}
