/* ps/main.c - the parameter server, from its flags to its exit. It exits with 0 when the job is
 * done or the server has handed on its chunks, with 1 after a permanent error, 2 after wrong usage,
 * 138 if a restart may help, 143 after SIGTERM (and a last checkpoint, if there is a folder), and
 * 130 after Ctrl-C. */
#include "base/clock.h"
#include "base/hosts.h"
#include "base/log.h"
#include "base/process.h"
#include "base/trace.h"
#include "files/json_text.h"
#include "kernels/vector/vector.h"
#include "net/exchange/status_client.h"
#include "net/security/tls_client.h"
#include "ps/admin.h"
#include "ps/set_up.h"
#include "ps/shutdown.h"
#include "ps/summary.h"
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { STOP_GRACE_MS = 2000, COMMAND_MS = 10000, LOOK_MS = 50 };
enum { WORKERS_MS = 10000 }; /* time for workers to receive the message that the region has ended */
enum { END_S = 15 };         /* time limit of the shutdown after the last checkpoint */

static struct ps_options opt;

static void report_ready(const char *addr)
{
    if (opt.ready_fd < 0)
        return;
    if (dprintf((int)opt.ready_fd, "ready %s\n", addr) < 0)
        LOG_W("--ready_fd: cannot write to descriptor %" PRId64 ": %s", opt.ready_fd,
              strerror(errno));
    close((int)opt.ready_fd);
}

static void log_stats(struct service *service)
{
    struct service_stats st;
    service_stats(service, &st);
    char from[64] = "";
    if (st.no_chunks) {
        LOG_I(
            "this server had no chunks; %.1f MB of gradients received, %.1f MB of parameters sent",
            (double)st.received_bytes * 1e-6, (double)st.sent_bytes * 1e-6);
        return;
    }
    if (st.began > 0)
        snprintf(from, sizeof from, ", from step %" PRId64 " to %" PRId64, st.began, st.steps);
    LOG_I("%" PRId64
          " steps in %.1f s%s; %.1f MB of gradients received, %.1f MB of parameters sent",
          service_steps_made(&st), st.seconds, from, (double)st.received_bytes * 1e-6,
          (double)st.sent_bytes * 1e-6);
}

/* Writes the figures of --summary_json. Returns ST_OK or the reason of the failure. */
static enum status write_summary(struct service *service)
{
    struct late_total *late = NULL;
    struct ps_summary s = {.task_index = (int)opt.task_index};
    if (!opt.summary_json)
        return ST_OK;
    enum status st = generation_lateness(service, &late, &s.n_workers);
    if (st != ST_OK)
        LOG_E("--summary_json: out of memory; nothing is written");
    service_stats(service, &s.stats);
    s.late = late;
    if (st == ST_OK)
        st = ps_summary_write(opt.summary_json, &s);
    free(late);
    return st;
}

/* Returns the exit code after the job's end. `st` is the result of writing the job's figures: if
 * that failed, a restart helps only if the disk was full. */
static int output_exit_code(enum status st)
{
    return st == ST_FULL ? EXIT_RETRY : st == ST_OK ? 0 : EXIT_PERMANENT;
}

/* Returns the reason of EXIT_PERMANENT, for a region's parent; NULL: another exit code. */
static const char *error_of(struct app *app, int parent_lost)
{
    return atomic_load(&app->unsure)    ? NULL
           : atomic_load(&app->failed)  ? "all workers of the region have ended with an error"
           : atomic_load(&app->refused) ? "the region's server has ended with an error"
           : parent_lost                ? "the region had not reached its parent group"
                                        : NULL;
}

/* Waits until the workers have left. Training is over, so the server refuses their requests, and
 * they end. */
static void await_workers(struct service *service)
{
    int64_t deadline = clock_deadline_ns(WORKERS_MS);
    while (membership_n_present(service) > 0 && clock_now_ns() < deadline)
        poll(NULL, 0, LOOK_MS);
}

/* Limits the time of the rest of the shutdown: a thread may hang in a folder that does not
 * answer. */
