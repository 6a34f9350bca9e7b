/* worker/events/event_graph.h - the model as a TensorFlow GraphDef: a node for each layer in each
 * of the worker's towers, and a node for each parameter. Each node has the name of its device:
 *     /job:worker/task:0/device:GPU:1     /job:ps/task:0/device:CPU:0
 * If there are several servers, all parameters are on /job:ps, because each server holds chunks,
 * not parameters.
 * Owns: nothing. Threads: one. Errors: the buffer's overflow. */
#ifndef WORKER_EVENTS_EVENT_GRAPH_H
#define WORKER_EVENTS_EVENT_GRAPH_H
#include "worker/events/event_buf.h"
#include "worker/model/model.h"
#include "worker/place/tower_plan.h"

struct event_graph_source {
    const struct model *model;
    const struct tower_plan *towers;
    int task;      /* index of this worker */
    int n_servers; /* number of servers; 0: the worker trains without servers */
    /* worker without servers: parameters are updated on the host, on whatever device their layers
     * are computed */
    int params_on_host;
};

void event_graph_put(const struct event_graph_source *s, struct event_buf *b);

#endif
