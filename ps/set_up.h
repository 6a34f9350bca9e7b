/* ps/set_up.h - the server's parts, made as its flags say and joined to each other: what one of
 * them calls of another goes by the app.
 * Owns:    what is made is the app's.
 * Threads: main's, before anything is served.
 * Errors:  as region.h, region_server.h, node.h. */
#ifndef PS_SET_UP_H
#define PS_SET_UP_H
#include "ps/app.h"
#include "ps/service/service.h"

enum status ps_set_up_region(const struct ps_cluster *c, struct app *app);
enum status ps_set_up_node(const struct ps_cluster *c, struct app *app);
/* It borrows c and app. */
struct service_config ps_set_up_service_config(const struct ps_cluster *c, struct app *app);
int ps_set_up_n_threads(int64_t asked); /* 0: as many as there are cores for */
/* Checks that this process may have the threads and descriptors that the server needs. */
enum status ps_set_up_reserve(const struct ps_options *opt, const struct ps_cluster *c);

#endif
