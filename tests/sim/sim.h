/* tests/sim/sim.h - the world of one run: virtual time, events in a heap (equal times in random
 * order), memory that lasts as long as the run, nodes (processes), the story.
 * A run is one thread; the world is one variable, `sim`.
 * Owns:    all that is made during a run. Threads: one. Errors: sim_fail ends the run. */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H
#include "tests/sim/random.h"
#include "tests/sim/schedule.h"
#include <setjmp.h>
#include <stddef.h>

enum { SIM_TERM_STATUS = 128 + 15 }; /* of a server that SIGTERM has ended */
enum { SIM_SERVERS = 6, SIM_WORKERS = 6, SIM_NODES = SIM_SERVERS + SIM_WORKERS };
#define SIM_MS ((int64_t)1000000)
#define SIM_S (1000 * SIM_MS)

#define SIM_EVENTS(X)                                                                              \
    X(STREAM)    /* p: net_stream, a: direction; its first message is there */                     \
    X(REQUEST)   /* p: sim_call, at the server */                                                  \
    X(REPLY)     /* p: sim_call, at the client */                                                  \
    X(DEADLINE)  /* p: sim_call */                                                                 \
    X(CONN_DOWN) /* p: sim_conn, a: end; it learns that the other is gone */                       \
    X(KEEPALIVE) /* p: sim_conn, a: end, b: number of the cut */                                   \
    X(CLOSED)    /* p: net_stream, at the server that failed it */                                 \
    X(OPERATION) /* p: an operation of a client's call has ended (client.h) */                     \
    X(TIMER)     /* a: what, b: number; of the node */                                             \
    X(RENAME)    /* p: a rename of a process that was killed meanwhile is carried out */           \
    X(DISK)      /* a region's, of the node */                                                     \
    X(FAULT)     /* a: index */                                                                    \
    X(FAULT_END) /* a: index */                                                                    \
    X(START)     /* a: node that is to be started */                                               \
    X(CALM)
enum sim_event_kind {
#define X(name) EV_##name,
    SIM_EVENTS(X)
#undef X
        SIM_N_EVENTS
};

struct sim_event {
    enum sim_event_kind kind;
    int node;      /* whose it is; -1: the world's */
    uint32_t life; /* of that node */
    int a;
    int64_t b;
    void *p;
    struct sim_event *next;
};

struct net_stream;
struct sim_call;
struct sim_msg;
struct sim_ops { /* what a kind of process does */
    void (*start)(int node);
    void (*die)(int node); /* its memory goes, nobody hears of it from here */
    void (*request)(int node, struct sim_call *call);
    void (*reply)(int node, struct sim_call *call);
    void (*message)(int node, struct net_stream *s, struct sim_msg *m);
    void (*closed)(int node, struct net_stream *s);
    void (*timer)(int node, int what, int64_t number);
    void (*disk)(int node);
    void (*term)(int node);
    void (*call_lost)(int node, struct sim_call *call); /* nobody waits for its answer any more */
};

enum sim_state { NODE_ABSENT, NODE_UP, NODE_PAUSED, NODE_DOWN, NODE_ENDED };
struct sim_node {
    const struct sim_ops *ops;
    enum sim_state state;
    uint32_t life;
    uint64_t incarnation;
    int status; /* that it ended with */
    int64_t slow;
    int64_t disk_until;           /* hung or slow so long */
    uint32_t disk_stuck;          /* the life in which it is; 0: it is not */
    int disk_full, gone, damages; /* damages: the next checkpoint that it is to read */
    int begin_fails;              /* so often */
    int is_late;                  /* it is killed in its next manifest's rename */
    uint64_t damaged_generation;  /* of the checkpoint that this server reads damaged; */
    int64_t damaged_step;         /* generation 0: it reads none so */
    int closed;                   /* it is up, and no call or stream reaches it */
    uint32_t quit;                /* the life that has ended for good, with an error */
    struct sim_random random;
    struct sim_event *held, **held_end; /* while it is paused */
    char name[24];
};

struct sim {
    const struct sim_schedule *schedule;
    int64_t now;
    int calm, running; /* running: the node whose event it is; -1: none */
    int64_t n_events, max_events, end_ns;
    uint64_t digest;
    struct sim_random ties, identity, memory;
    struct sim_node node[SIM_NODES];
    int marks[SIM_N_MARKS];
    int story;           /* 1: it is printed */
    uint32_t job_done;   /* life of ps 0 that has said so; 0: none */
    uint32_t job_failed; /* likewise, that all workers have ended with an error */
    const char *check;   /* that failed; NULL: none has */
    char why[400];
    jmp_buf leave; /* a check that fails goes here */
    int64_t cells[SIM_N_EVENTS], fault_hits[SIM_N_FAULTS];
};
extern struct sim sim;

static inline int64_t opt(enum sim_option o)
{
    return sim.schedule->option[o];
}

static inline int sim_is_server(int node)
{
    return node < SIM_SERVERS;
}

/* loop.c */
void sim_loop_reset(void);
void *sim_alloc(size_t bytes); /* zeros, for the run */
struct sim_event *sim_post(int64_t delay, enum sim_event_kind kind, int node);
void sim_repost(struct sim_event *e, int64_t delay);
struct sim_event *sim_next(void); /* NULL: there is none; moves the clock */
void sim_digest(uint64_t what);
void sim_story(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#define STORY(...)                                                                                 \
    do {                                                                                           \
        if (sim.story)                                                                             \
            sim_story(__VA_ARGS__);                                                                \
    } while (0)
void sim_fail(const char *check, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), noreturn));
void sim_mark(enum sim_mark mark); /* faults that wait for it are set */

/* process.c */
void sim_start(int node);
void sim_kill(int node, int power);
void sim_pause(int node, int on);
void sim_ended(int node, int status); /* by the process itself, in an event of its own */
void sim_dispatch(struct sim_event *e);
void sim_timer(int node, int64_t delay, int what, int64_t number);

/* fault.c */
void sim_faults_begin(void);
void sim_fault_strike(int index);
void sim_fault_end(int index);
void sim_fault_mark(enum sim_mark mark);
void sim_calm(void);

#endif
