/* ps/main.c - the parameter server: set-up, and the end. Exit codes: 0 the job is done, or
 * the server has handed on its chunks; 1 a permanent error, 2 usage, 138 a restart may help, 143
 * after SIGTERM (with a checkpoint, if they are kept), 130 after Ctrl-C. */
#include "base/clock.h"
#include "base/cores.h"
#include "base/hosts.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "kernels/vector/vector.h"
#include "net/exchange/status_client.h"
#include "net/security/tls_hooks.h"
#include "ps/admin.h"
#include "ps/node.h"
#include "ps/options.h"
#include "ps/region/region.h"
#include "ps/region/region_server.h"
#include "ps/summary.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { STOP_GRACE_MS = 2000, COMMAND_MS = 10000, LOOK_MS = 50, WHY_BYTES = 512 };
enum { WORKERS_MS = 10000 }; /* for workers to hear that the region has ended */
enum { MAX_AUTO_THREADS = 8 };

static struct ps_options opt;

/* What main waits for, and what the callbacks reach. */
struct app {
    int signal_fd, event_fd;
    _Atomic int job_done, refused, over, failed;
    _Atomic int replaced;    /* by another ps 0, which the region goes on with */
    const char *error;       /* error_of, as it ends; for the region's parent */
    _Atomic int parent_lost; /* the region's: what it learnt last was not delivered */
    _Atomic int cut_off;     /* and before its last step, so that it ends: */
    char why[WHY_BYTES];     /* this is why */
    struct node *node;
    struct thread_pool *threads; /* of updates */
    struct ps_region *region;    /* ps 0's; NULL: this group is none */
    struct region_server *part;  /* of other servers, which are told whether it is one */
    struct coordinator_region hooks;
    int ended;      /* in order */
    int lacks_last; /* and without the last checkpoint */
};

/* Signals are taken by descriptor in the main thread; all other threads inherit the mask. */
static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

/* 1: a signal came, and is still to be taken. */
static int wait_for_signal(void *ctx, int ms)
{
    const struct app *app = ctx;
    struct pollfd fd = {.fd = app->signal_fd, .events = POLLIN};
    return poll(&fd, 1, ms) > 0;
}

static int signal_taken(struct app *app)
{
    struct signalfd_siginfo info;
    return read(app->signal_fd, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : SIGTERM;
}

static void wake(struct app *app)
{
    const uint64_t one = 1;
    if (write(app->event_fd, &one, sizeof one) < 0)
        LOG_E("the main thread could not be woken: %s", strerror(errno));
}

static void set(struct app *app, _Atomic int *what)
{
    atomic_store(what, 1);
    wake(app);
}

static void on_refused(void *ctx)
{
    set(ctx, &((struct app *)ctx)->refused);
}

static void on_done(void *ctx)
{
    set(ctx, &((struct app *)ctx)->job_done);
}

static void on_replaced(void *ctx)
{
    struct app *app = ctx;
    atomic_store(&app->replaced, 1);
    on_refused(ctx);
}

static void on_over(void *ctx)
{
    set(ctx, &((struct app *)ctx)->over);
}

static void on_failed(void *ctx)
{
    set(ctx, &((struct app *)ctx)->failed);
}

static void on_parent_lost(void *ctx, int complete, const char *why)
{
    struct app *app = ctx;
    atomic_store(&app->parent_lost, 1);
    if (complete)
        return;
    snprintf(app->why, sizeof app->why, "the region has ended: %s", why);
    atomic_store(&app->cut_off, 1);
    wake(app);
}

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

static enum status on_takes_job(void *ctx, const struct chunks *chunks,
                                const struct ps_parent_version *restored)
{
    return ps_region_take(((struct app *)ctx)->region, chunks, restored);
}

static void on_plans(void *ctx, struct net_plan *plan, const struct ps_parent_version *restored)
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
        ps_region_hear(app->region, gate, reply);
    else
        region_server_take(app->part, gate, reply);
}

