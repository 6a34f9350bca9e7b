/* base/cores.c - reads CPU affinity and the quotas of control groups; see cores.h. */
#include "base/cores.h"
#include "base/cgroup.h"
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

/* Returns the quota of one group, in cores; 0: no limit. */
static double group_quota(const char *dir, int v2)
{
    char a[64], b[64];
    double quota = 0, period = 0;
    if (v2) {
        if (!cgroup_read_line(dir, "cpu.max", a, sizeof a) ||
            sscanf(a, "%lf %lf", &quota, &period) != 2)
            return 0; /* "max 100000" */
    } else if (!cgroup_read_line(dir, "cpu.cfs_quota_us", a, sizeof a) ||
               !cgroup_read_line(dir, "cpu.cfs_period_us", b, sizeof b) ||
               sscanf(a, "%lf", &quota) != 1 || sscanf(b, "%lf", &period) != 1) {
        return 0;
    }
    return quota > 0 && period > 0 ? quota / period : 0; /* -1: none */
}

double cores_quota(const char *self, const char *root)
{
    static const struct cgroup_limit limit = {"cpu", {"/cpu", "/cpu,cpuacct"}, group_quota};
    return cgroup_least(&limit, self, root);
}

/* Returns the number of cores that this process may run on. The set of cores is enlarged until all
 * CPUs fit into it, because a machine may have more CPUs than a cpu_set_t has bits. */
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
    /* a quota of n + 1/2 cores counts as n + 1 threads, because the additional half core makes the
     * process faster, even if the kernel throttles it */
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
