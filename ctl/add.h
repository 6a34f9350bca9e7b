/* ctl/add.h - the command line with which a program joins a running job.
 * Owns:    nothing.
 * Threads: one.
 * Errors:  none: what the status of the job lacks is logged, with the flag that the user must add.
 */
#ifndef CTL_ADD_H
#define CTL_ADD_H
#include "net/wire/status.h"
#include <stdio.h>

/* Writes the command line with which a server at `addr` joins, or, with addr NULL, a worker. Logs
 * which flags and credentials it needs in addition. */
void ctl_add_write(FILE *f, const struct net_status *s, const char *addr);

#endif