static void on_parent_at(void *ctx, uint64_t of, int64_t step, struct ps_parent_version *out)
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

/* 1: the signal ends the wait. */
static int takes_signal(struct app *app, int signo)
{
    static int draining;
    int is_first = !opt.join && opt.task_index == 0;
    if (signo == SIGUSR1) {
        LOG_I("SIGUSR1: %s",
              opt.checkpoint_dir ? "a checkpoint now" : "no checkpoint without --checkpoint_dir");
        if (opt.checkpoint_dir)
            node_request(app->node);
        return 0;
    }
    if (signo == SIGTERM && opt.drain && is_first)
        LOG_W("--drain: ps 0 coordinates the job and cannot hand on its chunks");
    if (signo != SIGTERM || !opt.drain || is_first || draining)
        return 1;
    draining = 1;
    LOG_I("SIGTERM: this server hands on its chunks, then ends; once more ends at once");
    node_leave(app->node);
    return 0;
}

/* Returns the signal that came, or 0 when the job is done (and --serve does not keep us). */
static int wait_for_end(struct app *app)
{
    struct pollfd fds[2] = {{.fd = app->signal_fd, .events = POLLIN},
                            {.fd = app->event_fd, .events = POLLIN}};
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return SIGTERM;
        struct signalfd_siginfo info;
        if (fds[0].revents && read(app->signal_fd, &info, sizeof info) == sizeof info) {
            if (takes_signal(app, (int)info.ssi_signo))
                return (int)info.ssi_signo;
        }
        uint64_t n_events;
        if (!fds[1].revents || read(app->event_fd, &n_events, sizeof n_events) != sizeof n_events)
            continue;
        if (atomic_load(&app->refused) || atomic_load(&app->over) || atomic_load(&app->failed) ||
            atomic_load(&app->cut_off))
            return 0;
        if (atomic_load(&app->job_done) && !opt.serve)
            return 0;
        LOG_I("the job is done; serving on");
    }
}

/* From here on a second signal ends the process at once. */
static void finish_node(struct app *app)
{
    sigset_t set;
    if (atomic_load(&app->refused))
        return;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    ps_region_await_end(app->region); /* other servers are there until the node ends */
    app->lacks_last = !node_finish(app->node);
    app->ended = 1;
}

static enum status make_node(const struct ps_cluster *c, struct app *app)
{
    struct node_config cfg = {
        .folder = opt.checkpoint_dir,
        .restore = opt.restore,
        .self = c->self,
        .joining = opt.join,
        .address = c->address,
        .ps_hosts = &c->ps,
        .save_steps = opt.save_steps,
        .save_ms = opt.save_secs * 1000,
        .keep = (int)opt.keep,
        .max_model_bytes = opt.max_model_bytes,
        .worker_timeout_ms = opt.worker_timeout * 1000,
        .min_workers = (int)opt.min_workers,
        .refused = on_refused,
        .replaced = on_replaced,
        .over = on_over,
        .failed = on_failed,
        .region = app->region ? &app->hooks : NULL,
        .ctx = app,
    };
    return node_create(&cfg, &app->node);
}

static enum status make_region(const struct ps_cluster *c, struct app *app)
{
    const struct ps_region_options *o = &opt.region;
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
                                         .folder = opt.checkpoint_dir,
                                         .refused = on_refused,
                                         .parent_lost = on_parent_lost,
                                         .ctx = app};
    app->hooks = (struct coordinator_region){on_takes_job, on_plans, on_parent_at, app};
    const struct region_server_config part = {c->address, c->parents.n > 0, on_refused, app};
    if (c->self != 0)
        return region_server_create(&part, &app->part);
    return c->parents.n > 0 ? ps_region_create(&cfg, &app->region) : ST_OK;
}

static void tell_ready(const char *addr)
{
    if (opt.ready_fd < 0)
        return;
    if (dprintf((int)opt.ready_fd, "ready %s\n", addr) < 0)
        LOG_W("--ready_fd: nothing could be written to %" PRId64 ": %s", opt.ready_fd,
              strerror(errno));
    close((int)opt.ready_fd);
}

