/* tests/sim/schedule.h - the schedule of a run: a seed (for all that is drawn while it runs),
 * options, and a list of faults and commands. It is drawn from a seed, or read from the text of a
 * shrunk schedule.
 * Owns:    nothing; a schedule is a value.
 * Threads: values.
 * Errors:  ST_INVALID for a text that cannot be read, with a line on stderr. */
#ifndef TESTS_SIM_SCHEDULE_H
#define TESTS_SIM_SCHEDULE_H
#include "base/status.h"
#include "tests/sim/options.h"
#include <stdint.h>
#include <stdio.h>

/* X(name, needs a second node, lasts). */
#define SIM_FAULTS(X)                                                                              \
    X(kill, 0, 1)        /* the process dies, and is started again after `ms` */                   \
    X(power, 0, 1)       /* the node's host is lost: no peer is informed */                        \
    X(pause, 0, 1)       /* SIGSTOP, then SIGCONT */                                               \
    X(reset, 1, 0)       /* the connections of two nodes break */                                  \
    X(cut, 1, 1)         /* no message passes between two nodes */                                 \
    X(cut_one_way, 1, 1) /* no message passes from the first to the second */                      \
    X(isolate, 0, 1)     /* no message passes from or to the node */                               \
    X(slow_link, 1, 1)   /* messages are a hundred times slower */                                 \
    X(slow, 0, 1)        /* a worker's steps are a hundred times slower */                         \
    X(term, 0, 0)        /* SIGTERM */                                                             \
    X(join, 0, 0)        /* a new worker or server joins */                                        \
    X(drain, 0, 0)       /* an operator drains the server, or removes the worker */                \
    X(checkpoint, 0, 0)  /* an operator orders a checkpoint */                                     \
    X(disk_hang, 0, 1)   /* calls to the node's folder return only when the fault ends */          \
    X(disk_full, 0, 1)                                                                             \
    X(damaged, 0, 0)     /* the next checkpoint that a server reads is damaged there */            \
    X(begin_fails, 0, 0) /* a server fails to begin its next plan, one to three times */           \
    X(gone, 0, 0)        /* the process dies, and only the operator replaces it */                 \
    X(disk_stuck, 0, 0)  /* calls of this process to its folder never return */                    \
    X(apart, 1, 0)       /* no message passes between a worker and a server, for good */           \
    X(lose_folder, 0, 1) /* ps 0's host is lost, and the folder with it */                         \
    X(late, 0, 0)        /* ps 0 dies in its next rename of a manifest, which ends later */        \
    X(quit, 0, 0)        /* a worker reports an error and ends for good; sim --quit */

enum sim_fault_kind {
#define X(name, two, lasts) FAULT_##name,
    SIM_FAULTS(X)
#undef X
        SIM_N_FAULTS
};

/* Events after which faults strike, by the number of the event. X(name). */
#define SIM_MARKS(X)                                                                               \
    X(start)    /* the run begins; its number is 1 */                                              \
    X(join)     /* a server admitted a member */                                                   \
    X(push)     /* a server received a contribution */                                             \
    X(version)  /* a server made a version */                                                      \
    X(leave)    /* a server received a leave message */                                            \
    X(restart)  /* a process was started again */                                                  \
    X(stop)     /* ps 0 ordered a Stop */                                                          \
    X(plan)     /* ps 0 ordered a plan */                                                          \
    X(disk)     /* a write to a disk began */                                                      \
    X(manifest) /* a checkpoint is whole */                                                        \
    X(unread)   /* a server found the checkpoint of its plan damaged */
enum sim_mark {
#define X(name) MARK_##name,
    SIM_MARKS(X)
#undef X
        SIM_N_MARKS
};

enum { SIM_MAX_FAULTS = 48 };
struct sim_fault {
    enum sim_fault_kind kind;
    enum sim_mark mark;
    int nth;          /* number of the event, from 1 */
    int64_t after_us; /* time after the event */
    int node, other;  /* servers from 0, workers from SIM_SERVERS */
    int64_t ms;       /* duration; -1: the killed process never starts again */
};

struct sim_schedule {
    uint64_t seed;
    int64_t option[SIM_N_OPTIONS];
    int n_faults;
    struct sim_fault fault[SIM_MAX_FAULTS];
    char check[32]; /* check that failed once, by the file, or "none" */
};

extern const char *const sim_option_name[], *const sim_fault_name[], *const sim_mark_name[];
extern const int64_t sim_option_default[], sim_option_high[];

void sim_schedule_of_seed(uint64_t seed, struct sim_schedule *out);
enum status sim_schedule_read(const char *path, struct sim_schedule *out);
void sim_schedule_write(const struct sim_schedule *s, FILE *f);
void sim_fault_text(const struct sim_fault *f, char *out, int room);

/* Changes it to a job whose workers are regions. */
void sim_schedule_regions(struct sim_schedule *s);

/* Changes it to a job with sparse tables. */
void sim_schedule_tables(struct sim_schedule *s);

/* Changes it to a job in sync that clips by the norm. */
void sim_schedule_clip(struct sim_schedule *s);

/* Adds workers that end for good with an error; in some schedules all do, without other faults. */
void sim_schedule_quit(struct sim_schedule *s);
/* Returns nonzero if no other fault strikes. */
int sim_schedule_only_quits(const struct sim_schedule *s);

#endif
