/* net/security/tls_hooks.h - adds to the handshakes of gRPC's servers: TLS 1.3 alone, the fastest
 * cipher first, the reason of a refusal in the log and on its way to the peer. It replaces
 * functions of OpenSSL that gRPC calls by name, which the programs can, and libweir, which is no
 * server, cannot; tls_client.h is a client's part.
 *
 * None of it decides who is let in: OpenSSL checks certificates as gRPC has it do, and roles are
 * looked at through gRPC's own interface (net/rpc/credentials.h). Without these hooks connections
 * would be as safe and say less, but for TLS 1.2, which they refuse.
 * Threads: the start before others. Errors: none. */
#ifndef NET_SECURITY_TLS_HOOKS_H
#define NET_SECURITY_TLS_HOOKS_H
#include <sys/socket.h>

/* Before any other use of OpenSSL. */
void tls_hooks_start(void);
/* 1: gRPC has made a context through them. */
int tls_hooks_called(void);
/* This thread has accepted a connection from there: of the handshake that it begins next. */
void tls_hooks_accepted(const struct sockaddr *from, socklen_t n);

#endif
