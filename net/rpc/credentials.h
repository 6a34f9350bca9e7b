/* net/rpc/credentials.h - gRPC's credentials, made of what this program shows its peers
 * (net/security/security.h), and what a call shows. Private to net/.
 * Owns:    nothing; what is made is its caller's.
 * Threads: any, with no lock held.
 * Errors:  ST_NOMEM, ST_INTERNAL. */
#ifndef NET_RPC_CREDENTIALS_H
#define NET_RPC_CREDENTIALS_H
#include "net/rpc/grpc_runtime.h"
#include <grpc/grpc_security.h>

enum { CALLER_NAME_BYTES = 96 };

/* For a port: plain where this program has no certificate. number: kept by the caller for as long
 * as the server lives. NULL: out of memory. */
grpc_server_credentials *credentials_server(_Atomic uint64_t *number);
/* For a channel, with the certificate in use now; *number: of it. NULL: out of memory. */
grpc_channel_credentials *credentials_channel(uint64_t *number);

/* The token of a call, as its metadata: n is 0 or 1. */
struct credentials_metadata {
    grpc_metadata entry;
    size_t n;
};
void credentials_metadata_init(struct credentials_metadata *m);
void credentials_metadata_free(struct credentials_metadata *m);

/* Puts words of ours in place of what gRPC says of a call that failed, where it is about who the
 * two sides are. */
void credentials_explain(char *text, size_t room);

/* A caller, as far as it shows who it is. */
struct caller {
    unsigned certificate;         /* roles of it; all where there is no TLS */
    unsigned token;               /* likewise, where there are no tokens */
    int has_token;                /* it shows one, of whatever worth */
    char name[CALLER_NAME_BYTES]; /* of its certificate; "": it has none */
};
void credentials_read_caller(grpc_call *call, const grpc_metadata_array *metadata,
                             struct caller *out);

#endif
