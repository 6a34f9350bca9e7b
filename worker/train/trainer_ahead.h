/* worker/train/trainer_ahead.h - updates on the card, ahead of the servers (--gpu_tuning=updates).
 * If a job in sync has one member, the card can make the servers' next version itself, with the
 * same bits, and continue at once.
 *
 * DESIGN. The first step of a generation computes on the version that the servers sent. After the
 * backward of each step the card updates its own copy of the parameters (kernels/device_updates.h),
 * and the next forward neither waits nor loads. Only the computation is ahead: the worker pushes
 * nothing of step s before all chunks have version s (I4). Until then the servers may also read
 * gradients of step s - 1 on the host. So the copies of gradients are not queued with the backward:
 * the host waits for the answers to all chunks of step s - 1, then queues the copy of a chunk's
 * gradient of step s, and pushes it when it has arrived. The card is at most two versions ahead of
 * the servers' answers. When a version is in params, the digests of its blocks are compared with
 * those of the card. If they differ, training ends with an error.
 *
 * Params hold the servers' versions at all times. So evaluations, the end of a generation (a member
 * joins or leaves, servers change), and a restart need no rule of their own: they wait for the
 * servers' version, and the next start loads it. A step that was computed ahead of a version that
 * never arrives is invalid, and its gradients are not copied. A later generation uses these updates
 * only if the optimizer has no slots or the job is at step 0, because the slots are on the servers.
 * An earlier process may have pushed some gradients of a restarted worker's first step, and the
 * servers ignore this process's. So in that step the card makes no update, and it loads the
 * servers' version for the next step, too.
 *
 * Threads: the tower's; _start: no tower runs. Errors: those of the backend and of the updates;
 * ST_MISMATCH. */
#ifndef WORKER_TRAIN_TRAINER_AHEAD_H
#define WORKER_TRAIN_TRAINER_AHEAD_H
#include "net/exchange/exchange.h"
#include <stdbool.h>

struct trainer;

struct trainer_ahead {
    bool is_on;         /* the card updates the parameters in this generation */
    int64_t first_step; /* first step of the generation that the card updates */
    int64_t version;    /* version that the card has */
    int64_t arrived;    /* last step whose version all chunks have */
    int64_t *asked;     /* [n_chunks] 1 + the last step whose gradient was requested */
};

/* Decides whether the card updates the parameters in this generation, and logs the decision. */
enum status trainer_ahead_start(struct trainer *t, const struct net_start *start);
void trainer_ahead_free(struct trainer *t);
/* Returns true if the card has made the parameters of the step, so that forward need not wait. */
bool trainer_ahead_has(const struct trainer *t, int64_t step);
/* Queues the update of the step, after the backward of all layers, if the card makes it. */
enum status trainer_ahead_update(struct trainer *t, int64_t step);
/* Waits until the version `step` of all chunks is in params, and compares that of chunks [first,
 * first + n) with the card's if the card has computed it, too. Then queues the copies of these
 * chunks' gradients of that step. Does nothing if backward queues these copies, or if the step is
 * or becomes invalid. */
enum status trainer_ahead_fetch(struct trainer *t, int first, int n, int64_t step);
/* Compares params with the card's parameters. Both must have the last version that the card has
 * computed. */
enum status trainer_ahead_compare_all(struct trainer *t);

#endif
