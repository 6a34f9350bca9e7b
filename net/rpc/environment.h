/* net/rpc/environment.h - reports the threads and descriptors that gRPC needs in its process, and
 * checks the variable GRPC_POLL_STRATEGY. gRPC aborts the process (SIGABRT) if that variable is
 * invalid, so each program checks it together with its flags.
 * Owns:    nothing.
 * Threads: any, if no other thread changes the environment at the same time.
 * Errors:  ST_INVALID, logged with the variable, its value and the fix. */
#ifndef NET_RPC_ENVIRONMENT_H
#define NET_RPC_ENVIRONMENT_H
#include "base/status.h"
#include <stdbool.h>

enum {
    NET_GRPC_DESCRIPTORS = 5,
    NET_EXCHANGE_THREADS = 2 /* threads of one exchange */
};

enum status net_environment_check(void);
/* Returns true if gRPC waits for its sockets by poll(), and not by epoll. */
bool net_environment_is_poll(void);
/* Returns the number of threads that gRPC starts by itself, when the process first uses it. */
int net_environment_threads(void);
/* Returns the number of descriptors that a server does not use for connections (accept.h). */
int net_accept_kept_descriptors(void);

#endif
