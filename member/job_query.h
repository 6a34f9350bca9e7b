/* member/job_query.h - what a worker that joins a running job has to know of it, asked of ps 0.
 * Owns:    what net_status owns (net_status_free). Threads: blocks its own.
 * Errors:  ST_CANCELLED (pause said so), ST_NOT_FOUND, ST_PROTOCOL, ST_NOMEM; logged. */
#ifndef MEMBER_JOB_QUERY_H
#define MEMBER_JOB_QUERY_H
#include "net/wire/status.h"

struct job_query_request {
    const char *addr; /* of ps 0 */
    /* Sleeps for ms; 1: do not go on. */
    int (*pause)(void *ctx, int ms);
    void *ctx;
};

/* Waits, without end and with a line every few seconds, until there is a job. */
enum status job_query_ask(const struct job_query_request *r, struct net_status *out);

#endif
