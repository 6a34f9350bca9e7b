/* files/target.h - where what is written under a name goes: to the file that its symbolic links
 * lead to, which may be replaced, or into what is there and is no regular file.
 * Owns: nothing. Threads: any. Errors: errno's, not logged. */
#ifndef FILES_TARGET_H
#define FILES_TARGET_H
#include <limits.h>

struct target {
    char path[PATH_MAX]; /* no symbolic link, but for one of procfs */
    int in_place;        /* a device, a FIFO, an open file of a process (/dev/stdout): opened as it
                          * is, since a file of that name would take its place */
};

/* 0, or errno's value: EISDIR (a folder), ELOOP, ENAMETOOLONG, and those of reading links. That
 * nothing is there is no error. */
int target_find(const char *path, struct target *out);
/* The path's folder, as it can be opened. 0, or ENAMETOOLONG. */
int target_folder(const char *path, char folder[PATH_MAX]);

#endif
