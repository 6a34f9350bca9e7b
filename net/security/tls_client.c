/* net/security/tls_client.c - see tls_client.h.
 *
 * A program can register a function that OpenSSL calls for each new X509_STORE_CTX (as ex data).
 * The function that this file registers sets a callback, which receives each certificate of the
 * chain, and the connection. The first text in OpenSSL's queue of errors becomes part of the text
 * with which gRPC ends calls. A server that refuses this program sends an alert (in TLS 1.3 after
 * the handshake), which a second callback of the connection receives. */
#include "net/security/tls_client.h"
#include "base/log.h"
#include "base/process.h"
#include "net/security/certificate.h"
#include "net/security/roles.h"
#include "net/security/security.h"
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const unsigned char mark[] = "weir:client";
enum { MARK_BYTES = sizeof mark - 1 };

/* Numbers of a client's reasons to refuse a server, for OpenSSL's table of reasons: one for each
 * enum certificate_error, and one for the version of TLS. */
enum { WORDS_FIRST = 100, WORDS_VERSION = WORDS_FIRST + CERTIFICATE_N_ERRORS };
#define WORDS_PLAIN                                                                                \
    "the server there does not speak TLS: start it with --tls_cert, --tls_key and --tls_ca, or "   \
    "start this program without them"
#define WORDS_OLD "the server there offers no TLS 1.3"
#define WORDS(reason, text)                                                                        \
    {                                                                                              \
        ERR_PACK(0, 0, reason), text                                                               \
    }
static ERR_STRING_DATA words[] = {
    WORDS(WORDS_FIRST + CERTIFICATE_EXPIRED, "the server's certificate has expired"),
    WORDS(WORDS_FIRST + CERTIFICATE_NOT_YET, "the server's certificate is not valid yet"),
    WORDS(WORDS_FIRST + CERTIFICATE_FOREIGN,
          "the server's certificate is not signed by a CA of --tls_ca"),
    WORDS(WORDS_FIRST + CERTIFICATE_PURPOSE, "the server's certificate is not made for a server"),
    WORDS(WORDS_FIRST + CERTIFICATE_ROLE, "the server's certificate is not for the role ps"),
    WORDS(WORDS_FIRST + CERTIFICATE_HOST, "the server's certificate does not name that host"),
    WORDS(WORDS_FIRST + CERTIFICATE_OTHER, "the server's certificate is refused"),
    WORDS(WORDS_VERSION, WORDS_OLD),
    {0, NULL}};

/* OpenSSL's texts for handshakes that fail before a certificate is received. */
static const struct {
    const char *raw, *words;
} raw_reasons[] = {{"wrong version number", WORDS_PLAIN},
                   {"alert protocol version", WORDS_OLD},
                   {"unsupported protocol", WORDS_OLD}};
enum { N_RAW = sizeof raw_reasons / sizeof *raw_reasons };

static int library, verification_index = -1;
static _Atomic bool called, refused;

static bool is_ours(SSL *ssl)
{
    X509 *own = ssl && !SSL_is_server(ssl) ? SSL_get_certificate(ssl) : NULL;
    int n = 0;
    const unsigned char *alias = own ? X509_alias_get0(own, &n) : NULL;
    return alias && n == MARK_BYTES && memcmp(alias, mark, MARK_BYTES) == 0;
}

/* Returns the host that this client has requested. */
static const char *server_name(const SSL *ssl)
{
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    return name ? name : "an unknown address";
}

/* Returns true for an alert by which a server refuses a client. */
static bool is_refusal(int alert)
{
    return (alert >= SSL_AD_HANDSHAKE_FAILURE && alert <= SSL_AD_ACCESS_DENIED) ||
           alert == SSL_AD_PROTOCOL_VERSION || alert == SSL_AD_CERTIFICATE_REQUIRED;
}

static const char *fix_of(int alert)
{
    switch (alert) {
    case SSL_AD_CERTIFICATE_EXPIRED:
        return "it has expired, or is not valid yet; put a new one there";
    case SSL_AD_UNKNOWN_CA:
        return "it is not signed by a CA of the server's --tls_ca";
    case SSL_AD_CERTIFICATE_REQUIRED:
        return "the server has received no certificate; set --tls_cert, --tls_key and --tls_ca";
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
        return "it is not made for a client (extended key usage)";
    default:
        return "the server's log has the reason";
    }
}

/* Receives the records of a connection after this program has accepted the server's certificate. */
static void on_record(int is_sent, int version, int type, const void *data, size_t n, SSL *ssl,
                      void *arg)
{
    int alert = type == SSL3_RT_ALERT && n == 2 ? ((const unsigned char *)data)[1] : -1;
    if (is_sent || !is_refusal(alert))
        return;
    SSL_set_msg_callback(ssl, NULL); /* log only one line for each connection */
    atomic_store(&refused, true);
    LOG_FEW("the server at %s refuses this program, whose certificate is %s (%s): %s",
            server_name(ssl), security_cert_path(), SSL_alert_desc_string_long(alert),
            fix_of(alert));
}

/* Returns an X509_V_... for the role and the host of a server's certificate. OpenSSL does not check
 * the role and the host. gRPC checks them only after the handshake, when it cannot inform the
 * server any more. */
