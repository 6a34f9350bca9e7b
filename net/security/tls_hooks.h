/* net/security/tls_hooks.h - what gRPC's handshakes lack, done by functions of OpenSSL's that gRPC
 * calls by name: TLS 1.3 alone, the fastest cipher first, the reason of a refusal in the log and on
 * its way to the peer.
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
/* 1: as a client, this program has refused a server, or a server its certificate; ever so far. */
int tls_hooks_refused(void);

/* This thread has accepted a connection from there: of the handshake that it begins next. */
void tls_hooks_accepted(const struct sockaddr *from, socklen_t n);

/* Our words in a text of gRPC's, which it takes from OpenSSL's errors; NULL: there are none. */
const char *tls_hooks_words(const char *text);

#endif
