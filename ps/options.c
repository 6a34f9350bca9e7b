/* ps/options.c - see options.h: the table of flags, and which of them go together. */
#include "ps/options.h"
#include "base/flags.h"
#include "base/flags_tensorflow.h"
#include "base/job_name.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "cluster/flags.h"
#include "files/output_path.h"
#include "net/rpc/environment.h"
#include "net/wire/job.h"
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
    .keep = 5,
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

static const struct flag flags[] = {
    {"ps_hosts", FLAG_STRING, &raw.ps_hosts, 0, 0, "HOST:PORT,...", NULL,
     "All parameter servers, in order; this one listens on its own entry", "Cluster:"},
    {"worker_hosts", FLAG_STRING, &raw.worker_hosts, 0, 0, "HOST:PORT,...", NULL,
     "All workers, in order; without it the first worker says how many", NULL},
    {"job_name", FLAG_STRING, &raw.job_name, 0, 0, "ps", NULL, "This program's job", NULL},
    {"task_index", FLAG_INT, &raw.task_index, 0, HOSTS_MAX - 1, NULL, NULL,
     "Place of this server in --ps_hosts", NULL},
    CLUSTER_SLURM_FLAGS(raw.slurm_ps, raw.slurm_port),
    {"bind", FLAG_STRING, &raw.bind, 0, 0, "HOST[:PORT]", NULL,
     "Listen here, where others reach this server at its own address only through NAT or a "
     "container's published port: --bind=0.0.0.0 is all of IPv4; left out, at that address",
     NULL},
    {"tls_cert", FLAG_STRING, &raw.security.cert, 0, 0, "FILE", NULL,
     "This server's certificate, with those between it and its CA, in PEM "
     "(docs/guide/security.md): all links use TLS 1.3, with certificates on both sides; read again "
     "when it changes, as the next three files",
     "Security, the same flags for all programs of a job:"},
    {"tls_key", FLAG_STRING, &raw.security.key, 0, 0, "FILE", NULL, "Its private key, in PEM",
     NULL},
    {"tls_ca", FLAG_STRING, &raw.security.ca, 0, 0, "FILE", NULL,
     "The CAs that sign the certificates of the job's programs, in PEM", NULL},
    {"token_file", FLAG_STRING, &raw.security.token_file, 0, 0, "FILE", NULL,
     "Lines of ROLES TOKEN, ROLES being some of ps,worker,admin: what calls must show, and what "
     "this server shows",
     NULL},
    {"serve", FLAG_BOOL, &raw.serve, 0, 0, NULL, NULL,
     "Stay up when the job is done: give out its parameters, take the next job", "Server:"},
    {"inter_op_threads", FLAG_INT, &raw.threads, 0, 256, NULL, NULL,
     "Threads that handle what workers send; 0: half the cores, 1 to 8", NULL},
    {"update_threads", FLAG_INT, &raw.update_threads, 0, 256, NULL, NULL,
     "Threads that share the update of one large piece of the parameters, where gradients come "
     "through shared memory or wait for others; 0: half the cores, 1 to 8",
     NULL},
    {"shared_memory", FLAG_CHOICE, &raw.shared_memory, 0, 0, NULL, "auto|off",
     "Payloads of workers on this host through shared memory", NULL},
    {"max_model_bytes", FLAG_INT, &raw.max_model_bytes, 4, 1e15, "BYTES", NULL,
     "Largest model taken, in bytes of parameters on this server", NULL},
    {"checkpoint_dir", FLAG_STRING, &raw.checkpoint_dir, 0, 0, "DIR", NULL,
     "Keep checkpoints in this folder, one for all servers or each its own; go on from the newest",
     "Checkpoints:"},
    {"save_steps", FLAG_INT, &raw.save_steps, 0, 1e15, "N", NULL,
     "A checkpoint every N steps (0: not by steps); of ps 0, as the next two", NULL},
    {"save_secs", FLAG_INT, &raw.save_secs, -1, 1e9, "S", NULL,
     "A checkpoint every S seconds (0: not by time; -1: 600 without --save_steps, else 0)", NULL},
    {"keep_checkpoint_max", FLAG_INT, &raw.keep, 0, 1000000, "N", NULL,
     "Older checkpoints are removed (0: none is)", NULL},
    {"restore", FLAG_STRING, &raw.restore, 0, 0, "PATH", NULL,
     "Resume from this checkpoint: a weir-E.G-STEP.json, a folder's newest that is whole, or "
     "FOLDER/best",
     NULL},
    {"take_over", FLAG_BOOL, &raw.take_over, 0, 0, NULL, NULL,
     "Take --checkpoint_dir also from a running job, which then ends without its steps since its "
     "last checkpoint; else ps 0 refuses the folder of a job whose ps 0 answers",
     NULL},
    {"worker_timeout", FLAG_INT, &raw.worker_timeout, 0, 1e9, "S", NULL,
     "Training goes on without a worker that has not come back for so long (0: at once); of ps 0",
     "Coming and going:"},
    {"min_workers", FLAG_INT, &raw.min_workers, 0, JOB_MAX_WORKERS, "N", NULL,
     "With fewer, training waits; of ps 0. Given, those that never came are gone without as well "
     "(0: 1, and all are waited for at the start)",
     NULL},
    {"max_workers", FLAG_INT, &raw.max_workers, 1, JOB_MAX_WORKERS, "N", NULL,
     "A job of more is refused, and who would be one more in a running job", NULL},
    {"join", FLAG_BOOL, &raw.join, 0, 0, NULL, NULL,
     "Join a running job as one server more; needs --ps_hosts with ps 0 at least, and --address",
     NULL},
    {"address", FLAG_STRING, &raw.address, 0, 0, "HOST:PORT", NULL,
     "With --join: where this server listens, and workers and servers reach it; else not used",
     NULL},
    {"drain", FLAG_BOOL, &raw.drain, 0, 0, NULL, NULL,
     "On SIGTERM hand all chunks on to the other servers, then end with 0; ps 0, which "
     "coordinates, "
     "cannot, and ends as without",
     NULL},
    {"leave", FLAG_INT, &raw.leave, -1, HOSTS_MAX - 1, "INDEX", NULL,
     "No server, a command: the running job's server with this number hands its chunks on and "
     "ends (-1: no)",
     NULL},
    {"parent_hosts", FLAG_STRING, &raw.region.parent_hosts, 0, 0, "HOST:PORT,...", NULL,
     "This server's group is a region: it exchanges what it has learnt with these, the parent "
     "group's servers, which know it as one worker (docs/guide/regions.md); ps 0 alone needs it",
     "Regions:"},
    {"regions", FLAG_INT, &raw.region.n_regions, 0, JOB_MAX_WORKERS, "N", NULL,
     "How many there are; each reads its share of the samples", NULL},
    {"region_index", FLAG_INT, &raw.region.index, 0, JOB_MAX_WORKERS - 1, NULL, NULL,
     "Which of them this one is, from 0 on", NULL},
    {"region_steps", FLAG_INT, &raw.region.steps, 1, JOB_MAX_LOCAL_STEPS, "H", NULL,
     "Steps of a worker from one exchange to the next, with --local_steps a multiple of that; the "
     "same in all regions, as are the next seven",
     NULL},
    {"fragments", FLAG_INT, &raw.region.fragments, 1, JOB_MAX_FRAGMENTS, "P", NULL,
     "Parts of the parameters that take turns, one every --region_steps / P steps, of which P is a "
     "divisor",
     NULL},
    {"overlap_steps", FLAG_INT, &raw.region.overlap, 0, JOB_MAX_LOCAL_STEPS, "T", NULL,
     "Steps that are computed while an exchange is under way, fewer than lie between two", NULL},
    {"overlap_mix", FLAG_DOUBLE, &raw.region.overlap_mix, -1, 1, "A", NULL,
     "With --overlap_steps: the share of the region's own parameters that stays when the parent's "
     "come (Streaming DiLoCo's alpha); -1: all that was learnt since it contributed is added to "
     "the parent's",
     NULL},
    {"outer_optimizer", FLAG_CHOICE, &raw.region.outer, 0, 0, NULL, "sgd|momentum|nesterov",
     "What the parent's servers apply to what the regions have changed; left out: nesterov, with "
     "fewer than 5 exchanges in the job sgd",
     NULL},
    {"outer_learning_rate", FLAG_DOUBLE, &raw.region.outer_rate, -1, 100, NULL, NULL,
     "Its learning rate (-1: 1; with 10 million parameters and more 0.7, of sgd 1)", NULL},
    {"outer_momentum", FLAG_DOUBLE, &raw.region.outer_momentum, -1, 1, NULL, NULL,
     "Its momentum (-1: 0.5, with so many parameters 0.9)", NULL},
    {"parent_wire_dtype", FLAG_STRING, &raw.region.dtype, 0, 0, "DTYPE[,DTYPE]", NULL,
     "What crosses to the parent, and what comes back, as --wire_dtype of workers, and auto", NULL},
    {"wire_step_ms", FLAG_INT, &raw.region.wire_step_ms, 1, 1e6, "MS", NULL,
     "With --parent_wire_dtype=auto: milliseconds that a step of the region is reckoned to take",
     NULL},
    {"max_region_drift", FLAG_INT, &raw.region.max_drift, 0, 1e9, "STEPS", NULL,
     "Steps that the region makes without an answer of the parent, after 5 s without one (0: it "
     "waits, and so has the same bits in each run)",
     NULL},
    {"parent_timeout", FLAG_INT, &raw.region.parent_timeout, 0, 1e9, "SECONDS", NULL,
     "A region that waits for its parent group and has not reached it for so long ends, with what "
     "it has (0: it waits without end)",
     NULL},
    {"log_stragglers", FLAG_BOOL, &raw.log_stragglers, 0, 0, NULL, NULL,
     "A line for each step that waited for one worker longer than --straggler_ms", "Output:"},
    {"straggler_ms", FLAG_INT, &raw.straggler_ms, 1, 1000000000, "MS", NULL,
     "From how long a wait on --log_stragglers names it", NULL},
    {"summary_json", FLAG_STRING, &raw.summary_json, 0, 0, "FILE", NULL,
     "Write the final figures here, with how long each worker was waited for; each process needs a "
     "file of its own",
     NULL},
    {"trace", FLAG_STRING, &raw.trace, 0, 0, "FILE", NULL,
     "Write here, at the end, what each thread did when (Chrome trace JSON); each process needs a "
     "file of its own",
     NULL},
    {"metrics_port", FLAG_INT, &raw.metrics_port, 0, 65535, "PORT", NULL,
     "Serve metrics for Prometheus, /healthz and a status page over HTTP, at the address where "
     "this "
     "server listens; not encrypted, read-only (0: no)",
     NULL},
    {"metrics_bind", FLAG_STRING, &raw.metrics_bind, 0, 0, "HOST", NULL,
     "--metrics_port: listen on this address of the host instead, as 127.0.0.1 or 0.0.0.0", NULL},
    {"log_level", FLAG_CHOICE, &raw.log_level, 0, 0, NULL, "debug|info|warn|error",
     "What is logged on stderr", NULL},
    {"quiet", FLAG_BOOL, &raw.quiet, 0, 0, NULL, NULL,
     "Log warnings and errors alone, as --log_level=warn", NULL},
    {"ready_fd", FLAG_INT, &raw.ready_fd, -1, 65535, "FD", NULL,
     "Write 'ready ADDRESS' to this descriptor when listening, then close it (-1: no)", NULL},
    {"fault_keep_chunks", FLAG_BOOL, &raw.fault_keep_chunks, 0, 0, NULL, NULL,
     "For tests: the other servers, to which chunks are to move, are given none", NULL},
#include "ps/worker_flags.inc" /* after ps's own, which count where a name is in both */
};
static unsigned char given[sizeof flags / sizeof *flags];
static const struct flags_program program = {
    .name = "ps",
    .installed = "weir-ps",
    .doc =
        "Weir's parameter server: holds a model's parameters while workers train it. Exits with 0 "
        "when the job is done or its chunks are handed on, 1 after an error that stays (all "
        "workers have ended with one, too), 2 after one in the flags, 138 where starting it again "
        "may help; 143 after SIGTERM, 130 after "
        "Ctrl-C. The worker's flags are taken as well and not used, so that one command line can "
        "serve both.",
    .flags = flags,
    .n_flags = sizeof flags / sizeof *flags,
    .given = given,
    .foreign = flags_tensorflow,
};

