/* ps/set_up.h - creates the server's objects as its flags require and connects them: calls from one
 * object to another go through the app.
 * Owns:    nothing; the app owns the objects.
 * Threads: main's, before the server accepts calls.
 * Errors:  see region.h, region_server.h, node.h. */
#ifndef PS_SET_UP_H
#define PS_SET_UP_H
#include "ps/app.h"
#include "ps/service/service.h"

enum status ps_set_up_region(const struct ps_cluster *c, struct app *app);
enum status ps_set_up_node(const struct ps_cluster *c, struct app *app);
/* Returns the service's configuration, which borrows c and app. */
struct service_config ps_set_up_service_config(const struct ps_cluster *c, struct app *app);
/* Returns the number of threads for messages; asked 0: chosen by the number of usable cores. */
int ps_set_up_n_threads(int64_t asked);
/* Returns the number of further threads, for updates; asked 0: chosen by the number of usable
 * cores. */
int ps_set_up_n_update_threads(int64_t asked);
/* Checks that this process may have the threads and descriptors that the server needs. */
enum status ps_set_up_reserve(const struct ps_options *opt, const struct ps_cluster *c);

#endif
