/* http/listen.h - where the pages are served: beside a program's own address.
 * Owns: nothing. Threads: any. Errors: ST_INVALID, ST_BUSY port in use, ST_NOMEM, ST_IO; logged. */
#ifndef HTTP_LISTEN_H
#define HTTP_LISTEN_H
#include "base/status.h"

enum { HTTP_ADDRESS_BYTES = 300 };

/* The host of --metrics_bind, else of own (host:port), else loopback, with --metrics_port's port.
 * bind, own: NULL and empty are fine. */
enum status http_listen_address(const char *bind, const char *own, int port,
                                char out[HTTP_ADDRESS_BYTES]);
/* A socket that listens there. */
enum status http_listen(const char *addr, int *fd);

#endif