static void bound_end(int exit_code)
{
    char what[PATH_MAX + 64];
    snprintf(what, sizeof what, "%s%sa thread of this server%s",
             opt.checkpoint_dir ? opt.checkpoint_dir : "", opt.checkpoint_dir ? ", or " : "",
             opt.checkpoint_dir ? "," : "");
    process_end_within(END_S, exit_code, what);
}

static int run_server(struct app *app, struct service *service, struct net_server *server,
                      const struct ps_cluster *c)
{
    security_warn_plain(c->bind);
    LOG_I("vector loops: %s", vector_description());
    LOG_I("listening on %s%s%s", c->bind, *opt.bind ? "; other programs connect to " : "",
          *opt.bind ? c->address : "");
    if (*c->pages)
        LOG_I("metrics and the status page: http://%s/", c->pages);
    report_ready(c->address);
    int sig = ps_shutdown_wait(app);
    if (sig)
        LOG_W("%s: stopping%s", strsignal(sig),
              opt.checkpoint_dir
                  ? " after a last checkpoint; a second signal ends this process at once"
                  : "");
    int cut_off = atomic_load(&app->cut_off), parent_lost = atomic_load(&app->parent_lost);
    if (cut_off)
        membership_close(service, app->why);
    ps_shutdown_finish_node(app);
    if (cut_off)
        await_workers(service);
    bound_end(sig ? 128 + sig : EXIT_RETRY);
    net_server_stop(server, STOP_GRACE_MS);
    log_stats(service);
    app->error = error_of(app, parent_lost);
    int exit_code = app->error                  ? EXIT_PERMANENT
                    : sig                       ? 128 + sig
                    : atomic_load(&app->unsure) ? EXIT_RETRY
                                                : 0;
    if (exit_code == 0 && app->lacks_last) {
        LOG_E(
            "the job is done, but %s lacks the checkpoint of the job's last step, for the reason logged above: fix the cause (is the disk full?), then start all servers and workers again with the same flags; they resume from the newest checkpoint",
            opt.checkpoint_dir);
        exit_code = EXIT_RETRY;
    }
    enum status st = write_summary(service);
    if (st != ST_OK)
        LOG_E("--summary_json=%s: the figures of this server are lost%s", opt.summary_json,
              st == ST_FULL ? "; free some space before this server is started again" : "");
    return exit_code ? exit_code : output_exit_code(st);
}

/* Ends all that uses the checkpoint folder, and marks in the folder that the server ended in order.
 * Called before other threads are ended, which may hang. */
static void end_node(struct app *app, const struct ps_cluster *c, int exit_code)
{
    ps_region_stop(app->region, atomic_load(&app->replaced) ? NULL : app->error);
    region_server_stop(app->part);
    node_destroy(app->node);
    bool is_by_signal = exit_code > 128 && exit_code != EXIT_RETRY;
    if (opt.checkpoint_dir && app->ended && !is_by_signal)
        node_ended(opt.checkpoint_dir, c->address);
}

