/* net/security/certificate.h - reads facts from X.509 certificates, explains verification errors
 * in words, and checks that three files (certificate with its chain, key, CAs) fit together.
 * Threads: any.
 * Errors:  ST_INVALID, ST_NOMEM; not logged: `why` receives a sentence. */
#ifndef NET_SECURITY_CERTIFICATE_H
#define NET_SECURITY_CERTIFICATE_H
#include "base/status.h"
#include <openssl/x509.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    CERTIFICATE_NAME_BYTES = 128,
    CERTIFICATE_SIGNER_BYTES = CERTIFICATE_NAME_BYTES + 40,
    CERTIFICATE_WHY_BYTES = 400,
    CERTIFICATE_DATE_BYTES = 32,
};

/* Reasons to reject a certificate. */
enum certificate_error {
    CERTIFICATE_EXPIRED,
    CERTIFICATE_NOT_YET,
    CERTIFICATE_FOREIGN, /* not signed by a CA of --tls_ca */
    CERTIFICATE_PURPOSE, /* a client's certificate used as a server's, or the reverse */
    CERTIFICATE_ROLE,    /* a server's certificate without the role ps */
    CERTIFICATE_HOST,    /* a server's certificate for other hosts */
    CERTIFICATE_OTHER,
    CERTIFICATE_N_ERRORS
};
/* Returns the reason for an X509_V_ERR_... code; X509_V_ERR_APPLICATION_VERIFICATION stands for a
 * missing role. */
enum certificate_error certificate_error(int error);

/* Returns true if the certificate names this host or address. */
bool certificate_names(X509 *x, const char *host);
/* Returns the roles that the certificate's URIs name. */
unsigned certificate_roles(X509 *x);
/* Writes the subject, for example "CN=ps, O=job", or the first alternative name; cut to fit,
 * printable characters only. */
void certificate_name(X509 *x, char name[CERTIFICATE_NAME_BYTES]);
/* Writes the time as "2026-11-26 17:31 UTC". */
void certificate_date(const ASN1_TIME *t, char text[CERTIFICATE_DATE_BYTES]);
/* Writes the error that X509_verify_cert has found, in words that follow the name of the peer's
 * certificate, for example "has expired on ...". ca: path of the file of CAs; server: true if a
 * server's certificate was expected. */
void certificate_problem(X509_STORE_CTX *c, const char *ca, bool server,
                         char why[CERTIFICATE_WHY_BYTES]);

/* Texts of the three files, and their paths for messages. */
struct certificate_files {
    const char *cert, *key, *ca;
    const char *cert_path, *key_path, *ca_path;
};

/* Facts of the first certificate in the file. */
struct certificate_facts {
    unsigned roles;
    char name[CERTIFICATE_NAME_BYTES];
    char ends[CERTIFICATE_DATE_BYTES];
    int64_t seconds_left; /* negative: the certificate has expired */
    /* reason why peers with the same CAs will refuse the certificate; "": they accept it */
    char problem[CERTIFICATE_WHY_BYTES];
};

/* Checks the files. Returns ST_INVALID if a file has unexpected contents, or the key does not
 * belong to the certificate. server: true if this program is also a server, so that its clients
 * expect a server's certificate. */
enum status certificate_files_check(const struct certificate_files *f, bool server,
                                    struct certificate_facts *out, char why[CERTIFICATE_WHY_BYTES]);

#endif
