/* net/security/tls_hooks.c - see tls_hooks.h. gRPC (1.51) calls five functions of libssl by name.
 * The dynamic linker finds the functions of this file, and each calls OpenSSL's function of the
 * same name.
 *
 *   - SSL_CTX_set_verify is the last call on each context; the missing settings of a context are
 *     set there.
 *   - SSL_set_accept_state begins a server's connection, in the thread that has accepted it.
 *   - SSL_get_error returns the state of an operation. When a handshake fails, OpenSSL has the
 *     alert with the reason ready, but gRPC would close the connection without sending it. So
 *     this file's function returns that the handshake needs more bytes: then gRPC sends the alert
 *     and waits for the peer, which reads the alert and closes the connection. OpenSSL never
 *     treats a failed handshake as finished.
 *   - SSL_read and SSL_write pass the decrypted bytes between a client and its server: a guard
 *     (http2_guard.h) checks them, and ends the connection of a client that must be cut off. */
#include "net/security/tls_hooks.h"
#include "base/log.h"
#include "base/process.h"
#include "net/security/certificate.h"
#include "net/security/http2_guard.h"
#include "net/security/peer_address.h"
#include "net/security/security.h"
#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALERT_REASONS = SSL_AD_REASON_OFFSET };

/* State of a connection. */
struct connection {
    char address[PEER_ADDRESS_BYTES]; /* address of the client */
    struct http2_guard *guard;        /* guard of the client's bytes; NULL: none */
    bool is_logged;                   /* the reason of the failure was logged */
    bool alerted;                     /* the alert is being sent to the peer */
};

static int connection_index = -1;
static _Atomic int active, called;
/* connections so far; incremented to order their start before their use */
static _Atomic uint64_t n_guarded;
static _Thread_local struct {
    bool is_set;
    struct peer_address from;
} accepted;

/* OpenSSL's functions, which the functions of this file call. */
static void (*next_set_verify)(SSL_CTX *, int, SSL_verify_cb);
static void (*next_set_accept_state)(SSL *);
static int (*next_get_error)(const SSL *, int);
static int (*next_read)(SSL *, void *, int);
static int (*next_write)(SSL *, const void *, int);
static pthread_once_t found = PTHREAD_ONCE_INIT;

static void *find(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);
    if (!function) {
        LOG_E("libssl lacks %s, which gRPC calls: %s", name, dlerror());
        abort();
    }
    return function;
}

static void find_next(void)
{
    *(void **)&next_set_verify = find("SSL_CTX_set_verify");
    *(void **)&next_set_accept_state = find("SSL_set_accept_state");
    *(void **)&next_get_error = find("SSL_get_error");
    *(void **)&next_read = find("SSL_read");
    *(void **)&next_write = find("SSL_write");
}

/* Returns true during the handshake. SSL_in_init would also be true after a later failure. */
static bool in_handshake(const SSL *ssl)
{
    return SSL_get_state(ssl) != TLS_ST_OK;
}

static void connection_free(void *parent, void *ptr, CRYPTO_EX_DATA *ad, int index, long argl,
                            void *argp)
{
    const struct connection *l = ptr;
    const SSL *ssl = parent;
    /* After the server's first messages only the client can complete the handshake. */
    if (l && l->address[0] && !l->is_logged && in_handshake(ssl) &&
        SSL_get_state(ssl) != TLS_ST_BEFORE)
        LOG_FEW(
            "the client at %s did not continue the handshake after it received this server's certificate, which the client may not accept; the log of the client has the reason",
            l->address);
    if (l && l->guard) {
        http2_guard_end(l->guard);
        http2_guard_free(l->guard);
        free(l->guard);
    }
    free(ptr);
}

static struct connection *connection_of(const SSL *ssl)
{
    struct connection *l = SSL_get_ex_data(ssl, connection_index);
    if (!l && (l = calloc(1, sizeof *l)))
        SSL_set_ex_data((SSL *)(uintptr_t)ssl, connection_index, l);
    return l;
}

void tls_hooks_accepted(const struct sockaddr *from, socklen_t n)
{
    if (!atomic_load(&active))
        return;
    peer_address_set(&accepted.from, from, n);
    accepted.is_set = true;
}

