/* net/rpc/reach.h - checks whether any program listens at an address, whatever its protocol, and
 * measures how long this host needs to resolve the name in an address.
 * Owns:    nothing.
 * Threads: any; a call blocks only its own thread.
 * Errors:  none. */
#ifndef NET_RPC_REACH_H
#define NET_RPC_REACH_H
#include <stdbool.h>
#include <stdint.h>

/* Returns true if a program accepts a connection at host:port within this time. */
bool reach_is_listening(const char *addr, int64_t ms);
/* Resolves the name in host:port. Returns the duration in milliseconds; -1: no name server
 * answered. A resolver waits for 5 s before it contacts the next name server, which is longer than
 * many deadlines. */
int64_t reach_resolve_ms(const char *addr);

#endif
