/* ps/shutdown.h - what ends the server: a signal, the job's end, or what another thread says.
 * Owns:    nothing; app's two descriptors are main's.
 * Threads: ps_on_*: any; the others: main's.
 * Errors:  a wait that fails counts as SIGTERM. */
#ifndef PS_SHUTDOWN_H
#define PS_SHUTDOWN_H
#include "ps/app.h"

/* Signals are taken by descriptor in the main thread; all other threads inherit the mask. Returns
 * the descriptor; < 0: none was to be had, errno says why. */
int ps_open_signals(void);
int ps_signal_waits(void *app, int ms); /* 1: a signal came, and is still to be taken */
int ps_signal_taken(struct app *app);   /* its number */
/* Callbacks of the parts, with the app. */
void ps_on_refused(void *ctx);
void ps_on_done(void *ctx);
void ps_on_replaced(void *ctx);
void ps_on_unsure(void *ctx);
void ps_on_over(void *ctx);
void ps_on_failed(void *ctx);
void ps_on_parent_lost(void *ctx, int complete, const char *why);
/* Returns the signal that came, or 0 when the job is done (and --serve does not keep us). */
int ps_wait_for_end(struct app *app);
/* The last checkpoint. From here on a second signal ends the process at once. */
void ps_finish_node(struct app *app);

#endif
