/* tests/sim/server.h - a server: ps/node.h as in production, with its coordinator, follower,
 * checkpoint writer and files, on the simulated network, disk (disk.h) and threads (fiber.h).
 *   server.c   the process: the work of ps/main.c around the node
 *   peer.c     net/exchange/peer_client.h, by which servers call ps 0
 *   serve.c    the functions of net/rpc and net/exchange/fetch_client.h that servers call
 *   squares.c  ps/service/square_sender.h
 *   updates.c  the threads that make updates
 *   watch.c    checks of ps 0's plans, and of checkpoints
 * Owns:    the node and service of each life.
 * Threads: fibers of one thread.
 * Errors:  sim_fail. */
#ifndef TESTS_SIM_SERVER_H
#define TESTS_SIM_SERVER_H
#include "checkpoint/names.h"
#include "ps/node.h"
#include "ps/service/service.h"
#include "tests/sim/job.h"
#include "tests/sim/net.h"

enum { TIMER_KILL, TIMER_EXIT = 1, TIMER_SQUARES, TIMER_TERM };

struct watch;
struct server {
    int node;
    bool is_dying, has_term; /* has_term: the process has received SIGTERM */
    /* duration of the pauses since SIGTERM, which extend the time to end; -1: no SIGTERM yet */
    int64_t paused_ns;
    bool job_done, over, failed, refused, unsure; /* flags of struct app (ps/app.h) */
    struct node *self; /* node of the process; NULL: it has not started yet, or has ended */
    struct service *service;
    struct net_server_handler handler;
    struct watch *watch; /* checks of ps 0's decisions; NULL: this is not ps 0 */
    uint64_t last_generation;
    struct checkpoint_id writes; /* checkpoint that the server is writing; generation 0: none */
};

extern const struct sim_ops sim_server_ops;
struct server *sim_server(int node); /* state of the server; NULL: it does not run */
int sim_running(void);               /* node whose event is handled */
/* Sends a command of an operator to ps 0. */
void server_command(enum coordinator_command_kind what, int index);
/* Returns the state of ps 0's coordinator; NULL: it does not run. */
struct coordinator_state *server_coordinator(void);
/* Returns the server that ps 0 waits for before the first job; -1: none. */
int server_awaited(void);
/* Checks the versions of a server, one of which has just been made. */
void server_made(int node);
/* Returns true while a server that received SIGTERM has not ended. */
bool server_is_ending(void);

/* squares.c: clipping by the norm */

void squares_reset(void);
void squares_request(struct server *s, struct sim_call *c);
void squares_reply(int node, struct sim_call *c);
void squares_timer(int node, int64_t number);

/* updates.c */

/* Returns the threads of a server, and the memory in which contributions stay. */
struct thread_pool *server_threads(void);
struct segment *server_memory(void);

/* peer.c */

/* Wakes the fiber, of whatever process, that waits for the call. */
void peer_reply(struct sim_call *c);
/* Passes a control call to the server. */
void peer_control(struct server *s, struct sim_call *c);

/* watch.c */

struct watch *watch_create(void);
/* Notes that ps 0 has admitted the worker of that node. */
void watch_joined(struct watch *w, int node);

#endif
