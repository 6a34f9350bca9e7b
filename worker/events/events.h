/* worker/events/events.h - --logdir: TensorBoard's event files of this worker, DIR/worker_<index>:
 * it is told of training as an observer, and waits for no disk; docs/guide/tensorboard.md says what
 * is written under which name.
 *
 *   events.c         when something is written: figures, histograms, sessions
 *   event_samples.c  samples with what the network says of them
 *   event.c          one event; event_histogram.c, event_picture.c, event_graph.c what is in it
 *   event_buf.c      protobuf
 *   event_writer.c   the file, in a thread
 * Owns:    the writer, from the first start on.
 * Threads: as struct trainer_observer says; create, destroy: one.
 * Errors:  ST_NOMEM, logged; from then on only lines. */
#ifndef WORKER_EVENTS_EVENTS_H
#define WORKER_EVENTS_EVENTS_H
#include "member/updates.h"
#include "worker/events/event.h"
#include "worker/events/event_graph.h"
#include "worker/train/observer.h"

enum { EVENTS_HISTOGRAMS_AUTO = -1, EVENTS_MOST_HPARAMS = 24 };

struct events_config {
    const char *folder;      /* --logdir; borrowed, as all of these */
    int64_t summary_steps;   /* between figures; at least 1 */
    int64_t histogram_steps; /* 0: none are written; AUTO: as figures, but 30 s apart, or more */
    const struct updates *updates;
    struct optim_config optim;          /* whose rate is told: of this worker's steps */
    int own_pace;                       /* as in struct trainer_config */
    struct event_graph_source graph;    /* task: as far as it is known */
    const struct event_hparam *hparams; /* [n_hparams] copied, not their texts */
    int n_hparams;
};

struct events;
enum status events_create(const struct events_config *cfg, struct events **out);
const struct trainer_observer *events_observer(struct events *ev); /* NULL of NULL */
/* The end; failed: the run has. NULL is fine. */
void events_destroy(struct events *ev, int failed);

#endif
