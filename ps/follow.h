/* ps/follow.h - a server other than ps 0: keeps a control call at ps 0, says how things stand here,
 * and does what comes back: takes plans up (taker.h), stops, lets go of what is settled, hands
 * orders for checkpoints to the saver. Whoever speaks for ps 0 is believed: if it was started anew,
 * what goes on here is stopped, and its plan is taken up when it comes.
 * Owns:    one thread, that of its taker, the channel to ps 0.
 * Threads: any; finish and destroy from one. wake, request and leave never block.
 * Errors:  ST_NOMEM; what ps 0 refuses is logged, then `refused`. */
#ifndef PS_FOLLOW_H
#define PS_FOLLOW_H
#include "ps/saver.h"

struct follow_config {
    struct ps_service *service;
    struct saver *saver;        /* NULL: no checkpoints */
    const char *addr, *address; /* of ps 0; of this server; borrowed for ever, as all here */
    const char *folder;         /* of checkpoints; NULL: there are none */
    const char *restore_folder; /* of the one that --restore means */
    int self, n_servers;        /* joining: not used */
    int64_t over_ms;            /* as in lead.h; if ps 0 does not come within */
    int joining;                /* the server was not there when the job began */
    void (*refused)(void *ctx); /* this process cannot belong to the job */
    void (*drained)(void *ctx); /* nothing is left to do here */
    void *ctx;
};

struct follow;
enum status follow_create(const struct follow_config *cfg, struct follow **out);
enum status follow_start(struct follow *f);
void follow_stop(struct follow *f); /* the saver is not used any more; NULL is fine, as below */
void follow_destroy(struct follow *f);
void follow_wake(struct follow *f);    /* people, the saver's state or the run have changed */
void follow_request(struct follow *f); /* a checkpoint now */
void follow_leave(struct follow *f);   /* its chunks are to go to the others: `drained` follows */
/* Waits for a last checkpoint: until ps 0 says that it was made or given up, or is gone. */
void follow_finish(struct follow *f);

#endif