static void log_stats(struct ps_service *service)
{
    struct ps_service_stats st;
    ps_service_stats(service, &st);
    char from[64] = "";
    if (st.no_chunks) {
        LOG_I("no chunks were here; %.1f MB of gradients in, %.1f MB of parameters out",
              (double)st.received_bytes * 1e-6, (double)st.sent_bytes * 1e-6);
        return;
    }
    if (st.began > 0)
        snprintf(from, sizeof from, ", from step %" PRId64 " to %" PRId64, st.began, st.steps);
    LOG_I("%" PRId64 " steps in %.1f s%s; %.1f MB of gradients in, %.1f MB of parameters out",
          ps_service_steps_made(&st), st.seconds, from, (double)st.received_bytes * 1e-6,
          (double)st.sent_bytes * 1e-6);
}

/* ST_OK, or what kept the figures from being written. */
static enum status write_summary(struct ps_service *service)
{
    struct ps_late_total *late = NULL;
    struct ps_summary s = {.task_index = (int)opt.task_index};
    if (!opt.summary_json)
        return ST_OK;
    enum status st = ps_service_late(service, &late, &s.n_workers);
    if (st != ST_OK)
        LOG_E("--summary_json: out of memory; nothing is written");
    ps_service_stats(service, &s.stats);
    s.late = late;
    if (st == ST_OK)
        st = ps_summary_write(opt.summary_json, &s);
    free(late);
    return st;
}

/* More threads than there is work for only hand it to and fro: with 2 cores, one thread moves a
 * tenth more bytes per second than two, for one worker and for two. */
static int auto_threads(void)
{
    int half = cores_usable().n / 2;
    return half < 1 ? 1 : half > MAX_AUTO_THREADS ? MAX_AUTO_THREADS : half;
}

static int threads_of(int64_t asked)
{
    return asked > 0 ? (int)asked : auto_threads();
}

/* What was to be done is done: no restart helps, but where there was no room. */
static int output_exit_code(enum status st)
{
    return st == ST_FULL ? EXIT_RETRY : st == ST_OK ? 0 : EXIT_PERMANENT;
}

/* Why it ends with EXIT_PERMANENT, for a region's parent; NULL: it does not. */
static const char *error_of(struct app *app, int parent_lost)
{
    return atomic_load(&app->failed)    ? "all workers of the region have ended with an error"
           : atomic_load(&app->refused) ? "the region's server has ended with an error"
           : parent_lost                ? "the region had not reached its parent group"
                                        : NULL;
}

/* Training is over; they ask how it goes on, are refused, and end. */
static void await_workers(struct ps_service *service)
{
    int64_t deadline = clock_deadline_ns(WORKERS_MS);
    while (ps_service_n_here(service) > 0 && clock_now_ns() < deadline)
        poll(NULL, 0, LOOK_MS);
}

static int run_server(struct app *app, struct ps_service *service, struct net_server *server,
                      const struct ps_cluster *c)
{
    security_warn_plain(c->bind);
    LOG_I("vector loops: %s", vector_description());
    LOG_I("listening on %s%s%s", c->bind, *opt.bind ? "; others reach it at " : "",
          *opt.bind ? c->address : "");
    if (*c->pages)
        LOG_I("metrics and the status page: http://%s/", c->pages);
    tell_ready(c->address);
    int sig = wait_for_end(app);
    if (sig)
        LOG_W("%s: stopping%s", strsignal(sig),
              opt.checkpoint_dir ? " after a last checkpoint; once more ends at once" : "");
    int cut_off = atomic_load(&app->cut_off), parent_lost = atomic_load(&app->parent_lost);
    if (cut_off)
        ps_service_close(service, app->why);
    finish_node(app);
    if (cut_off)
        await_workers(service);
    net_server_stop(server, STOP_GRACE_MS);
    log_stats(service);
    app->error = error_of(app, parent_lost);
    int exit_code = app->error ? EXIT_PERMANENT : sig ? 128 + sig : 0;
    if (exit_code == 0 && app->lacks_last) {
        LOG_E("the job is done, but %s lacks its last step, as was said before: fix that (is the "
              "disk full?), then start all servers and workers again with the same flags; they "
              "resume from the newest checkpoint",
              opt.checkpoint_dir);
        exit_code = EXIT_RETRY;
    }
    enum status st = write_summary(service);
    if (st != ST_OK)
        LOG_E("--summary_json=%s: the figures of this server are lost%s", opt.summary_json,
              st == ST_FULL ? "; make room before it is started again" : "");
    return exit_code ? exit_code : output_exit_code(st);
}

