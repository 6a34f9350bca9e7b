/* http/library.h - loads libmicrohttpd by name when a program serves pages. libmicrohttpd also
 * loads GnuTLS, so a program without pages starts faster.
 * Owns: nothing; the library stays loaded. Threads: one thread loads it, then any may call it.
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

/* libmicrohttpd's functions: `run` is MHD_run. */
struct http_library {
#define X(name) __typeof__(&MHD_##name) name;
    HTTP_FUNCTIONS(X)
#undef X
};

/* Loads the library and finds its functions. */
enum status http_library_load(struct http_library *out);

#endif
