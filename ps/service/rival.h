/* ps/service/rival.h - judges a second process that asks for the place of a member whose process
 * runs. Usually an operator started it with another worker's --task_index. The first process keeps
 * its place while it lives. The successor of a dead process gets the place at once, because a dead
 * process has no stream. A host that is cut off or without power leaves its stream open until
 * keepalive ends it: until the first process proves to be alive, the second is asked to retry.
 * Private to the service.
 * Threads: rival_judge under the service's lock. */
#ifndef PS_SERVICE_RIVAL_H
#define PS_SERVICE_RIVAL_H
#include "ps/service/run.h"
#include <stdbool.h>

enum {
    /* The first process counts as alive if it sends a piece this long after the second one's
     * first request. Data that a dead process sent before its death cannot be in flight for so
     * long. */
    RIVAL_SPOKE_MS = 10000,
    /* The first process also counts as alive if its stream is still open this long after that
     * request, since keepalive ends the stream of a dead host sooner. */
    RIVAL_OPEN_MS = 60000,
    /* A process that was present less than this time ago is expected back. This is longer than the
     * time between two of its joins (net/exchange/session.h) and the round trip. */
    RIVAL_KNOWN_MS = 5000,
    /* After a pause this long, the next request counts as that of a new rival. */
    RIVAL_PAUSE_MS = 20000,
};

enum rival_verdict {
    RIVAL_NONE,  /* no other known process is this member */
    RIVAL_WAITS, /* another process is recorded as this member, and may be dead */
    RIVAL_LATE,  /* another process is recorded as this member, and is alive */
};

/* Returns true if another process than `incarnation` is recorded as `m` and was present, or
 * asked to join, shortly before now_ns. Between two generations no member has a stream: then that
 * process has precedence over a newcomer. */
bool rival_is_known(const struct member *m, uint64_t incarnation, int64_t now_ns);
/* Judges the process `incarnation`, which asks at now_ns to be `m`. heard_ns is the time of the
 * member's last piece. */
enum rival_verdict rival_judge(struct member *m, uint64_t incarnation, int64_t heard_ns,
                               int64_t now_ns);
/* Writes to `why` where both processes run and what the operator can do: "another process is worker
 * 0: it runs at ipv4:10.0.0.7:5000 (gpu7), ...". */
void rival_name(const struct member *m, int index, const struct net_join *req, const char *peer,
                char *why, size_t why_bytes);

#endif
