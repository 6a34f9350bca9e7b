/* net/rpc/reasons.h - explains failed calls: replaces gRPC's texts, which name gRPC's internals, by
 * this project's words. Private to net/.
 * Owns:    nothing.
 * Threads: any, with no lock held.
 * Errors:  none; an unknown text stays as it is. */
#ifndef NET_RPC_REASONS_H
#define NET_RPC_REASONS_H
#include <stddef.h>

enum { REASON_BYTES = 1024 }; /* room for gRPC's whole text: a name in it may have 255 bytes */

/* part of the text that explains a refused connection */
#define NET_REASON_REFUSED "no program listens at this address"

/* Replaces gRPC's text of a call that failed. */
void net_reason_explain(char *text, size_t room);

#endif
