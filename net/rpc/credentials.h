/* net/rpc/credentials.h - makes gRPC's credentials from this program's identity
 * (net/security/security.h), and reads the identity of a call's sender. Private to net/.
 * Owns:    nothing; the caller owns each result.
 * Threads: any, with no lock held.
 * Errors:  none; a function returns NULL if memory is missing. */
#ifndef NET_RPC_CREDENTIALS_H
#define NET_RPC_CREDENTIALS_H
#include "net/rpc/grpc_runtime.h"
#include <grpc/grpc_security.h>
#include <stdbool.h>

enum { CALLER_NAME_BYTES = 96 };

/* Returns credentials for a port, without TLS if this program has no certificate. *number receives
 * the certificate's number; it must exist as long as the server. NULL: out of memory. */
grpc_server_credentials *credentials_server(_Atomic uint64_t *number);
/* Returns credentials for a channel, with the certificate that is in use now. *number: the
 * number of that certificate. NULL: out of memory. */
grpc_channel_credentials *credentials_channel(uint64_t *number);

/* Metadata of a call: its token, if there is a token; n is 0 or 1. */
struct credentials_metadata {
    grpc_metadata entry;
    size_t n;
};
void credentials_metadata_init(struct credentials_metadata *m);
void credentials_metadata_free(struct credentials_metadata *m);

/* Replaces gRPC's text of a failed call by a clearer text if the call failed because of the
 * client's or the server's identity. */
void credentials_explain(char *text, size_t room);

/* Identity of a caller. */
struct caller {
    unsigned certificate;         /* roles of the caller's certificate; all roles without TLS */
    unsigned token;               /* roles of the caller's token; all roles without tokens */
    bool has_token;               /* the caller shows a token, valid or not */
    char name[CALLER_NAME_BYTES]; /* name in the certificate; empty: the caller has none */
};
void credentials_read_caller(grpc_call *call, const grpc_metadata_array *metadata,
                             struct caller *out);

#endif