static int serve_job(struct ps_cluster *c, struct app *app)
{
    int exit_code = 0;
    enum status st = ST_OK;
    struct service *service = NULL;
    struct net_server *server = NULL;
    struct admin *status = NULL;
    int pages_fd = -1;
    TRY(ps_set_up_reserve(&opt, c));
    TRY(ps_set_up_region(c, app));
    /* The threads for messages only begin updates, so that they read the next messages at once. */
    TRY(thread_pool_create(1 + ps_set_up_n_update_threads(opt.update_threads), &app->threads));
    const struct service_config cfg = ps_set_up_service_config(c, app);
    TRY(service_create(&cfg, &service));
    region_server_serve(app->part, service);
    const struct net_server_config net = {.addr = c->bind,
                                          .n_threads = ps_set_up_n_threads(opt.threads),
                                          .handler = service_handler(service),
                                          .pause = {ps_shutdown_signal_pending, app}};
    TRY(net_server_bind(&net, &server)); /* no other process uses the port from here on */
    if (*c->pages)
        TRY(http_listen(c->pages, &pages_fd));
    /* the previous process has ended, so the folder has all that it wrote */
    TRY(ps_set_up_node(c, app));
    TRY(node_start(app->node, service));
    TRY(ps_region_start(app->region, service));
    const struct admin_config status_config = {.service = service,
                                               .node = app->node,
                                               .region = app->region,
                                               .ps_hosts = &c->ps,
                                               .worker_hosts = &c->workers,
                                               .folder = opt.checkpoint_dir,
                                               .self = c->self,
                                               .pages_fd = pages_fd,
                                               .task = (int)opt.task_index};
    pages_fd = -1; /* now owned by admin */
    TRY(admin_create(&status_config, &status));
    const struct net_admin_handlers admin = admin_make_handlers(status);
    net_server_start(server, &admin);
    TRY(node_serve(app->node));
    exit_code = run_server(app, service, server, c);
done:
    bound_end(exit_code ? exit_code : status_exit_code(st));
    if (pages_fd >= 0)
        close(pages_fd);
    admin_stop(status);
    end_node(app, c, exit_code);
    net_server_destroy(server);
    admin_destroy(status);
    thread_pool_destroy(app->threads); /* ends the updates, which use the service */
    service_destroy(service);
    ps_region_destroy(app->region);
    region_server_destroy(app->part);
    if (st == ST_CANCELLED && ps_shutdown_signal_pending(app, 0)) {
        exit_code = 128 + ps_shutdown_take_signal(app);
        LOG_W("%s: this server stops while it waits for its port to become free",
              strsignal(exit_code - 128));
    }
    return exit_code ? exit_code : status_exit_code(st);
}

/* Carries out --leave: sends the command to ps 0, and logs the reply. */
static int request_leave(const struct ps_cluster *c)
{
    struct net_command command = {.kind = COMMAND_DRAIN_SERVER, .index = (int)opt.leave};
    struct net_command_reply reply;
    char why[CONTROL_TEXT_BYTES];
    enum status st = status_client_send_command(c->ps.addr[0], &command, COMMAND_MS, &reply, why);
    if (st != ST_OK) {
        LOG_E("the command cannot be sent to ps:0 (%s): %s", c->ps.addr[0], why);
        return tls_client_refused() ? EXIT_PERMANENT : status_exit_code(st);
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
    struct app app = {.opt = &opt};
    int exit_now = 0, exit_code = EXIT_USAGE;
    process_set_up();
    json_text_set_up();
    log_init("ps", -1, LOG_LEVEL_INFO);
    enum status parsed = ps_options_parse(argc, argv, &opt, &exit_now);
    if (parsed != ST_OK)
        return parsed == ST_NOMEM ? EXIT_RETRY : EXIT_USAGE;
    if (exit_now)
        return 0;
    log_init("ps", -1, (enum log_level)opt.log_level);
    enum status st = ps_options_find_cluster(&opt, &cluster);
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
    int ready = st == ST_OK && ps_options_find_self(&opt, &cluster) == ST_OK &&
                security_start(&opt.security) == ST_OK;
    if (ready && opt.trace && (st = trace_open(opt.trace, "ps", (int)opt.task_index)) != ST_OK) {
        exit_code = status_exit_code(st);
        ready = 0;
    }
    if (ready && opt.leave >= 0) {
        exit_code = request_leave(&cluster);
    } else if (ready) {
        app.signal_fd = ps_shutdown_open_signals();
        app.event_fd = eventfd(0, EFD_CLOEXEC);
        exit_code = EXIT_RETRY;
        if (app.signal_fd < 0 || app.event_fd < 0)
            LOG_E("cannot create a descriptor: %s", strerror(errno));
        else
            exit_code = serve_job(&cluster, &app);
    }
    st = trace_close();
    if (exit_code == 0)
        exit_code = output_exit_code(st);
    hosts_free(&cluster.ps);
    hosts_free(&cluster.workers);
    hosts_free(&cluster.parents);
    hosts_free(&cluster.joining);
    return exit_code;
}
