/* ps/checkpoint/shard_writer.h - one server's part in checkpoints: takes the chunks of a step as
 * they come by, and writes its file while training goes on. Which step, and when a checkpoint is
 * whole, others decide.
 *
 * One lane, one order at a time. A file that is being written cannot be taken back from a disk that
 * hangs: the order can be given up at once (cancel), the lane stays busy until the write returns,
 * and orders until then fail with ST_BUSY. Nothing waits for it. A file that appears late has its
 * own name (names.h), no manifest names it, and a sweep removes it.
 *
 * Owns:    one thread; of an order its capture, and what `release` gives back.
 * Threads: order and cancel from one thread; state from any. `changed` comes from its own thread
 *          and from order, with no lock held.
 * Errors:  logged; they end as SHARD_WRITER_FAILED, with the status. */
#ifndef PS_CHECKPOINT_SHARD_WRITER_H
#define PS_CHECKPOINT_SHARD_WRITER_H
#include "checkpoint/shard_file.h"
#include "ps/store/store.h"

enum shard_writer_phase {
    SHARD_WRITER_IDLE,
    SHARD_WRITER_ARMED,   /* waits for the chunks to come to the step */
    SHARD_WRITER_WRITING, /* all were taken */
    SHARD_WRITER_WRITTEN,
    SHARD_WRITER_FAILED,
};

struct shard_writer_state {
    uint64_t order; /* 0: none yet */
    uint64_t generation;
    int64_t step;
    enum shard_writer_phase phase;
    enum status failure;             /* FAILED: why */
    struct safetensors_written file; /* WRITTEN */
    int busy;                        /* a file is being written, of this order or an earlier one */
    int64_t busy_since_ns;           /* likewise */
};

struct shard_writer_order {
    uint64_t order;
    struct store *store; /* whose chunks; borrowed until release */
    struct checkpoint_shard_file
        file;                     /* where to and what it says; likewise with all it points to */
    void (*release)(void *owner); /* once, from any thread, when both are needed no more */
    void *owner;
};

struct shard_writer;
enum status shard_writer_create(void (*changed)(void *ctx), void *ctx, struct shard_writer **out);
/* Waits for a file that is being written, until the deadline: then the thread is left to the
 * process' end with all that it holds, and calls nobody any more. 1: nothing was left. NULL is
 * fine. */
int shard_writer_destroy(struct shard_writer *w, int64_t deadline_ns);
/* Takes the place of an earlier order, unless that is being written. Takes `order`'s owner,
 * whatever comes of it. */
void shard_writer_order(struct shard_writer *w, const struct shard_writer_order *order);
/* An order that could not be made: its state is FAILED. */
void shard_writer_fail(struct shard_writer *w, uint64_t order, int64_t step, enum status why);
/* The order is wanted no more: the state is IDLE at once, whatever the disk does. */
void shard_writer_cancel(struct shard_writer *w);
void shard_writer_state(struct shard_writer *w, struct shard_writer_state *out);

#endif
