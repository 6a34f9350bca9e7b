/* ps/app.h - the server as a program: its parts, and what ends it. Private to main.c, set_up.c and
 * shutdown.c.
 * Owns:    its parts; main frees them.
 * Threads: any sets what is atomic, and wakes main by event_fd; all else is main's.
 * Errors:  none. */
#ifndef PS_APP_H
#define PS_APP_H
#include "base/thread_pool.h"
#include "ps/node.h"
#include "ps/options.h"
#include "ps/region/region.h"
#include "ps/region/region_server.h"

enum { WHY_BYTES = 512 };

/* What main waits for, and what the callbacks reach. */
struct app {
    const struct ps_options *opt;
    int signal_fd, event_fd;
    _Atomic int job_done, refused, over, failed;
    _Atomic int replaced;    /* by another ps 0, which the region goes on with */
    _Atomic int unsure;      /* whether it was replaced: the folder does not answer */
    const char *error;       /* error_of, as it ends; for the region's parent */
    _Atomic int parent_lost; /* the region's: what it learnt last was not delivered */
    _Atomic int cut_off;     /* and before its last step, so that it ends: */
    char why[WHY_BYTES];     /* this is why; written before cut_off, not again */
    struct node *node;
    struct thread_pool *threads; /* of updates */
    struct ps_region *region;    /* ps 0's; NULL: this group is none */
    struct region_server *part;  /* of other servers, which are told whether it is one */
    struct coordinator_region_hooks hooks;
    int ended;      /* in order */
    int lacks_last; /* and without the last checkpoint */
};

#endif
