/* base/cores.h - counts the cores that this process may use: those of its CPU affinity (taskset,
 * cpusets, Slurm), and no more than the quota of its control groups (containers, systemd), at which
 * the kernel would throttle it. The machine may have more cores.
 * Threads: any. Errors: a file that cannot be read limits nothing. */
#ifndef BASE_CORES_H
#define BASE_CORES_H

struct cores {
    int n;          /* cores that the process may use under both limits below; at least 1 */
    int n_machine;  /* cores of the machine that are online */
    int n_affinity; /* cores in the CPU affinity of the process */
    double quota;   /* CPU time of the tightest control group, in cores; 0: no limit */
};

struct cores cores_usable(void);
/* Returns the cores that these limits leave: the lesser of affinity and quota, at least 1. */
struct cores cores_count(int n_machine, int n_affinity, double quota);
/* Returns the cores for one of `n` processes of a job on this host: an equal share of the machine's
 * cores, at least 1. Affinity is assumed to be of this process alone, and so is the quota of a
 * control group unless all n processes are in it (one_group). */
int cores_share(const struct cores *c, int n, int one_group);
/* Returns the least quota, in cores, of the groups in the file `self` (as /proc/self/cgroup) and of
 * all above them, in the tree at `root` (as /sys/fs/cgroup): cpu.max of version 2,
 * cpu.cfs_quota_us of version 1. 0: there is no limit. */
double cores_quota(const char *self, const char *root);

#endif
