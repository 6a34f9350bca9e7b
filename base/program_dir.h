/* base/program_dir.h - finds files by the folder of the running program: in a build folder, and in
 * an installation, which may be moved as a whole. Owns: nothing. Threads: any.
 * Errors:  ST_NOT_FOUND, with errno; not logged. */
#ifndef BASE_PROGRAM_DIR_H
#define BASE_PROGRAM_DIR_H
#include "base/status.h"
#include <stddef.h>

/* Paths from the program's folder to an installation's backends, "../lib/weir", and to its models
 * and scripts, "../share/weir"; set by CMake. */
extern const char *const program_dir_backends;
extern const char *const program_dir_data;

/* Writes the path of `name`, such as "../lib/x.so", relative to the program's folder. The file need
 * not exist. If name is "", writes the path of the folder. */
enum status program_dir_path(const char *name, char *out, size_t bytes);

#endif
