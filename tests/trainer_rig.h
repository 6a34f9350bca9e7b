/* tests/trainer_rig.h - a trainer over a fake backend, for tests of the training loop. The fake's
 * "network" has one layer with parameters, whose gradient is the mean of the samples' numbers, so
 * that the parameters depend on the samples that were read. */
#ifndef TESTS_TRAINER_RIG_H
#define TESTS_TRAINER_RIG_H
#include "member/updates.h"
#include "worker/train/trainer.h"
#include <pthread.h>
#include <stdatomic.h>

enum { N_ITEMS = 60, N_ELEMS = 2500, SIDE = 2, MAX_READS = 4096, MAX_TOWERS = 4 };

/* Record of the fake backend's calls, for one test at a time. */
struct fake_seen {
    pthread_mutex_t lock; /* guards reads, n_reads */
    int reads[MAX_READS];
    int n_reads;
    _Atomic int n_loads;         /* loads of parameters, for training */
    _Atomic int fail_at_forward; /* counts down; the forward at 0 fails; -1: none */
};
extern struct fake_seen fake;

struct plan {
    struct backend_plan_config cfg;
    float mean;
    int n;
};

extern const struct backend fake_backend;
enum status fake_backward(struct plan *p, int layer);
enum status fake_result(struct plan *p, float *loss, int *n_correct);

/* Returns a backend whose plans sum their gradients themselves: the last rank that arrives writes
 * the sum into the memory that they share. */
struct backend group_backend(void);
extern _Atomic int n_groups, group_hangs; /* groups created so far; nonzero: no sum ever ends */

struct rig {
    struct layer layers[3];
    struct net_param param;
    struct model model;
    struct chunks *chunks;
    struct dataset data;
    uint8_t images[N_ITEMS * SIDE * SIDE];
    int32_t labels[N_ITEMS];
    struct hosts no_hosts;
    float params[N_ELEMS];
    struct updates updates;
    struct tower_spec towers[MAX_TOWERS];
    struct trainer_config cfg;
    struct net_start start;
    struct trainer *trainer;
};

void rig_make(struct rig *r, int task, int n_workers, int n_towers, int batch);
void rig_free(struct rig *r);

#endif
