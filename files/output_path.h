/* files/output_path.h - checks, at a program's start, the paths of the files that the program
 * writes at its end.
 * Owns: nothing. Threads: any.
 * Errors: ST_INVALID, logged with the flags' names. */
#ifndef FILES_OUTPUT_PATH_H
#define FILES_OUTPUT_PATH_H
#include "base/status.h"

struct output_path {
    const char *flag, *path; /* path NULL: the flag is not set */
};

/* Tries to create a file at `path`. ST_INVALID: the folder does not exist or is not writable, or
 * `path` is a folder. ST_IO, ST_NOMEM: a later try may succeed (disk full, no descriptor). path
 * NULL: ST_OK. */
enum status output_path_check(const char *flag, const char *path);
/* Checks that no output is the same file as another path of the list. The program writes the first
 * n_outputs of the n paths and reads the remaining ones. Existing files are compared by device and
 * inode, missing files by name. A device may be in the list twice. */
enum status output_paths_differ(const struct output_path *list, int n_outputs, int n);

#endif
