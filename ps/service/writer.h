/* ps/service/writer.h - orders for checkpoints meet the service's present run (the writing itself
 * is in ps/checkpoint/writer.h). Which step, and when a checkpoint is whole, others decide
 * (coordinator.h, follower.h).
 * Owns:    a writer; from an order to its end a reference to the run.
 * Threads: order, home, cancel and state from one thread. `changed` comes from its own thread
 *          and from order, with no lock held.
 * Errors:  logged; they end as SAVER_FAILED. */
#ifndef PS_SERVICE_WRITER_H
#define PS_SERVICE_WRITER_H
#include "files/safetensors.h"
#include "ps/service/service.h"

/* As enum ps_writer_phase, then as enum control_phase. */
enum saver_phase {
    SAVER_IDLE,
    SAVER_ARMED,   /* waits for the chunks to come to the step */
    SAVER_WRITING, /* all were taken */
    SAVER_WRITTEN,
    SAVER_FAILED,
    SAVER_PAST,     /* the chunks were beyond the step already */
    SAVER_DIVERGED, /* a parameter is not finite: nothing is written */
};

struct saver_state {
    uint64_t order; /* 0: none yet */
    uint64_t generation;
    int64_t step;
    int server, n_servers; /* of the file */
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
void saver_destroy(struct saver *s); /* NULL is fine; waits for the disk a moment only */
/* Takes the place of an earlier order, unless that is being written: then this one fails, as it
 * does where the service is in another generation, or has no chunks in it. */
void saver_order(struct saver *s, uint64_t order, uint64_t generation, int64_t step);
/* What files say from now on: the id of ps 0's folder. */
void saver_home(struct saver *s, const char *id);
/* It is wanted no more: IDLE, even if its file is being written; then the next order fails. */
void saver_cancel(struct saver *s);
void saver_state(struct saver *s, struct saver_state *out);

#endif
