/* tests/sim/process.h - the state of one process of the simulated job, and of its host, and how its
 * kind of process handles events. A life of a process lasts from its start to its end; the next
 * start begins a new life.
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
    void (*die)(int node); /* frees the process's memory; net.c informs its peers */
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
    int64_t slow;        /* number of active faults that slow down the process's steps */
    int64_t disk_until;  /* time until which the process's disk hangs */
    uint32_t disk_stuck; /* life of the process in which its disk never answers; 0: none */
    int disk_full;       /* number of active faults that fill the process's disk */
    int gone;            /* > 0: the process's host is gone for good; counter of replace_gone() */
    bool reads_damaged;  /* the next checkpoint that the process reads is damaged */
    int begin_fails;     /* number of plans that the process will fail to begin */
    bool is_late;        /* the next rename of a manifest kills the process */
    struct sim_checkpoint damaged[SIM_DAMAGED]; /* checkpoints that the process reads damaged */
    int n_damaged;
    bool is_closed; /* the process runs, but no call or stream reaches it */
    uint32_t quit;  /* life of the process that ended for good, with an error; 0: none */
    struct sim_random random;
    struct sim_event *held, **held_end; /* events that arrived while the process is paused */
    /* start of the process's last pause; duration of all earlier ones */
    int64_t paused_at, paused_ns;
    char name[24];
};

#endif
