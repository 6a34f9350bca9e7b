/* base/signals.h - signals that a failed write raises: errors of a file, not a program's end.
 * Threads: main, before others start. */
#ifndef BASE_SIGNALS_H
#define BASE_SIGNALS_H

/* A write beyond the limit on a file's size then fails with EFBIG; else SIGXFSZ ends the process.
 * Each program calls it first. */
void signals_ignore_file_limit(void);

#endif
