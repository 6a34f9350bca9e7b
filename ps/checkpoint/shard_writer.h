/* ps/checkpoint/shard_writer.h - one server's part in checkpoints: captures the chunks of a step as
 * they reach it, and writes its file while training continues. The coordinator decides on the step
 * and decides when a checkpoint is complete.
 *
 * The writer handles one order at a time. The write of a file to a disk that hangs cannot be
 * aborted: the caller may cancel the order at once, but the writer stays busy until the write
 * returns, and fails orders until then with ST_BUSY. No caller waits for it. A file that appears
 * late has its own name (names.h), no manifest names it, and a sweep removes it.
 *
 * Owns:    one thread; the capture of an order, and the references that `release` releases.
 * Threads: order and cancel from one thread; state from any. `changed` is called by its own thread
 *          and by order, with no lock held.
 * Errors:  logged; the order then ends as PART_FAILED, with the status as its reason. */
#ifndef PS_CHECKPOINT_SHARD_WRITER_H
#define PS_CHECKPOINT_SHARD_WRITER_H
#include "checkpoint/shard_file.h"
#include "net/wire/control.h"
#include "ps/store/store.h"
#include <stdbool.h>

struct shard_writer_state {
    uint64_t order; /* number of the order; 0: none yet */
    uint64_t generation;
    int64_t step;
    enum part_phase phase;
    enum status failure;             /* FAILED: the reason */
    struct safetensors_written file; /* the written file; set in the phase WRITTEN */
    bool busy;                       /* a file of this order or an earlier one is being written */
    int64_t busy_since_ns;           /* start of that write */
};

struct shard_writer_order {
    uint64_t order;
    struct store *store; /* store of the chunks; borrowed until release */
    /* location and header of the file; borrowed with all that it points to */
    struct checkpoint_shard_file file;
    /* Called one time, in any thread, when the store and `file` are no longer needed. */
    void (*release)(void *owner);
    void *owner;
};

struct shard_writer;
enum status shard_writer_create(void (*changed)(void *ctx), void *ctx, struct shard_writer **out);
/* Waits for a file that is being written, until the deadline. After that the thread keeps all that
 * it holds until the process exits, and calls no callback. Returns true if the thread has ended.
 * NULL is fine. */
bool shard_writer_destroy(struct shard_writer *w, int64_t deadline_ns);
/* Replaces an earlier order; if the file of that order is being written, the new order fails.
 * `release` is called for the order's owner in every case. */
void shard_writer_order(struct shard_writer *w, const struct shard_writer_order *order);
/* Reports an order that could not be made: its state is FAILED. */
void shard_writer_fail(struct shard_writer *w, uint64_t order, int64_t step, enum status why);
/* Cancels the order: the state is IDLE at once, whatever the disk does. */
void shard_writer_cancel(struct shard_writer *w);
void shard_writer_state(struct shard_writer *w, struct shard_writer_state *out);

#endif
