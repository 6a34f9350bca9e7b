/* ps/service/checkpoint_writer.h - orders for checkpoints meet the service's present run (the
 * writing itself is in ps/checkpoint/shard_writer.h). Which step, and when a checkpoint is whole,
 * others decide (coordinator.h, follower.h). Owns:    a writer; from an order to its end a
 * reference to the run. Threads: order, home, cancel and state from one thread. `changed` comes
 * from its own thread and from order, with no lock held. Errors:  logged; they end as
 * CHECKPOINT_WRITER_FAILED. */
#ifndef PS_SERVICE_CHECKPOINT_WRITER_H
#define PS_SERVICE_CHECKPOINT_WRITER_H
#include "files/safetensors.h"
#include "ps/service/service.h"

/* As enum shard_writer_phase, then as enum control_phase. */
enum checkpoint_writer_phase {
    CHECKPOINT_WRITER_IDLE,
    CHECKPOINT_WRITER_ARMED,   /* waits for the chunks to come to the step */
    CHECKPOINT_WRITER_WRITING, /* all were taken */
    CHECKPOINT_WRITER_WRITTEN,
    CHECKPOINT_WRITER_FAILED,
    CHECKPOINT_WRITER_PAST,     /* the chunks were beyond the step already */
    CHECKPOINT_WRITER_DIVERGED, /* a parameter is not finite: nothing is written */
};

struct checkpoint_writer_state {
    uint64_t order; /* 0: none yet */
    uint64_t generation;
    int64_t step;
    int server, n_servers; /* of the file */
    enum checkpoint_writer_phase phase;
    struct safetensors_written file; /* WRITTEN */
};

struct checkpoint_writer_config {
    struct service *service;
    const char *folder;         /* borrowed for ever */
    void (*changed)(void *ctx); /* the state did */
    void *ctx;
};

struct checkpoint_writer;
enum status checkpoint_writer_create(const struct checkpoint_writer_config *cfg,
                                     struct checkpoint_writer **out);
void checkpoint_writer_destroy(
    struct checkpoint_writer *s); /* NULL is fine; waits for the disk a moment only */
/* Takes the place of an earlier order, unless that is being written: then this one fails, as it
 * does where the service is in another generation, or has no chunks in it. */
void checkpoint_writer_order(struct checkpoint_writer *s, uint64_t order, uint64_t generation,
                             int64_t step);
/* What files say from now on: the id of ps 0's folder. */
void checkpoint_writer_set_home(struct checkpoint_writer *s, const char *id);
/* It is wanted no more: IDLE, even if its file is being written; then the next order fails. */
void checkpoint_writer_cancel(struct checkpoint_writer *s);
void checkpoint_writer_state(struct checkpoint_writer *s, struct checkpoint_writer_state *out);

#endif
