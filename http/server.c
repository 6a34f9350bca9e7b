/* http/server.c - see server.h. libmicrohttpd reads requests and writes answers, but has no thread.
 * The server's thread waits for libmicrohttpd's epoll descriptor, and so can limit the work of
 * libmicrohttpd. */
#include "http/server.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "http/library.h"
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MAX_CONNECTIONS = 64,
    CROWD = 48, /* above this number the oldest connection is closed */
    CONNECTION_BYTES = 16 << 10,
    LIFE_MS = 15000,
    TICK_MS = 1000,
    CPU_SHARE = 50,     /* the thread may use 1/50 of a core */
    CPU_SAVED_MS = 250, /* most CPU time that an idle server saves for later requests */
    MS = 1000000,       /* nanoseconds in a millisecond */
};

struct connection {
    int fd; /* -1: none */
    int64_t since_ns;
};

struct answer {
    struct MHD_Response *response; /* NULL: none was made */
    unsigned status;
    int64_t made_ns;
};

struct http_server {
    struct http_server_config cfg;
    struct MHD_Daemon *daemon;
    struct MHD_Response *not_found, *not_allowed, *failed;
    struct answer *answers; /* [n_pages] */
    struct connection connections[MAX_CONNECTIONS];
    int listen_fd, wake_fd;
    pthread_t thread;
    bool has_thread;
    _Atomic int stopping;
};

static struct http_library mhd;

/* Headers of every answer. Since a page contains all that it needs, they forbid the browser to
 * load anything else, and to send anything elsewhere. */
static const char *const headers[][2] = {
    {MHD_HTTP_HEADER_CONNECTION, "close"},
    {MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"},
    {"X-Content-Type-Options", "nosniff"},
    {"Content-Security-Policy",
     "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
};

/* Returns an answer that owns `text`, which is malloc'd; NULL: out of memory. */
static struct MHD_Response *response_take(char *text, size_t bytes, const char *type)
{
    struct MHD_Response *r =
        text ? mhd.create_response_from_buffer(bytes, text, MHD_RESPMEM_MUST_FREE) : NULL;
    if (!r) {
        free(text);
        return NULL;
    }
    int good = mhd.add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        good &= mhd.add_response_header(r, headers[i][0], headers[i][1]) == MHD_YES;
    if (good)
        return r;
    mhd.destroy_response(r);
    return NULL;
}

static struct MHD_Response *response_text(const char *text)
{
    return response_take(strdup(text), strlen(text), "text/plain; charset=utf-8");
}

static bool is_fresh(const struct http_page *page, const struct answer *a)
{
    return a->response &&
           (page->fresh_ms < 0 || clock_now_ns() - a->made_ns < (int64_t)page->fresh_ms * MS);
}

/* Replaces the page's answer. Keeps the old one if there is no memory for a new one. */
static void make_answer(struct http_server *s, const struct http_page *page, struct answer *a)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    int status = f ? page->make(s->cfg.ctx, f) : 0;
    if (!f || fclose(f) != 0) {
        free(text);
        return;
    }
    struct MHD_Response *r = response_take(text, bytes, page->type);
    if (!r)
        return;
    if (a->response)
        mhd.destroy_response(a->response);
    *a = (struct answer){r, (unsigned)status, clock_now_ns()};
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *n_data, void **own)
{
    struct http_server *s = ctx;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return mhd.queue_response(c, MHD_HTTP_METHOD_NOT_ALLOWED, s->not_allowed);
    int i = 0;
    while (i < s->cfg.n_pages && strcmp(url, s->cfg.pages[i].path) != 0)
        i++;
    if (i == s->cfg.n_pages)
        return mhd.queue_response(c, MHD_HTTP_NOT_FOUND, s->not_found);
    struct answer *a = &s->answers[i];
    if (!is_fresh(&s->cfg.pages[i], a))
        make_answer(s, &s->cfg.pages[i], a);
    if (!a->response)
        return mhd.queue_response(c, MHD_HTTP_SERVICE_UNAVAILABLE, s->failed);
    return mhd.queue_response(c, a->status, a->response);
}

static struct connection *find_connection(struct http_server *s, int fd)
{
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        if (s->connections[i].fd == fd)
            return &s->connections[i];
    return NULL;
}

/* Shuts the socket down; libmicrohttpd notices that and closes the connection. */
static void shut_connection(struct connection *c)
{
    shutdown(c->fd, SHUT_RDWR);
    c->since_ns = INT64_MAX;
}

static void make_room(struct http_server *s)
{
    struct connection *oldest = NULL;
    int n = 0;
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        struct connection *c = &s->connections[i];
        if (c->fd < 0 || c->since_ns == INT64_MAX)
            continue;
        n++;
        if (!oldest || c->since_ns < oldest->since_ns)
            oldest = c;
    }
    if (n > CROWD)
        shut_connection(oldest);
}

static void on_connection(void *ctx, struct MHD_Connection *c, void **own,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http_server *s = ctx;
    const union MHD_ConnectionInfo *info =
        mhd.get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    bool begins = code == MHD_CONNECTION_NOTIFY_STARTED;
    struct connection *slot = info ? find_connection(s, begins ? -1 : info->connect_fd) : NULL;
    if (!slot)
        return;
    slot->fd = begins ? info->connect_fd : -1;
    slot->since_ns = clock_now_ns();
    if (begins)
        make_room(s);
}

static void end_old(struct http_server *s)
{
    int64_t before = clock_now_ns() - (int64_t)s->cfg.life_ms * MS;
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        if (s->connections[i].fd >= 0 && s->connections[i].since_ns < before)
            shut_connection(&s->connections[i]);
}

