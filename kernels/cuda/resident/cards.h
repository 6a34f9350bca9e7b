/* kernels/cuda/resident/cards.h - inside resident.c and gpu_plan_destroy: training without copies
 * to the host on all cards of a group; see cards.c. The functions for one card's plan select its
 * device.
 * Threads: only the thread that uses the first card's plan. Errors: the group's. */
#ifndef KERNELS_CUDA_RESIDENT_CARDS_H
#define KERNELS_CUDA_RESIDENT_CARDS_H
#include "kernels/cuda/plan/plan.h"
#include "kernels/cuda/resident/steps.h"
#include "kernels/resident.h"

enum { GPU_RESIDENT_SCALARS = RESIDENT_RUNS * RESIDENT_STEPS };
enum { GPU_RESIDENT_GRAPHS = 3 };
/* highest number of queued steps of several cards that are launched kernel by kernel */
enum { GPU_CARDS_AHEAD = 2 };
/* Numbers of steps of the graphs. */
static const int gpu_resident_graph_steps[GPU_RESIDENT_GRAPHS] = {1, 8, RESIDENT_STEPS};

/* State of a card. */
struct gpu_resident {
    struct optim_config optim;
    struct gpu_gather gather;
    struct gpu_gather_order order;
    struct gpu_optim update;
    struct gpu_tally *d_tally;
    uint32_t *d_item[2];
    struct optim_step *d_scalars;
    struct gpu_optim_part *d_parts;
    float *d_slots;
    struct gpu_arena arena; /* holds all device memory above */

    int64_t n_elems;              /* number of values that this card updates */
    struct gpu_optim_part *parts; /* parts of these values, set by `begin`; copied to d_parts */
    int *first_part; /* [n_layers + 1] first part of each layer; NULL: the card trains alone */
    void *pinned;    /* pinned memory of the three arrays below */
    uint32_t *item;  /* [n_items] */
    struct optim_step *scalars; /* [GPU_RESIDENT_SCALARS] */
    struct gpu_tally *tallies;  /* [RESIDENT_RUNS] */
    cudaEvent_t item_sent, run_done[RESIDENT_RUNS];
    /* recorded after each step of several cards that is launched kernel by kernel */
    cudaEvent_t step_done[GPU_CARDS_AHEAD];

    uint64_t step;                              /* number of updates queued */
    uint64_t n_runs, n_over;                    /* number of runs queued, and of runs waited for */
    cudaGraphExec_t graph[GPU_RESIDENT_GRAPHS]; /* NULL: not captured */

    /* the fields below are those of the first card */
    struct gpu_plan **cards; /* [n_cards] plans of all cards, from this one */
    int n_cards;
    int has_begun;       /* a step was run */
    uint64_t n_launched; /* number of steps that were launched kernel by kernel */
    int n_graphs; /* number of gpu_resident_graph_steps that are usable; 0: kernel by kernel */
};

enum status gpu_cards_select(const struct gpu_plan *plan);
/* Returns ST_UNSUPPORTED, logged, if the cards cannot train in this way. */
enum status gpu_cards_can_begin(const struct gpu_plan *plan, const struct resident_config *cfg);
/* Sets n_elems, update.n_parts and, if there are several cards, first_part. */
enum status gpu_cards_parts_count(struct gpu_plan *plan, int are_several);
/* Lists, if there are several cards, the parts of the values that this card updates, layer by
 * layer. */
void gpu_cards_parts_list(const struct gpu_plan *plan, const float *keep);

/* ---- steps; they do nothing for a card that trains alone ---- */

/* Marks the end of a layer's backward. */
enum status gpu_cards_mark(struct gpu_plan *plan, int layer);
/* Queues the sum of a layer's gradients, its update, and the exchange of its parameters. */
enum status gpu_cards_exchange(struct gpu_plan *first, int layer);
/* Makes `compute` wait for the exchange of all layers. */
enum status gpu_cards_join(struct gpu_plan *plan);
/* Returns an error if the group has failed. */
enum status gpu_cards_check(const struct gpu_plan *first);
/* Calls launch(first), which launches a step, when few such steps are queued. */
enum status gpu_cards_step(struct gpu_plan *first, enum status (*launch)(struct gpu_plan *first));
/* Waits for an event of all cards. */
enum gpu_cards_event { GPU_CARDS_ITEM_SENT, GPU_CARDS_STEP_DONE, GPU_CARDS_RUN_DONE };
enum status gpu_cards_wait_for(struct gpu_plan *first, enum gpu_cards_event what, int slot);
/* Waits for the oldest run. Ends the group if that fails. */
enum status gpu_cards_wait(struct gpu_plan *first, int slot, struct resident_result *out);
/* Destroys, if st is an error, the graphs of all cards, and then aborts NCCL's work. Returns the
 * reason why the group failed first. If a card's graph cannot be destroyed, logs that and ends the
 * process, because NCCL would never return from the abort. */
enum status gpu_cards_end(struct gpu_plan *first, enum status st);
/* Ends the group as gpu_cards_end does, if the group of this plan has failed. Called before the
 * plan waits for its work. */
void gpu_cards_leave(struct gpu_plan *plan);

#endif
