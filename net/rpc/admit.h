/* net/rpc/admit.h - decides which caller may use which method. Without certificates and tokens
 * every caller may use every method. Private to net/rpc.
 * Threads: any.
 * Errors:  none. */
#ifndef NET_RPC_ADMIT_H
#define NET_RPC_ADMIT_H
#include "net/rpc/server_impl.h"

enum { ADMIT_WHY_BYTES = 256 };

/* Returns GRPC_STATUS_OK, or the code that the caller receives; then `why` is a sentence, which
 * is logged. */
grpc_status_code admit_call(struct server_call *c, char why[ADMIT_WHY_BYTES]);
/* Checks that the caller has one of these roles, for a request that needs more than the right to
 * call its method. */
grpc_status_code admit_roles(struct server_call *c, unsigned want, char why[ADMIT_WHY_BYTES]);

#endif