static int64_t cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * 1000 * MS + ts.tv_nsec;
}

/* CPU time that the thread may still use of its share of a core. */
struct cpu_budget {
    int64_t left_ns, at_ns, used_ns;
};

/* Returns for how many ms the thread must pause; 0: it may work. */
static int cpu_budget_pause_ms(struct cpu_budget *p)
{
    const int64_t most = (int64_t)CPU_SAVED_MS * MS;
    int64_t now = clock_now_ns(), used = cpu_ns();
    p->left_ns += (now - p->at_ns) / CPU_SHARE - (used - p->used_ns);
    p->left_ns = p->left_ns < most ? p->left_ns : most;
    p->at_ns = now;
    p->used_ns = used;
    return p->left_ns >= 0 ? 0 : (int)(-p->left_ns * CPU_SHARE / MS) + 1;
}

/* Waits until a request arrives, destroy wakes the thread, or `ms` have passed. epoll_fd -1: a
 * request does not end the wait. */
static void wait_for_more(struct http_server *s, int64_t ms, int epoll_fd)
{
    MHD_UNSIGNED_LONG_LONG until;
    struct pollfd fds[2] = {{.fd = s->wake_fd, .events = POLLIN},
                            {.fd = epoll_fd, .events = POLLIN}};
    if (epoll_fd >= 0 && mhd.get_timeout(s->daemon, &until) == MHD_YES &&
        until < (MHD_UNSIGNED_LONG_LONG)ms)
        ms = (int64_t)until;
    poll(fds, epoll_fd >= 0 ? 2 : 1, (int)ms);
}

static void *server_main(void *arg)
{
    struct http_server *s = arg;
    int epoll_fd = mhd.get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    int64_t tick_ns = clock_now_ns();
    struct cpu_budget budget = {(int64_t)CPU_SAVED_MS * MS, tick_ns, cpu_ns()};
    while (!atomic_load(&s->stopping)) {
        int64_t now = clock_now_ns();
        if (now >= tick_ns) {
            tick_ns = now + (int64_t)TICK_MS * MS;
            end_old(s);
            if (s->cfg.tick)
                s->cfg.tick(s->cfg.ctx);
        }
        int pause_ms = cpu_budget_pause_ms(&budget);
        if (pause_ms > 0) {
            wait_for_more(s, pause_ms < TICK_MS ? pause_ms : TICK_MS, -1);
            continue;
        }
        int64_t left_ms = (tick_ns - clock_now_ns()) / MS + 1;
        wait_for_more(s, left_ms > 0 ? left_ms : 0, epoll_fd);
        mhd.run(s->daemon);
    }
    return NULL;
}

static enum status start_thread(struct http_server *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int err = pthread_create(&s->thread, NULL, server_main, s);
    s->has_thread = err == 0;
    if (s->has_thread)
        pthread_setname_np(s->thread, "http");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err)
        LOG_E("--metrics_port: cannot start the thread that serves the pages: %s",
              threads_error(err));
    return s->has_thread ? ST_OK : ST_NOMEM;
}

static enum status start_daemon(struct http_server *s)
{
    s->daemon = mhd.start_daemon(
        MHD_USE_EPOLL, 0, NULL, NULL, on_request, s, MHD_OPTION_LISTEN_SOCKET, s->listen_fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(s->cfg.life_ms / 1500),
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_END);
    if (!s->daemon)
        return ST_NOMEM;
    s->listen_fd = -1; /* the daemon closes it */
    return ST_OK;
}

enum status http_server_create(const struct http_server_config *cfg, struct http_server **out)
{
    enum status st = ST_NOMEM;
    struct http_server *s = calloc(1, sizeof *s);
    if (!s) {
        close(cfg->listen_fd);
        goto done;
    }
    s->cfg = *cfg;
    if (s->cfg.life_ms == 0)
        s->cfg.life_ms = LIFE_MS;
    s->listen_fd = cfg->listen_fd;
    s->wake_fd = -1;
    TRY(http_library_load(&mhd));
    st = ST_NOMEM;
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        s->connections[i].fd = -1;
    s->answers = calloc((size_t)cfg->n_pages + 1, sizeof *s->answers);
    s->not_found = response_text("there is no such page\n");
    s->not_allowed = response_text("only GET and HEAD are allowed\n");
    s->failed = response_text("out of memory\n");
    s->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (!s->answers || !s->not_found || !s->not_allowed || !s->failed || s->wake_fd < 0 ||
        mhd.add_response_header(s->not_allowed, MHD_HTTP_HEADER_ALLOW, "GET, HEAD") != MHD_YES)
        goto done;
    TRY(start_daemon(s));
    TRY(start_thread(s));
    *out = s;
    s = NULL;
done:
    if (st == ST_NOMEM)
        LOG_E("--metrics_port: out of memory, threads or descriptors");
    http_server_destroy(s);
    return st;
}

void http_server_destroy(struct http_server *s)
{
    const uint64_t one = 1;
    if (!s)
        return;
    atomic_store(&s->stopping, 1);
    if (s->has_thread && write(s->wake_fd, &one, sizeof one) == sizeof one)
        pthread_join(s->thread, NULL);
    if (s->daemon)
        mhd.stop_daemon(s->daemon);
    if (s->listen_fd >= 0)
        close(s->listen_fd);
    if (s->wake_fd >= 0)
        close(s->wake_fd);
    for (int i = 0; s->answers && i < s->cfg.n_pages; i++)
        if (s->answers[i].response)
            mhd.destroy_response(s->answers[i].response);
    struct MHD_Response *const own[] = {s->not_found, s->not_allowed, s->failed};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i])
            mhd.destroy_response(own[i]);
    free(s->answers);
    free(s);
}
