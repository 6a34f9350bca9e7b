/* net/security/tls_hooks.h - extends the TLS handshakes of gRPC's servers: a server accepts only
 * TLS 1.3, prefers the fastest cipher, and when it refuses a client, logs the reason and sends it
 * in an alert. The hooks replace functions of OpenSSL that gRPC calls by name. Only a program can
 * replace them, not a library such as libweir; but libweir is never a server. tls_client.h does the
 * same for clients.
 *
 * The hooks do not decide which clients are admitted: OpenSSL checks certificates as gRPC
 * configures it, and roles are checked through gRPC's own interface (net/rpc/credentials.h).
 * Without the hooks, a server would admit the same clients, but it would accept TLS 1.2 and report
 * no reasons, and no guard (http2_guard.h) would check the bytes of TLS connections.
 * Threads: security_start calls tls_hooks_start; after that, any thread may call the other
 *          functions.
 * Errors:  none. */
#ifndef NET_SECURITY_TLS_HOOKS_H
#define NET_SECURITY_TLS_HOOKS_H
#include <stdbool.h>
#include <sys/socket.h>

/* Starts the hooks; called before any other use of OpenSSL. */
void tls_hooks_start(void);
/* Returns true if gRPC has made a context through the hooks. */
bool tls_hooks_called(void);
/* Stores the address of the client whose connection this thread has accepted, for the handshake
 * that the thread begins next. */
void tls_hooks_accepted(const struct sockaddr *from, socklen_t n);

#endif
