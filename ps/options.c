/* ps/options.c - see options.h. The flags are parsed into `raw`; the main thread checks a copy. */
#include "ps/options.h"
#include "base/flags_tensorflow.h"
#include "base/job_name.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "files/output_path.h"
#include "flags/rows.h"
#include "net/rpc/environment.h"
#include <inttypes.h>
#include <string.h>

static struct ps_options raw = {
    .ps_hosts = "",
    .worker_hosts = "",
    .job_name = "ps",
    .address = "",
    .bind = "",
    .metrics_bind = "",
    .slurm_port = CLUSTER_SLURM_PORT,
    .leave = -1,
    .max_model_bytes = (int64_t)8 << 30,
    .save_secs = -1,
    .keep_checkpoint_max = 5,
    .worker_timeout = 60,
    .max_workers = JOB_MAX_WORKERS,
    .straggler_ms = 10,
    .log_level = LOG_LEVEL_INFO,
    .ready_fd = -1,
    .region = {.parent_hosts = "",
               .steps = 50,
               .fragments = 1,
               .parent_timeout = 1800,
               .outer = -1,
               .overlap_mix = -1,
               .outer_rate = -1,
               .outer_momentum = -1,
               .dtype = "fp32",
               .wire_step_ms = 100},
};

/* Flags of worker have no target here: ps accepts them and does not use them. */
#define FOR_PS(name, type, field, ...) FLAG_ROW(name, type, &raw.field, __VA_ARGS__)
#define FOR_WORKER(name, type, field, ...) FLAG_ROW(name, type, NULL, __VA_ARGS__)
#define FOR_JOB FOR_WORKER
#define FOR_BOTH FOR_PS
#define FOR_ALL FOR_PS
#define PS_ALONE FOR_PS
#define WORKER_ALONE(...)

static const struct flag flags[] = {
#include "flags/table.inc"
#include <stdbool.h>
};
static unsigned char given[sizeof flags / sizeof *flags];
static const struct flags_program program = {
    .name = "ps",
    .installed = "weir-ps",
    .doc =
        "Weir's parameter server: holds a model's parameters while workers train it. Exits with 0 "
        "when the job is done or the server has moved its chunks to other servers, 1 after a "
        "permanent error (also if all workers exited with an error), 2 after an error in the "
        "flags, 138 if a restart may help, 143 after SIGTERM, 130 after Ctrl-C. ps also accepts "
        "the worker's flags and does not use them, so that one command line can serve both "
        "programs.",
    .flags = flags,
    .n_flags = sizeof flags / sizeof *flags,
    .given = given,
    .foreign = flags_tensorflow,
};

enum status ps_options_parse(int argc, char **argv, struct ps_options *out, int *exit_now)
{
    enum status st = flags_parse(&program, argc, argv, exit_now);
    if (raw.quiet && raw.log_level < LOG_LEVEL_WARN)
        raw.log_level = LOG_LEVEL_WARN;
    *out = raw;
    return st;
}

void ps_options_dump(void)
{
    flags_dump(&program);
}

static bool is_given(const void *target)
{
    return flags_given_name(&program, target) != NULL;
}

static enum status check_region(struct ps_options *o)
{
    struct ps_region_options *r = &o->region;
    const void *const own[] = {&raw.region.n_regions,   &raw.region.index,
                               &raw.region.steps,       &raw.region.fragments,
                               &raw.region.overlap,     &raw.region.dtype,
                               &raw.region.max_drift,   &raw.region.parent_timeout,
                               &raw.region.overlap_mix, &raw.region.wire_step_ms};
    bool is_region = *r->parent_hosts != 0;
    r->wire_auto = strcmp(r->dtype, "auto") == 0;
    const char *wrong = NULL;
    for (size_t i = 0; i < sizeof own / sizeof *own && !is_region; i++)
        if (is_given(own[i]))
            wrong =
                "--regions, --region_index, --region_steps, --fragments, --overlap_steps, --overlap_mix, --parent_wire_dtype, --wire_step_ms, --max_region_drift and --parent_timeout need --parent_hosts";
    if (is_region && r->n_regions < 1)
        wrong = "--parent_hosts needs --regions, the number of regions, and --region_index";
    else if (is_region && r->index >= r->n_regions)
        wrong = "--region_index must be below --regions";
    else if (is_region && r->steps % r->fragments != 0)
        wrong = "--region_steps must be a multiple of --fragments";
    else if (is_region && r->overlap >= r->steps / r->fragments)
        wrong = r->fragments > 1 ? "--overlap_steps must be below --region_steps / --fragments"
                                 : "--overlap_steps must be below --region_steps";
    else if (is_region && r->overlap_mix >= 0 && r->overlap == 0)
        wrong = "--overlap_mix needs --overlap_steps";
    else if (is_region && r->overlap_mix < 0 && r->overlap_mix > -1)
        wrong = "--overlap_mix must be -1, or from 0 to 1";
    else if (is_region &&
             !dtype_read_two(r->wire_auto ? "fp32" : r->dtype, &r->push_dtype, &r->version_dtype))
        wrong =
            "--parent_wire_dtype must be auto, or one or two names (separated by a comma) of " DTYPE_NAMES;
    else if (is_region && is_given(&raw.region.wire_step_ms) && !r->wire_auto)
        wrong = "--wire_step_ms needs --parent_wire_dtype=auto";
    else if (is_region && o->serve)
        wrong = "--parent_hosts excludes --serve: a region has one job";
    else if (is_region && r->outer == OPTIM_SGD && r->outer_momentum > 0)
        wrong = "--outer_momentum needs --outer_optimizer=momentum or nesterov";
    if (wrong)
        LOG_E("%s", wrong);
    return wrong ? ST_INVALID : ST_OK;
}

