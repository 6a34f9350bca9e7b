/* net/security/security.h - holds the certificate and the token that this program shows to its
 * peers, and those that it requires from them. There is one set of both per process. Without
 * security_start the program shows and requires nothing.
 *
 * Changed files are read again when they are next needed: certificates with the next connection, a
 * token with the next call. If a file is invalid, or its file system does not answer, the values
 * read before stay in use, and a line is logged. Callers wait at most FILE_READER_WAIT_MS for a
 * file system that does not answer, and only once.
 * Owns:    the values that were read.
 * Threads: one thread calls security_start; after it has returned, any thread may call the other
 *          functions.
 * Errors:  ST_INVALID, ST_IO, ST_NOMEM; logged with the flag and the fix. */
#ifndef NET_SECURITY_SECURITY_H
#define NET_SECURITY_SECURITY_H
#include "base/status.h"
#include "net/security/roles.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct security_config {
    const char *cert, *key, *ca; /* PEM files: --tls_...; "" or NULL: none. Never freed */
    const char *token_file;      /* path; "" or NULL: none. Never freed */
    unsigned role;               /* role of this program */
};

/* Reads and checks all files, and logs which are in use. */
enum status security_start(const struct security_config *cfg);

bool security_has_tls(void);
bool security_has_token(void);

/* The certificate in use. Each certificate that is read has a higher number than the previous
 * one. */
struct security_identity {
    const char *cert,
        *client_cert; /* PEM; client_cert is for connections in which this program is the client */
    const char *key, *ca; /* PEM */
    uint64_t number;      /* number of the identity, from 1 on */
};
/* Returns a reference to the identity in use; NULL: the program uses no TLS. */
const struct security_identity *security_identity_now(void);
void security_identity_unref(const struct security_identity *i); /* NULL is fine */
/* Checks the files, and then returns the number of the identity in use. */
uint64_t security_identity_number(void);

/* Returns the roles that a peer has if it shows these n bytes as its token; 0: the token is not
 * valid. */
unsigned security_token_roles(const char *shown, size_t n);
/* Returns a copy of this program's token, which the caller frees; NULL: the program has no
 * token. */
char *security_token_copy(void);

/* Warns, once per process, that traffic with this host:port is not encrypted, so others can read
 * and change it. */
void security_warn_plain(const char *addr);

/* Returns the path of the certificate's file, for log lines of other modules. */
const char *security_cert_path(void);
const char *security_ca_path(void);

#endif
