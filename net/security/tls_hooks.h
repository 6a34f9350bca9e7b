/* net/security/tls_hooks.h - extends the TLS handshakes of gRPC's servers: only TLS 1.3, the
 * fastest cipher first, and the reason of a refusal in the log and in an alert to the peer. It
 * replaces functions of OpenSSL that gRPC calls by name. The programs can do that; libweir
 * cannot, but it is not a server. tls_client.h is the client's part.
 *
 * None of it decides who is admitted: OpenSSL checks certificates as gRPC configures it, and
 * roles are checked through gRPC's own interface (net/rpc/credentials.h). Without these hooks,
 * connections would be as safe, except that TLS 1.2 would be possible, and reasons would be
 * missing.
 * Threads: the start before other threads exist.
 * Errors:  none. */
#ifndef NET_SECURITY_TLS_HOOKS_H
#define NET_SECURITY_TLS_HOOKS_H
#include <stdbool.h>
#include <sys/socket.h>

/* Starts the hooks; called before any other use of OpenSSL. */
void tls_hooks_start(void);
/* Returns true if gRPC has made a context through the hooks. */
bool tls_hooks_called(void);
/* Notes the client of a connection that this thread has accepted, for the handshake that the
 * thread begins next. */
void tls_hooks_accepted(const struct sockaddr *from, socklen_t n);

#endif