enum status ps_options_check(struct ps_options *o)
{
    const char *wrong = NULL;
    if (o->checkpoint_dir && !*o->checkpoint_dir)
        o->checkpoint_dir = NULL;
    if (!o->checkpoint_dir && (o->save_steps > 0 || o->save_secs > 0 || o->restore ||
                               o->take_over || is_given(&raw.keep_checkpoint_max)))
        wrong =
            "--save_steps, --save_secs, --keep_checkpoint_max, --restore and --take_over need --checkpoint_dir";
    else if (is_given(&raw.straggler_ms) && !o->log_stragglers)
        wrong = "--straggler_ms needs --log_stragglers";
    else if (is_given(&raw.metrics_bind) && o->metrics_port == 0)
        wrong = "--metrics_bind needs --metrics_port";
    else if (o->min_workers > o->max_workers)
        wrong = "--min_workers must not be above --max_workers";
    else if (o->checkpoint_dir && o->serve)
        wrong =
            "--serve and --checkpoint_dir exclude each other: a folder holds one job's checkpoints";
    if (o->save_secs < 0)
        o->save_secs = o->save_steps > 0 ? 0 : 600;
    if (wrong) {
        LOG_E("%s", wrong);
        return ST_INVALID;
    }
    if (check_region(o) != ST_OK)
        return ST_INVALID;
    const struct output_path outputs[] = {{"summary_json", o->summary_json}, {"trace", o->trace}};
    enum status st = output_paths_differ(outputs, 2, 2);
    return st == ST_OK ? output_path_check("summary_json", o->summary_json) : st;
}

/* Finds this server's address: --address with --join, else its entry in --ps_hosts. */
static enum status check_place(const struct ps_options *o, struct ps_cluster *c)
{
    const char *wrong = NULL;
    int own = o->leave < 0 && !o->join;
    if (o->join && o->leave >= 0)
        wrong = "--join and --leave exclude each other";
    else if (o->join && !*o->address)
        wrong = "--join needs --address, where other programs reach this server";
    else if (o->join && (o->serve || o->restore))
        wrong = "--join excludes --serve and --restore: the server joins a running job";
    if (wrong) {
        LOG_E("%s", wrong);
        return ST_INVALID;
    }
    if (o->join && hosts_problem(o->address)) {
        LOG_E("--address: '%.100s' %s", o->address, hosts_problem(o->address));
        return ST_INVALID;
    }
    if (own && o->task_index >= c->ps.n) {
        LOG_E("--task_index: %" PRId64
              " is out of range; the highest number is %d, since --ps_hosts has %d %s",
              o->task_index, c->ps.n - 1, c->ps.n, c->ps.n == 1 ? "entry" : "entries");
        return ST_INVALID;
    }
    if (!o->join && *o->address) /* workers may have the same command line, so this is no error */
        LOG_I(
            "--address is for workers, and for servers with --join; this server uses its entry in --ps_hosts instead");
    c->self = o->join ? -1 : (int)o->task_index;
    enum status st = o->join ? hosts_copy(&o->address, 1, &c->joining) : ST_OK;
    if (st != ST_OK)
        return st;
    c->address = o->join ? c->joining.addr[0] : c->ps.addr[own ? o->task_index : 0];
    st = ps_bind_address(o->bind, c->address, c->bind);
    if (st != ST_OK || o->metrics_port == 0)
        return st;
    return http_listen_address(o->metrics_bind, c->bind, (int)o->metrics_port, c->pages);
}

enum status ps_options_find_cluster(struct ps_options *o, struct ps_cluster *c)
{
    enum status st = ST_OK;
    struct cluster found = {0};
    struct cluster_request r = {.ps_hosts = o->ps_hosts,
                                .worker_hosts = o->worker_hosts,
                                .slurm_ps = o->slurm_ps,
                                .slurm_port = o->slurm_port,
                                .task_index = is_given(&raw.task_index) ? o->task_index : -1,
                                .job_name = is_given(&raw.job_name) ? o->job_name : NULL,
                                .no_task = o->join || o->leave >= 0};
    cluster_environment(&r);
    TRY(job_name_check_ps(o->job_name));
    TRY(cluster_find(&r, &found));
    c->ps = found.ps;
    c->workers = found.workers;
    if (!r.no_task)
        TRY(cluster_check_role(&found, CLUSTER_PS));
    if (!r.no_task && found.index >= 0)
        o->task_index = found.index;
    c->found = found;
done:
    return st;
}

enum status ps_options_find_self(const struct ps_options *o, struct ps_cluster *c)
{
    enum status st = ST_OK;
    TRY(hosts_parse(o->region.parent_hosts, "parent_hosts", &c->parents));
    TRY(net_environment_check());
    if (c->ps.n == 0) {
        LOG_E(
            "--ps_hosts is missing; list all servers, as in --ps_hosts=localhost:2221, or describe the cluster in TF_CONFIG or, with --slurm_ps=N, by a Slurm step");
        st = ST_INVALID;
    } else {
        st = check_place(o, c);
    }
done:
    return st;
}
