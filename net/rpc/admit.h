/* net/rpc/admit.h - who may call what. Without certificates and tokens everybody may call all.
 * Private to net/rpc. Threads: any. Errors: none. */
#ifndef NET_RPC_ADMIT_H
#define NET_RPC_ADMIT_H
#include "net/rpc/server_impl.h"

enum { ADMIT_WHY_BYTES = 256 };

/* GRPC_STATUS_OK, or what its caller is told; then why is a sentence, and is logged. */
grpc_status_code admit_call(struct server_call *c, char why[ADMIT_WHY_BYTES]);
/* Checks a request that only some of the roles that may call its method may make. */
grpc_status_code admit_roles(struct server_call *c, unsigned want, char why[ADMIT_WHY_BYTES]);

#endif
