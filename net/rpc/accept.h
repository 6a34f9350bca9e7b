/* net/rpc/accept.h - how many connections a server takes: all but the last of the descriptors that
 * the process may have, which are left for files. Private to net/. */
#ifndef NET_RPC_ACCEPT_H
#define NET_RPC_ACCEPT_H

/* From now on, for all servers of the process. */
void net_accept_keep_room(void);

#endif
