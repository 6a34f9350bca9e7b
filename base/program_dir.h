/* base/program_dir.h - where the running program lies, for what lies beside it: in a build's
 * folder, and in an installation, which may be moved as a whole. Owns: nothing. Threads: any.
 * Errors:  ST_NOT_FOUND, with errno; not logged. */
#ifndef BASE_PROGRAM_DIR_H
#define BASE_PROGRAM_DIR_H
#include "base/status.h"
#include <stddef.h>

/* From the program's folder to an installation's backends, "../lib/weir", and to its models and
 * scripts, "../share/weir", as CMake was told. */
extern const char *const program_dir_backends;
extern const char *const program_dir_data;

/* The path of `name`, "../lib/x.so", from the program's folder on; whether it is there is not
 * looked at. name "": the folder. */
enum status program_dir_path(const char *name, char *out, size_t bytes);

#endif
