/* ps/saver.h - one server's part in checkpoints: takes the chunks of a step as they come by, and
 * writes its file while training goes on. Which step, and when a checkpoint is whole, others decide
 * (lead.h, follow.h).
 * Owns:    one thread; from an order to its end a capture, a reference to the run.
 * Threads: order and cancel from one thread; state from any. `changed` comes from its own thread
 *          and from order, with no lock held.
 * Errors:  logged; they end as SAVER_FAILED. */
#ifndef PS_SAVER_H
#define PS_SAVER_H
#include "files/safetensors.h"
#include "ps/service.h"

enum saver_phase {
    SAVER_IDLE,
    SAVER_ARMED,   /* waits for the chunks to come to the step */
    SAVER_WRITING, /* all were taken */
    SAVER_WRITTEN,
    SAVER_FAILED,
};

struct saver_state {
    uint64_t order; /* 0: none yet */
    int64_t step;
    enum saver_phase phase;
    struct safetensors_written file; /* WRITTEN */
};

struct saver_config {
    struct ps_service *service;
    const char *folder;         /* borrowed for ever */
    void (*changed)(void *ctx); /* the state did */
    void *ctx;
};

struct saver;
enum status saver_create(const struct saver_config *cfg, struct saver **out);
void saver_destroy(struct saver *s); /* NULL is fine; waits until what is being written is */
/* Takes the place of an earlier order, unless that is being written: then this one fails, as it
 * does where the service is in another generation, or has no chunks in it. */
void saver_order(struct saver *s, uint64_t order, uint64_t generation, int64_t step);
/* If it is still waiting for chunks: it is not any more. */
void saver_cancel(struct saver *s);
void saver_state(struct saver *s, struct saver_state *out);

#endif
