/* net/security/security.h - what this program shows its peers, and what it asks of them: its
 * certificate, and its token. One for the process, as its identity is; without a start nothing is
 * shown or asked.
 *
 * Files that have changed are read again when they are next needed: certificates with the next
 * connection, a token with the next call. A file that cannot be used, or whose file system does not
 * answer, changes nothing, with a line; a caller waits for it once, at most FILE_READER_WAIT_MS.
 * Owns:    what was read.
 * Threads: the start before others; then any.
 * Errors:  ST_INVALID, ST_IO, ST_NOMEM; logged with the flag and the fix. */
#ifndef NET_SECURITY_SECURITY_H
#define NET_SECURITY_SECURITY_H
#include "base/status.h"
#include "net/security/roles.h"
#include <stddef.h>
#include <stdint.h>

struct security_config {
    const char *cert, *key, *ca; /* PEM files: --tls_...; "" or NULL: none. Borrowed for ever */
    const char *token_file;      /* likewise */
    unsigned role;               /* what this program acts as */
};

/* Reads and checks all, and says what is used. */
enum status security_start(const struct security_config *cfg);

int security_has_tls(void);
int security_has_token(void);

/* The certificate in use. Each that is read has a higher number than the one before. */
struct security_identity {
    const char *cert, *client_cert; /* PEM; the latter for connections as a client */
    const char *key, *ca;           /* PEM */
    uint64_t number;                /* from 1 on */
};
/* A reference; NULL: there is no TLS. */
const struct security_identity *security_identity_now(void);
void security_identity_unref(const struct security_identity *i); /* NULL is fine */
/* The number of the one in use, after a look at the files. */
uint64_t security_identity_number(void);

/* The roles of the n bytes that a peer shows; 0: of none. */
unsigned security_token_roles(const char *shown, size_t n);
/* A copy of what this program shows, malloc'd, to be given to free; NULL: nothing. */
char *security_token_copy(void);

/* Once for the process: traffic with this host:port can be read and changed on its way. */
void security_warn_plain(const char *addr);

/* What the lines of others name. */
const char *security_cert_path(void);
const char *security_ca_path(void);

#endif
