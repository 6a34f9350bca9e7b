/* worker/joining.h - what a worker that joins a running job has to know of it, asked of ps 0.
 * Owns:    what net_status owns (net_status_free). Threads: blocks its own.
 * Errors:  ST_CANCELLED (pause said so), ST_NOT_FOUND, ST_PROTOCOL, ST_NOMEM; logged. */
#ifndef WORKER_JOINING_H
#define WORKER_JOINING_H
#include "net/status.h"

struct joining_request {
    const char *addr; /* of ps 0 */
    /* Sleeps for ms; 1: do not go on. */
    int (*pause)(void *ctx, int ms);
    void *ctx;
};

/* Waits, without end and with a line every few seconds, until there is a job. */
enum status joining_ask(const struct joining_request *r, struct net_status *out);

#endif
