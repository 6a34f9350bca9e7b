/* ps/follow.h - a server other than ps 0 in checkpoints: keeps a control call at ps 0, learns which
 * checkpoint to go on from, hands its orders to the saver, and tells how far that is.
 * Owns:    one thread, the channel to ps 0.
 * Threads: any; finish and destroy from one. wake and request never block.
 * Errors:  ST_NOMEM; what ps 0 refuses, and what cannot be restored, is logged, then `refused`. */
#ifndef PS_FOLLOW_H
#define PS_FOLLOW_H
#include "ps/saver.h"

struct follow_config {
    struct ps_service *service;
    struct saver *saver;
    const char *addr;           /* of ps 0; borrowed for ever */
    const char *restore_folder; /* where the manifest lies that ps 0 names; likewise */
    int self, n_servers;
    void (*refused)(void *ctx); /* this process cannot belong to the job */
    void *ctx;
};

struct follow;
enum status follow_create(const struct follow_config *cfg, struct follow **out);
enum status follow_start(struct follow *f);
void follow_stop(struct follow *f); /* the saver is not used any more; NULL is fine, as below */
void follow_destroy(struct follow *f);
void follow_wake(struct follow *f);    /* the saver's state has changed, a run has begun */
void follow_request(struct follow *f); /* a checkpoint now */
/* Waits for a last checkpoint: until ps 0 says that it was made or given up, or is gone. */
void follow_finish(struct follow *f);

#endif
