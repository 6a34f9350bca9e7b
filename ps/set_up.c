/* ps/set_up.c - creates and connects the server's objects (set_up.h). */
#include "ps/set_up.h"
#include "base/cores.h"
#include "base/descriptors.h"
#include "base/process.h"
#include "base/slow_wait.h"
#include "base/threads.h"
#include "net/rpc/environment.h"
#include "ps/shutdown.h"
#include <signal.h>
#include <unistd.h>

enum {
    MAX_AUTO_THREADS = 8,
    /* descriptors for a segment, the listening socket and a connection under test */
    OWN_DESCRIPTORS = 4,
    OWN_THREADS = 5,  /* threads for members, plans, ps 0, the coordinator and its folder */
    START_END_S = 15, /* time limit of a start that a signal ends */
    /* threads for this server's parts of checkpoints, for its file, and for reading the folder
     * while ps 0 is missing */
    CHECKPOINT_THREADS = 3
};

static void on_changed(void *ctx)
{
    struct app *app = ctx;
    node_changed(app->node);
    ps_region_wake(app->region);
}

static enum status on_first_join(void *ctx, const struct net_join *join, char *why,
                                 size_t why_bytes)
{
    struct app *app = ctx;
    enum status st = app->region ? ps_region_check(app->region, join, why, why_bytes) : ST_OK;
    return st == ST_OK ? node_first_join(app->node, join, why, why_bytes) : st;
}

static enum status on_takes_job(void *ctx, const struct net_join *join,
                                const struct checkpoint_parent_version *restored)
{
    return ps_region_take(((struct app *)ctx)->region, join, restored);
}

static void on_plans(void *ctx, struct net_plan *plan,
                     const struct checkpoint_parent_version *restored)
{
    ps_region_plans(((struct app *)ctx)->region, plan, restored);
}

static enum status on_beginning(void *ctx, const struct net_plan *plan)
{
    const struct app *a = ctx;
    return a->region ? ps_region_begin(a->region, plan) : region_server_begin(a->part, plan);
}

static void on_gate(void *ctx, const struct net_gate *gate, struct net_squares_reply *reply)
{
    struct app *app = ctx;
    if (app->region)
        region_chunks_receive(app->region, gate, reply);
    else
        region_server_take(app->part, gate, reply);
}

static void on_parent_at(void *ctx, uint64_t of, int64_t step,
                         struct checkpoint_parent_version *out)
{
    ps_region_parent_at(((struct app *)ctx)->region, of, step, out);
}

static void on_control(void *ctx, struct net_server *server, const struct net_control *request,
                       uint64_t call)
{
    node_control(((struct app *)ctx)->node, server, request, call);
}

static void on_control_closed(void *ctx, uint64_t call)
{
    node_control_closed(((struct app *)ctx)->node, call);
}

/* Limits the time of the start once a signal is pending: the main thread may hang in a call of the
 * folder. The signal stays pending for the main thread. */
static void on_signal(void *ctx)
{
    struct app *app = ctx;
    int sig = ps_shutdown_take_signal(app);
    process_end_within(START_END_S, 128 + sig, app->opt->checkpoint_dir);
    kill(getpid(), sig);
}

enum status ps_set_up_node(const struct ps_cluster *c, struct app *app)
{
    struct node_config cfg = {
        .folder = app->opt->checkpoint_dir,
        .restore = app->opt->restore,
        .take_over = app->opt->take_over,
        .self = c->self,
        .joining = app->opt->join,
        .address = c->address,
        .ps_hosts = &c->ps,
        .save_steps = app->opt->save_steps,
        .save_ms = app->opt->save_secs * 1000,
        .keep = (int)app->opt->keep_checkpoint_max,
        .max_model_bytes = app->opt->max_model_bytes,
        .worker_timeout_ms = app->opt->worker_timeout * 1000,
        .min_workers = (int)app->opt->min_workers,
        .serves = app->opt->serve,
        .refused = ps_shutdown_on_refused,
        .replaced = ps_shutdown_on_replaced,
        .unsure = ps_shutdown_on_unsure,
        .over = ps_shutdown_on_over,
        .failed = ps_shutdown_on_failed,
        .region = app->region ? &app->hooks : NULL,
        .ctx = app,
    };
    const char *read = app->opt->restore ? app->opt->restore : app->opt->checkpoint_dir;
    struct slow_wait *wait = read ? slow_wait_begin(read, app->signal_fd, on_signal, app) : NULL;
    enum status st = node_create(&cfg, &app->node);
    slow_wait_end(wait);
    return st;
}

