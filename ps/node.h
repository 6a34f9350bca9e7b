/* ps/node.h - a server's place among the others, put together: who coordinates (coordinator.h for
 * ps 0, follower.h for the others), and checkpoints, where a folder for them is given.
 * Owns:    all of them.
 * Threads: control, first_join and changed from any; the rest from one.
 * Errors:  ST_NOMEM, ST_INVALID, ST_IO, ST_CORRUPT, ST_NOT_FOUND, ST_REFUSED; logged. */
#ifndef PS_NODE_H
#define PS_NODE_H
#include "net/rpc/server.h"
#include "ps/coordinator/coordinator_shell.h"
#include <stdbool.h>

struct node_config {
    const char *folder;  /* --checkpoint_dir; made if it is not there; NULL: no checkpoints */
    const char *restore; /* --restore; NULL: the newest in the folder, if there is one */
    bool take_over;      /* claim the folder although its owner is alive; false: that is an error */
    int self;            /* 0: ps 0 */
    int joining;         /* the server is in no list yet */
    const char *address; /* of this server; borrowed for ever */
    const struct hosts *ps_hosts; /* likewise; joining: ps 0 at least */
    int64_t save_steps, save_ms;  /* 0: not by steps, not by time */
    int keep;
    int64_t max_model_bytes, worker_timeout_ms;
    int min_workers, serves;     /* as in coordinator_start */
    void (*refused)(void *ctx);  /* this process cannot belong to the job; logged */
    void (*replaced)(void *ctx); /* another ps 0 has taken over; logged */
    void (*unsure)(void *ctx);   /* likewise, or may have: a restart may help */
    void (*over)(void *ctx);     /* there is nothing more to do here; likewise */
    void (*failed)(void *ctx);   /* likewise, since the job has failed */
    const struct coordinator_region_hooks *region; /* as coordinator_shell_config's */
    void *ctx;
};

struct node;
/* Looks for what to go on from, before anybody is served. */
enum status node_create(const struct node_config *cfg, struct node **out);
/* Makes what the handlers call; the service is borrowed until destroy. */
enum status node_start(struct node *s, struct service *service);
/* Begins to take part, once the server listens: who cannot have the address is nobody's server. */
enum status node_serve(struct node *s);
void node_control(struct node *s, struct net_server *server, const struct net_control *request,
                  uint64_t call);
void node_control_closed(struct node *s, uint64_t call);
/* As coordinator_plans_first_join; at other servers than ps 0 nothing but a plan begins a job:
 * ST_OK. */
enum status node_first_join(struct node *s, const struct net_join *join, char *why,
                            size_t why_bytes);
void node_changed(struct node *s); /* people have, or a run has begun */
void node_request(struct node *s); /* a checkpoint now */
void node_leave(struct node *s);   /* hands this server's chunks on; not at ps 0. `over` follows */
/* The last checkpoint, and word to the others. 0: ps 0 could not have it made, as a line says. */
int node_finish(struct node *s);
struct coordinator_shell *node_coordinator(struct node *s); /* NULL: this is not ps 0 */
/* After the server was stopped, before it and the service are destroyed. NULL is fine. */
void node_destroy(struct node *s);
/* The last call, where no signal ended the process: its next life need not ask whether the job is
 * over. One that a signal ends may be started again, and find that the others have ended the job.
 */
void node_ended(const char *folder, const char *address);

#endif
