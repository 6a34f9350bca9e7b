/* files/output_path.h - files that a program writes at its end: that they can be is found before.
 * Owns: nothing. Threads: any.
 * Errors: ST_INVALID, logged with the flags' names. */
#ifndef FILES_OUTPUT_PATH_H
#define FILES_OUTPUT_PATH_H
#include "base/status.h"

struct output_path {
    const char *flag, *path; /* NULL: not given */
};

/* An error if no file can be made at `path`, as is tried: its folder does not exist or may not be
 * written, or it is a folder itself. ST_IO, ST_NOMEM: that may pass (no room, no descriptor). path
 * NULL: ST_OK. */
enum status output_path_check(const char *flag, const char *path);
/* Of n paths the first n_outputs are written, the others read. An error if one that is written is
 * another's file as well: by what is there, whatever it is called; else by name. Devices are
 * nobody's file. */
enum status output_paths_differ(const struct output_path *list, int n_outputs, int n);

#endif
