/* tests/sim/server.h - a server: the production service, store, follower and coordinator, fed by
 * the simulated network and disk. server.c: the process; serve.c: what production code calls of
 * net/rpc and net/exchange; lead.c and follow.c: the shells around the two state machines.
 * Owns: a life's service, snapshot. Threads: one. Errors: sim_fail. */
#ifndef TESTS_SIM_SERVER_H
#define TESTS_SIM_SERVER_H
#include "ps/coordinator/coordinator_view.h"
#include "ps/coordinator/follower.h"
#include "ps/service/service.h"
#include "tests/sim/folder.h"
#include "tests/sim/job.h"
#include "tests/sim/net.h"

enum { KEPT_PLANS = 8, LEAD_SERVERS = 12, LEAD_WORKERS = 16 };
enum {
    TIMER_LEAD = 1,
    TIMER_MAIL,
    TIMER_FOLLOW,
    TIMER_NEWS,
    TIMER_APPLY,
    TIMER_EXIT,
    TIMER_OWN_REPLY,
    TIMER_FINISH,
    TIMER_SQUARES
};
#define OWN_CALLS ((uint64_t)1 << 62)

struct sim_mail {
    struct sim_mail *next;
    enum coordinator_event_kind kind;
    uint64_t call;
    const struct net_control *control;
    enum coordinator_command_kind what;
    int index;
    uint32_t op;
    enum status st;
    int64_t step;
    uint64_t epoch;
};

struct lead { /* ps 0's */
    uint64_t incarnation;
    uint64_t lease_epoch; /* newest that this ps 0 has recorded in the folder */
    struct coordinator_state *state;
    struct sim_mail *mail, **mail_end;
    int mail_posted, changed, has_job, finished;
    struct net_plan *kept[KEPT_PLANS], *plan, *first;
    uint32_t life[KEPT_PLANS][SIM_SERVERS]; /* of the servers as a kept plan was made */
    /* Servers that an operator took out: their life then, 0: none; when; and that they were silent,
     * or slow to hand on their chunks, so that nobody waits for them, now, as the newest checkpoint
     * was looked for. */
    uint32_t drained[SIM_SERVERS], silent[SIM_SERVERS], slow[SIM_SERVERS], given_up[SIM_SERVERS];
    int64_t planned_ns;  /* when the plan in force was made */
    uint64_t works_lost; /* generation whose work was given up for such a server; 0 */
    __typeof__(((struct coordinator_event *)0)->job) job;
    const struct sim_manifest *restore, *found;
    int64_t wake_ns, finish_ns;
};

struct server {
    int node, dying, done, ending, joining;
    int term; /* SIGTERM has come */
    struct service *service;
    struct net_server_handler handler;
    struct folder *folder; /* NULL: it keeps no checkpoints */
    struct lead *lead;     /* ps 0's; NULL */
    uint64_t last_generation;

    struct follower follower;
    struct sim_call *call;                 /* its call to ps 0; NULL */
    uint64_t own_call, n_own;              /* ps 0's to itself; 0: none */
    const struct net_control_reply *reply; /* while it is handled, and of own_call */
    int calls, ends, changed, wants, leaves, news_posted, look_posted;
    int writing; /* a file, until its disk is done */
    int64_t follow_wake, finish_ns;
    const struct net_plan *apply; /* that is to begin; NULL */
    uint64_t unreadable;          /* generation whose checkpoint was damaged here; 0: none */

    struct snapshot *snapshot;
    struct run *snapshot_run;
    struct net_control part; /* of the snapshot's order: order, phase, bytes, crc32c */
    int64_t part_step;
    int captured;
};

extern const struct sim_ops sim_server_ops;
struct server *sim_server(int node); /* NULL: it is not there */
int sim_running(void);               /* the node whose event it is */
void server_exit(struct server *s, int status);
void server_finish(struct server *s); /* the job is done, or ps 0 has said so */

/* squares.c: clipping by the norm */
void squares_reset(void);
void squares_request(struct server *s, struct sim_call *c);
void squares_reply(int node, struct sim_call *c);
void squares_timer(int node, int64_t number);
/* lead.c */
void lead_start(struct server *s);
void lead_stop(struct server *s);
void lead_timer(struct server *s, int what, int64_t number);
void lead_changed(struct server *s);
void lead_control(struct server *s, const struct net_control *c, uint64_t call);
void lead_closed(struct server *s, uint64_t call);
void lead_command(struct server *s, enum coordinator_command_kind what, int index);
void lead_disk(struct server *s, struct disk_order *o);
enum status lead_first_join(void *ctx, const struct net_join *join, char *why, size_t why_bytes);
/* follow.c */
void follow_start(struct server *s);
void follow_stop(struct server *s);
void follow_timer(struct server *s, int what, int64_t number);
void follow_news(struct server *s, int changed);
void follow_reply(struct server *s, struct sim_call *c);
void follow_own_reply(struct server *s, uint64_t call, const struct net_control_reply *r);
void follow_term(struct server *s);
void follow_disk(struct server *s, struct disk_order *o);

#endif
