/* ps/bind.h - where a server listens that is not reached at its own address (NAT, docker -p).
 * Owns: nothing. Threads: any. Errors: ST_INVALID, logged. */
#ifndef PS_BIND_H
#define PS_BIND_H
#include "base/status.h"

enum { BIND_BYTES = 300 };

/* --bind=HOST or HOST:PORT beside the server's own address host:port, which gives the port that is
 * left out; NULL or empty: own itself. */
enum status ps_bind_address(const char *bind, const char *own, char out[BIND_BYTES]);

#endif
