/* net/rpc/reach.h - asks whether any program listens at an address, whatever it speaks.
 * Owns: nothing. Threads: any; a call blocks its own. Errors: none. */
#ifndef NET_RPC_REACH_H
#define NET_RPC_REACH_H
#include <stdbool.h>
#include <stdint.h>

/* Returns true if a program accepts a connection at host:port within this time. */
bool net_is_listening(const char *addr, int64_t ms);

#endif
