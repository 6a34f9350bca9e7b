/* net/security/certificate.c - see certificate.h. */
#include "net/security/certificate.h"
#include "net/security/roles.h"
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

unsigned certificate_roles(X509 *x)
{
    unsigned roles = 0;
    GENERAL_NAMES *names = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *g = sk_GENERAL_NAME_value(names, i);
        if (g->type == GEN_URI)
            roles |= roles_of_uri((const char *)ASN1_STRING_get0_data(g->d.ia5),
                                  (size_t)ASN1_STRING_length(g->d.ia5));
    }
    GENERAL_NAMES_free(names);
    return roles;
}

bool certificate_names(X509 *x, const char *host)
{
    char plain[256]; /* host without the zone of a link-local address */
    snprintf(plain, sizeof plain, "%.*s", (int)strcspn(host, "%"), host);
    return X509_check_ip_asc(x, plain, 0) == 1 ||
           X509_check_host(x, plain, 0, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) == 1;
}

void certificate_name(X509 *x, char name[CERTIFICATE_NAME_BYTES])
{
    BIO *b = BIO_new(BIO_s_mem());
    int n = 0;
    /* Escapes control characters and line ends. */
    if (b && X509_NAME_print_ex(b, X509_get_subject_name(x), 0, XN_FLAG_RFC2253) > 0)
        n = BIO_read(b, name, CERTIFICATE_NAME_BYTES - 1);
    BIO_free(b);
    name[n > 0 ? n : 0] = 0;
    if (n <= 0)
        snprintf(name, CERTIFICATE_NAME_BYTES, "without a subject");
}

enum certificate_error certificate_error(int error)
{
    switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return CERTIFICATE_EXPIRED;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return CERTIFICATE_NOT_YET;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
        return CERTIFICATE_FOREIGN;
    case X509_V_ERR_INVALID_PURPOSE:
        return CERTIFICATE_PURPOSE;
    case X509_V_ERR_APPLICATION_VERIFICATION:
        return CERTIFICATE_ROLE;
    case X509_V_ERR_HOSTNAME_MISMATCH:
        return CERTIFICATE_HOST;
    default:
        return CERTIFICATE_OTHER;
    }
}

void certificate_date(const ASN1_TIME *t, char text[CERTIFICATE_DATE_BYTES])
{
    struct tm tm;
    if (!ASN1_TIME_to_tm(t, &tm) ||
        !strftime(text, CERTIFICATE_DATE_BYTES, "%Y-%m-%d %H:%M UTC", &tm))
        snprintf(text, CERTIFICATE_DATE_BYTES, "an unknown date");
}

/* Writes the beginning of a sentence about a CA's certificate; writes an empty text if the error
 * concerns the peer's own certificate. */
static void name_signer(X509_STORE_CTX *c, const X509 *x, char text[CERTIFICATE_SIGNER_BYTES])
{
    char name[CERTIFICATE_NAME_BYTES];
    text[0] = 0;
    if (X509_STORE_CTX_get_error_depth(c) == 0)
        return;
    certificate_name((X509 *)(uintptr_t)x, name);
    snprintf(text, CERTIFICATE_SIGNER_BYTES, "is signed by a CA certificate (%s) that ", name);
}

void certificate_problem(X509_STORE_CTX *c, const char *ca, bool server,
                         char why[CERTIFICATE_WHY_BYTES])
{
    char date[CERTIFICATE_DATE_BYTES], signer[CERTIFICATE_SIGNER_BYTES], roles[ROLES_TEXT_BYTES];
    X509 *x = X509_STORE_CTX_get_current_cert(c);
    int error = X509_STORE_CTX_get_error(c);
    if (!x)
        x = X509_STORE_CTX_get0_cert(c);
    name_signer(c, x, signer);
    switch (certificate_error(error)) {
    case CERTIFICATE_EXPIRED:
        certificate_date(X509_get0_notAfter(x), date);
        snprintf(why, CERTIFICATE_WHY_BYTES, "%shas expired on %s; make a new one", signer, date);
        return;
    case CERTIFICATE_NOT_YET:
        certificate_date(X509_get0_notBefore(x), date);
        snprintf(why, CERTIFICATE_WHY_BYTES,
                 "%sis not valid before %s; are the clocks of both hosts right?", signer, date);
        return;
    case CERTIFICATE_FOREIGN:
        snprintf(
            why, CERTIFICATE_WHY_BYTES,
            "is not signed by a CA of %s; the certificates and --tls_ca of all programs must be of one CA",
            ca);
        return;
    case CERTIFICATE_PURPOSE:
        snprintf(why, CERTIFICATE_WHY_BYTES, "is not made for a %s (extended key usage)",
                 server ? "server" : "client");
        return;
    case CERTIFICATE_ROLE:
        snprintf(
            why, CERTIFICATE_WHY_BYTES,
            "is for the role %s, but a server's certificate must be for the role ps, with URI:weir://role/ps among its subject alternative names",
            roles_text(certificate_roles(x), roles));
        return;
    case CERTIFICATE_HOST:
        snprintf(
            why, CERTIFICATE_WHY_BYTES,
            "does not name this host; make one with it among its subject alternative names (DNS: or IP:)");
        return;
    default:
        snprintf(why, CERTIFICATE_WHY_BYTES, "is refused: %s",
                 X509_verify_cert_error_string(error));
    }
}

