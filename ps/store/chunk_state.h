/* ps/store/chunk_state.h - a chunk inside the store, shared by the files of this folder:
 *
 *   pieces.c       the stages of a piece: checked, judged (consistency.h), applied, answered
 *   checks.c       the checks of a piece
 *   versions.c     contributions, and the versions that they make
 *   chunk_update.c the pass that makes a version
 *   clip.c         versions that wait for the norm of the whole step
 *   outer.c        versions that wait for other regions
 *   answers.c      owed answers, and the members that others wait for
 *   equal_gradients.c  a warning that two members send the same contributions
 *   samples.c      the samples that members read next, if a server assigns them
 *   chunk_rows.c   the chunk that is a bucket of a table
 *   bucket_ops.c   contributions to a bucket, and answers with its rows
 *   handover.c     the end of a store, and the start of the next one from it (buckets:
 *                  handover_rows.c)
 *   snapshot.c     one version of every chunk, for checkpoints
 *   store.c        creation, and questions about all chunks
 *
 * Private to these files.
 * Threads: a chunk's lock guards its fields, and callers of its functions hold that lock unless a
 *          comment states otherwise; fields that are atomic or that create sets need no lock. */
#ifndef PS_STORE_CHUNK_STATE_H
#define PS_STORE_CHUNK_STATE_H
#include "net/wire/rows.h"
#include "ps/store/aggregate.h"
#include "ps/store/chunk_rows.h"
#include "ps/store/chunk_update.h"
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
    /* The chunk has the sum of the contributions, `squares` (its part of the squared norm), and
     * the buffers of the next version. */
    CHUNK_PENDING_NORM,
    CHUNK_PENDING_UPDATE, /* lockstep: the pass that makes the next version is under way */
    CHUNK_PENDING_OUTER,  /* the next version is computed, and waits for outer_adopt */
};

struct chunk_state {
    int chunk;
    int shelf;      /* index in ps_store.owned and in the pool */
    size_t n;       /* elements */
    size_t n_slots; /* slots per element: job_n_slots, or 0 */
    /* format of versions sent to members; a format with blocks carries changes */
    enum dtype version_dtype;
    const struct net_param *param; /* first parameter; NULL: the chunk is a bucket */
    int n_params;                  /* parameters of which the chunk has elements */
    pthread_mutex_t lock;          /* guards all fields below */
    struct chunk_rows *rows;       /* a bucket; NULL: the chunk has parameters */
    int64_t version;               /* number of the present version; -1 before the first */
    /* Versions, each with n_slots * n floats of slots. The slots' buffer is overwritten for a later
     * version unless a reader holds a second reference. The previous version has slots in lockstep
     * alone. */
    struct chunk_version present, previous;
    bool is_stopped; /* no further version is made */
    struct aggregate sum;
    /* Stage between the last contribution and the next version; `previous` is empty in each stage
     * but NONE. */
    enum chunk_pending pending;
    double squares;
    float rate;      /* factor of the learning rate for the next version, once n_counted > 0 */
    int rate_member; /* member whose contribution has set `rate` */
    struct chunk_version next;
    struct chunk_update update;
    struct waiter *waiters; /* [n_members] */
    int64_t arrived_ns;     /* time of the last contribution */
    struct late_step late;  /* sync, backup: the member that the last version waited for */
    bool diverged;          /* the present version is not finite */
    size_t not_finite; /* first element that is not finite and not yet logged; SIZE_MAX: none */
    struct snapshot *snapshot; /* snapshot that waits for one of the next versions; NULL: none */
};

struct store {
    struct store_config cfg;
    struct net_job job; /* the job; n_workers is not used, since members join and leave */
    enum consistency_mode mode;
    int n_members, lockstep;
    struct ps_pool *pool;
    struct segment *segment; /* versions in their wire form, for members on this host; NULL: none */
    struct stragglers *stragglers;
    /* Guarded by the lock of the chunk that it compares; NULL: nothing is compared. */
    struct equal_gradients *equal;
    struct ps_norm *norm; /* norms of the steps; NULL: this store does not clip by the norm */
    /* Guarded by the lock of the model's first chunk; NULL: another server has that chunk, or
     * members derive their samples themselves. */
    struct ps_samples *samples;
    int n_owned; /* number of chunks of this server */
    struct chunk_state *owned;
    int *shelf_of;       /* [n_chunks] index in owned; -1: not owned */
    int *fragment;       /* [n_chunks] fragment; NULL: each chunk has a turn in each step */
    struct buf *nothing; /* empty buffer: payload of a version that equals the one before */
    _Atomic uint64_t *incarnation; /* [n_members] incarnation admitted; 0: none */
    _Atomic bool *left;            /* [n_members] the member has left at some time; never cleared */
    _Atomic bool hold_last;        /* the last version is made, but not sent in answer to pushes */
    /* true once all chunks are stopped, and no update reads a contribution any more */
    _Atomic bool sends_rebase;
    /* true once the members that waited when the store was stopped are answered, too */
    _Atomic bool is_stopped;
    _Atomic bool sums;            /* a member needs the versions' checksums */
    _Atomic int n_restarts;       /* members that joined again without having left */
    _Atomic int n_updates;        /* updates under way; each begins under its chunk's lock */
    pthread_mutex_t updates_lock; /* guards the end of each update */
    pthread_cond_t updates_ended;
};

/* A piece that passed validation. Borrowed for the call of store_piece. */
struct arrival {
    const struct net_frame_head *head;
    const struct net_piece *piece;
    const uint8_t *lacking;         /* marks of the gradients that the piece lacks; NULL: none */
    const struct rows_parts *parts; /* parts of the payload of a piece to a bucket */
    uint64_t from;                  /* number of the stream */
    int64_t now_ns;
};

/* Releases all buffers that the chunk holds (store.c). */
void store_empty_chunk(const struct store *s, struct chunk_state *c);

/* Adds `squares` to the norm of `step`; the chunk waits for the norm from now on. Called without a
 * chunk's lock (clip.c). */
void clip_add_squares(struct store *s, int chunk, int64_t step, double squares);

/* Passes the chunk's new version to the snapshot that waits for it (snapshot.c). */
void snapshot_chunk_changed(struct chunk_state *c);

#endif
