/* net/security/tls_client.h - checks that gRPC lacks when this program is the client of a TLS
 * connection: the server speaks TLS 1.3, has the role ps and names its host; and the reason of a
 * refusal, on either side, in the log.
 *
 * It works in a program of another author, too (libweir): OpenSSL calls it for each verification of
 * a certificate in the process, and it touches those connections alone whose own certificate has a
 * mark that tls_client_mark has set. The mark is never sent.
 * Threads: the start before others; then any. Errors: none, but ST_NOMEM of the mark. */
#ifndef NET_SECURITY_TLS_CLIENT_H
#define NET_SECURITY_TLS_CLIENT_H
#include "base/status.h"
#include <stdbool.h>

void tls_client_start(void);
/* *out: the certificates of a PEM text, the first with the mark; to be given to free. */
enum status tls_client_mark(const char *pem, char **out);
/* True if a server's certificate has been seen here: gRPC and this program use one OpenSSL. */
bool tls_client_called(void);
/* True if this program has refused a server, or a server its certificate; ever so far. */
bool tls_client_refused(void);
/* Returns this project's words for gRPC's text of a call that failed; NULL: there are none. */
const char *tls_client_words(const char *text);

#endif
