/* ps/main.c - the parameter server: flags, set-up, and the end. Exit codes: 0 the job is done, or
 * the server has handed on its chunks; 1 a permanent error, 2 usage, 138 a restart may help, 143
 * after SIGTERM (with a checkpoint, if they are kept), 130 after Ctrl-C. */
#include "base/cores.h"
#include "base/flags_tensorflow.h"
#include "base/hosts.h"
#include "base/job_name.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/trace.h"
#include "kernels/vector/vector.h"
#include "net/exchange/status_client.h"
#include "net/rpc/environment.h"
#include "ps/admin.h"
#include "ps/bind.h"
#include "ps/node.h"
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

enum { STOP_GRACE_MS = 2000, COMMAND_MS = 10000, MAX_AUTO_THREADS = 8 };

static const char *opt_ps_hosts = "", *opt_worker_hosts = "", *opt_job_name = "ps", *opt_trace;
static const char *opt_summary_json;
static int64_t opt_task_index = 0, opt_ready_fd = -1, opt_threads = 0;
static int64_t opt_max_model_bytes = (int64_t)8 << 30, opt_straggler_ms = 10;
static int opt_shared_memory = 0; /* of the choices: auto */
static const char *opt_checkpoint_dir, *opt_restore;
static int64_t opt_save_steps = 0, opt_save_secs = -1, opt_keep = 5;
static const char *opt_address = "", *opt_bind = "";
static int64_t opt_worker_timeout = 60, opt_min_workers = 0, opt_leave = -1;
static int64_t opt_max_workers = JOB_MAX_WORKERS;
static int opt_join = 0, opt_drain = 0, opt_fault_keep_chunks = 0;
static int opt_serve = 0, opt_log_stragglers = 0, opt_log_level = LOG_LEVEL_INFO;

