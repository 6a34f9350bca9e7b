/* libweir/warnings.h - prints the library's warnings on stderr, for a program that has not called
 * weir_log.
 * Owns:    the times of the texts printed last.
 * Threads: any, one at a time: the caller holds a lock.
 * Errors:  none; where stderr cannot be written at once, or has no reader, the line is lost. */
#ifndef LIBWEIR_WARNINGS_H
#define LIBWEIR_WARNINGS_H

/* After a printed line, warnings of the same text but for its figures are left out for 30 s, then
 * for twice as long each time, until none comes for 20 s. Other texts are printed. Never waits for
 * a reader and raises no SIGPIPE. */
void warnings_print(const char *text);

#endif
