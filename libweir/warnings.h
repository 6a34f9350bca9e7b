/* libweir/warnings.h - prints the library's warnings on stderr, for a program that has not called
 * weir_log.
 * Owns:    the times of the texts printed last.
 * Threads: any, one at a time: the caller holds a lock.
 * Errors:  none; if stderr does not accept the line at once, or has no reader, the line is lost. */
#ifndef LIBWEIR_WARNINGS_H
#define LIBWEIR_WARNINGS_H

/* Prints the text, unless it printed the same text, apart from figures, in the last 30 s. That
 * pause doubles with each line, and ends when the text was not logged for 20 s. Never waits for a
 * reader, and raises no SIGPIPE. */
void warnings_print(const char *text);

#endif