static const struct flag flags[] = {
    {"ps_hosts", FLAG_STRING, &opt_ps_hosts, 0, 0, "HOST:PORT,...", NULL,
     "All parameter servers, in order; this one listens on its own entry", "Cluster:"},
    {"worker_hosts", FLAG_STRING, &opt_worker_hosts, 0, 0, "HOST:PORT,...", NULL,
     "All workers, in order; without it the first worker says how many", NULL},
    {"job_name", FLAG_STRING, &opt_job_name, 0, 0, "ps", NULL, "This program's job", NULL},
    {"task_index", FLAG_INT, &opt_task_index, 0, HOSTS_MAX - 1, NULL, NULL,
     "Place of this server in --ps_hosts", NULL},
    {"bind", FLAG_STRING, &opt_bind, 0, 0, "HOST[:PORT]", NULL,
     "Listen here, where others reach this server at its own address only through NAT or a "
     "container's published port: --bind=0.0.0.0 is all of IPv4; left out, at that address",
     NULL},
    {"serve", FLAG_BOOL, &opt_serve, 0, 0, NULL, NULL,
     "Stay up when the job is done: give out its parameters, take the next job", "Server:"},
    {"inter_op_threads", FLAG_INT, &opt_threads, 0, 256, NULL, NULL,
     "Threads that handle what workers send; 0: half the cores, 1 to 8", NULL},
    {"shared_memory", FLAG_CHOICE, &opt_shared_memory, 0, 0, NULL, "auto|off",
     "Payloads of workers on this host through shared memory", NULL},
    {"max_model_bytes", FLAG_INT, &opt_max_model_bytes, 4, 1e15, "BYTES", NULL,
     "Largest model taken, in bytes of parameters on this server", NULL},
    {"checkpoint_dir", FLAG_STRING, &opt_checkpoint_dir, 0, 0, "DIR", NULL,
     "Keep checkpoints in this folder, one for all servers or each its own; go on from the newest",
     "Checkpoints:"},
    {"save_steps", FLAG_INT, &opt_save_steps, 0, 1e15, "N", NULL,
     "A checkpoint every N steps (0: not by steps); of ps 0, as the next two", NULL},
    {"save_secs", FLAG_INT, &opt_save_secs, -1, 1e9, "S", NULL,
     "A checkpoint every S seconds (0: not by time; -1: 600 without --save_steps, else 0)", NULL},
    {"keep_checkpoint_max", FLAG_INT, &opt_keep, 0, 1000000, "N", NULL,
     "Older checkpoints are removed (0: none is)", NULL},
    {"restore", FLAG_STRING, &opt_restore, 0, 0, "PATH", NULL,
     "Go on from this checkpoint: a weir-E.G-STEP.json, or a folder's newest that is whole", NULL},
    {"worker_timeout", FLAG_INT, &opt_worker_timeout, 0, 1e9, "S", NULL,
     "Training goes on without a worker that has not come back for so long (0: at once); of ps 0",
     "Coming and going:"},
    {"min_workers", FLAG_INT, &opt_min_workers, 0, JOB_MAX_WORKERS, "N", NULL,
     "With fewer, training waits; of ps 0. Given, those that never came are gone without as well "
     "(0: 1, and all are waited for at the start)",
     NULL},
    {"max_workers", FLAG_INT, &opt_max_workers, 1, JOB_MAX_WORKERS, "N", NULL,
     "A job of more is refused, and who would be one more in a running job", NULL},
    {"join", FLAG_BOOL, &opt_join, 0, 0, NULL, NULL,
     "Join a running job as one server more; needs --ps_hosts with ps 0 at least, and --address",
     NULL},
    {"address", FLAG_STRING, &opt_address, 0, 0, "HOST:PORT", NULL,
     "With --join: where this server listens, and workers and servers reach it", NULL},
    {"drain", FLAG_BOOL, &opt_drain, 0, 0, NULL, NULL,
     "On SIGTERM hand all chunks on to the other servers, then end with 0; ps 0, which "
     "coordinates, "
     "cannot, and ends as without",
     NULL},
    {"leave", FLAG_INT, &opt_leave, -1, HOSTS_MAX - 1, "INDEX", NULL,
     "No server, a command: the running job's server with this number hands its chunks on and "
     "ends (-1: no)",
     NULL},
    {"log_stragglers", FLAG_BOOL, &opt_log_stragglers, 0, 0, NULL, NULL,
     "A line for each step that waited for one worker longer than --straggler_ms", "Output:"},
    {"straggler_ms", FLAG_INT, &opt_straggler_ms, 1, 1000000000, "MS", NULL,
     "From how long a wait on --log_stragglers names it", NULL},
    {"summary_json", FLAG_STRING, &opt_summary_json, 0, 0, "FILE", NULL,
     "Write the final figures here, with how long each worker was waited for", NULL},
    {"trace", FLAG_STRING, &opt_trace, 0, 0, "FILE", NULL,
     "Write here, at the end, what each thread did when (Chrome trace JSON)", NULL},
    {"log_level", FLAG_CHOICE, &opt_log_level, 0, 0, NULL, "debug|info|warn|error",
     "What is logged on stderr", NULL},
    {"ready_fd", FLAG_INT, &opt_ready_fd, -1, 65535, "FD", NULL,
     "Write 'ready ADDRESS' to this descriptor when listening, then close it (-1: no)", NULL},
    {"fault_keep_chunks", FLAG_BOOL, &opt_fault_keep_chunks, 0, 0, NULL, NULL,
     "For tests: the other servers, to which chunks are to move, are given none", NULL},
#include "ps/worker_flags.inc" /* after ps's own, which count where a name is in both */
};
static const struct flags_program program = {
    .name = "ps",
    .doc =
        "Weir's parameter server: holds a model's parameters while workers train it. Exits with 0 "
        "when the job is done or its chunks are handed on, 1 after an error that stays, 2 after "
        "one in the flags, 138 where starting it again may help; 143 after SIGTERM, 130 after "
        "Ctrl-C. The worker's flags are taken as well and not used, so that one command line can "
        "serve both.",
    .flags = flags,
    .n_flags = sizeof flags / sizeof *flags,
    .foreign = flags_tensorflow,
};

struct cluster {
    struct hosts ps, workers;
    int self;            /* place in ps; -1: it joins */
    const char *address; /* of this server */
    char bind[BIND_BYTES];
};

/* What main waits for, and what the callbacks reach. */
struct app {
    int signal_fd, event_fd;
    _Atomic int job_done, refused, over;
    struct node *node;
    int ended; /* in order */
};

