/* net/security/tls_client.h - adds checks that gRPC lacks when this program is the client of a TLS
 * connection: the server speaks TLS 1.3, has the role ps and names its host. It also logs the
 * reason when this program refuses a server, or a server refuses this program.
 *
 * In a foreign program that uses libweir, OpenSSL calls this code for every certificate
 * verification of the process. So the code checks only connections whose own certificate has the
 * mark that tls_client_mark sets. The mark is never sent.
 * Threads: security_start calls tls_client_start; after that, any thread may call the other
 *          functions.
 * Errors:  none, except ST_NOMEM from tls_client_mark. */
#ifndef NET_SECURITY_TLS_CLIENT_H
#define NET_SECURITY_TLS_CLIENT_H
#include "base/status.h"
#include <stdbool.h>

void tls_client_start(void);
/* Copies the certificates of a PEM text to *out, the first with the mark. The caller frees *out. */
enum status tls_client_mark(const char *pem, char **out);
/* Returns true if this code has checked a server's certificate, which shows that gRPC and this
 * program use the same OpenSSL. */
bool tls_client_called(void);
/* Returns true if, since the start, this program has refused a server, or a server has refused this
 * program's certificate. */
bool tls_client_refused(void);
/* Returns a text of this project that replaces gRPC's text of a call that failed; NULL: no such
 * text. */
const char *tls_client_words(const char *text);

#endif
