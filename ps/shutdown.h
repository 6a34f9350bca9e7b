/* ps/shutdown.h - the events that end the server: a signal, the end of the job, or a request of
 * another thread.
 * Owns:    nothing; main owns app's two descriptors.
 * Threads: ps_shutdown_on_*: any; the other functions: main's.
 * Errors:  a wait that fails counts as SIGTERM. */
#ifndef PS_SHUTDOWN_H
#define PS_SHUTDOWN_H
#include "ps/app.h"
#include <stdbool.h>

/* Makes the main thread receive signals by a descriptor; all other threads inherit the mask.
 * Returns the descriptor, or < 0 with errno set. */
int ps_shutdown_open_signals(void);
bool ps_shutdown_signal_pending(void *app, int ms); /* true: a signal is pending */
int ps_shutdown_take_signal(struct app *app);       /* returns the signal's number */
/* Requests from other parts of the server, which pass the app as ctx. */
void ps_shutdown_on_refused(void *ctx);
void ps_shutdown_on_done(void *ctx);
void ps_shutdown_on_replaced(void *ctx);
void ps_shutdown_on_unsure(void *ctx);
void ps_shutdown_on_over(void *ctx);
void ps_shutdown_on_failed(void *ctx);
void ps_shutdown_on_parent_lost(void *ctx, int complete, const char *why);
/* Returns the received signal, or 0 when the job is done (unless --serve keeps the server
 * running). */
int ps_shutdown_wait(struct app *app);
/* Writes the last checkpoint. From here on a second signal ends the process at once. */
void ps_shutdown_finish_node(struct app *app);

#endif
