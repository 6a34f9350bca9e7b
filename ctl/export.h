/* ctl/export.h - the command export: writes the newest checkpoint of a folder, or what changed in
 * it since an older one, into one file for programs that only read (checkpoint/table_export.h). It
 * calls no server.
 * Owns:    nothing.
 * Threads: one.
 * Errors:  the exit status, after a log line. */
#ifndef CTL_EXPORT_H
#define CTL_EXPORT_H
#include <stdbool.h>

enum { CTL_EXIT_REBASE = 3 }; /* there is no patch from this base: a full export is needed */

struct ctl_export {
    const char *folder; /* --checkpoint_dir */
    const char *output;
    const char *since; /* STEP, or E.G-STEP; NULL: a full export */
    int row_dtype;     /* enum dtype; below 0: that of each table */
    bool json;
};
int ctl_export_run(const struct ctl_export *e);

#endif
