/* ps/coordinator/follower_shell.h - carries out the decisions of a server's follower
 * (follower.h): keeps a control call open at ps 0, begins plans (plan_applier.h), stops the
 * store, passes orders for checkpoints to the writer. At ps 0 the call goes to the coordinator
 * in the same process.
 * Owns:    one thread, and that of its plan applier.
 * Threads: any; finish and destroy from one. These never block: _wake, _want, _leave.
 * Errors:  ST_NOMEM; a refusal of ps 0 is logged, then `refused` is called. */
#ifndef PS_COORDINATOR_FOLLOWER_SHELL_H
#define PS_COORDINATOR_FOLLOWER_SHELL_H
#include "ps/checkpoint/own_folder.h"
#include "ps/service/checkpoint_writer.h"

struct net_control;
struct net_control_reply;

struct follower_shell_config {
    struct service *service;
    struct checkpoint_writer *writer; /* NULL: no checkpoints */
    const char *addr, *address;       /* addresses of ps 0 and of this server; borrowed for ever */
    const char *folder;               /* folder of checkpoints; NULL: none */
    const char *folder_id;            /* id of the folder; empty: it has no id */
    struct own_folder *own_folder;    /* manages the folder; NULL: no folder, or ps 0 manages it */
    const char *restore_folder;       /* folder of --restore's checkpoint */
    int self, n_servers;              /* not used if joining */
    int joining;                      /* the server joins after the job began */
    int64_t done_ms;                  /* see follower_start */
    /* Make and cancel a control call, like peer_client_control and peer_client_cancel. */
    enum status (*call)(void *peer, const struct net_control *request, int64_t deadline_ms,
                        struct net_control_reply *reply, char *why);
    void (*cancel)(void *peer);
    void *peer;
    void (*refused)(void *ctx); /* this process cannot belong to the job */
    void (*drained)(void *ctx); /* this server has no work left */
    void (*failed)(void *ctx);  /* this server has no work left, since the job failed; logged */
    void *ctx;
};

struct follower_shell;
enum status follower_shell_create(const struct follower_shell_config *cfg,
                                  struct follower_shell **out);
enum status follower_shell_start(struct follower_shell *f);
void follower_shell_stop(
    struct follower_shell *f); /* ends all use of the writer; NULL is allowed */
void follower_shell_destroy(struct follower_shell *f);
void follower_shell_wake(
    struct follower_shell *f); /* called when workers, the writer or the store have changed */
void follower_shell_want(struct follower_shell *f); /* requests a checkpoint */
/* hands this server's chunks to other servers */
void follower_shell_leave(struct follower_shell *f);
/* Waits for the last checkpoint: until ps 0 reports that it was made or given up, or ps 0 is
 * gone. */
void follower_shell_finish(struct follower_shell *f);

#endif
