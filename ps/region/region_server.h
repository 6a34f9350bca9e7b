/* ps/region/region_server.h - what a server of a region that is not its ps 0 does for it: versions
 * of its chunks wait at the region's gates, ps 0 hears of them, and has them made (gate.h). It
 * decides nothing: ps 0 has the region (region.h), of all chunks, whichever server they are on.
 *
 *     to ps 0     members' first values; at a gate each version that waits, with its value; a
 *                 version within --overlap_steps before one, the first that is made
 *     from ps 0   first versions; what versions that wait become
 *
 * What it says of a chunk's version is the same whenever it is said, and what is done to one is
 * done once, whoever says it how often: so a letter may come twice. A generation's end forgets what
 * was not delivered; its versions that wait are computed again in the next, and wait again.
 *
 * A version may wait for which ps 0 has nothing (`alone` of a plan): it is made at its word.
 *
 * Owns:    letters (mail.h), a thread once there is a plan of a region.
 * Threads: hooks and take from any; the rest from one. Errors: logged. */
#ifndef PS_REGION_REGION_SERVER_H
#define PS_REGION_REGION_SERVER_H
#include "net/wire/gate.h"
#include "net/wire/plan.h"
#include "ps/store/outer.h"

struct service;
struct region_server;
struct region_server_config {
    const char *address;       /* of this server in plans; borrowed for ever */
    int expects;               /* 1: it was told that the group is a region */
    void (*failed)(void *ctx); /* it has no memory, or ps 0 refuses its word: it is to end */
    void *ctx;
};
enum status region_server_create(const struct region_server_config *cfg,
                                 struct region_server **out);
/* For the stores of plans with gates; valid until destroy. NULL, of no region, is fine here and
 * below. */
const struct outer_hooks *region_server_outer(struct region_server *p);
/* The service is borrowed until stop. */
void region_server_serve(struct region_server *p, struct service *service);
/* Before the plan's store is there; the one before has stopped. ST_NOMEM. */
enum status region_server_begin(struct region_server *p, const struct net_plan *plan);
/* ps 0's word. */
void region_server_take(struct region_server *p, const struct net_gate *gate,
                        struct net_squares_reply *reply);
void region_server_stop(struct region_server *p);
void region_server_destroy(struct region_server *p);

#endif