static int find_server_error(const SSL *ssl, X509 *x)
{
    const char *host = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    if (!(certificate_roles(x) & ROLE_PS))
        return X509_V_ERR_APPLICATION_VERIFICATION;
    return host && !certificate_names(x, host) ? X509_V_ERR_HOSTNAME_MISMATCH : X509_V_OK;
}

static int refuse_version(const SSL *ssl, X509_STORE_CTX *c)
{
    X509_STORE_CTX_set_error(c, X509_V_ERR_APPLICATION_VERIFICATION);
    atomic_store(&refused, true);
    LOG_FEW("the server at %s is refused: it offers no TLS 1.3", server_name(ssl));
    ERR_raise(library, WORDS_VERSION);
    return 0;
}

/* Verifies a server's certificate and each certificate above it in the chain. OpenSSL calls it for
 * all connections of the process. */
static int on_verify(int ok, X509_STORE_CTX *c)
{
    char name[CERTIFICATE_NAME_BYTES], why[CERTIFICATE_WHY_BYTES];
    SSL *ssl = X509_STORE_CTX_get_ex_data(c, SSL_get_ex_data_X509_STORE_CTX_idx());
    if (!is_ours(ssl))
        return ok;
    atomic_store(&called, true);
    if (SSL_version(ssl) < TLS1_3_VERSION)
        return refuse_version(ssl, c);
    if (ok && X509_STORE_CTX_get_error_depth(c) == 0) {
        X509_STORE_CTX_set_error(c, find_server_error(ssl, X509_STORE_CTX_get_current_cert(c)));
        ok = X509_STORE_CTX_get_error(c) == X509_V_OK;
        if (ok)
            SSL_set_msg_callback(ssl, on_record);
    }
    if (ok)
        return 1;
    certificate_name(X509_STORE_CTX_get0_cert(c), name);
    certificate_problem(c, security_ca_path(), 1, why);
    LOG_FEW("the server at %s is refused: its certificate (%s) %s", server_name(ssl), name, why);
    atomic_store(&refused, true);
    ERR_raise(library, WORDS_FIRST + (int)certificate_error(X509_STORE_CTX_get_error(c)));
    return 0;
}

/* Sets on_verify in a new verification, unless its owner has set another callback. */
static void on_new_verification(void *parent, void *ptr, CRYPTO_EX_DATA *ad, int index, long argl,
                                void *argp)
{
    X509_STORE *store = X509_STORE_CTX_get0_store(parent);
    if (store && !X509_STORE_get_verify_cb(store))
        X509_STORE_CTX_set_verify_cb(parent, on_verify);
}

void tls_client_start(void)
{
    if (verification_index >= 0)
        return;
    library = ERR_get_next_error_library();
    ERR_load_strings(library, words);
    verification_index = X509_STORE_CTX_get_ex_new_index(0, NULL, on_new_verification, NULL, NULL);
}

/* Removes this file's callback from OpenSSL, because a program may unload libweir and continue to
 * use OpenSSL. At the exit of a process, OpenSSL may be cleaned up already. */
__attribute__((destructor)) static void unload(void)
{
    if (verification_index < 0 || process_is_ours() || !OPENSSL_init_crypto(0, NULL))
        return;
    CRYPTO_free_ex_index(CRYPTO_EX_INDEX_X509_STORE_CTX, verification_index);
    ERR_unload_strings(library, words);
}

static int no_passphrase(char *to, int room, int writing, void *ctx)
{
    return 0;
}

enum status tls_client_mark(const char *pem, char **out)
{
    BIO *in = BIO_new_mem_buf(pem, -1), *to = BIO_new(BIO_s_mem());
    int n = 0, ok = in && to;
    X509 *x;
    while (ok && (x = PEM_read_bio_X509(in, NULL, no_passphrase, NULL))) {
        if (n++ == 0)
            ok = X509_alias_set1(x, (unsigned char *)(uintptr_t)mark, MARK_BYTES) &&
                 PEM_write_bio_X509_AUX(to, x);
        else
            ok = PEM_write_bio_X509(to, x);
        X509_free(x);
    }
    ERR_clear_error();
    char *text = NULL;
    long bytes = ok ? BIO_get_mem_data(to, &text) : 0;
    char *copy = bytes > 0 ? malloc((size_t)bytes + 1) : NULL;
    if (copy) {
        memcpy(copy, text, (size_t)bytes); /* `text` has no terminating 0 */
        copy[bytes] = 0;
    }
    BIO_free(in);
    BIO_free(to);
    if (!copy)
        return ST_NOMEM;
    *out = copy;
    return ST_OK;
}

bool tls_client_called(void)
{
    return atomic_load(&called);
}

bool tls_client_refused(void)
{
    return atomic_load(&refused);
}

const char *tls_client_words(const char *text)
{
    for (size_t i = 0; words[i].string; i++)
        if (strstr(text, words[i].string))
            return words[i].string;
    for (size_t i = 0; i < N_RAW; i++)
        if (strstr(text, raw_reasons[i].raw)) {
            atomic_store(&refused, true);
            return raw_reasons[i].words;
        }
    return NULL;
}