void SSL_set_accept_state(SSL *ssl)
{
    pthread_once(&found, find_next);
    next_set_accept_state(ssl);
    if (!atomic_load(&active))
        return;
    struct connection *l = connection_of(ssl);
    if (!accepted.is_set)
        accepted.from = (struct peer_address){.text = "an unknown address"};
    accepted.is_set = false;
    if (!l)
        return;
    memcpy(l->address, accepted.from.text, sizeof l->address);
    if ((l->guard = calloc(1, sizeof *l->guard))) {
        http2_guard_init(l->guard);
        http2_guard_begin(l->guard, &accepted.from);
        atomic_fetch_add(&n_guarded, 1);
    }
}

/* Verifies a client's certificate and each certificate above it in the chain. */
static int on_verify(int ok, X509_STORE_CTX *c)
{
    static struct log_kind clients[CERTIFICATE_N_ERRORS];
    char name[CERTIFICATE_NAME_BYTES], why[CERTIFICATE_WHY_BYTES];
    const SSL *ssl = X509_STORE_CTX_get_ex_data(c, SSL_get_ex_data_X509_STORE_CTX_idx());
    if (ok)
        return 1;
    struct connection *l = connection_of(ssl);
    enum certificate_error error = certificate_error(X509_STORE_CTX_get_error(c));
    certificate_name(X509_STORE_CTX_get0_cert(c), name);
    certificate_problem(c, security_ca_path(), 0, why);
    if (l)
        l->is_logged = true;
    log_write_few(&clients[error], LOG_LEVEL_WARN,
                  "the client at %s is refused: its certificate (%s) %s",
                  l ? l->address : "an unknown address", name, why);
    return 0;
}

void SSL_CTX_set_verify(SSL_CTX *ctx, int mode, SSL_verify_cb cb)
{
    pthread_once(&found, find_next);
    if (!atomic_load(&active) || cb || !(mode & SSL_VERIFY_PEER)) {
        next_set_verify(ctx, mode, cb);
        return;
    }
    bool is_server = (mode & SSL_VERIFY_FAIL_IF_NO_PEER_CERT) != 0;
    atomic_store(&called, 1);
    next_set_verify(ctx, mode, is_server ? on_verify : NULL);
    if (is_server) { /* tls_client.c checks the version if this program is the client */
        SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
        SSL_CTX_set_options(ctx, SSL_OP_CIPHER_SERVER_PREFERENCE);
    }
    /* OpenSSL's own order, which libweir offers, begins with AES-256, which is slower. */
    SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
                                  "TLS_CHACHA20_POLY1305_SHA256");
    SSL_CTX_set_num_tickets(ctx, 0); /* each connection must show its certificate again */
}

/* Reasons to refuse a client. A fault of its certificate is not listed here, because on_verify logs
 * it. */
static const struct problem {
    const char *text; /* NULL: OpenSSL's text */
    int reason[4];
} problems[] = {
    {"it has shown no certificate; start it with --tls_cert, --tls_key and --tls_ca",
     {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE}},
    {"it does not speak TLS; start it with --tls_cert, --tls_key and --tls_ca, or this server without them",
     {SSL_R_WRONG_VERSION_NUMBER, SSL_R_HTTP_REQUEST, SSL_R_HTTPS_PROXY_REQUEST}},
    {"it offers no TLS 1.3", {SSL_R_UNSUPPORTED_PROTOCOL, SSL_R_NO_SHARED_CIPHER}},
    {NULL, {0}}};
enum { N_PROBLEMS = sizeof problems / sizeof *problems };

/* Returns the index of the reason's entry in the list. The last entry stands for all reasons that
 * have no entry. */
static int problem_of(int reason)
{
    for (int i = 0; i < N_PROBLEMS - 1; i++)
        for (int k = 0; k < 4; k++)
            if (reason && problems[i].reason[k] == reason)
                return i;
    return N_PROBLEMS - 1;
}

static const char *alert_text(int reason)
{
    return SSL_alert_desc_string_long(reason - ALERT_REASONS);
}