/* How long others wait for worker 0; -1: as long as it takes. */
static int64_t first_wait_ms(void)
{
    if (opt.min_workers == 0)
        return -1;
    return opt.worker_timeout > 0 ? opt.worker_timeout * 1000 : 1;
}

static struct ps_service_config service_config(const struct ps_cluster *c, struct app *app)
{
    struct ps_service_config cfg = {
        .self = c->self,
        .address = c->address,
        .ps_hosts = &c->ps,
        .worker_hosts = &c->workers,
        .max_model_bytes = opt.max_model_bytes,
        .max_workers = (int)opt.max_workers,
        .first_wait_ms = first_wait_ms(),
        .serve = opt.serve,
        .shared_memory = opt.shared_memory == 0,
        .threads = app->threads,
        .fault_keep_chunks = opt.fault_keep_chunks,
        .hold_last = c->self == 0 && opt.checkpoint_dir,
        .straggler_ms = opt.log_stragglers ? opt.straggler_ms : 0,
        .started = on_changed,
        .outer = region_server_outer(app->part),
        .first_join = on_first_join,
        .beginning = on_beginning,
        .gate = on_gate,
        .people_changed = on_changed,
        .control = on_control,
        .control_closed = on_control_closed,
        .done = on_done,
        .ctx = app,
    };
    if (app->region) {
        cfg.outer = ps_region_outer(app->region);
        cfg.region = (int)opt.region.index;
        cfg.n_regions = (int)opt.region.n_regions;
    }
    return cfg;
}

static int serve(struct ps_cluster *c, struct app *app)
{
    int exit_code = 0;
    enum status st = ST_OK;
    struct ps_service *service = NULL;
    struct net_server *server = NULL;
    struct ps_status *status = NULL;
    int pages_fd = -1;
    TRY(make_region(c, app));
    /* with one worker, or where one layer has most parameters, it is one update that all wait for
     */
    TRY(thread_pool_create(threads_of(opt.update_threads), &app->threads));
    const struct ps_service_config cfg = service_config(c, app);
    TRY(ps_service_create(&cfg, &service));
    region_server_serve(app->part, service);
    const struct net_server_config net = {.addr = c->bind,
                                          .n_threads = threads_of(opt.threads),
                                          .handler = ps_service_handler(service),
                                          .pause = {wait_for_signal, app}};
    TRY(net_server_bind(&net, &server)); /* the last user of the port is gone from here on: */
    if (*c->pages)
        TRY(http_listen(c->pages, &pages_fd));
    TRY(make_node(c, app)); /* what it wrote into the folder is there */
    TRY(node_start(app->node, service));
    TRY(ps_region_start(app->region, service));
    const struct ps_status_config told = {.service = service,
                                          .node = app->node,
                                          .ps_hosts = &c->ps,
                                          .worker_hosts = &c->workers,
                                          .folder = opt.checkpoint_dir,
                                          .self = c->self,
                                          .pages_fd = pages_fd,
                                          .task = (int)opt.task_index};
    pages_fd = -1; /* given away */
    TRY(ps_status_create(&told, &status));
    const struct net_server_people people = ps_status_people(status);
    net_server_start(server, &people);
    TRY(node_serve(app->node));
    exit_code = run_server(app, service, server, c);
done:
    if (pages_fd >= 0)
        close(pages_fd);
    ps_status_stop(status);
    ps_region_stop(app->region, atomic_load(&app->replaced) ? NULL : app->error);
    region_server_stop(app->part);
    node_destroy(app->node);
    net_server_destroy(server);
    ps_status_destroy(status);
    ps_service_destroy(service);
    ps_region_destroy(app->region);
    region_server_destroy(app->part);
    thread_pool_destroy(app->threads);
    if (st == ST_CANCELLED && wait_for_signal(app, 0)) {
        exit_code = 128 + signal_taken(app);
        LOG_W("%s: stopping before the port was free", strsignal(exit_code - 128));
    }
    return exit_code ? exit_code : status_exit_code(st);
}

