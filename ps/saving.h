/* ps/saving.h - a server's place among the others, put together: who coordinates (lead.h for ps 0,
 * follow.h for the others), and checkpoints, where a folder for them is given.
 * Owns:    all of them.
 * Threads: control, first_join and changed from any; the rest from one.
 * Errors:  ST_NOMEM, ST_INVALID, ST_IO, ST_CORRUPT, ST_NOT_FOUND; logged. */
#ifndef PS_SAVING_H
#define PS_SAVING_H
#include "ps/lead.h"

struct saving_config {
    const char *folder;  /* --checkpoint_dir; made if it is not there; NULL: no checkpoints */
    const char *restore; /* --restore; NULL: the newest in the folder, if there is one */
    int self;            /* 0: ps 0 */
    int joining;         /* the server is in no list yet */
    const char *address; /* of this server; borrowed for ever */
    const struct hosts *ps_hosts; /* likewise; joining: ps 0 at least */
    int64_t save_steps, save_ms;  /* 0: not by steps, not by time */
    int keep;
    int64_t max_model_bytes, worker_timeout_ms;
    int min_workers;            /* as in lead.h */
    void (*refused)(void *ctx); /* this process cannot belong to the job; logged */
    void (*over)(void *ctx);    /* there is nothing more to do here; likewise */
    void *ctx;
};

struct saving;
/* Looks for what to go on from, before anybody is served. */
enum status saving_create(const struct saving_config *cfg, struct saving **out);
/* Begins, before the server that the service is behind; both are borrowed until destroy. */
enum status saving_start(struct saving *s, struct ps_service *service);
void saving_control(struct saving *s, struct net_server *server, const struct net_control *request,
                    uint64_t call);
void saving_control_closed(struct saving *s, uint64_t call);
/* As lead_first_join; at other servers than ps 0 nothing but a plan begins a job: ST_OK. */
enum status saving_first_join(struct saving *s, const struct net_join *join, char *why,
                              size_t why_bytes);
void saving_changed(struct saving *s); /* people have, or a run has begun */
void saving_request(struct saving *s); /* a checkpoint now */
void saving_leave(
    struct saving *s); /* hands this server's chunks on; not at ps 0. `over` follows */
void saving_finish(struct saving *s);       /* the last checkpoint, and word to the others */
struct lead *saving_lead(struct saving *s); /* NULL: this is not ps 0 */
/* After the server was stopped, before it and the service are destroyed. NULL is fine. */
void saving_destroy(struct saving *s);
/* The last of all, where the process was not killed: its next life need not ask if the job is over.
 */
void saving_ended(const char *folder, const char *address);

#endif
