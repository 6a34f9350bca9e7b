/* ps/service/rival.h - a second process that wants to be a member whose process runs: mostly one
 * that was started with another's --task_index. The first one keeps its place while it lives; what
 * was started in the place of one that has died gets it at once, for a dead one has no stream.
 * A host that is cut off or without power leaves its stream open until keepalive ends it: until the
 * first one is known to live, the second is told to ask again. Private to the service.
 * Threads: rival_judge under the service's lock. */
#ifndef PS_SERVICE_RIVAL_H
#define PS_SERVICE_RIVAL_H
#include "ps/service/run.h"

enum {
    /* It lives if it speaks so long after the other came: longer than what a dead process has sent
     * may be on its way. */
    RIVAL_SPOKE_MS = 10000,
    /* Or if its stream is still there: longer than keepalive lets that of a dead host stay. */
    RIVAL_OPEN_MS = 60000,
    /* A process that was there so short a while ago is coming back: longer than from one of its
     * joins to the next (net/exchange/session.h), and the round trip. */
    RIVAL_KNOWN_MS = 5000,
    RIVAL_PAUSE_MS = 20000, /* nobody asked for so long: who asks then is another one */
};

enum rival_verdict {
    RIVAL_NONE,  /* no other process is there as this member, as far as is known */
    RIVAL_WAITS, /* one is, that may be dead */
    RIVAL_LATE,  /* one lives */
};

/* Between two generations nobody has a stream: 1: another process than `incarnation` is known as
 * `m` and was here, or asked, shortly before now_ns, so that it has the place before who comes
 * anew. */
int rival_is_known(const struct member *m, uint64_t incarnation, int64_t now_ns);
/* Of the process `incarnation` that asks at now_ns to be `m`; heard_ns: the member's last piece. */
enum rival_verdict rival_judge(struct member *m, uint64_t incarnation, int64_t heard_ns,
                               int64_t now_ns);
/* "worker 0 runs at ipv4:10.0.0.7:5000 (gpu7), ...": what both are to do. */
void rival_name(const struct member *m, int index, const struct net_join *req, const char *peer,
                char *why, size_t why_bytes);

#endif
