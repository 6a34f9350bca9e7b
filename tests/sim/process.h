/* tests/sim/process.h - the state of one process of the simulated job, and of its host, and what
 * its kind of process does with events.
 *
 * Owns:    nothing.
 * Threads: one.
 * Errors:  none. */
#ifndef TESTS_SIM_PROCESS_H
#define TESTS_SIM_PROCESS_H
#include "tests/sim/random.h"
#include <stdbool.h>

enum { SIM_DAMAGED = 4 };
struct sim_event;
struct net_stream;
struct sim_call;
struct sim_msg;
struct sim_ops { /* handlers of one kind of process */
    void (*start)(int node);
    void (*die)(int node); /* frees its memory; net.c informs its peers */
    void (*request)(int node, struct sim_call *call);
    void (*reply)(int node, struct sim_call *call);
    void (*message)(int node, struct net_stream *s, struct sim_msg *m);
    void (*closed)(int node, struct net_stream *s);
    void (*timer)(int node, int what, int64_t number);
    void (*disk)(int node);
    void (*term)(int node);
    void (*call_lost)(int node, struct sim_call *call); /* the client no longer waits */
};

enum sim_state { NODE_ABSENT, NODE_UP, NODE_PAUSED, NODE_DOWN, NODE_ENDED };
struct sim_checkpoint {
    uint64_t generation;
    int64_t step;
};
struct sim_node {
    const struct sim_ops *ops;
    enum sim_state state;
    uint32_t life;
    uint64_t incarnation;
    int status;          /* exit status */
    int64_t slow;        /* faults that slow its steps down */
    int64_t disk_until;  /* time until which its disk hangs */
    uint32_t disk_stuck; /* life in which its disk never answers; 0: none */
    int disk_full;       /* faults that fill its disk */
    int gone;            /* > 0: its host is gone for good, and replace_gone() counts */
    bool reads_damaged;  /* the next checkpoint that it reads is damaged */
    int begin_fails;     /* plans that it will fail to begin */
    bool is_late;        /* the next rename of a manifest kills it */
    struct sim_checkpoint damaged[SIM_DAMAGED]; /* checkpoints that it reads damaged */
    int n_damaged;
    bool is_closed; /* it is up, but no call or stream reaches it */
    uint32_t quit;  /* life that ended for good, with an error; 0: none */
    struct sim_random random;
    struct sim_event *held, **held_end; /* events that arrived while it is paused */
    int64_t paused_at, paused_ns;       /* begin of its last pause; duration of all earlier ones */
    char name[24];
};

#endif
