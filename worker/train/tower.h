/* worker/train/tower.h - a copy of the model, on one device or spread over several: what computes
 * it, its gradients, its part of the batch. Where the device can, and no other tower's gradients
 * are to be added, it rounds them to the wire's 16 bits, and no others come to the host. Owns:
 * the stages and the gradients; the first tower's lie in the exchange's segment if it has one.
 * Towers of a group have the first one's, so that this one is destroyed last. Threads: one at a
 * time. Errors:  the backend's; ST_NOMEM. */
#ifndef WORKER_TRAIN_TOWER_H
#define WORKER_TRAIN_TOWER_H
#include "member/steps.h"
#include "worker/place/split_tower.h"
#include "worker/train/read_ahead.h"
#include "worker/train/tower_batch.h"
#include "worker/train/train_config.h"

struct tower {
    const struct trainer_config *cfg;
    struct tower_spec spec;
    int index;
    struct split_tower *stages;
    float *grads;            /* flat block, as params; NULL: rounded, */
    uint16_t *grads16;       /* to the wire's dtype, on the device */
    void *own_grads;         /* the one of them if it is the tower's own, else NULL */
    struct segment *segment; /* in which they lie, else NULL: a reference, because a device may
                                   hold on to them until its plan is gone */
    float **grad_of;         /* [n_params] into grads, */
    uint16_t **grad16_of;    /* or into grads16; NULL: not that */
    const float **param_of;  /* [n_params] into params */
    struct net_place place;  /* of the worker */
    struct dataset_order *order;
    const struct backend_data *data; /* what it reads, on its device; NULL: it is not there */
    struct tower_batch now;          /* of the step */
    struct read_ahead *reader;       /* NULL: batches are read when they are wanted */
    struct tower_batch ahead;        /* what it reads, or has read, */
    uint64_t ahead_at;               /* from this position on, */
    int64_t ahead_step;              /* for this step */
    int is_ahead;                    /* 0: nothing that may still be wanted */
    int64_t n_ahead;                 /* batches that it read and that were wanted */
};

/* A tower's place in a group. */
struct tower_member {
    struct backend_group *group;
    int rank;
    const struct tower *first; /* that of rank 0, whose gradients it shares; NULL: it is the one */
};

/* The index-th tower; member: NULL: not in a group. */
enum status tower_create(const struct trainer_config *cfg, const struct tower_spec *spec, int index,
                         const struct tower_member *member, struct tower **out);
/* No gradients, no order. */
enum status tower_create_inference(const struct trainer_config *cfg, const struct tower_spec *spec,
                                   struct tower **out);
void tower_destroy(struct tower *t); /* NULL is fine */
/* Which samples are the worker's, from now on; before the first step. */
void tower_set_place(struct tower *t, const struct net_place *place);
/* The global position of its first sample of the worker's local step. */
uint64_t tower_position(const struct tower *t, int64_t local_step);
/* The same without its part of the batch; x, own_pace: for member_steps_position_now. */
struct member_steps tower_steps(const struct tower *t, const struct updates *x, int own_pace);
/* Training, once t->data is known: a thread for tower_read_ahead, where reading is work: samples
 * become floats, are augmented, or lie in a file. */
enum status tower_make_reader(struct tower *t);
/* Begins to read what the next tower_load_batch will want, if no other position comes up. */
void tower_read_ahead(struct tower *t, uint64_t at, int64_t step);
/* Puts this tower's samples of a step in place (I6), from the global position on. */
enum status tower_load_batch(struct tower *t, uint64_t at);
/* Puts n items of the test set in place, from item `first` on. */
enum status tower_load_test(struct tower *t, int64_t first, int n);

#endif
