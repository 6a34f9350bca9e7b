/* net/rpc/environment.h - gRPC's demands on its process: threads and descriptors, and a variable
 * that it would end the process over (SIGABRT), which each program checks with its flags.
 * Owns:    nothing.
 * Threads: net_environment_check before the first one; the others any.
 * Errors:  ST_INVALID, logged with the variable, its value and the fix. */
#ifndef NET_RPC_ENVIRONMENT_H
#define NET_RPC_ENVIRONMENT_H
#include "base/status.h"
#include <stdbool.h>

enum {
    NET_GRPC_DESCRIPTORS = 5,
    NET_EXCHANGE_THREADS = 2 /* of an exchange */
};

enum status net_environment_check(void);
/* Returns true if gRPC waits for its sockets by poll(), and not by epoll. */
bool net_environment_is_poll(void);
/* Returns how many threads gRPC starts by itself, with its first user. */
int net_environment_threads(void);
/* Returns how many descriptors a server's connections are not given (accept.h). */
int net_accept_kept_descriptors(void);

#endif
