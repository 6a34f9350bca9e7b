/* member/job_query.h - requests from ps 0 the status of a running job that a worker is to join.
 * Owns:    the reply, until net_status_free. Threads: any; a call blocks its thread.
 * Errors:  ST_CANCELLED (by pause), ST_NOT_FOUND, ST_PROTOCOL, ST_NOMEM; logged. */
#ifndef MEMBER_JOB_QUERY_H
#define MEMBER_JOB_QUERY_H
#include "net/wire/status.h"

struct job_query_request {
    const char *addr; /* address of ps 0 */
    /* Sleeps for ms. Returns 1 to cancel. */
    int (*pause)(void *ctx, int ms);
    void *ctx;
};

/* Waits, without a timeout, until ps 0 has a job that can be joined. Logs a line every few
 * seconds. */
enum status job_query_ask(const struct job_query_request *r, struct net_status *out);

#endif
