/* ps/service.h - what the server answers: who may join, which store a piece goes to, where answers
 * go back, when the job is done. The first member that joins a fresh server sets the job.
 * Owns:    the job's store, its members, one thread that names who is waited for.
 * Threads: the handler's functions from any; create and destroy from one, destroy after the last
 *          handler returned.
 * Errors:  ST_NOMEM. */
#ifndef PS_SERVICE_H
#define PS_SERVICE_H
#include "base/hosts.h"
#include "net/server.h"

struct ps_service_config {
    int self;                         /* this server's number */
    int n_servers;                    /* all servers of the job */
    const struct hosts *worker_hosts; /* borrowed for ever; n = 0: whoever comes */
    int64_t max_model_bytes;          /* of parameters held here */
    int serve;                        /* a job that is done may be followed by another */
    int shared_memory;                /* with workers on this host */
    int64_t straggler_ms;             /* a step that waited longer gets a line; 0: none */
    int64_t wait_line_ms;             /* how often those waited for are named; 0: 5000 */
    int waits_for_resume;             /* nobody may join before ps_service_resume */
    void (*started)(void *ctx);       /* the first job has begun; NULL is fine */
    /* As of net_server_handler; NULL is fine. */
    void (*control)(void *ctx, struct net_server *server, const struct net_control *request,
                    uint64_t call);
    void (*done)(void *ctx); /* all members have left, done; called once a job */
    void *ctx;
};

struct ps_service_stats {
    int64_t steps;                       /* lowest version of all chunks; -1: never started */
    uint64_t received_bytes, sent_bytes; /* payload */
    double seconds;                      /* from the first join to the last leave, or to now */
};

struct run;           /* ps/run.h */
struct ps_restore;    /* ps/restore.h */
struct ps_late_total; /* ps/stragglers.h */
struct ps_service;
enum status ps_service_create(const struct ps_service_config *cfg, struct ps_service **out);
void ps_service_destroy(struct ps_service *s); /* NULL is fine */
/* For net_server_config; valid until destroy. */
struct net_server_handler ps_service_handler(struct ps_service *s);
/* What the first job goes on from, given to the service; NULL: from its first step. */
void ps_service_resume(struct ps_service *s, struct ps_restore *take, uint64_t generation);
/* The present job with a reference for the caller; NULL: there is none yet. */
struct run *ps_service_run(struct ps_service *s, int *ended);
void ps_service_stats(struct ps_service *s, struct ps_service_stats *out);
/* How long each worker of the last job was waited for: *n of them (0: no job), for the caller to
 * free. ST_NOMEM. */
enum status ps_service_late(struct ps_service *s, struct ps_late_total **out, int *n);

#endif
