/* base/cgroup.h - finds the lowest limit that the control groups of this process set: the groups of
 * its container, its systemd unit or its Slurm step, and all groups above them.
 * Threads: any. Errors: none; a file that cannot be read counts as no limit. */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H

/* One kind of limit. */
struct cgroup_limit {
    const char *controller; /* name of the controller in version 1 of cgroups */
    const char *mounts[2];  /* folders of version 1, such as "/cpu" */
    /* returns the limit of the group at `dir`; 0: none */
    double (*of_group)(const char *dir, int v2);
};

/* Returns the lowest limit of the groups that the file `self` (such as /proc/self/cgroup) names,
 * and of all groups above them, in the tree at `root` (such as /sys/fs/cgroup). 0: there is no
 * limit. */
double cgroup_least(const struct cgroup_limit *limit, const char *self, const char *root);
/* Reads the first line of a group's file. Returns 0 if there is no such file. */
int cgroup_read_line(const char *dir, const char *name, char *line, int bytes);

#endif
