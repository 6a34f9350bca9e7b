/* ps/admin.h - answers an operator's status requests and commands (net/wire/status.h). Every
 * server reports its own state; ps 0, the coordinator, reports that of the whole job, and alone
 * accepts commands.
 * Owns:    the job's model as a worker sent it, for workers that join later; the HTTP pages.
 * Threads: the handlers from any; they wait only for locks that are held briefly.
 * Errors:  ST_NOMEM. */
#ifndef PS_ADMIN_H
#define PS_ADMIN_H
#include "ps/node.h"
#include "ps/region/region.h"
#include "ps/service/service.h"

struct admin_config {
    struct service *service;
    struct node *node;
    struct ps_region *region;     /* region of this server; borrowed; NULL: none */
    const struct hosts *ps_hosts; /* both lists of hosts are borrowed for ever */
    const struct hosts *worker_hosts;
    const char *folder; /* folder of checkpoints; borrowed for ever; NULL: keeps no checkpoints */
    int self;
    int pages_fd; /* see ps_monitor_config's listen_fd; -1: no pages */
    int task;
};

struct admin;
enum status admin_create(const struct admin_config *cfg, struct admin **out);
/* Ends the pages. The caller stops the node later. NULL is allowed. */
void admin_stop(struct admin *s);
void admin_destroy(struct admin *s); /* NULL is allowed */
struct net_admin_handlers admin_make_handlers(struct admin *s);

#endif
