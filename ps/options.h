/* ps/options.h - the values of the server's flags, and the cluster that they describe.
 * Owns:    nothing; strings point into argv.
 * Threads: none; the main thread, before it starts other threads.
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
    const char *parent_hosts; /* "": this group is not a region */
    /* index: number of this region; n_regions: number of regions, 0: not given */
    int64_t index, n_regions;
    int64_t steps, fragments, overlap, max_drift;
    /* longest wait of the region for its parent in seconds; 0: no limit */
    int64_t parent_timeout;
    int outer;                         /* enum optim_kind; -1: not given */
    double outer_rate, outer_momentum; /* settings of `outer`; -1: chosen by the model's size */
    double overlap_mix;                /* -1: none */
    const char *dtype;
    enum dtype push_dtype, version_dtype; /* parsed from `dtype` */
    int wire_auto; /* `dtype` is auto: chosen by the speed of the connection */
    int64_t wire_step_ms;
};

struct ps_options {
    struct ps_region_options region;
    const char *ps_hosts, *worker_hosts, *job_name;
    int64_t task_index;           /* number from the flag, or set by ps_options_find_cluster */
    int64_t slurm_ps, slurm_port; /* slurm_ps 0: not given */
    const char *address, *bind;   /* "": not given */
    int serve, join, drain;
    int64_t leave;           /* server that the command --leave removes; -1: no such command */
    int64_t threads;         /* 0: chosen by the number of cores */
    int64_t update_threads;  /* 0: chosen by the number of cores */
    int shared_memory;       /* 0: auto; nonzero: off */
    int64_t max_model_bytes; /* limit for this server */
    const char *checkpoint_dir, *restore; /* NULL: none */
    int take_over;                        /* claim the folder although its owner is alive */
    /* intervals of checkpoints, in steps and in time; 0: none */
    int64_t save_steps, save_secs;
    int64_t keep_checkpoint_max;      /* 0: all */
    int64_t worker_timeout;           /* seconds */
    int64_t min_workers, max_workers; /* min_workers 0: not given */
    int log_stragglers;
    int64_t straggler_ms;
    const char *summary_json, *trace; /* NULL: none */
    int64_t metrics_port;             /* 0: none */
    const char *metrics_bind;         /* host of the pages; "": that of this server */
    struct security_config security;  /* the role is set later */
    int log_level, quiet;
    int64_t ready_fd; /* -1: none */
    int fault_keep_chunks;
};

struct ps_cluster {
    struct hosts ps, workers, parents, joining; /* joining: address of this server, with --join */
    struct cluster found; /* result of cluster_find; shares the lists ps and workers */
    int self;             /* index in ps; -1: the server joins */
    const char *address;  /* address of this server */
    char bind[BIND_BYTES];
    char pages[HTTP_ADDRESS_BYTES]; /* --metrics_port; empty: none */
};

/* Parses the flags and checks each by itself. *exit_now: as in flags_parse. */
enum status ps_options_parse(int argc, char **argv, struct ps_options *out, int *exit_now);
/* Logs the flags that do not have their defaults. */
void ps_options_dump(void);
/* Checks the flags together, and sets the fields whose values follow from other fields. */
enum status ps_options_check(struct ps_options *o);
/* Finds the cluster by the flags, TF_CONFIG or a Slurm step: sets o->task_index and the lists of
 * hosts, which the caller frees, also after an error. The caller zeroes c before. */
enum status ps_options_find_cluster(struct ps_options *o, struct ps_cluster *c);
/* Sets this server's place in the cluster that ps_options_find_cluster found. */
enum status ps_options_find_self(const struct ps_options *o, struct ps_cluster *c);

#endif
