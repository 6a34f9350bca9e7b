/* ps/region/region_server.h - a region's work in a server that is not the region's ps 0: versions
 * of its chunks wait at the region's gates. It reports these versions to ps 0, and makes them when
 * ps 0 sends the order (gate.h). It decides nothing: ps 0 manages all chunks of the region
 * (region.h), on every server.
 *
 *     to ps 0     members' initial values; at a gate each version that waits, with its value;
 *                 of the versions within --overlap_steps before a gate, the first that is made
 *     from ps 0   first versions; the values of versions that wait
 *
 * A letter may arrive twice: a repeated report has the same content, and a repeated order has no
 * effect. The end of a generation drops undelivered letters. The next generation computes the
 * versions that waited again, and they wait again.
 *
 * If `alone` of a plan is set, versions between gates may wait, too. They need no value from ps 0,
 * which orders the server to make them as computed.
 *
 * Owns:    letters (mail.h), a thread once there is a plan of a region.
 * Threads: hooks and region_server_take() from any; the remaining functions from one.
 * Errors:  logged. */
#ifndef PS_REGION_REGION_SERVER_H
#define PS_REGION_REGION_SERVER_H
#include "net/wire/gate.h"
#include "net/wire/plan.h"
#include "ps/store/outer.h"
#include <stdbool.h>

struct service;
struct region_server;
struct region_server_config {
    const char *address; /* address of this server in plans; borrowed to the program's end */
    bool expects;        /* the flags declare the group a region */
    /* called if memory is lacking, or ps 0 refused a letter: the server is to exit */
    void (*failed)(void *ctx);
    void *ctx;
};
enum status region_server_create(const struct region_server_config *cfg,
                                 struct region_server **out);
/* Returns the hooks for the stores of plans with gates; valid until destroy. NULL, without a
 * region, is fine here and below. */
const struct outer_hooks *region_server_outer(struct region_server *p);
/* Borrows the service until stop. */
void region_server_serve(struct region_server *p, struct service *service);
/* Prepares a plan before its store exists; the store before has stopped. ST_NOMEM. */
enum status region_server_begin(struct region_server *p, const struct net_plan *plan);
/* Carries out the orders of ps 0. */
void region_server_take(struct region_server *p, const struct net_gate *gate,
                        struct net_squares_reply *reply);
void region_server_stop(struct region_server *p);
void region_server_destroy(struct region_server *p);

#endif