static enum status check_flags(void)
{
    const char *wrong = NULL;
    if (opt_checkpoint_dir && !*opt_checkpoint_dir)
        opt_checkpoint_dir = NULL;
    if (!opt_checkpoint_dir && (opt_save_steps > 0 || opt_save_secs > 0 || opt_restore))
        wrong = "--save_steps, --save_secs and --restore need --checkpoint_dir";
    else if (opt_min_workers > opt_max_workers)
        wrong = "--min_workers is above --max_workers";
    else if (opt_checkpoint_dir && opt_serve)
        wrong = "--serve and --checkpoint_dir exclude each other: a folder holds one job's "
                "checkpoints";
    if (opt_save_secs < 0)
        opt_save_secs = opt_save_steps > 0 ? 0 : 600;
    if (wrong)
        LOG_E("%s", wrong);
    return wrong ? ST_INVALID : ST_OK;
}

/* What joins has an address of its own, what serves a number. */
static enum status check_place(struct cluster *c)
{
    const char *wrong = NULL;
    int own = opt_leave < 0 && !opt_join;
    if (opt_join && opt_leave >= 0)
        wrong = "--join and --leave exclude each other";
    else if (opt_join && !*opt_address)
        wrong = "--join needs --address, where the others reach this server";
    else if (!opt_join && *opt_address)
        wrong = "--address is for --join alone; else this server's entry in --ps_hosts counts";
    else if (opt_join && (opt_serve || opt_restore))
        wrong = "--join excludes --serve and --restore: it takes part in a job that runs";
    if (wrong) {
        LOG_E("%s", wrong);
        return ST_INVALID;
    }
    if (opt_join && hosts_problem(opt_address)) {
        LOG_E("--address: '%.100s' %s", opt_address, hosts_problem(opt_address));
        return ST_INVALID;
    }
    if (own && opt_task_index >= c->ps.n) {
        LOG_E("--task_index: %" PRId64 " is not below the %d entries of --ps_hosts", opt_task_index,
              c->ps.n);
        return ST_INVALID;
    }
    c->self = opt_join ? -1 : (int)opt_task_index;
    c->address = opt_join ? opt_address : c->ps.addr[own ? opt_task_index : 0];
    return ps_bind_address(opt_bind, c->address, c->bind);
}

static enum status read_cluster(struct cluster *c)
{
    enum status st = ST_OK;
    TRY(job_name_check_ps(opt_job_name));
    TRY(hosts_parse(opt_ps_hosts, "ps_hosts", &c->ps));
    TRY(hosts_parse(opt_worker_hosts, "worker_hosts", &c->workers));
    TRY(hosts_check_tf_config(&c->ps));
    TRY(net_environment_check());
    if (c->ps.n == 0) {
        LOG_E("--ps_hosts is missing; give it all servers, as in --ps_hosts=localhost:2221");
        st = ST_INVALID;
    } else {
        st = check_place(c);
    }
done:
    return st;
}

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

static void on_done(void *ctx)
{
    struct app *app = ctx;
    atomic_store(&app->job_done, 1);
    wake(app);
}

static void on_refused(void *ctx)
{
    struct app *app = ctx;
    atomic_store(&app->refused, 1);
    wake(app);
}

static void on_over(void *ctx)
{
    struct app *app = ctx;
    atomic_store(&app->over, 1);
    wake(app);
}

static void on_changed(void *ctx)
{
    struct app *app = ctx;
    node_changed(app->node);
}

static enum status on_first_join(void *ctx, const struct net_join *join, char *why,
                                 size_t why_bytes)
{
    struct app *app = ctx;
    return node_first_join(app->node, join, why, why_bytes);
}

static void on_control(void *ctx, struct net_server *server, const struct net_control *request,
                       uint64_t call)
{
    struct app *app = ctx;
    node_control(app->node, server, request, call);
}

static void on_control_closed(void *ctx, uint64_t call)
{
    struct app *app = ctx;
    node_control_closed(app->node, call);
}

