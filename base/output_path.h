/* base/output_path.h - files that a program writes at its end: that they can be is found before.
 * Owns: nothing. Threads: any. */
#ifndef BASE_OUTPUT_PATH_H
#define BASE_OUTPUT_PATH_H
#include "base/status.h"

/* ST_INVALID, logged with the flag's name, if no file can be made at `path`: its folder does not
 * exist or may not be written, or it is a folder itself. path NULL: ST_OK. */
enum status output_path_check(const char *flag, const char *path);

#endif