enum status ps_set_up_region(const struct ps_cluster *c, struct app *app)
{
    const struct ps_region_options *o = &app->opt->region;
    const struct ps_region_config cfg = {.parents = &c->parents,
                                         .address = c->address,
                                         .index = (int)o->index,
                                         .n_regions = (int)o->n_regions,
                                         .steps = o->steps / o->fragments,
                                         .fragments = (int)o->fragments,
                                         .overlap = o->overlap,
                                         .overlap_mix = (float)o->overlap_mix,
                                         .max_drift = o->max_drift,
                                         .outer = o->outer,
                                         .outer_rate = o->outer_rate,
                                         .outer_momentum = o->outer_momentum,
                                         .push_dtype = o->push_dtype,
                                         .version_dtype = o->version_dtype,
                                         .wire_auto = o->wire_auto,
                                         .step_ms = (int)o->wire_step_ms,
                                         .parent_timeout = o->parent_timeout,
                                         .folder = app->opt->checkpoint_dir,
                                         .refused = ps_shutdown_on_refused,
                                         .parent_lost = ps_shutdown_on_parent_lost,
                                         .ctx = app};
    app->hooks = (struct coordinator_region_hooks){on_takes_job, on_plans, on_parent_at, app};
    const struct region_server_config part = {c->address, c->parents.n > 0, ps_shutdown_on_refused,
                                              app};
    if (c->self != 0)
        return region_server_create(&part, &app->part);
    return c->parents.n > 0 ? ps_region_create(&cfg, &app->region) : ST_OK;
}

/* Returns the number of message threads for the usable cores. Surplus threads only pass the work to
 * each other: on 2 cores, one thread moves a tenth more bytes per second than two threads, both for
 * one worker and for two. */
static int auto_threads(void)
{
    int half = cores_usable().n / 2;
    return half < 1 ? 1 : half > MAX_AUTO_THREADS ? MAX_AUTO_THREADS : half;
}

int ps_set_up_n_threads(int64_t asked)
{
    return asked > 0 ? (int)asked : auto_threads();
}

/* Returns the number of threads for updates, which leaves two cores to the message threads and
 * to workers of this host. On 2 cores two threads run updates all the same, since a worker that
 * waits for versions uses no core. */
int ps_set_up_n_update_threads(int64_t asked)
{
    int cores = cores_usable().n;
    if (asked > 0)
        return (int)asked;
    return cores < 2 ? 0 : cores < 4 ? 2 : cores - 2;
}

enum status ps_set_up_reserve(const struct ps_options *opt, const struct ps_cluster *c)
{
    int threads = OWN_THREADS + (opt->checkpoint_dir != NULL) * CHECKPOINT_THREADS +
                  net_environment_threads() + ps_set_up_n_threads(opt->threads) +
                  ps_set_up_n_update_threads(opt->update_threads);
    int descriptors = OWN_DESCRIPTORS + NET_GRPC_DESCRIPTORS + net_accept_kept_descriptors() +
                      c->ps.n + c->workers.n + c->parents.n;
    enum status st = threads_reserve(threads);
    return st == ST_OK ? descriptors_reserve(descriptors) : st;
}

/* Returns how long other workers wait for worker 0; -1: without a limit. */
static int64_t first_wait_ms(const struct ps_options *opt)
{
    if (opt->min_workers == 0)
        return -1;
    return opt->worker_timeout > 0 ? opt->worker_timeout * 1000 : 1;
}

struct service_config ps_set_up_service_config(const struct ps_cluster *c, struct app *app)
{
    struct service_config cfg = {
        .self = c->self,
        .address = c->address,
        .ps_hosts = &c->ps,
        .worker_hosts = &c->workers,
        .max_model_bytes = app->opt->max_model_bytes,
        .max_workers = (int)app->opt->max_workers,
        .first_wait_ms = first_wait_ms(app->opt),
        .serve = app->opt->serve,
        .shared_memory = app->opt->shared_memory == 0,
        .threads = app->threads,
        .fault_keep_chunks = app->opt->fault_keep_chunks,
        .hold_last = c->self == 0 && app->opt->checkpoint_dir,
        .straggler_ms = app->opt->log_stragglers ? app->opt->straggler_ms : 0,
        .started = on_changed,
        .outer = region_server_outer(app->part),
        .first_join = on_first_join,
        .beginning = on_beginning,
        .gate = on_gate,
        .roster_changed = on_changed,
        .control = on_control,
        .control_closed = on_control_closed,
        .done = ps_shutdown_on_done,
        .ctx = app,
    };
    if (app->region) {
        cfg.outer = ps_region_outer(app->region);
        cfg.region = (int)app->opt->region.index;
        cfg.n_regions = (int)app->opt->region.n_regions;
    }
    return cfg;
}