const struct flag *ps_options_rows(size_t *n)
{
    *n = program.n_flags;
    return flags;
}

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

static int is_given(const void *target)
{
    size_t i = 0;
    while (flags[i].target != target)
        i++;
    return given[i];
}

static enum status check_region(struct ps_options *o)
{
    struct ps_region_options *r = &o->region;
    const void *const own[] = {&raw.region.n_regions,   &raw.region.index,
                               &raw.region.steps,       &raw.region.fragments,
                               &raw.region.overlap,     &raw.region.dtype,
                               &raw.region.max_drift,   &raw.region.parent_timeout,
                               &raw.region.overlap_mix, &raw.region.wire_step_ms};
    int is_region = *r->parent_hosts != 0;
    r->wire_auto = strcmp(r->dtype, "auto") == 0;
    const char *wrong = NULL;
    for (size_t i = 0; i < sizeof own / sizeof *own && !is_region; i++)
        if (is_given(own[i]))
            wrong = "--regions, --region_index, --region_steps, --fragments, --overlap_steps, "
                    "--overlap_mix, --parent_wire_dtype, --wire_step_ms, --max_region_drift and "
                    "--parent_timeout are for --parent_hosts";
    if (is_region && r->n_regions < 1)
        wrong = "--parent_hosts needs --regions, how many there are, and --region_index";
    else if (is_region && r->index >= r->n_regions)
        wrong = "--region_index is not below --regions";
    else if (is_region && r->steps % r->fragments != 0)
        wrong = "--region_steps is not a multiple of --fragments";
    else if (is_region && r->overlap >= r->steps / r->fragments)
        wrong = r->fragments > 1 ? "--overlap_steps is not below --region_steps / --fragments"
                                 : "--overlap_steps is not below --region_steps";
    else if (is_region && r->overlap_mix >= 0 && r->overlap == 0)
        wrong = "--overlap_mix is for --overlap_steps";
    else if (is_region && r->overlap_mix < 0 && r->overlap_mix > -1)
        wrong = "--overlap_mix is neither from 0 to 1 nor -1";
    else if (is_region &&
             !dtype_read_two(r->wire_auto ? "fp32" : r->dtype, &r->push_dtype, &r->version_dtype))
        wrong = "--parent_wire_dtype is not auto, nor one or two (with a comma) of " DTYPE_NAMES;
    else if (is_region && is_given(&raw.region.wire_step_ms) && !r->wire_auto)
        wrong = "--wire_step_ms is for --parent_wire_dtype=auto; give both or leave it out";
    else if (is_region && o->serve)
        wrong = "--parent_hosts excludes --serve: a region has one job";
    else if (is_region && r->outer == OPTIM_SGD && r->outer_momentum > 0)
        wrong = "--outer_momentum: --outer_optimizer=sgd has none; it is for momentum and nesterov";
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
                               o->take_over || is_given(&raw.keep)))
        wrong = "--save_steps, --save_secs, --keep_checkpoint_max, --restore and --take_over need "
                "--checkpoint_dir";
    else if (is_given(&raw.straggler_ms) && !o->log_stragglers)
        wrong = "--straggler_ms is for --log_stragglers; give both or leave it out";
    else if (is_given(&raw.metrics_bind) && o->metrics_port == 0)
        wrong = "--metrics_bind is for --metrics_port; give both or leave it out";
    else if (o->min_workers > o->max_workers)
        wrong = "--min_workers is above --max_workers";
    else if (o->checkpoint_dir && o->serve)
        wrong = "--serve and --checkpoint_dir exclude each other: a folder holds one job's "
                "checkpoints";
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

