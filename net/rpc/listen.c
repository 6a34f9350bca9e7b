/* net/rpc/listen.c - see listen.h. gRPC reports only that it cannot listen at all, without a
 * reason, and not which of a name's addresses failed. So this file first binds each address itself,
 * and then closes that socket. Nothing signals that another process has released a port, so the
 * port is tried again after pauses. */
#include "net/rpc/listen.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/rpc/credentials.h"
#include "net/security/security.h"
#include "net/security/tls_hooks.h"
#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HOST_BYTES = 256, TRY_MS = 10000, PAUSE_MS = 100, LIST_BYTES = 400, MAX_ADDRESSES = 16 };

enum status net_listen_check(const char *addr)
{
    const char *colon = strrchr(addr, ':');
    if (colon && colon > addr && colon - addr < HOST_BYTES && colon[1] &&
        !colon[1 + strspn(colon + 1, "0123456789")])
        return ST_OK;
    LOG_E("cannot listen on '%s': not host:port", addr);
    return ST_INVALID;
}

/* Result of binding a name's addresses. */
struct probe {
    int n, n_failed;
    int err;    /* errno of an address that failed, preferably EADDRINUSE; 0: none failed */
    int lookup; /* error of getaddrinfo */
    /* addresses that were bound, and that were not, as texts */
    char good[LIST_BYTES], bad[LIST_BYTES];
};

static int bind_once(const struct addrinfo *a)
{
    const int one = 1;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    int err = bind(fd, a->ai_addr, a->ai_addrlen) < 0 ? errno : 0;
    close(fd);
    return err;
}

static void add(char list[LIST_BYTES], const char *host, int err)
{
    size_t at = strlen(list);
    snprintf(list + at, LIST_BYTES - at, "%s%s%s%s%s", at ? ", " : "", host, err ? " (" : "",
             err ? strerror(err) : "", err ? ")" : "");
}

static void probe(const char *addr, struct probe *p)
{
    char host[HOST_BYTES];
    const char *colon = strrchr(addr, ':');
    int bracket = addr[0] == '[' && colon > addr + 1;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    *p = (struct probe){.n = 0};
    snprintf(host, sizeof host, "%.*s", (int)(colon - addr - 2 * bracket), addr + bracket);
    p->lookup = getaddrinfo(host, colon + 1, &hints, &list);
    for (const struct addrinfo *a = p->lookup ? NULL : list; a && p->n < MAX_ADDRESSES;
         a = a->ai_next) {
        int err = bind_once(a);
        if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST) != 0)
            snprintf(host, sizeof host, "?");
        p->n++;
        p->n_failed += err != 0;
        if (err && p->err != EADDRINUSE)
            p->err = err;
        add(err ? p->bad : p->good, host, err);
    }
    if (!p->lookup)
        freeaddrinfo(list);
}

static enum status log_failure(const char *addr, const struct probe *p)
{
    if (p->lookup) {
        LOG_E(
            "cannot listen on %s: its host name cannot be resolved: %s; the address must be a name or an address of this host",
            addr, gai_strerror(p->lookup));
        return ST_INVALID;
    }
    if (p->err == EADDRINUSE) {
        LOG_E(
            "cannot listen on %s: address in use; stop the program that has it, or choose another port",
            addr);
        return ST_BUSY;
    }
    if (p->err == EMFILE || p->err == ENFILE) {
        LOG_E("cannot listen on %s: %s", addr, status_errno_text(p->err));
        return ST_NOMEM;
    }
    LOG_E("cannot listen on %s: %s; %s", addr, p->err ? strerror(p->err) : "refused by gRPC",
          p->err == EACCES ? "only root may listen on a port below 1024, so choose a higher port"
                           : "the address must be one of this host's own");
    return ST_INVALID;
}

/* Logs the addresses that failed: as a warning if another program uses one of them, because clients
 * may then reach that program instead. An address that this host does not have (for example because
 * IPv6 is off) does no harm. */
static void log_part(const char *addr, const struct probe *p)
{
    if (p->n_failed == 0)
        return;
    LOG_AT(
        p->err == EADDRINUSE ? LOG_LEVEL_WARN : LOG_LEVEL_INFO,
        "%s: listening on %s, not on %s; use an address instead of the name if clients connect to the latter",
        addr, p->good, p->bad);
}

/* Waits until no address is in use, or TRY_MS have passed. ST_CANCELLED: pause->wait has ended the
 * wait. */
static enum status wait_for_port(const char *addr, const struct net_server_pause *pause,
                                 struct probe *p)
{
    int64_t deadline = clock_deadline_ns(TRY_MS);
    bool has_logged = false;
    for (;;) {
        probe(addr, p);
        if (p->err != EADDRINUSE || !pause->wait || clock_now_ns() >= deadline)
            return ST_OK;
        if (!has_logged)
            LOG_W("%s is in use, by a program that may be ending; trying again for %d s", addr,
                  TRY_MS / 1000);
        has_logged = true;
        if (pause->wait(pause->ctx, PAUSE_MS))
            return ST_CANCELLED;
    }
}

enum status net_listen(grpc_server *server, const char *addr, const struct net_server_pause *pause,
                       _Atomic uint64_t *certificate, int *port)
{
    struct probe p;
    enum status st = wait_for_port(addr, pause, &p);
    if (st != ST_OK)
        return st;
    grpc_server_credentials *credentials = credentials_server(certificate);
    int bound = p.n > p.n_failed ? grpc_server_add_http2_port(server, addr, credentials) : 0;
    grpc_server_credentials_release(credentials);
    if (bound <= 0) {
        probe(addr, &p);
        return log_failure(addr, &p);
    }
    if (security_has_tls() && !tls_hooks_called())
        LOG_W(
            "this gRPC does not use the same OpenSSL as this program: TLS 1.2 is possible, the reason for a refusal is not logged, and clients that flood this server (HTTP/2) are not cut off");
    log_part(addr, &p);
    *port = bound;
    return ST_OK;
}