/* --leave: asks ps 0, and says what it answers. */
static int leave(const struct ps_cluster *c)
{
    struct net_command command = {.kind = COMMAND_DRAIN_SERVER, .index = (int)opt.leave};
    struct net_command_reply reply;
    char why[CONTROL_TEXT_BYTES];
    enum status st = net_command_send(c->ps.addr[0], &command, COMMAND_MS, &reply, why);
    if (st != ST_OK) {
        LOG_E("ps:0 (%s) does not take the command: %s", c->ps.addr[0], why);
        return tls_hooks_refused() ? EXIT_PERMANENT : status_exit_code(st);
    }
    if (reply.answer == COMMAND_REFUSED) {
        LOG_E("ps:0 (%s) refuses: %s", c->ps.addr[0], reply.text);
        return EXIT_PERMANENT;
    }
    LOG_I("ps:0 (%s): %s", c->ps.addr[0], reply.text);
    return 0;
}

int main(int argc, char **argv)
{
    struct ps_cluster cluster = {0};
    struct app app = {0};
    int exit_now = 0, exit_code = EXIT_USAGE;
    signals_ignore_file_limit();
    log_init("ps", -1, LOG_LEVEL_INFO);
    if (ps_options_parse(argc, argv, &opt, &exit_now) != ST_OK)
        return EXIT_USAGE;
    if (exit_now)
        return 0;
    log_init("ps", -1, (enum log_level)opt.log_level);
    enum status st = ps_cluster_find(&opt, &cluster);
    log_init("ps", opt.join || opt.leave >= 0 ? -1 : (int)opt.task_index,
             (enum log_level)opt.log_level);
    log_start();
    if (st == ST_OK)
        cluster_log(&cluster.found);
    ps_options_dump();
    if (st == ST_OK)
        st = ps_options_check(&opt);
    if (status_exit_code(st) == EXIT_RETRY)
        exit_code = EXIT_RETRY;
    opt.security.role = opt.leave >= 0 ? ROLE_ADMIN : ROLE_PS;
    int ready = st == ST_OK && ps_cluster_place(&opt, &cluster) == ST_OK &&
                security_start(&opt.security) == ST_OK;
    if (ready && opt.trace && (st = trace_open(opt.trace, "ps", (int)opt.task_index)) != ST_OK) {
        exit_code = status_exit_code(st);
        ready = 0;
    }
    if (ready && opt.leave >= 0) {
        exit_code = leave(&cluster);
    } else if (ready) {
        app.signal_fd = open_signals();
        app.event_fd = eventfd(0, EFD_CLOEXEC);
        exit_code = EXIT_RETRY;
        if (app.signal_fd < 0 || app.event_fd < 0)
            LOG_E("no descriptor to be had: %s", strerror(errno));
        else
            exit_code = serve(&cluster, &app);
    }
    st = trace_close();
    if (exit_code == 0)
        exit_code = output_exit_code(st);
    if (opt.checkpoint_dir && app.ended) /* the very last: who is killed after it looks like new */
        node_ended(opt.checkpoint_dir, cluster.address);
    hosts_free(&cluster.ps);
    hosts_free(&cluster.workers);
    hosts_free(&cluster.parents);
    return exit_code;
}