/* 1: the signal ends the wait. */
static int takes_signal(struct app *app, int signo)
{
    static int draining;
    int is_first = !opt_join && opt_task_index == 0;
    if (signo == SIGUSR1) {
        LOG_I("SIGUSR1: %s",
              opt_checkpoint_dir ? "a checkpoint now" : "no checkpoint without --checkpoint_dir");
        if (opt_checkpoint_dir)
            node_request(app->node);
        return 0;
    }
    if (signo == SIGTERM && opt_drain && is_first)
        LOG_W("--drain: ps 0 coordinates the job and cannot hand on its chunks");
    if (signo != SIGTERM || !opt_drain || is_first || draining)
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
        if (atomic_load(&app->refused) || atomic_load(&app->over))
            return 0;
        if (atomic_load(&app->job_done) && !opt_serve)
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
    node_finish(app->node);
    app->ended = 1;
}

static enum status make_node(const struct cluster *c, struct app *app)
{
    struct node_config cfg = {
        .folder = opt_checkpoint_dir,
        .restore = opt_restore,
        .self = c->self,
        .joining = opt_join,
        .address = c->address,
        .ps_hosts = &c->ps,
        .save_steps = opt_save_steps,
        .save_ms = opt_save_secs * 1000,
        .keep = (int)opt_keep,
        .max_model_bytes = opt_max_model_bytes,
        .worker_timeout_ms = opt_worker_timeout * 1000,
        .min_workers = (int)opt_min_workers,
        .refused = on_refused,
        .over = on_over,
        .ctx = app,
    };
    return node_create(&cfg, &app->node);
}

static void tell_ready(const char *addr)
{
    if (opt_ready_fd < 0)
        return;
    if (dprintf((int)opt_ready_fd, "ready %s\n", addr) < 0)
        LOG_W("--ready_fd: nothing could be written to %" PRId64 ": %s", opt_ready_fd,
              strerror(errno));
    close((int)opt_ready_fd);
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
          st.steps > st.began ? st.steps - st.began : 0, st.seconds, from,
          (double)st.received_bytes * 1e-6, (double)st.sent_bytes * 1e-6);
}

/* ST_OK, or what kept the figures from being written. */
static enum status write_summary(struct ps_service *service)
{
    struct ps_late_total *late = NULL;
    struct ps_summary s = {.task_index = (int)opt_task_index};
    if (!opt_summary_json)
        return ST_OK;
    enum status st = ps_service_late(service, &late, &s.n_workers);
    if (st != ST_OK)
        LOG_E("--summary_json: out of memory; nothing is written");
    ps_service_stats(service, &s.stats);
    s.late = late;
    if (st == ST_OK)
        st = ps_summary_write(opt_summary_json, &s);
    free(late);
    return st;
}

/* More threads than there is work for only hand it to and fro: with 2 cores, one thread moves a
 * tenth more bytes per second than two, for one worker and for two. */
static int n_threads(void)
{
    int half = cores_usable().n / 2;
    if (opt_threads > 0)
        return (int)opt_threads;
    return half < 1 ? 1 : half > MAX_AUTO_THREADS ? MAX_AUTO_THREADS : half;
}

static int run_server(struct app *app, struct ps_service *service, struct net_server *server,
                      const struct cluster *c)
{
    const char *addr = c->bind;
    if (!hosts_is_loopback(addr))
        LOG_W("%s is not a loopback address: traffic is neither encrypted nor authenticated; let "
              "only a trusted network or IPSec reach it",
              addr);
    LOG_I("vector loops: %s", vector_description());
    LOG_I("listening on %s%s%s", addr, *opt_bind ? "; others reach it at " : "",
          *opt_bind ? c->address : "");
    tell_ready(c->address);
    int sig = wait_for_end(app);
    if (sig)
        LOG_W("%s: stopping%s", strsignal(sig),
              opt_checkpoint_dir ? " after a last checkpoint; once more ends at once" : "");
    finish_node(app);
    net_server_stop(server, STOP_GRACE_MS);
    log_stats(service);
    int exit_code = atomic_load(&app->refused) ? EXIT_PERMANENT : sig ? 128 + sig : 0;
    if (write_summary(service) != ST_OK && exit_code == 0)
        exit_code = EXIT_PERMANENT; /* the job is done: no restart helps */
    return exit_code;
}

/* How long others wait for worker 0; -1: as long as it takes. */
static int64_t first_wait_ms(void)
{
    if (opt_min_workers == 0)
        return -1;
    return opt_worker_timeout > 0 ? opt_worker_timeout * 1000 : 1;
}

