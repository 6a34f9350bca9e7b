/* tests/sim/sim.h - the world of one run, `sim`: virtual time, events in a list (equal times in
 * random order), memory that lasts as long as the run, nodes (processes), the story.
 * Owns: the memory of a run. Threads: one. Errors: sim_fail ends the run. */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H
#include "tests/sim/process.h"
#include "tests/sim/random.h"
#include "tests/sim/schedule.h"
#include <setjmp.h>
#include <stddef.h>

enum { SIM_TERM_STATUS = 128 + 15 }; /* exit status of a server that SIGTERM has ended */
enum { SIM_SERVERS = 6, SIM_WORKERS = 6, SIM_NODES = SIM_SERVERS + SIM_WORKERS };
#define SIM_MS ((int64_t)1000000)
#define SIM_S (1000 * SIM_MS)

#define SIM_EVENTS(X)                                                                              \
    X(STREAM)    /* p: net_stream, a: direction; the first message of its queue arrives */         \
    X(REQUEST)   /* p: sim_call; it arrives at the server */                                       \
    X(REPLY)     /* p: sim_call; it ends at the client */                                          \
    X(DEADLINE)  /* p: sim_call */                                                                 \
    X(CONN_DOWN) /* p: sim_conn, a: end, which learns that the connection is gone */               \
    X(KEEPALIVE) /* p: sim_conn, a: end, b: number of the cut; -1: it fails without a cut */       \
    X(CLOSED)    /* p: net_stream, which this server has closed */                                 \
    X(OPERATION) /* p: completion of an operation of a client's call (client.h) */                 \
    X(TIMER)     /* a: kind, b: number; of the node */                                             \
    X(RENAME)    /* p: disk_rename of a killed process, which is carried out now */                \
    X(DISK)      /* the region of the node has written its checkpoint */                           \
    X(FAULT)     /* a: index of the fault that strikes */                                          \
    X(FAULT_END) /* a: index of the fault that ends */                                             \
    X(START)     /* a: node to start */                                                            \
    X(CALM)      /* all faults end, or the operator looks again */
enum sim_event_kind {
#define X(name) EV_##name,
    SIM_EVENTS(X)
#undef X
        SIM_N_EVENTS
};

struct sim_event {
    enum sim_event_kind kind;
    int node;      /* the node that handles it; -1: the world */
    uint32_t life; /* life of that node; the event is dropped in another life */
    int a;
    int64_t b;
    void *p;
    struct sim_event *next;
};

struct sim {
    const struct sim_schedule *schedule;
    int64_t now;
    int running; /* node whose event is handled; -1: none */
    int64_t n_events, end_ns;
    uint64_t digest;
    struct sim_random ties, identity, memory;
    struct sim_node node[SIM_NODES];
    int marks[SIM_N_MARKS];
    bool has_story, is_calm, has_changed; /* is_calm: no fault strikes; has_changed: see run.c */
    uint32_t job_done;                    /* life of ps 0 that found the job done; 0: none */
    uint32_t job_failed; /* life of ps 0 that found that all workers ended with errors; 0: none */
    const char *check;   /* name of the check that failed; NULL: none has */
    char why[400];
    jmp_buf leave;                                         /* sim_fail() jumps here */
    int64_t cells[SIM_N_EVENTS], fault_hits[SIM_N_FAULTS]; /* events, faults, by kind */
};
extern struct sim sim;

static inline int64_t opt(enum sim_option o)
{
    return sim.schedule->option[o];
}

static inline bool sim_is_server(int node)
{
    return node < SIM_SERVERS;
}

/* Drops all events, and frees the memory of the run before (loop.c). */
void sim_loop_reset(void);
void *sim_alloc(size_t bytes);                  /* returns zeroed memory, which lasts for the run */
void *sim_alloc_list(size_t bytes);             /* returns such memory, but does not clear it */
void *sim_copy(const void *from, size_t bytes); /* copies the bytes to such memory */
struct sim_event *sim_post(int64_t delay, enum sim_event_kind kind, int node);
void sim_repost(struct sim_event *e, int64_t delay);
/* removes the next event, and moves the clock to it; NULL: no event is left */
struct sim_event *sim_next(void);
void sim_digest(uint64_t what);
void sim_story(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#define STORY(...)                                                                                 \
    do {                                                                                           \
        if (sim.has_story)                                                                         \
            sim_story(__VA_ARGS__);                                                                \
    } while (0)
void sim_fail(const char *check, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), noreturn));
void sim_mark(enum sim_mark mark); /* counts the mark, and posts the faults that wait for it */

/* Starts a process in a new life, unless it runs or its host is gone (process.c). */
void sim_start(int node);
void sim_kill(int node, bool power);
void sim_pause(int node, bool on);
void sim_ended(int node, int status); /* posts the event in which the process ends */
void sim_dispatch(struct sim_event *e);
void sim_timer(int node, int64_t delay, int what, int64_t number);

/* Posts the faults that wait for no mark, and the end of all faults (fault.c). */
void sim_faults_begin(void);
void sim_fault_strike(int index);
void sim_fault_end(int index);
void sim_fault_mark(enum sim_mark mark);
void sim_calm(void);

#endif
