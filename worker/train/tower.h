/* worker/train/tower.h - a copy of the model, on one device or several: its plans, its gradients,
 * its part of the batch. A device that supports it rounds the gradients to the 16-bit type of the
 * wire, and only the rounded gradients are copied to the host. If the host must add the gradients
 * of several towers, they are not rounded on the device.
 * Owns:    the stages and the gradients; the first tower's gradients are in the exchange's segment
 *          if there is one. All towers of a group use the gradients of the group's first tower,
 *          which must be destroyed last.
 * Threads: one at a time. Errors: the backend's; ST_NOMEM. */
#ifndef WORKER_TRAIN_TOWER_H
#define WORKER_TRAIN_TOWER_H
#include "member/steps.h"
#include "worker/place/split_tower.h"
#include "worker/train/read_ahead.h"
#include "worker/train/tower_batch.h"
#include "worker/train/tower_tables.h"
#include "worker/train/train_config.h"

struct tower {
    const struct trainer_config *cfg;
    struct tower_spec spec;
    int index;
    struct split_tower *stages;
    float *grads;      /* flat block, like params; NULL: grads16 is used */
    uint16_t *grads16; /* flat block, rounded to the wire's dtype on the device */
    void *own_grads;   /* memory of grads or grads16, if the tower owns it; otherwise NULL */
    /* segment that contains the gradients; NULL: none. The tower holds a reference, because a
     * device may use the gradients until its plan is destroyed */
    struct segment *segment;
    float **grad_of;        /* [n_params] pointers into grads; NULL: the gradients are in grads16 */
    uint16_t **grad16_of;   /* [n_params] pointers into grads16; NULL: the gradients are in grads */
    const float **param_of; /* [n_params] pointers into params */
    struct net_place place; /* place of the worker in the job */
    struct dataset_order *order;
    /* copy of the data set in the device's memory; NULL: no copy */
    const struct backend_data *data;
    struct tower_batch now;    /* batch of the current step */
    struct read_ahead *reader; /* NULL: batches are read when needed */
    struct tower_batch ahead;  /* batch that the reader is reading or has read */
    uint64_t ahead_at;         /* position of the first sample of `ahead` */
    int64_t ahead_step;        /* step for which `ahead` was read */
    bool is_ahead;             /* `ahead` may still be used */
    int64_t n_ahead;           /* number of batches that were read ahead and used */
    /* [n_layers] tables of an inference tower (tower_tables.h); NULL: none */
    struct table_step **tables;
    int64_t rows_step; /* inference tower: step whose rows it reads from servers */
};

/* A tower's membership in a group. */
struct tower_member {
    struct backend_group *group;
    int rank;
    /* tower of rank 0, whose gradients this tower uses; NULL: this tower has rank 0 */
    const struct tower *first;
};

/* Returns the length of a part of a parameter (kernels/parts.h). This is the length of a chunk, so
 * a chunk either is one part or consists of several whole parameters. */
static inline int64_t tower_part_elems(const struct trainer_config *cfg)
{
    return cfg->chunks->chunk_bytes / (int64_t)sizeof(float);
}

/* Creates tower number `index`; member NULL: the tower is in no group. */
enum status tower_create(const struct trainer_config *cfg, const struct tower_spec *spec, int index,
                         const struct tower_member *member, struct tower **out);
/* Creates a tower for inference: without gradients, and without an order of samples. */
enum status tower_create_inference(const struct trainer_config *cfg, const struct tower_spec *spec,
                                   struct tower **out);
void tower_destroy(struct tower *t); /* NULL is fine */
/* Sets the samples of the worker, before the first step. */
void tower_set_place(struct tower *t, const struct net_place *place);
/* Returns the global position of the tower's first sample in this local step of the worker. */
uint64_t tower_position(const struct tower *t, int64_t local_step);
/* Returns a description of the worker's steps for the functions of member/steps.h. x, own_pace:
 * used only by member_steps_position_now. */
struct member_steps tower_steps(const struct tower *t, const struct updates *x, int own_pace);
/* Creates a thread for tower_read_ahead if a read needs time: if samples become floats, are
 * augmented, or are in a file; or if they have keys. Called after t->data is set. */
enum status tower_make_reader(struct tower *t);
/* Begins to read the batch that the next tower_load_batch probably needs. */
void tower_read_ahead(struct tower *t, uint64_t at, int64_t step);
/* Waits for the read that tower_read_ahead began, and returns the keys of its batch, one entry for
 * each input of keys. They are valid until the next tower_read_ahead: if tower_load_batch uses the
 * batch, it moves them to t->now. NULL: no batch with keys is read ahead, or its read failed;
 * the error then ends the step that needs the batch. */
const struct bags *tower_ahead_bags(struct tower *t);
/* Loads this tower's samples of a step (I6). at: global position of the first of them. */
enum status tower_load_batch(struct tower *t, uint64_t at);
/* Loads n samples of the test set, beginning with sample `first`. */
enum status tower_load_test(struct tower *t, int64_t first, int n);

#endif
