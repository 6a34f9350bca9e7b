/* ps/node.h - creates and connects the parts of a server that work with the other servers: the
 * coordinator (ps 0) or the follower (every server), and checkpoints if a folder is configured.
 * Owns:    these parts.
 * Threads: control, first_join and changed from any; the other functions from one.
 * Errors:  ST_NOMEM, ST_INVALID, ST_IO, ST_CORRUPT, ST_NOT_FOUND, ST_REFUSED; logged. */
#ifndef PS_NODE_H
#define PS_NODE_H
#include "net/rpc/server.h"
#include "ps/coordinator/coordinator_shell.h"
#include <stdbool.h>

struct node_config {
    const char *folder;  /* folder of --checkpoint_dir, created if missing; NULL: no checkpoints */
    const char *restore; /* value of --restore; NULL: the newest checkpoint in the folder, if any */
    bool take_over;      /* claim the folder although its owner is alive; false: that is an error */
    int self;            /* 0: ps 0 */
    int joining;         /* the server is not in the list of servers yet */
    const char *address; /* address of this server; borrowed for ever */
    /* servers of --ps_hosts, borrowed for ever; joining: at least ps 0 */
    const struct hosts *ps_hosts;
    int64_t save_steps, save_ms; /* intervals of checkpoints, in steps and in time; 0: none */
    int keep;
    int64_t max_model_bytes, worker_timeout_ms;
    int min_workers, serves;     /* see coordinator_start */
    void (*refused)(void *ctx);  /* this process cannot belong to the job; logged */
    void (*replaced)(void *ctx); /* another ps 0 has taken over; logged */
    void (*unsure)(void *ctx);   /* another ps 0 may have taken over; logged; a restart may help */
    void (*over)(void *ctx);     /* this server has no work left; logged */
    void (*failed)(void *ctx);   /* this server has no work left, since the job failed; logged */
    const struct coordinator_region_hooks *region; /* see coordinator_shell_config */
    void *ctx;
};

struct node;
/* Finds the checkpoint to resume from, before the server accepts calls. */
enum status node_create(const struct node_config *cfg, struct node **out);
/* Creates the objects that the handlers of calls use; borrows the service until destroy. */
enum status node_start(struct node *s, struct service *service);
/* Starts the work with the other servers, once the server listens: a process without the address
 * must not act as the server. */
enum status node_serve(struct node *s);
void node_control(struct node *s, struct net_server *server, const struct net_control *request,
                  uint64_t call);
void node_control_closed(struct node *s, uint64_t call);
/* Begins a first worker's job, like coordinator_plans_first_join. Servers other than ps 0 return
 * ST_OK, since only a plan begins a job there. */
enum status node_first_join(struct node *s, const struct net_join *join, char *why,
                            size_t why_bytes);
void node_changed(struct node *s); /* called when workers have changed, or a generation has begun */
void node_request(struct node *s); /* requests a checkpoint */
void node_leave(struct node *s); /* hands on this server's chunks, then calls `over`; not at ps 0 */
/* Writes the last checkpoint and informs the other servers. Returns false if ps 0 could not make
 * that checkpoint, as a log line explains. */
bool node_finish(struct node *s);
struct coordinator_shell *node_coordinator(struct node *s); /* NULL: not ps 0 */
/* Destroys the node, after the server was stopped and before the server and the service are
 * destroyed. NULL is allowed. */
void node_destroy(struct node *s);
/* Records that no signal ended the process, so that the next process need not check whether the job
 * is over. It is the last call. It is not made after a signal: then the process may be restarted,
 * and the other servers may have ended the job by then. */
void node_ended(const char *folder, const char *address);

#endif
