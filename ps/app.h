/* ps/app.h - the state of the server program: the objects that it consists of, and the reasons why
 * it ends. Private to main.c, set_up.c and shutdown.c.
 * Owns:    these objects; main frees them.
 * Threads: any thread sets the atomic fields, and wakes main by event_fd; all other fields are
 * main's.
 * Errors:  none. */
#ifndef PS_APP_H
#define PS_APP_H
#include "base/thread_pool.h"
#include "ps/node.h"
#include "ps/options.h"
#include "ps/region/region.h"
#include "ps/region/region_server.h"

enum { WHY_BYTES = 512 };

/* State of the program: the events that main waits for, and the objects that callbacks use. */
struct app {
    const struct ps_options *opt;
    int signal_fd, event_fd;
    _Atomic int job_done, refused, over, failed;
    _Atomic int replaced; /* another ps 0 has replaced this process and continues the region */
    /* another ps 0 may have replaced this process: the folder does not answer, so its owner is
     * unknown */
    _Atomic int unsure;
    /* reason of EXIT_PERMANENT (see error_of in main.c), which the region reports to its parent */
    const char *error;
    _Atomic int parent_lost; /* the region's last update did not reach the parent */
    _Atomic int cut_off;     /* the parent was lost before the last step, so the region ends */
    char why[WHY_BYTES];     /* reason for cut_off, written one time, before cut_off is set */
    struct node *node;
    struct thread_pool *threads; /* threads for updates */
    struct ps_region *region;    /* region of ps 0; NULL: not a region */
    struct region_server *part;  /* the region's work in a server other than ps 0 */
    struct coordinator_region_hooks hooks;
    int ended;      /* shut down in order */
    int lacks_last; /* shut down without the last checkpoint */
};

#endif
