/* tests/sim/server.h - a server: ps/node.h as in production, with its coordinator, follower,
 * checkpoint writer and files, on the simulated network, disk (disk.h) and threads (fiber.h).
 *   server.c   the process: what ps/main.c does around the node
 *   peer.c     net/exchange/peer_client.h, by which servers call ps 0
 *   serve.c    what production code calls of net/rpc and of net/exchange/fetch_client.h
 *   squares.c  ps/service/square_sender.h
 *   watch.c    what must hold of ps 0's plans, and of checkpoints
 * Owns:    a life's node and service.
 * Threads: fibers, of one.
 * Errors:  sim_fail. */
#ifndef TESTS_SIM_SERVER_H
#define TESTS_SIM_SERVER_H
#include "ps/node.h"
#include "ps/service/service.h"
#include "tests/sim/job.h"
#include "tests/sim/net.h"

enum { TIMER_KILL, TIMER_EXIT = 1, TIMER_SQUARES, TIMER_TERM };

struct watch;
struct server {
    int node, dying;
    int job_done, over, failed, refused, unsure, term; /* as struct app of ps/shutdown.h */
    struct node *self;                                 /* NULL: not there yet, or not any more */
    struct service *service;
    struct net_server_handler handler;
    struct watch *watch; /* ps 0's; NULL */
    uint64_t last_generation;
};

extern const struct sim_ops sim_server_ops;
struct server *sim_server(int node); /* NULL: it is not there */
int sim_running(void);               /* the node whose event it is */
/* Has ps 0 take a command, as an operator gives it. */
void server_command(enum coordinator_command_kind what, int index);
/* The state of ps 0's coordinator; NULL: there is none. */
struct coordinator_state *server_coordinator(void);
/* The server that ps 0 waits for before the first job; -1: none. */
int server_awaited(void);
/* Returns true while a server that received SIGTERM has not ended. */
int server_is_ending(void);

/* squares.c: clipping by the norm */
void squares_reset(void);
void squares_request(struct server *s, struct sim_call *c);
void squares_reply(int node, struct sim_call *c);
void squares_timer(int node, int64_t number);

/* peer.c; of all processes */
void peer_reply(struct sim_call *c);
/* At the server. */
void peer_control(struct server *s, struct sim_call *c);

/* watch.c */
struct watch *watch_create(void);
/* Ps 0 has let the worker of that node in. */
void watch_joined(struct watch *w, int node);

#endif
