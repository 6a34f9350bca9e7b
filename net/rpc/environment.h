/* net/rpc/environment.h - what gRPC reads from the environment and would end the process over
 * (SIGABRT): looked at by each program, with its flags.
 * Owns: nothing. Threads: before the first one.
 * Errors: ST_INVALID, logged with the variable, its value and the fix. */
#ifndef NET_RPC_ENVIRONMENT_H
#define NET_RPC_ENVIRONMENT_H
#include "base/status.h"

enum status net_environment_check(void);

#endif
