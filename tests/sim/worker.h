/* tests/sim/worker.h - a worker: the client's side of an exchange as net/exchange does it, and a
 * trainer that takes time instead of computing. exchange.c: joins, links, requests; worker.c: the
 * trainer and the process.
 * Owns: nothing beyond the run. Threads: one. Errors: a worker ends with a status. */
#ifndef TESTS_SIM_WORKER_H
#define TESTS_SIM_WORKER_H
#include "tests/sim/job.h"
#include "tests/sim/net.h"

enum link_state { LINK_HELD, LINK_DOWN, LINK_JOINING, LINK_STREAMING };
struct link {
    int node; /* of the server */
    enum link_state state;
    struct sim_call *call;
    struct net_stream *stream;
    int joined, fetched, lost, in_job;
    int idle; /* no chunk is there: nothing waits for it */
    int64_t backoff_ms, down_ns, line_ns, timer;
    struct net_frame_head head;
    char said[128]; /* last, why it has to wait */
};

struct worker_chunk {
    enum piece_kind kind; /* that is under way; NONE */
    int64_t step;
    uint64_t identity, position; /* position: of a contribution's first sample */
    int sent, over;
    int64_t version; /* held; -1 */
    float value[SIM_ELEMS], gradient[SIM_ELEMS];
    const float *data; /* of a region's contribution, and */
    float weight;      /* its weight; 0: no data */
};

enum phase {
    PHASE_JOIN,
    PHASE_FETCH,
    PHASE_BACK,
    PHASE_COMPUTE,
    PHASE_EXCHANGE,
    PHASE_LAST,
    PHASE_EVALUATE,
    PHASE_LEAVE,
    PHASE_END
};

struct net_exchange;
struct worker {
    int node;
    struct net_exchange *x; /* that a region drives (parent.c); NULL: the trainer does */
    uint64_t incarnation;
    enum phase phase;
    int64_t step, timer;
    struct link link[SIM_SERVERS];     /* by node */
    int link_of[SIM_SERVERS], n_links; /* of the generation: number -> node */
    int server[SIM_CHUNKS];            /* shard map: number */
    struct worker_chunk chunk[SIM_CHUNKS];
    uint64_t generation, ps0, heard, heard_ps0; /* ps0: that made the generation's plan */
    struct net_place place;
    int member, starting, ending, rebased, has_map, has_first, soon, n_leaves, leaving, failed;
    uint64_t samples; /* 1 + where its next step begins, as a server gave it out */
    int64_t reached;
    int64_t steps_done; /* that this life finished */
};

extern const struct sim_ops sim_worker_ops;
struct worker *sim_worker(int node); /* NULL: it is not there */

/* exchange.c */
void exchange_begin_start(struct worker *w);
int exchange_all_joined(struct worker *w);
int exchange_quiet(const struct worker *w, int64_t step); /* no request under way, all so far */
int exchange_is_over(const struct worker *w);             /* start is to be called again */
int exchange_is_out(const struct worker *w);
int64_t exchange_lowest(const struct worker *w);
void exchange_request(struct worker *w, int chunk, enum piece_kind kind, int64_t step);
void exchange_leave(struct worker *w, int done);
void exchange_leave_soon(struct worker *w);
void exchange_give_up(struct worker *w); /* all that is open, without a word */
void exchange_reply(struct worker *w, struct sim_call *c);
void exchange_message(struct worker *w, struct net_stream *s, struct sim_msg *m);
void exchange_closed(struct worker *w, struct net_stream *s);
void exchange_timer(struct worker *w, int link, int64_t number);
void exchange_ask_again(struct worker *w);
/* worker.c */
void worker_init(struct worker *w, int node);
void worker_fail(struct worker *w, int status, const char *why);
void worker_quit(int node); /* for good, with an error; servers are told */

enum { TIMER_TRAINER = 100 }; /* below: of a link */

#endif
