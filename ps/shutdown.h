/* ps/shutdown.h - what ends the server: a signal, the job's end, or what another thread says.
 * Owns:    nothing; app's two descriptors are main's.
 * Threads: ps_shutdown_on_*: any; the others: main's.
 * Errors:  a wait that fails counts as SIGTERM. */
#ifndef PS_SHUTDOWN_H
#define PS_SHUTDOWN_H
#include "ps/app.h"

/* Signals are taken by descriptor in the main thread; all other threads inherit the mask. Returns
 * the descriptor; < 0: none was to be had, errno says why. */
int ps_shutdown_open_signals(void);
int ps_shutdown_signal_pending(void *app, int ms); /* 1: a signal came, and is still to be taken */
int ps_shutdown_take_signal(struct app *app);      /* its number */
/* Callbacks of the parts, with the app. */
void ps_shutdown_on_refused(void *ctx);
void ps_shutdown_on_done(void *ctx);
void ps_shutdown_on_replaced(void *ctx);
void ps_shutdown_on_unsure(void *ctx);
void ps_shutdown_on_over(void *ctx);
void ps_shutdown_on_failed(void *ctx);
void ps_shutdown_on_parent_lost(void *ctx, int complete, const char *why);
/* Returns the signal that came, or 0 when the job is done (and --serve does not keep us). */
int ps_shutdown_wait(struct app *app);
/* The last checkpoint. From here on a second signal ends the process at once. */
void ps_shutdown_finish_node(struct app *app);

#endif
