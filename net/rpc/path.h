/* net/rpc/path.h - recognises a path on which large packets are lost: the MTU of a link on the way
 * is smaller than that of this host's device, and the ICMP messages that would report it are
 * dropped. Connections open and small messages pass, but TCP sends the first full packet again
 * until the connection is lost. The next connection is lost in the same way.
 *
 * One lost connection is no proof, because it looks the same when the path is cut. Two in
 * succession are a proof, because the second one opened only after small packets had passed again.
 *
 * Owns:    nothing.
 * Threads: one at a time for each watch.
 * Errors:  none; without /proc nothing is recognised. */
#ifndef NET_RPC_PATH_H
#define NET_RPC_PATH_H
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

enum { NET_PATH_SUSPECTS = 16 };

/* A connection that has sent its first full packet several times, while only small packets have
 * arrived. */
struct net_path_suspect {
    char host[INET6_ADDRSTRLEN];
    int local_port, peer_port;
    int packet_bytes; /* size of the IP packets that this host sends to `host` */
    int64_t seen_ns;  /* last time at which the connection was a suspect; 0: the entry is free */
};

struct net_path_watch { /* must be all zeros at first */
    struct net_path_suspect suspect[NET_PATH_SUSPECTS];
    int64_t logged_ns; /* time of the last log line; 0: none */
};

/* Records that a connection is a suspect now. Returns true if an earlier suspect to the same host
 * has ended, which proves the fault. */
bool net_path_note(struct net_path_watch *w, const struct net_path_suspect *s, int64_t now_ns);
/* Examines this process's TCP connections to this port (0: to all ports). Returns the size of the
 * packets that are lost on one of them, and logs it at most once a minute with the fix; 0: no loss
 * is known. */
int net_path_look(struct net_path_watch *w, int port);

#endif
