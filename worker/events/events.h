/* worker/events/events.h - --logdir: TensorBoard's event files of this worker, DIR/worker_<index>.
 * This observer of training never waits for a disk. docs/guide/tensorboard.md lists the names of
 * the values.
 *
 *   events.c         when events are written: figures, histograms, sessions
 *   event_samples.c  samples with the network's outputs
 *   event.c          one event; event_histogram.c, event_picture.c, event_graph.c: its contents
 *   event_buf.c      protobuf
 *   event_writer.c   the file, in a thread
 * Owns:    the writer, from the first start on. Threads: as for struct trainer_observer; create,
 *          destroy: one.
 * Errors:  events_create: ST_NOMEM, logged; later errors are only logged. */
#ifndef WORKER_EVENTS_EVENTS_H
#define WORKER_EVENTS_EVENTS_H
#include "member/updates.h"
#include "worker/events/event.h"
#include "worker/events/event_graph.h"
#include "worker/train/observer.h"

enum { EVENTS_HISTOGRAMS_AUTO = -1, EVENTS_MOST_HPARAMS = 24 };

struct events_config {
    const char *folder;    /* --logdir; borrowed, as all pointers below */
    int64_t summary_steps; /* steps between events with figures; at least 1 */
    /* steps between histograms; 0: no histograms; AUTO: as for figures, but at least 30 s apart */
    int64_t histogram_steps;
    const struct updates *updates;
    struct optim_config optim;          /* optimizer; its learning rate at each step is written */
    bool own_pace;                      /* see struct trainer_config */
    struct event_graph_source graph;    /* the graph's `task` is the worker's index, if known */
    const struct event_hparam *hparams; /* [n_hparams] copied, but not their texts */
    int n_hparams;
};

struct events;
enum status events_create(const struct events_config *cfg, struct events **out);
const struct trainer_observer *events_observer(struct events *ev); /* returns NULL if ev is NULL */
/* Ends the events. failed: the run has failed. NULL is fine. */
void events_destroy(struct events *ev, int failed);

#endif
