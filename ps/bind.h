/* ps/bind.h - the address that a server listens on if clients reach it at another one (NAT,
 * docker -p).
 * Owns: nothing. Threads: any. Errors: ST_INVALID, logged. */
#ifndef PS_BIND_H
#define PS_BIND_H
#include "base/status.h"

enum { BIND_BYTES = 300 };

/* Writes the address of --bind=HOST or HOST:PORT; the server's own address host:port supplies a
 * missing port. bind NULL or empty: copies `own`. */
enum status ps_bind_address(const char *bind, const char *own, char out[BIND_BYTES]);

#endif
