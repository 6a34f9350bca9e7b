/* net/rpc/accept.h - limits the number of connections that a server accepts, so that the process
 * keeps its last free descriptors for files. Private to net/. */
#ifndef NET_RPC_ACCEPT_H
#define NET_RPC_ACCEPT_H

/* Applies the limit from now on, for all servers of the process. */
void net_accept_keep_room(void);

#endif
