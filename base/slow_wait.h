/* base/slow_wait.h - names the folder that a program reads at its start, where a call may hang, as
 * one of a network folder does: a line after 3 s, and every 30 s from then on.
 *
 * Owns:    one thread, from begin to end.
 * Threads: begin and end from one.
 * Errors:  if no thread can be started, no line is logged. */
#ifndef BASE_SLOW_WAIT_H
#define BASE_SLOW_WAIT_H

struct slow_wait;
/* Starts the thread. It borrows `folder` until slow_wait_end(), and calls ready(ctx) once if fd
 * (-1: none) becomes readable before that, such as a descriptor of signals. */
struct slow_wait *slow_wait_begin(const char *folder, int fd, void (*ready)(void *ctx), void *ctx);
void slow_wait_end(struct slow_wait *w); /* NULL is fine */

#endif
