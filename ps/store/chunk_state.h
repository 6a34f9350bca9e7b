/* ps/store/chunk_state.h - a chunk inside the store, shared by the files of this folder:
 *
 *   pieces.c       a piece's way: validated, judged (consistency.h), applied, answered
 *   versions.c     contributions, and the versions that they make
 *   clip.c         versions that wait for the norm of the whole step
 *   outer.c        versions that wait for other regions
 *   answers.c      who is owed an answer, who waits for whom
 *   samples.c      which samples members read next, where they do not know it by themselves
 *   handover.c     how a store ends, and how the next one goes on from it
 *   snapshot.c     one version of every chunk, for checkpoints
 *   store.c        creation, and questions about all chunks
 *
 * Private to them.
 * Threads: what belongs to a chunk is guarded by its lock, and its functions are called under it
 *          unless they say otherwise; what is atomic or set by create is not. */
#ifndef PS_STORE_CHUNK_STATE_H
#define PS_STORE_CHUNK_STATE_H
#include "ps/store/aggregate.h"
#include "ps/store/consistency.h"
#include "ps/store/norm.h"
#include "ps/store/samples.h"
#include "ps/store/store.h"
#include "ps/store/version.h"
#include "ps/store/waiter.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum chunk_pending {
    CHUNK_PENDING_NONE,
    CHUNK_PENDING_NORM,  /* it has its sum, of which `squares` is the chunk's part of the norm, and
                      the  buffers of the next version */
    CHUNK_PENDING_OUTER, /* the next version is computed, and waits for outer_adopt */
};

struct chunk_state {
    int chunk;
    int shelf;                /* its place in ps_store.owned, and in the pool */
    size_t n;                 /* elements */
    size_t n_slots;           /* for each element: job_n_slots, or 0 */
    enum dtype version_dtype; /* that members are sent; in blocks: changes */
    const struct net_param *param;
    pthread_mutex_t lock; /* guards all below */
    int64_t version;      /* the present one's number; -1 before the first */
    /* Slots: n_slots * n floats; whoever holds a reference besides keeps them as they are. The
     * previous version has its slots in lockstep alone. */
    struct chunk_version present, previous;
    bool is_stopped; /* no further version is made */
    struct aggregate sum;
    /* Between the last contribution and the version; the previous one is over. */
    enum chunk_pending pending;
    double squares;
    struct chunk_version next;
    struct waiter *waiters;    /* n_members */
    int64_t arrived_ns;        /* when the last contribution came */
    struct late_step late;     /* sync, backup: whom the last version waited for */
    int diverged;              /* the present version is not finite */
    size_t not_finite;         /* from this element on, to be said; SIZE_MAX: nothing is */
    struct snapshot *snapshot; /* that waits for one of the next versions; NULL: none */
};

struct store {
    struct store_config cfg;
    struct net_job job; /* its n_workers is not used: members come and go */
    enum consistency_mode mode;
    int n_members, lockstep;
    struct ps_pool *pool;
    struct segment *segment; /* versions as they are sent, for members on this host; NULL: none */
    struct stragglers *stragglers;
    struct ps_norm *norm;       /* of each step; NULL: gradients are not clipped by it here */
    struct ps_samples *samples; /* guarded by the lock of the model's first chunk; NULL: that is not
                                   here, or members know by themselves what they read */
    int n_owned;                /* chunks */
    struct chunk_state *owned;
    int *shelf_of;                 /* chunk -> index in owned, or -1 */
    int *fragment;                 /* each chunk's; NULL: all go in each step */
    struct buf *nothing;           /* no bytes: the payload of a version that was kept */
    _Atomic uint64_t *incarnation; /* by member; 0: not admitted */
    _Atomic int *left;             /* by member: has left once; never cleared */
    _Atomic int hold_last;         /* 1: version train_steps is made, but not sent to pushes */
    _Atomic bool is_stopped;       /* true once every chunk is stopped */
    _Atomic int sums;              /* 1: a member needs versions' checksums */
    _Atomic int n_restarts;        /* members that came again without having left */
};

/* A piece that passed validation. Borrowed for the call of store_piece. */
struct arrival {
    const struct net_frame_head *head;
    const struct net_piece *piece;
    uint64_t from; /* stream */
    int64_t now_ns;
};

/* store.c: releases all buffers that the chunk holds. */
void store_empty_chunk(const struct store *s, struct chunk_state *c);

/* clip.c; takes locks itself: the chunk waits since now for the norm of `step`, to which it adds
 * `squares`. */
void clip_add_squares(struct store *s, int chunk, int64_t step, double squares);

/* answers.c: an answer that says why a piece is refused. */
void answer_refuse(struct store_answer *answer, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* An answer that carries version `number`, one of those kept; dtype: as members are sent versions,
 * or fp32 for those that want the whole value, which the first version has alone where what changed
 * is sent. */
void answer_set_version(const struct store *s, struct chunk_state *c, int64_t number,
                        enum dtype dtype, struct store_answer *answer);
/* 1: version `number`, the present one, has nothing new for the sender of a push on `step`. */
int answer_is_unchanged(const struct chunk_state *c, int64_t step, int64_t number);
/* An answer that carries that. */
void answer_set_unchanged(const struct store *s, int64_t number, struct store_answer *answer);
/* As what the sender of a push on version `step` is to be sent version `number`. */
enum dtype answer_dtype(const struct chunk_state *c, int64_t step, int64_t number);
/* The push's sender waits: it is answered when there is something to say. */
void answer_defer(struct chunk_state *c, const struct arrival *a);
/* What goes back at once for the piece that was applied, given what it is answered in itself. */
void answer_piece(struct store *s, struct chunk_state *c, const struct arrival *a, int new_version,
                  struct store_answer *answer);
/* Answers everyone who is owed something at this chunk. Takes the lock itself. */
void answer_owed(struct store *s, struct chunk_state *c);
/* 1: a pull of version `number` has to wait, as the last version is held back. */
int answer_withholds_last(const struct store *s, int64_t number);
/* 1 if somebody has waited since before since_ns; then adds 1 to missing[m] of those waited for. */
int answer_missing(const struct store *s, const struct chunk_state *c, int64_t since_ns,
                   int *missing);

/* What an answer for the chunk says of the member's samples. */
uint64_t answer_samples(const struct store *s, const struct chunk_state *c, int member);

/* snapshot.c: the chunk, which has a snapshot that waits, has a new version. */
void snapshot_chunk_changed(struct chunk_state *c);

#endif
