/* tests/sim/schedule.h - what a run is made of: a seed (of all that is drawn while it runs),
 * options, and a list of faults and commands. Drawn from a seed, or read from a text that a
 * shrunk schedule was written to.
 * Owns:    nothing; a schedule is a value.
 * Threads: values.
 * Errors:  of reading: a sentence on stderr, ST_INVALID. */
#ifndef TESTS_SIM_SCHEDULE_H
#define TESTS_SIM_SCHEDULE_H
#include "base/status.h"
#include <stdint.h>
#include <stdio.h>

/* X(name, default, lowest, highest): the default is the simplest, towards which it is shrunk. */
#define SIM_OPTIONS(X)                                                                             \
    X(servers, 1, 1, 4)                                                                            \
    X(workers, 1, 1, 4)                                                                            \
    X(chunks, 1, 1, 4)                                                                             \
    X(elems, 1, 1, 3) /* of each chunk */                                                          \
    X(steps, 3, 1, 12)                                                                             \
    X(mode, 0, 0, 3)      /* sync, async, ssp, sync with backup workers */                         \
    X(optimizer, 0, 0, 6) /* as enum optim_kind */                                                 \
    X(batch, 1, 1, 4)                                                                              \
    X(staleness, 0, 0, 2)                                                                          \
    X(delay_us, 200, 50, 20000)  /* of a message, the median */                                    \
    X(tail, 0, 0, 3)             /* how often it is far longer */                                  \
    X(compute_ms, 20, 1, 500)    /* of a worker's step */                                          \
    X(calm_ms, 20000, 0, 120000) /* after which there are no more faults */                        \
    X(coordinator, 0, 0, 1)      /* 0: one plan for ever; 1: ps 0 makes them */                    \
    X(folder, 0, 0, 1)           /* none, one that all share */                                    \
    X(save_steps, 0, 0, 4)                                                                         \
    X(worker_timeout_ms, 10000, 0, 30000)                                                          \
    X(min_workers, 0, 0, 4)                                                                        \
    X(mutant, 0, 0, 9)     /* a fault that is put into the code, to be found */                    \
    X(no_memory, 0, 0, 70) /* of ps 0's plans, in %: cannot be made just then */                   \
    X(clip, 0, 0, 1)       /* by the norm, in sync; not drawn: sim --clip */                       \
    /* Not drawn either: sim --regions. The workers are regions; `steps` are theirs. */            \
    X(regions, 0, 0, 1)                                                                            \
    X(region_steps, 2, 1, 4)                                                                       \
    X(overlap, 0, 0, 3) /* below region_steps, and steps, whatever it says */                      \
    X(max_drift, 0, 0, 8)                                                                          \
    X(fragments, 1, 1, 4)      /* at most as many as chunks, whatever it says */                   \
    X(region_servers, 1, 1, 2) /* 2: of three regions at most */                                   \
    X(region_workers, 1, 1, 2)                                                                     \
    X(region_save, 0, 0, 4) /* a region's checkpoints; 0: it keeps none */                         \
    X(churn_ms, 0, 0, 2000) /* a region's generations last about so long; 0: for ever */

enum sim_option {
#define X(name, first, low, high) OPT_##name,
    SIM_OPTIONS(X)
#undef X
        SIM_N_OPTIONS
};

/* X(name, needs a second node, lasts). */
#define SIM_FAULTS(X)                                                                              \
    X(kill, 0, 1)        /* the process dies, and is started again after `ms` */                   \
    X(power, 0, 1)       /* its host goes: nobody is told */                                       \
    X(pause, 0, 1)       /* SIGSTOP, then SIGCONT */                                               \
    X(reset, 1, 0)       /* the connections between two break */                                   \
    X(cut, 1, 1)         /* nothing goes either way */                                             \
    X(cut_one_way, 1, 1) /* nothing goes from the first to the second */                           \
    X(isolate, 0, 1)     /* nothing goes from or to it */                                          \
    X(slow_link, 1, 1)   /* messages take a hundred times as long */                               \
    X(slow, 0, 1)        /* a worker's steps take a hundred times as long */                       \
    X(term, 0, 0)        /* SIGTERM */                                                             \
    X(join, 0, 0)        /* a worker, or a server, that was not there joins */                     \
    X(drain, 0, 0)       /* an operator wants it out */                                            \
    X(checkpoint, 0, 0)  /* an operator wants one */                                               \
    X(disk_hang, 0, 1)   /* orders to its folder do not end before that */                         \
    X(disk_full, 0, 1)                                                                             \
    X(damaged, 0, 0)     /* the next checkpoint that a server is to read is damaged there */       \
    X(begin_fails, 0, 0) /* its next plan, tried once to three times, cannot be begun */           \
    X(gone, 0, 0)        /* it dies and never comes back */                                        \
    X(disk_stuck, 0, 0)  /* orders of this process to its folder never end */                      \
    X(apart, 1, 0)       /* nothing goes between a worker and a server, for good; once at most */  \
    X(lose_folder, 0, 1) /* ps 0's host dies, and all in the folder is lost with it */             \
    X(late, 0, 0)        /* ps 0 is killed in its next manifest's rename, which is done later */   \
    X(quit, 0, 0)        /* a worker ends for good, with an error, and says so; sim --quit */

enum sim_fault_kind {
#define X(name, two, lasts) FAULT_##name,
    SIM_FAULTS(X)
#undef X
        SIM_N_FAULTS
};

/* When a fault strikes: so long after the n-th time that such a thing happens. X(name). */
#define SIM_MARKS(X)                                                                               \
    X(start)    /* of the run; n is 1 */                                                           \
    X(join)     /* a member was let in */                                                          \
    X(push)     /* a contribution came to a server */                                              \
    X(version)  /* one was made */                                                                 \
    X(leave)    /* a worker said goodbye */                                                        \
    X(restart)  /* a process was started again */                                                  \
    X(stop)     /* ps 0 ordered a Stop */                                                          \
    X(plan)     /* ps 0 ordered a plan */                                                          \
    X(disk)     /* a disk order began */                                                           \
    X(manifest) /* a checkpoint is whole */                                                        \
    X(unread)   /* a server found that of its plan damaged */
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
    int nth;          /* from 1 */
    int64_t after_us; /* of the mark */
    int node, other;  /* servers from 0, workers from SIM_SERVERS */
    int64_t ms;       /* how long; kill, power: -1: never back */
};

struct sim_schedule {
    uint64_t seed;
    int64_t option[SIM_N_OPTIONS];
    int n_faults;
    struct sim_fault fault[SIM_MAX_FAULTS];
    char check[32]; /* of a text: that failed once; "none": it must pass */
};

extern const char *const sim_option_name[], *const sim_fault_name[], *const sim_mark_name[];
extern const int64_t sim_option_default[];

void sim_schedule_of_seed(uint64_t seed, struct sim_schedule *out);
enum status sim_schedule_read(const char *path, struct sim_schedule *out);
void sim_schedule_write(const struct sim_schedule *s, FILE *f);
void sim_fault_text(const struct sim_fault *f, char *out, int room);

/* Its workers are regions. */
void sim_schedule_regions(struct sim_schedule *s);

/* Makes it one of a job in sync that clips by the norm. */
void sim_schedule_clip(struct sim_schedule *s);

/* Workers end for good with an error, too; in some schedules nothing else happens, and all do. */
void sim_schedule_quit(struct sim_schedule *s);
/* Only that happens. */
int sim_schedule_only_quits(const struct sim_schedule *s);

#endif