/* Supplies no passphrase, so that OpenSSL does not ask the operator for one. */
static int no_passphrase(char *to, int room, int writing, void *ctx)
{
    return 0;
}

static EVP_PKEY *read_key(const char *text)
{
    BIO *b = BIO_new_mem_buf(text, -1);
    EVP_PKEY *key = b ? PEM_read_bio_PrivateKey(b, NULL, no_passphrase, NULL) : NULL;
    BIO_free(b);
    return key;
}

/* Reads the certificates of a PEM text, in the order of the text; NULL: the text has none. Leaves
 * OpenSSL's errors in the queue. */
static STACK_OF(X509) * read_certificates(const char *text)
{
    STACK_OF(X509) *all = sk_X509_new_null();
    BIO *b = BIO_new_mem_buf(text, -1);
    X509 *x;
    while (all && b && (x = PEM_read_bio_X509(b, NULL, no_passphrase, NULL)))
        if (!sk_X509_push(all, x))
            X509_free(x);
    BIO_free(b);
    if (sk_X509_num(all) <= 0) {
        sk_X509_free(all);
        return NULL;
    }
    return all;
}

/* Makes a store with the flags of gRPC's contexts: it trusts each certificate of the file, even one
 * that is not self-signed. */
static X509_STORE *store_of(STACK_OF(X509) * cas)
{
    X509_STORE *store = X509_STORE_new();
    for (int i = 0; store && i < sk_X509_num(cas); i++)
        X509_STORE_add_cert(store, sk_X509_value(cas, i));
    if (store)
        X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
    return store;
}

/* Finds the reason why a peer with these CAs would refuse the first certificate of the chain;
 * empty: there is no reason. */
static void find_problem(STACK_OF(X509) * chain, STACK_OF(X509) * cas, const char *ca_path,
                         bool server, char why[CERTIFICATE_WHY_BYTES])
{
    X509 *x = sk_X509_value(chain, 0);
    X509_STORE *store = store_of(cas);
    X509_STORE_CTX *c = X509_STORE_CTX_new();
    why[0] = 0;
    if (store && c && X509_STORE_CTX_init(c, store, x, chain)) {
        X509_STORE_CTX_set_purpose(c, server ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT);
        if (X509_verify_cert(c) <= 0)
            certificate_problem(c, ca_path, server, why);
    }
    X509_STORE_CTX_free(c);
    X509_STORE_free(store);
}

static void read_facts(X509 *x, struct certificate_facts *out)
{
    int days = 0, seconds = 0;
    out->roles = certificate_roles(x);
    certificate_name(x, out->name);
    certificate_date(X509_get0_notAfter(x), out->ends);
    ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(x));
    out->seconds_left = (int64_t)days * 86400 + seconds;
}

enum status certificate_files_check(const struct certificate_files *f, bool server,
                                    struct certificate_facts *out, char why[CERTIFICATE_WHY_BYTES])
{
    enum status st = ST_OK;
    STACK_OF(X509) *chain = read_certificates(f->cert), *cas = read_certificates(f->ca);
    EVP_PKEY *key = read_key(f->key);
    why[0] = 0;
    if (!chain)
        snprintf(why, CERTIFICATE_WHY_BYTES, "%s holds no certificate in PEM", f->cert_path);
    else if (!cas)
        snprintf(why, CERTIFICATE_WHY_BYTES, "%s holds no certificate in PEM", f->ca_path);
    else if (!key)
        snprintf(why, CERTIFICATE_WHY_BYTES,
                 "%s holds no private key in PEM that can be read without a passphrase",
                 f->key_path);
    else if (!X509_check_private_key(sk_X509_value(chain, 0), key))
        snprintf(why, CERTIFICATE_WHY_BYTES, "the key in %s is not that of the certificate in %s",
                 f->key_path, f->cert_path);
    if (why[0])
        TRY(ST_INVALID);
    read_facts(sk_X509_value(chain, 0), out);
    find_problem(chain, cas, f->ca_path, false, out->problem);
    if (server && !out->problem[0])
        find_problem(chain, cas, f->ca_path, true, out->problem);
done:
    ERR_clear_error();
    EVP_PKEY_free(key);
    sk_X509_pop_free(chain, X509_free);
    sk_X509_pop_free(cas, X509_free);
    return st;
}
