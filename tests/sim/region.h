/* tests/sim/region.h - a region: a process that is the ps 0 of a group, with production's
 * ps/region, service and store, and a worker of the parent group. Its threads are fibers. In some
 * schedules the group has a second server, whose node is SIM_WORKERS / 2 above that of ps 0.
 *   region.c       the process
 *   group.c        a driver: the group's workers, its generations and checkpoints
 *   second.c       the process of the second server
 *   ledger.c       checks of a region's versions and contributions
 * Owns: regions' checkpoints, for the run. Threads: fibers of one thread. Errors: sim_fail. */
#ifndef TESTS_SIM_REGION_H
#define TESTS_SIM_REGION_H
#include "checkpoint/manifest.h"
#include "net/exchange/exchange.h"
#include "ps/region/region.h"
#include "ps/service/service.h"
#include "ps/store/outer.h"
#include "tests/sim/client.h"
#include "tests/sim/fiber.h"
#include "tests/sim/ledger.h"
#include "tests/sim/oracle.h"
#include "tests/sim/server.h"

enum { GROUP_WORKERS = 2 };
enum {
    TIMER_GROUP_PLAN = 210,
    TIMER_GROUP_CHURN,
    TIMER_GROUP_STOPPED,
    TIMER_EXIT_REGION,
    TIMER_GROUP_BEGIN,
    TIMER_GROUP_LOST,
    TIMER_GROUP_WORKER = 220,
    TIMER_SECOND_BEGIN = 230,
    TIMER_SECOND_STOP,
    TIMER_SECOND_ASK
};

struct sim_file {
    int n, chunk[SIM_CHUNKS];
    struct oracle_state state[SIM_CHUNKS];
};

/* Simulated checkpoint, which production code receives as a struct checkpoint_restore when a region
 * begins a generation. */
struct region_checkpoint {
    uint64_t generation, position;
    const struct net_plan *plan; /* plan of the checkpoint's generation */
    int64_t step;
    struct sim_file file;
    struct checkpoint_parent_version parent;
    struct ledger_chunk ledger[SIM_CHUNKS];
};

struct group_worker {
    int index;
    enum { GROUP_OUT, GROUP_FETCH, GROUP_BACK, GROUP_COMPUTE, GROUP_EXCHANGE, GROUP_LEFT } phase;
    uint64_t incarnation;
    struct net_stream *stream, *second; /* stream to ps 0; stream to the second server */
    struct net_frame_head head;
    struct net_place place;
    int64_t step, timer;
    bool is_over; /* the worker's generation has ended, or its stream */
    bool waits[SIM_CHUNKS];
    int64_t version[SIM_CHUNKS];
    float value[SIM_CHUNKS][SIM_ELEMS];
};

struct region {
    int node, index;
    bool is_dying, is_done, is_stopping;
    bool is_unsaved;              /* the region's last checkpoint cannot be written any more */
    bool is_second;               /* this process is a region's second server */
    struct region_server *server; /* server of the second process; NULL at ps 0 */
    /* round of the parent in the restored checkpoint; -1: unknown, or there was no checkpoint */
    int64_t restored_round;
    struct service *service;
    struct net_server_handler handler;
    struct ps_region *region;
    struct outer_hooks outer;     /* hooks of the region; the ledger sees all calls of them */
    uint64_t incarnation;         /* incarnation of the region at its parent */
    const struct net_exchange *x; /* exchange with the parent; NULL: none yet */
    struct {
        int64_t version;
        uint64_t generation, ps0;
    } held[SIM_CHUNKS]; /* parent's versions that x has received */
    struct ledger_chunk ledger[SIM_CHUNKS];
    /* group.c */
    struct net_job job;
    struct net_plan *first, *plan;
    const struct region_checkpoint *from; /* checkpoint of the plan; NULL: none */
    uint64_t settled;
    struct region_checkpoint *writing;
    uint64_t n_plans;
    bool is_changing;
    int64_t seen; /* lowest version when group_look() ran last */
    struct group_worker worker[GROUP_WORKERS];
};

struct region_server;
extern const struct sim_ops sim_region_ops;
struct region *region_of(int node);
void regions_reset(void);
void region_stop(struct region *r); /* makes the region leave the parent group and end */

/* group.c */

void group_reset(void);
void group_start(struct region *r);
void group_timer(struct region *r, int what, int64_t number);
void group_disk(struct region *r); /* called when the region's checkpoint is on the disk */
void group_end(struct region *r);  /* closes the streams of a process that ends */
void group_look(struct region *r); /* checks for work; called after each event of the region */
void group_done(struct region *r); /* called when all workers have left */
enum status group_first_join(void *ctx, const struct net_join *join, char *why, size_t why_bytes);
/* Passes an answer of the service to its worker. */
void group_answer(struct net_stream *s, const struct net_piece *piece, const struct buf *payload);
/* Closes the stream of a worker, as the service has ended it. */
void group_ended(struct net_stream *s, const char *why);

/* Begins the plan at the server of that process, from a checkpoint (NULL: from no checkpoint). */
void group_begin_at(struct region *r, struct net_plan *p, const struct region_checkpoint *from);
/* Informs the worker that its stream to the second server is lost. */
void group_lost_stream(struct region *r, struct group_worker *g);

/* Notes that the exchange has received that version of the parent's chunk (region.c). */
void region_received(const struct net_exchange *x, int chunk, int64_t version);
/* Returns the version of the parent that the region holds of a chunk. *generation and *ps0: the
 * generation, and its ps 0, in which the region received this version. */
int64_t region_parent_version(const struct region *r, int chunk, uint64_t *generation,
                              uint64_t *ps0);

#endif
