/* ps/coordinator/follower_shell.h - carries out what a server's follower decides (follower.h):
 * keeps a control call at ps 0, begins plans (plan_applier.h), stops the store, hands orders for
 * checkpoints to the writer. At ps 0 the call goes to the coordinator beside it.
 * Owns:    one thread, that of its plan applier.
 * Threads: any; finish and destroy from one. wake, request and leave never block.
 * Errors:  ST_NOMEM; what ps 0 refuses is logged, then `refused`. */
#ifndef PS_COORDINATOR_FOLLOWER_SHELL_H
#define PS_COORDINATOR_FOLLOWER_SHELL_H
#include "ps/checkpoint/own_folder.h"
#include "ps/service/checkpoint_writer.h"

struct net_control;
struct net_control_reply;

struct follower_shell_config {
    struct service *service;
    struct checkpoint_writer *writer; /* NULL: no checkpoints */
    const char *addr, *address;       /* of ps 0; of this server; borrowed for ever, as all here */
    const char *folder;               /* of checkpoints; NULL: there are none */
    const char *folder_id;            /* empty: it has none */
    struct own_folder *own_folder;    /* of the folder; NULL: there is none, or it is ps 0's */
    const char *restore_folder;       /* of the one that --restore means */
    int self, n_servers;              /* joining: not used */
    int joining;                      /* the server was not there when the job began */
    int64_t done_ms;                  /* as follower_shell_start's */
    /* As peer_client_control and peer_client_cancel, with `peer`. */
    enum status (*call)(void *peer, const struct net_control *request, int64_t deadline_ms,
                        struct net_control_reply *reply, char *why);
    void (*cancel)(void *peer);
    void *peer;
    void (*refused)(void *ctx); /* this process cannot belong to the job */
    void (*drained)(void *ctx); /* nothing is left to do here */
    void (*failed)(void *ctx);  /* likewise, since the job has failed; logged */
    void *ctx;
};

struct follower_shell;
enum status follower_shell_create(const struct follower_shell_config *cfg,
                                  struct follower_shell **out);
enum status follower_shell_start(struct follower_shell *f);
void follower_shell_stop(
    struct follower_shell *f); /* the writer is not used any more; NULL is fine */
void follower_shell_destroy(struct follower_shell *f);
void follower_shell_wake(
    struct follower_shell *f); /* workers, the writer or the store have changed */
void follower_shell_want(struct follower_shell *f);  /* a checkpoint now */
void follower_shell_leave(struct follower_shell *f); /* its chunks are to go to the others */
/* Waits for a last checkpoint: until ps 0 says that it was made or given up, or is gone. */
void follower_shell_finish(struct follower_shell *f);

#endif
