/* files/target.h - finds the file that a program writes when it writes to a path: the regular file
 * at the end of symbolic links, which may be replaced, or a device or FIFO, which may not.
 * Owns: nothing. Threads: any. Errors: values of errno, not logged. */
#ifndef FILES_TARGET_H
#define FILES_TARGET_H
#include <limits.h>

struct target {
    char path[PATH_MAX]; /* not a symbolic link, except one of procfs */
    int in_place;        /* a device, a FIFO, an open file of a process (/dev/stdout): it is opened,
                          * not replaced by a new file of that name */
};

/* Finds the target of the path, which need not exist. Returns 0 or errno's value: EISDIR (a
 * folder), ELOOP, ENAMETOOLONG, and those of reading links. */
int target_find(const char *path, struct target *out);
/* Writes the path of the folder that holds `path`. Returns 0 or ENAMETOOLONG. */
int target_folder(const char *path, char folder[PATH_MAX]);

#endif
