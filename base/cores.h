/* base/cores.h - how many cores this process may use: those that it may run on (CPU affinity:
 * taskset, cpusets, Slurm), and no more than its control groups grant (containers, systemd), whose
 * limit it would be throttled at. Not the machine's number of cores.
 * Threads: any. Errors: what cannot be read limits nothing. */
#ifndef BASE_CORES_H
#define BASE_CORES_H

struct cores {
    int n;          /* to use, at least 1 */
    int n_machine;  /* that are online */
    int n_affinity; /* that it may run on */
    double quota;   /* cores' worth of time that the tightest control group grants; 0: no limit */
};

struct cores cores_usable(void);
/* What those limits leave: the lesser of affinity and quota, a part of a core as a whole one. */
struct cores cores_count(int n_machine, int n_affinity, double quota);
/* The part of one of `n` processes of a job on this host: all of them have an equal one of the
 * machine's cores, 1 at least. What affinity leaves is this process' own, and so is what a control
 * group grants, unless all n are in it (one_group). */
int cores_share(const struct cores *c, int n, int one_group);
/* The least quota, in cores, of the groups named in the file `self` (as /proc/self/cgroup) and of
 * all above them, in the tree at `root` (as /sys/fs/cgroup): cpu.max of version 2,
 * cpu.cfs_quota_us of version 1. 0: there is no limit. */
double cores_quota(const char *self, const char *root);

#endif
