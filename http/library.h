/* http/library.h - libmicrohttpd, loaded when pages are asked for: it brings GnuTLS along, which a
 * program that serves none need not wait for at its start.
 * Owns: nothing; the library stays. Threads: load from one; the table is constant then.
 * Errors: ST_NOT_FOUND, logged. */
#ifndef HTTP_LIBRARY_H
#define HTTP_LIBRARY_H
#include "base/status.h"
#include <microhttpd.h>

#define HTTP_FUNCTIONS(X)                                                                          \
    X(start_daemon)                                                                                \
    X(stop_daemon)                                                                                 \
    X(run)                                                                                         \
    X(get_timeout)                                                                                 \
    X(get_daemon_info)                                                                             \
    X(get_connection_info)                                                                         \
    X(queue_response)                                                                              \
    X(create_response_from_buffer)                                                                 \
    X(add_response_header)                                                                         \
    X(destroy_response)

/* Each as MHD_... */
struct http_library {
#define X(name) __typeof__(&MHD_##name) name;
    HTTP_FUNCTIONS(X)
#undef X
};

enum status http_library_load(struct http_library *out);

#endif
