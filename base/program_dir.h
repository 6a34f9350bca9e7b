/* base/program_dir.h - where the running program lies, for what lies beside it.
 * Owns: nothing. Threads: any.
 * Errors:  ST_NOT_FOUND, with errno; not logged. */
#ifndef BASE_PROGRAM_DIR_H
#define BASE_PROGRAM_DIR_H
#include "base/status.h"
#include <stddef.h>

/* The path of `name`, "../lib/x.so", from the program's folder on; whether it is there is not
 * looked at. name "": the folder. */
enum status program_dir_path(const char *name, char *out, size_t bytes);

#endif