static int serve(struct cluster *c, struct app *app)
{
    int exit_code = 0;
    enum status st = ST_OK;
    struct ps_service *service = NULL;
    struct net_server *server = NULL;
    struct ps_status *status = NULL;
    struct ps_service_config cfg = {
        .self = c->self,
        .address = c->address,
        .ps_hosts = &c->ps,
        .worker_hosts = &c->workers,
        .max_model_bytes = opt_max_model_bytes,
        .max_workers = (int)opt_max_workers,
        .first_wait_ms = first_wait_ms(),
        .serve = opt_serve,
        .shared_memory = opt_shared_memory == 0,
        .fault_keep_chunks = opt_fault_keep_chunks,
        .hold_last = c->self == 0 && opt_checkpoint_dir,
        .straggler_ms = opt_log_stragglers ? opt_straggler_ms : 0,
        .started = on_changed,
        .first_join = on_first_join,
        .people_changed = on_changed,
        .control = on_control,
        .control_closed = on_control_closed,
        .done = on_done,
        .ctx = app,
    };
    TRY(ps_service_create(&cfg, &service));
    const struct net_server_config net = {.addr = c->bind,
                                          .n_threads = n_threads(),
                                          .handler = ps_service_handler(service),
                                          .pause = {wait_for_signal, app}};
    TRY(net_server_bind(&net, &server)); /* the last user of the port is gone from here on: */
    TRY(make_node(c, app));              /* what it wrote into the folder is there */
    TRY(node_start(app->node, service));
    const struct ps_status_config told = {.service = service,
                                          .node = app->node,
                                          .ps_hosts = &c->ps,
                                          .worker_hosts = &c->workers,
                                          .folder = opt_checkpoint_dir,
                                          .self = c->self};
    TRY(ps_status_create(&told, &status));
    const struct net_server_people people = ps_status_people(status);
    net_server_start(server, &people);
    TRY(node_serve(app->node));
    exit_code = run_server(app, service, server, c);
done:
    node_destroy(app->node);
    net_server_destroy(server);
    ps_status_destroy(status);
    ps_service_destroy(service);
    if (st == ST_CANCELLED && wait_for_signal(app, 0)) {
        exit_code = 128 + signal_taken(app);
        LOG_W("%s: stopping before the port was free", strsignal(exit_code - 128));
    }
    return exit_code ? exit_code : status_exit_code(st);
}

/* --leave: asks ps 0, and says what it answers. */
static int leave(const struct cluster *c)
{
    struct net_command command = {.kind = COMMAND_DRAIN_SERVER, .index = (int)opt_leave};
    struct net_command_reply reply;
    char why[CONTROL_TEXT_BYTES];
    enum status st = net_command_send(c->ps.addr[0], &command, COMMAND_MS, &reply, why);
    if (st != ST_OK) {
        LOG_E("ps:0 (%s) does not take the command: %s", c->ps.addr[0], why);
        return status_exit_code(st);
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
    struct cluster cluster = {0};
    struct app app = {0};
    int exit_now = 0, exit_code = EXIT_USAGE;
    signals_ignore_file_limit();
    log_init("ps", -1, LOG_LEVEL_INFO);
    if (flags_parse(&program, argc, argv, &exit_now) != ST_OK)
        return EXIT_USAGE;
    if (exit_now)
        return 0;
    log_init("ps", opt_join || opt_leave >= 0 ? -1 : (int)opt_task_index,
             (enum log_level)opt_log_level);
    log_start();
    flags_dump(&program);
    enum status st = ST_OK;
    int ready = check_flags() == ST_OK && read_cluster(&cluster) == ST_OK;
    if (ready && opt_trace)
        st = trace_open(opt_trace, "ps", (int)opt_task_index);
    if (st != ST_OK) {
        exit_code = status_exit_code(st);
        ready = 0;
    }
    if (ready && opt_leave >= 0) {
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
    if (trace_close() != ST_OK && exit_code == 0)
        exit_code = EXIT_PERMANENT;      /* what was to be done is done: no restart helps */
    if (opt_checkpoint_dir && app.ended) /* the very last: who is killed after it looks like new */
        node_ended(opt_checkpoint_dir, cluster.address);
    hosts_free(&cluster.ps);
    hosts_free(&cluster.workers);
    return exit_code;
}