/* What joins has an address of its own, what serves a number. */
static enum status check_place(const struct ps_options *o, struct ps_cluster *c)
{
    const char *wrong = NULL;
    int own = o->leave < 0 && !o->join;
    if (o->join && o->leave >= 0)
        wrong = "--join and --leave exclude each other";
    else if (o->join && !*o->address)
        wrong = "--join needs --address, where the others reach this server";
    else if (o->join && (o->serve || o->restore))
        wrong = "--join excludes --serve and --restore: it takes part in a job that runs";
    if (wrong) {
        LOG_E("%s", wrong);
        return ST_INVALID;
    }
    if (o->join && hosts_problem(o->address)) {
        LOG_E("--address: '%.100s' %s", o->address, hosts_problem(o->address));
        return ST_INVALID;
    }
    if (own && o->task_index >= c->ps.n) {
        LOG_E("--task_index: %" PRId64 " is not below the %d entries of --ps_hosts", o->task_index,
              c->ps.n);
        return ST_INVALID;
    }
    if (!o->join && *o->address) /* one command line may serve both roles */
        LOG_I(
            "--address names a worker, or with --join this server; not used by this server, whose "
            "entry in --ps_hosts counts");
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
            "--ps_hosts is missing; give it all servers, as in --ps_hosts=localhost:2221, or have "
            "the cluster in TF_CONFIG or, with --slurm_ps=N, a Slurm step");
        st = ST_INVALID;
    } else {
        st = check_place(o, c);
    }
done:
    return st;
}