/* Logs that a server's handshake has failed. */
static void log_client_refused(struct connection *l, unsigned long err)
{
    static struct log_kind kinds[N_PROBLEMS];
    int reason = ERR_GET_REASON(err), p = problem_of(reason);
    const char *text = ERR_reason_error_string(err);
    if (l->is_logged)
        return;
    l->is_logged = true;
    if (reason >= ALERT_REASONS)
        LOG_FEW(
            "the client at %s refuses this server, whose certificate is %s: %s; the log of the client has the reason",
            l->address, security_cert_path(), alert_text(reason));
    else
        log_write_few(&kinds[p], LOG_LEVEL_WARN, "the client at %s is refused: %s", l->address,
                      problems[p].text ? problems[p].text
                      : text           ? text
                                       : "unknown error");
}

static bool has_output(const SSL *ssl)
{
    return BIO_wpending(SSL_get_wbio(ssl)) > 0;
}

/* Returns true while the peer has time to read the alert and to close the connection. The peer's
 * bytes are ignored. A peer that does not close is cut off when the time for a handshake is
 * over. */
static bool is_alerted(const SSL *ssl)
{
    const struct connection *l = SSL_get_ex_data(ssl, connection_index);
    return l && l->alerted;
}

int SSL_get_error(const SSL *ssl, int ret)
{
    pthread_once(&found, find_next);
    int error = next_get_error(ssl, ret);
    if ((error != SSL_ERROR_SSL && error != SSL_ERROR_SYSCALL) || !atomic_load(&active))
        return error;
    if (is_alerted(ssl)) {
        ERR_clear_error();
        return SSL_ERROR_WANT_READ;
    }
    if (error != SSL_ERROR_SSL || !SSL_is_server(ssl) || !in_handshake(ssl))
        return error;
    unsigned long err = ERR_peek_error();
    struct connection *l = connection_of(ssl);
    if (!l)
        return error;
    log_client_refused(l, err);
    if (ERR_GET_REASON(err) >= ALERT_REASONS || !has_output(ssl))
        return error;
    l->alerted = true;
    ERR_clear_error();
    return SSL_ERROR_WANT_READ;
}

/* Returns the guard of a connection; NULL: the connection is not that of a client to this
 * server. */
static struct http2_guard *guard_of(const SSL *ssl)
{
    const struct connection *l =
        atomic_load(&n_guarded) > 0 ? SSL_get_ex_data(ssl, connection_index) : NULL;
    return l ? l->guard : NULL;
}

/* Returns -1 for a client that is cut off: a read that fails without an error in OpenSSL's queue
 * makes gRPC end the connection. */
int SSL_read(SSL *ssl, void *to, int room)
{
    pthread_once(&found, find_next);
    struct http2_guard *g = guard_of(ssl);
    if (g && http2_guard_is_cut(g))
        return -1;
    int n = next_read(ssl, to, room);
    return g && n > 0 && !http2_guard_received(g, to, (size_t)n) ? -1 : n;
}

int SSL_write(SSL *ssl, const void *from, int bytes)
{
    pthread_once(&found, find_next);
    int n = next_write(ssl, from, bytes);
    struct http2_guard *g = n > 0 ? guard_of(ssl) : NULL;
    if (g)
        http2_guard_sent(g, from, (size_t)n);
    return n;
}

void tls_hooks_start(void)
{
    /* gRPC's threads continue while the process exits, and may be in a handshake: OpenSSL must not
     * free its state at exit. */
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    pthread_once(&found, find_next);
    if (connection_index < 0)
        connection_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, connection_free);
    atomic_store(&active, 1);
}

/* Removes this file's callback from OpenSSL, because a program may unload libweir and continue to
 * use OpenSSL. At the exit of a process, OpenSSL may be cleaned up already. */
__attribute__((destructor)) static void unload(void)
{
    if (connection_index >= 0 && !process_is_ours() && OPENSSL_init_crypto(0, NULL))
        CRYPTO_free_ex_index(CRYPTO_EX_INDEX_SSL, connection_index);
}

bool tls_hooks_called(void)
{
    return atomic_load(&called);
}
