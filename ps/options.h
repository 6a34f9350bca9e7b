/* ps/options.h - what the server was told to do: its flags, and the cluster they describe.
 * Owns:    the table of flags; strings point into argv.
 * Threads: none; the main thread, before the others start.
 * Errors:  ST_INVALID, logged with the flag and the fix. */
#ifndef PS_OPTIONS_H
#define PS_OPTIONS_H
#include "base/hosts.h"
#include "base/status.h"
#include "cluster/cluster.h"
#include "http/listen.h"
#include "kernels/vector/dtype.h"
#include "net/security/security.h"
#include "ps/bind.h"
#include <stddef.h>
#include <stdint.h>

struct ps_region_options {    /* docs/guide/regions.md */
    const char *parent_hosts; /* "": this group is no region */
    int64_t index, n_regions; /* of regions; n_regions 0: not given */
    int64_t steps, fragments, overlap, max_drift;
    int64_t parent_timeout;            /* s; 0: none */
    int outer;                         /* -1: not given; then as OPTIM_NAMES has them */
    double outer_rate, outer_momentum; /* -1: by the model's size */
    double overlap_mix;                /* -1: none */
    const char *dtype;
    enum dtype push_dtype, version_dtype; /* what `dtype` says */
    int wire_auto;                        /* or that: by the line */
    int64_t wire_step_ms;
};

struct ps_options {
    struct ps_region_options region;
    const char *ps_hosts, *worker_hosts, *job_name;
    int64_t task_index;           /* as the flag says, or ps_options_find_cluster */
    int64_t slurm_ps, slurm_port; /* slurm_ps 0: not given */
    const char *address, *bind;   /* "": not given */
    int serve, join, drain;
    int64_t leave;                        /* the server that is to go, a command; -1: none */
    int64_t threads;                      /* 0: by cores */
    int64_t update_threads;               /* likewise */
    int shared_memory;                    /* 0: auto, 1: off */
    int64_t max_model_bytes;              /* on this server */
    const char *checkpoint_dir, *restore; /* NULL: none */
    int take_over;                        /* claim the folder although its owner is alive */
    int64_t save_steps, save_secs;        /* 0: not by that */
    int64_t keep_checkpoint_max;          /* 0: all */
    int64_t worker_timeout;               /* s */
    int64_t min_workers, max_workers;     /* min 0: not given */
    int log_stragglers;
    int64_t straggler_ms;
    const char *summary_json, *trace; /* NULL: none */
    int64_t metrics_port;             /* 0: none */
    const char *metrics_bind;         /* "": where this server listens */
    struct security_config security;  /* but for the role */
    int log_level, quiet;
    int64_t ready_fd; /* -1: none */
    int fault_keep_chunks;
};

struct ps_cluster {
    struct hosts ps, workers, parents, joining; /* joining: its own address, with --join */
    struct cluster found; /* what is said of it; its lists are the first two above */
    int self;             /* place in ps; -1: it joins */
    const char *address;  /* of this server */
    char bind[BIND_BYTES];
    char pages[HTTP_ADDRESS_BYTES]; /* --metrics_port; empty: none */
};

/* *exit_now: as flags_parse. Each flag is in its bounds; whether they fit is still to be checked.
 */
enum status ps_options_parse(int argc, char **argv, struct ps_options *out, int *exit_now);
/* Says which flags are not their defaults. */
void ps_options_dump(void);
/* Whether the flags fit together; sets what follows from others. */
enum status ps_options_check(struct ps_options *o);
/* The cluster of the flags, TF_CONFIG or a Slurm step: the lists of hosts, which the caller frees,
 * also after an error, and o->task_index. c is zeroed before. */
enum status ps_options_find_cluster(struct ps_options *o, struct ps_cluster *c);
/* This server's place in it, once it is found. */
enum status ps_options_find_self(const struct ps_options *o, struct ps_cluster *c);

#endif
