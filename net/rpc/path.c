/* net/rpc/path.c - see path.h. gRPC does not expose its sockets, so this file examines all
 * descriptors of the process, without changing them. */
#include "net/rpc/path.h"
#include "base/clock.h"
#include "base/log.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
    STATE_ESTABLISHED = 1,
    REPEATS = 3, /* repeats of one packet without an answer; together they last at least 1.4 s */
    /* if fewer bytes were acknowledged than so many full packets have, no full packet has arrived
     */
    FEW_PACKETS = 4,
    /* an earlier suspect counts only if it is at least this old: one cut of the network ends
     * several connections at the same time */
    GONE_MS = 2000,
    FORGET_MS = 60000 /* an older suspect does not count any more */
};
#define MS INT64_C(1000000)

bool net_path_note(struct net_path_watch *w, const struct net_path_suspect *s, int64_t now_ns)
{
    struct net_path_suspect *own = &w->suspect[0];
    bool is_known = false, is_proof = false;
    for (int i = 0; i < NET_PATH_SUSPECTS; i++) {
        struct net_path_suspect *o = &w->suspect[i];
        int64_t age_ns = now_ns - o->seen_ns;
        bool is_host = o->seen_ns && strcmp(o->host, s->host) == 0;
        bool is_own = is_host && o->local_port == s->local_port && o->peer_port == s->peer_port;
        is_proof |= is_host && !is_own && age_ns >= GONE_MS * MS && age_ns < FORGET_MS * MS;
        if (is_own || (!is_known && o->seen_ns < own->seen_ns))
            own = o;
        is_known |= is_own;
    }
    *own = *s;
    own->seen_ns = now_ns;
    return is_proof;
}

static int read_address(const struct sockaddr_storage *a, char host[INET6_ADDRSTRLEN])
{
    const struct sockaddr_in *four = (const void *)a;
    const struct sockaddr_in6 *six = (const void *)a;
    if (a->ss_family == AF_INET && inet_ntop(AF_INET, &four->sin_addr, host, INET6_ADDRSTRLEN))
        return ntohs(four->sin_port);
    if (a->ss_family != AF_INET6)
        return -1;
    bool is_four = IN6_IS_ADDR_V4MAPPED(&six->sin6_addr);
    const void *bytes = is_four ? &six->sin6_addr.s6_addr[12] : &six->sin6_addr.s6_addr[0];
    return inet_ntop(is_four ? AF_INET : AF_INET6, bytes, host, INET6_ADDRSTRLEN)
               ? ntohs(six->sin6_port)
               : -1;
}

/* Returns true if the descriptor is a TCP connection to this port (0: to any) whose first full
 * packet was sent several times, but has not arrived. */
static bool is_suspect(int fd, int port, struct net_path_suspect *s)
{
    struct tcp_info t;
    struct sockaddr_storage peer, local;
    socklen_t bytes = sizeof t, peer_bytes = sizeof peer, local_bytes = sizeof local;
    char own[INET6_ADDRSTRLEN];
    int queued = 0;
    memset(&t, 0, sizeof t);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &t, &bytes) < 0 || t.tcpi_state != STATE_ESTABLISHED)
        return false;
    if (t.tcpi_retransmits < REPEATS || t.tcpi_bytes_acked >= FEW_PACKETS * t.tcpi_snd_mss ||
        ioctl(fd, SIOCOUTQ, &queued) < 0 ||
        queued - (int64_t)t.tcpi_notsent_bytes < (int64_t)t.tcpi_snd_mss)
        return false;
    if (getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) < 0 ||
        getsockname(fd, (struct sockaddr *)&local, &local_bytes) < 0)
        return false;
    s->peer_port = read_address(&peer, s->host);
    s->local_port = read_address(&local, own);
    s->packet_bytes = (int)t.tcpi_pmtu;
    return s->peer_port >= 0 && (port == 0 || s->peer_port == port);
}

static void log_lost_packets(struct net_path_watch *w, const struct net_path_suspect *s,
                             int64_t now_ns)
{
    if (w->logged_ns && now_ns - w->logged_ns < FORGET_MS * MS)
        return;
    w->logged_ns = now_ns;
    LOG_W(
        "packets of %d bytes to %s are lost while smaller ones arrive: a link on the way has a smaller MTU, and the ICMP messages about it are dropped; on both hosts set a smaller MTU (ip link set dev DEVICE mtu 1280), or let TCP probe for it (sysctl -w net.ipv4.tcp_mtu_probing=1)",
        s->packet_bytes, s->host);
}

int net_path_look(struct net_path_watch *w, int port)
{
    DIR *folder = opendir("/proc/self/fd");
    int64_t now_ns = clock_now_ns();
    int packet_bytes = 0;
    for (const struct dirent *e; folder && (e = readdir(folder));) {
        struct net_path_suspect s = {.host = ""};
        if (e->d_name[0] == '.' || !is_suspect(atoi(e->d_name), port, &s) ||
            !net_path_note(w, &s, now_ns))
            continue;
        packet_bytes = s.packet_bytes;
        log_lost_packets(w, &s, now_ns);
    }
    if (folder)
        closedir(folder);
    return packet_bytes;
}
