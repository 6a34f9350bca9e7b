/* ps/admin.h - what people are told of a job, and what they may have done (net/wire/status.h).
 * Every server says how things stand with itself; ps 0, who coordinates, has the whole, and alone
 * takes commands.
 * Owns:    the job's model as a worker brought it, for workers that join later; the pages over
 * HTTP. Threads: people's functions from any; none waits for anything but locks that are held
 * briefly. Errors:  ST_NOMEM. */
#ifndef PS_ADMIN_H
#define PS_ADMIN_H
#include "ps/node.h"
#include "ps/region/region.h"
#include "ps/service/service.h"

struct admin_config {
    struct service *service;
    struct node *node;
    struct ps_region *region;     /* borrowed; NULL: none */
    const struct hosts *ps_hosts; /* borrowed for ever, as the next */
    const struct hosts *worker_hosts;
    const char *folder; /* of checkpoints; likewise; NULL: none are kept */
    int self;
    int pages_fd; /* as ps_monitor_config's listen_fd; -1: no pages */
    int task;
};

struct admin;
enum status admin_create(const struct admin_config *cfg, struct admin **out);
void admin_stop(struct admin *s);    /* no more pages; before the node goes; NULL is fine */
void admin_destroy(struct admin *s); /* NULL is fine */
struct net_admin_handlers admin_make_handlers(struct admin *s);

#endif
