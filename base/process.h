/* base/process.h - settings for a whole process, which Weir's programs make at their start. libweir
 * runs in the process of another program and makes none of them (see weir.h).
 * Threads: the main thread calls process_set_up before other threads start; any thread may call the
 *          other functions. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H
#include <stdbool.h>
#include <stdint.h>

/* Sets up the process of one of Weir's programs. Each program calls it first. From then on a write
 * beyond the limit on a file's size fails with EFBIG, instead of raising SIGXFSZ, and malloc keeps
 * freed memory. */
void process_set_up(void);
/* Returns true if process_set_up() was called; then Weir's code may change settings of the whole
 * process. */
bool process_is_ours(void);
/* Ends the process with `exit_code` if it still runs after `seconds`, and writes a line to stderr
 * which reports that `what` does not answer. A program calls it at its end, when the caller, or a
 * thread that it joins, may hang in the operating system's kernel, as in a read from a network
 * folder, where no signal handler runs. Only the first call sets the time. Starts a thread; if none
 * can be started, SIGALRM ends the process. */
void process_end_within(int seconds, int exit_code, const char *what);
/* Sets the exit code for a process whose result is certain, and which may not be able to end in
 * order. */
void process_set_exit_code(int exit_code);
/* Returns the exit code that process_set_exit_code() or process_end_within() has set; `otherwise`
 * if none was set. */
int process_exit_code(int otherwise);
/* Returns a random number, never 0, that identifies a process from its start on (its
 * incarnation). */
uint64_t process_incarnation(void);

#endif
