/* base/slow_wait.h - logs the name of the folder that a program reads at its start, because a call
 * may hang there, for example on a network folder: one line after 3 s, and one every 30 s from then
 * on.
 *
 * Owns:    one thread, from begin to end.
 * Threads: one thread calls begin and end.
 * Errors:  if no thread can be started, no line is logged. */
#ifndef BASE_SLOW_WAIT_H
#define BASE_SLOW_WAIT_H

struct slow_wait;
/* Starts the thread, which borrows `folder` until slow_wait_end(). If `fd` (-1: none), for example
 * a descriptor of signals, becomes readable before slow_wait_end(), the thread calls ready(ctx)
 * once. */
struct slow_wait *slow_wait_begin(const char *folder, int fd, void (*ready)(void *ctx), void *ctx);
void slow_wait_end(struct slow_wait *w); /* NULL is fine */

#endif
