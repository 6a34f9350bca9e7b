/* base/cores.h - counts the cores that this process may use: those of its CPU affinity (taskset,
 * cpusets, Slurm), limited to the quota of its control groups (containers, systemd), above which
 * the kernel would throttle the process. The machine may have more cores.
 * Threads: any. Errors: none; a file that cannot be read counts as no limit. */
#ifndef BASE_CORES_H
#define BASE_CORES_H

struct cores {
    int n;          /* cores that the process may use under both limits below; at least 1 */
    int n_machine;  /* cores of the machine that are online */
    int n_affinity; /* cores in the CPU affinity of the process */
    double quota;   /* lowest CPU quota of the control groups, in cores; 0: no limit */
};

struct cores cores_usable(void);
/* Returns the number of cores that these limits allow: the lesser of affinity and quota, at least
 * 1. */
struct cores cores_count(int n_machine, int n_affinity, double quota);
/* Returns the number of cores for one of `n` processes of a job on this host: an equal share of the
 * machine's cores, at least 1. If a CPU affinity limits this process, the function assumes that it
 * limits only this process, and returns all cores of the affinity. It does the same with a control
 * group's quota, unless all n processes are in that group (one_group). */
int cores_share(const struct cores *c, int n, int one_group);
/* Returns the lowest quota, in cores, of the groups that the file `self` (such as
 * /proc/self/cgroup) names, and of all groups above them, in the tree at `root` (such as
 * /sys/fs/cgroup): cpu.max of version 2, cpu.cfs_quota_us of version 1. 0: there is no limit. */
double cores_quota(const char *self, const char *root);

#endif
