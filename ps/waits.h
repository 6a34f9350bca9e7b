/* ps/waits.h - names the workers and servers that training waits for, in one phrase.
 * Owns: nothing. Threads: any. Errors: none. */
#ifndef PS_WAITS_H
#define PS_WAITS_H
#include "net/wire/status.h"
#include <stdbool.h>

struct ps_waits_config {
    const struct net_status *status; /* complete except for `waiting` */
    /* the pending change of the generation waits for workers, not for servers */
    bool lacks_workers;
    int n_hosts; /* workers of --worker_hosts */
    /* [ranks] number of chunks at which other members have waited for the member for longer than
     * a step lasts; NULL: none */
    const int *late;
    /* [ranks] step whose evaluation lacks this member's part, -1: none; NULL: no evaluation */
    const int64_t *evaluates;
    const char *parent; /* text of ps_region_waits; NULL, "": no wait for a parent group */
};

/* Writes "worker 1 (never joined), worker 3 (no connection for 12 s)", or an empty text if training
 * waits for no other program. A worker that is connected and computes is named only if it is
 * late. */
void ps_waits_name(const struct ps_waits_config *cfg, char text[STATUS_WAITING_BYTES]);

#endif
