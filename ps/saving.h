/* ps/saving.h - a server's checkpoints, put together: what the flags say, what to go on from, and
 * the parts that fit this server's number (lead.h for ps 0, follow.h for the others).
 * Owns:    all of them.
 * Threads: control and started from any; the rest from one.
 * Errors:  ST_NOMEM, ST_IO, ST_CORRUPT, ST_NOT_FOUND; logged. */
#ifndef PS_SAVING_H
#define PS_SAVING_H
#include "ps/lead.h"

struct saving_config {
    const char *folder;  /* --checkpoint_dir; made if it is not there */
    const char *restore; /* --restore; NULL: the newest in the folder, if there is one */
    int self;
    const struct hosts *ps_hosts; /* borrowed for ever */
    int64_t save_steps, save_ms;  /* 0: not by steps, not by time */
    int keep;
    void (*refused)(void *ctx); /* this process cannot belong to the job; logged */
    void *ctx;
};

struct saving;
/* Looks for what to go on from, before anybody is served. */
enum status saving_create(const struct saving_config *cfg, struct saving **out);
/* Begins, before the server that the service is behind; both are borrowed until destroy. */
enum status saving_start(struct saving *s, struct ps_service *service);
void saving_control(struct saving *s, struct net_server *server, const struct net_control *request,
                    uint64_t call);
void saving_started(struct saving *s); /* a run has begun */
void saving_request(struct saving *s); /* a checkpoint now */
void saving_finish(struct saving *s);  /* the last one, waited for */
/* After the server was stopped, before it and the service are destroyed. NULL is fine. */
void saving_destroy(struct saving *s);

#endif
