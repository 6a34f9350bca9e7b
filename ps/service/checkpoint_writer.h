/* ps/service/checkpoint_writer.h - carries out orders for a checkpoint on the service's present
 * run. ps/checkpoint/shard_writer.h writes the file itself. The coordinator decides on the step,
 * and decides when a checkpoint is complete (coordinator.h, follower.h).
 * Owns:    a writer; from an order to its end a reference to the run.
 * Threads: order, home, cancel and state from one thread. `changed` is called by the writer's own
 *          thread and by order, with no lock held.
 * Errors:  logged; the order then ends as PART_FAILED. */
#ifndef PS_SERVICE_CHECKPOINT_WRITER_H
#define PS_SERVICE_CHECKPOINT_WRITER_H
#include "files/safetensors.h"
#include "ps/service/service.h"

struct checkpoint_writer_state {
    uint64_t order; /* number of the last order; 0: none yet */
    uint64_t generation;
    int64_t step;
    /* number of this server, and number of servers, in the plan: parts of the file's name */
    int server, n_servers;
    enum part_phase phase;
    struct safetensors_written file; /* the written file; set in the phase WRITTEN */
};

struct checkpoint_writer_config {
    struct service *service;
    const char *folder;         /* folder of checkpoints; borrowed until the program ends */
    void (*changed)(void *ctx); /* called when the state changed */
    void *ctx;
};

struct checkpoint_writer;
enum status checkpoint_writer_create(const struct checkpoint_writer_config *cfg,
                                     struct checkpoint_writer **out);
void checkpoint_writer_destroy(
    struct checkpoint_writer *s); /* Waits only a moment for the disk. NULL is fine. */
/* Replaces an earlier order, unless its file is being written: then this order fails. An order also
 * fails if the service is in another generation, or has no chunks in it. */
void checkpoint_writer_order(struct checkpoint_writer *s, uint64_t order, uint64_t generation,
                             int64_t step);
/* Sets the id of ps 0's folder, which later files contain. */
void checkpoint_writer_set_home(struct checkpoint_writer *s, const char *id);
/* Cancels the order. The phase becomes IDLE even if the file is being written; then the next order
 * fails. */
void checkpoint_writer_cancel(struct checkpoint_writer *s);
void checkpoint_writer_state(struct checkpoint_writer *s, struct checkpoint_writer_state *out);

#endif
