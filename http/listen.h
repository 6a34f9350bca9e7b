/* http/listen.h - the address of a program's pages, and the socket that listens there.
 * Owns: nothing. Threads: any. Errors: ST_INVALID, ST_BUSY (port in use), ST_NOMEM, ST_IO;
 * logged. */
#ifndef HTTP_LISTEN_H
#define HTTP_LISTEN_H
#include "base/status.h"

enum { HTTP_ADDRESS_BYTES = 300 };

/* Writes HOST:port. The host is `bind` (--metrics_bind), else that of `own` (host:port), else
 * loopback. bind, own: may be NULL or empty. */
enum status http_listen_address(const char *bind, const char *own, int port,
                                char out[HTTP_ADDRESS_BYTES]);
/* Opens a socket that listens at `addr`. */
enum status http_listen(const char *addr, int *fd);

#endif
