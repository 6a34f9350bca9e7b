/* net/security/certificate.h - X.509 certificates in words and in PEM: what one says, and whether
 * three files (certificate with its chain, key, CAs) fit together.
 * Threads: any. Errors: ST_INVALID, ST_NOMEM; not logged, a sentence in `why`. */
#ifndef NET_SECURITY_CERTIFICATE_H
#define NET_SECURITY_CERTIFICATE_H
#include "base/status.h"
#include <openssl/x509.h>
#include <stdint.h>

enum {
    CERTIFICATE_NAME_BYTES = 128,
    CERTIFICATE_SIGNER_BYTES = CERTIFICATE_NAME_BYTES + 40,
    CERTIFICATE_WHY_BYTES = 400,
    CERTIFICATE_DATE_BYTES = 32,
};

/* What is wrong with a certificate. */
enum certificate_error {
    CERTIFICATE_EXPIRED,
    CERTIFICATE_NOT_YET,
    CERTIFICATE_FOREIGN, /* not signed by one of our CAs */
    CERTIFICATE_PURPOSE, /* a client's as a server's, or the other way round */
    CERTIFICATE_ROLE,    /* a server's without the role ps */
    CERTIFICATE_HOST,    /* a server's that names other hosts */
    CERTIFICATE_OTHER,
    CERTIFICATE_N_ERRORS
};
/* Of X509_V_ERR_...; APPLICATION_VERIFICATION is the role. */
enum certificate_error certificate_error(int error);

/* 1: it names the host, or the address. */
int certificate_names(X509 *x, const char *host);
/* The roles that its URIs name. */
unsigned certificate_roles(X509 *x);
/* "CN=ps, O=job", or its first other name; cut to fit, nothing unprintable. */
void certificate_name(X509 *x, char name[CERTIFICATE_NAME_BYTES]);
/* "2026-11-26 17:31 UTC" */
void certificate_date(const ASN1_TIME *t, char text[CERTIFICATE_DATE_BYTES]);
/* What X509_verify_cert has found wrong: words that go on after the name of the peer's certificate,
 * as "has expired on ...". ca: the file of CAs; server: it was to be a server's. */
void certificate_problem(X509_STORE_CTX *c, const char *ca, int server,
                         char why[CERTIFICATE_WHY_BYTES]);

/* Three files' texts, and their names for the reason. */
struct certificate_files {
    const char *cert, *key, *ca;
    const char *cert_path, *key_path, *ca_path;
};

/* What the first certificate says. */
struct certificate_facts {
    unsigned roles;
    char name[CERTIFICATE_NAME_BYTES];
    char ends[CERTIFICATE_DATE_BYTES];
    int64_t seconds_left;                /* below 0: it has expired */
    char problem[CERTIFICATE_WHY_BYTES]; /* why peers with the same CAs will refuse it; "": no */
};

/* ST_INVALID: a file holds something else than it should, or the key is not the certificate's.
 * server: peers will ask for a server's certificate as well. */
enum status certificate_files_check(const struct certificate_files *f, int server,
                                    struct certificate_facts *out, char why[CERTIFICATE_WHY_BYTES]);

#endif
