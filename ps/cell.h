/* ps/cell.h - a chunk inside the store: what store.c (pieces, answers), modes.c (what a
 * contribution does in each mode), ending.c (how a store ends and the next goes on from it) and
 * capture.c (checkpoints) share. Private to them.
 * Threads: a cell's fields are guarded by its lock; what is atomic or set by create is not. */
#ifndef PS_CELL_H
#define PS_CELL_H
#include "ps/aggregate.h"
#include "ps/store.h"
#include "ps/version.h"
#include <pthread.h>
#include <stdatomic.h>

/* What one member waits for, and did last, at one chunk. */
struct asker {
    uint64_t pusher;    /* incarnation that waits for its push's answer; 0: none */
    uint64_t push_from; /* on which stream */
    int64_t push_step;
    enum piece_kind push_kind; /* of the answer */
    int64_t push_ns;           /* ssp: when it came */
    uint64_t puller;           /* incarnation that waits for version pull_step; 0: none */
    uint64_t pull_from;
    int64_t pull_step;
    enum dtype pull_dtype;
    uint64_t counted_by;  /* async, ssp: identity of the last contribution that counted */
    int64_t counted_step; /* likewise; backup workers: the last step it counted for; -1: none */
    int64_t clock;        /* ssp: contributions that counted, of all incarnations */
    struct buf *base;     /* delay compensation: the version that was sent last, a reference */
    int64_t base_version;
};

struct cell {
    int chunk;
    int shelf; /* its place in cells, and in the pool */
    size_t n;  /* elements */
    const struct net_param *param;
    pthread_mutex_t lock; /* guards all below */
    int64_t version;      /* -1 before the first */
    /* Slots: n_slots * n floats; whoever holds a reference besides keeps them as they are. `before`
     * has its slots in lockstep alone. */
    struct ps_version now, before;
    size_t n_slots; /* of the optimizer, for each element */
    int64_t end;    /* no version above it is made; INT64_MAX: there is no end */
    int ended;      /* it is there */
    struct ps_aggregate sum;
    struct asker *askers; /* n_members */
    int64_t arrived_ns;   /* sync: when the last contribution came */
    struct ps_late late;  /* sync: whom the last version waited for */
    /* Delay compensation: the version that the contribution at hand was computed on, borrowed from
     * its asker while it is applied; NULL: none, or it is the present one. */
    const struct buf *base;
    struct ps_capture *capture; /* that waits for one of the next versions; NULL: none */
};

struct ps_store {
    struct ps_store_config cfg;
    struct net_job job; /* its n_workers is not used: members come and go */
    int n_members, lockstep;
    struct ps_pool *pool;
    struct net_shared
        *segment; /* versions as they are sent, for members on this host; NULL: none */
    struct ps_stragglers *stragglers;
    int n_cells;
    struct cell *cells;
    int *cell_of;                  /* chunk -> index in cells, or -1 */
    _Atomic uint64_t *incarnation; /* by member; 0: not admitted */
    _Atomic int *left;             /* by member: has left once; never cleared */
    _Atomic int hold;              /* 1: versions are made, but no push or pull is told of them */
    _Atomic int hold_last;         /* 1: likewise of version train_steps, to pushes */
    _Atomic int over;              /* 1: it has been stopped where it was */
    _Atomic int stopping, n_ended; /* 1: there is an end; cells that are there */
    _Atomic int sums;              /* 1: a member needs versions' checksums */
    _Atomic int n_restarts;        /* members that came again without having left */
};

/* All of these under the cell's lock. */

/* An answer that says why a piece is none. */
void ps_cell_refuse(struct ps_answer *now, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* An answer that carries the present version, in the job's dtype. */
void ps_cell_give(struct ps_store *s, struct cell *c, enum piece_kind kind, struct ps_answer *now);
/* A push is to be answered when there is something to say. */
void ps_cell_wait(struct cell *c, const struct net_frame_head *head, int64_t step);
/* The chunk is at its end. 1: it was the last. */
int ps_cell_end(struct ps_store *s, struct cell *c);
/* Has everyone answered whom the chunk owes something. Takes the lock itself. */
void ps_cell_answer_owed(struct ps_store *s, struct cell *c);
/* Room for a first version, and its form for the wire once the value is there. */
enum status ps_cell_take_version(struct ps_store *s, const struct cell *c, struct ps_version *v);
void ps_cell_encode(const struct cell *c, struct ps_version *v);
/* Adds a contribution as number `slot` of those that make a version; the last one makes it. Returns
 * 1 if there is a new version. Without memory *now is a refusal and nothing has changed. */
int ps_cell_contribute(struct ps_store *s, struct cell *c, int slot,
                       const struct net_payload *payload, float weight, struct ps_answer *now);

/* The cell, which has a capture, has made a version: takes it if it is the one. */
void ps_cell_capture(struct cell *c);

/* What a PUSH does, by the job's mode. 1: there is a new version. *now stays PIECE_NONE if the
 * answer is to come later. */
int ps_modes_push(struct ps_store *s, struct cell *c, const struct net_frame_head *head,
                  const struct net_piece *piece, struct ps_answer *now);
/* ssp: how far a member's clock may be for its answers to go out; else there is no limit. */
int64_t ps_modes_limit(const struct ps_store *s, const struct cell *c);
/* 1: the member's push is counted, but its answer has to wait for slower members. */
int ps_modes_held(const struct ps_store *s, const struct cell *c, int member, int64_t limit);
/* The present version goes out to the member. */
void ps_modes_sent(const struct ps_store *s, struct cell *c, int member);
/* 1 if somebody has waited since before since_ns; then adds 1 to missing[m] of those waited for. */
int ps_modes_missing(const struct ps_store *s, const struct cell *c, int64_t since_ns,
                     int *missing);

#endif
