/* ps/store/store.h - the chunks that one server owns: their versions, and the effect of pieces.
 *
 * A version is an immutable buffer (I1); the present version and the one before are kept (I4). In
 * sync mode the last contribution of a step makes the next version in one pass (I2). If clip_norm
 * is set, the versions of a step are made when all chunks on all servers have all contributions
 * (clip.c). In async and ssp mode each contribution makes a version (consistency.c). A piece is
 * checked before memory is allocated for it (I9), and a contribution counts once (I3). No version
 * is made beyond train_steps, nor after the stop that ends a store: the next generation's store
 * continues from its contents.
 *
 * Owns:    versions, optimizer slots, sums, contributions that wait. Create allocates sums and
 *          slots; versions and copies are allocated when first needed, then reused.
 * Memory:  docs/design/exchange.md: for each owned element 4 bytes times (2 versions + the one in
 *          the making + 1 sum + the optimizer's slots, in lockstep twice). Versions sent in 16 bits
 *          need half as much again. Up to n_workers - 1 contributions wait as copies. In async or
 *          ssp with delay compensation, the store instead keeps up to n_workers more versions,
 *          which the members compute on. A version that a member reads in shared memory is held
 *          until that member's next answer for the chunk. In lockstep this is one of the kept
 *          versions; in other modes up to 13 more versions are held.
 * Threads: any; each chunk has its own lock; `answer` is called with none held. In lockstep no lock
 *          is held over an update, which cfg.threads make (chunk_update.h).
 * Errors:  ST_NOMEM, ST_RANGE (above max_bytes; logged). */
#ifndef PS_STORE_STORE_H
#define PS_STORE_STORE_H
#include "base/buf.h"
#include "net/wire/frame.h"
#include "net/wire/job.h"
#include "net/wire/squares.h"
#include "ps/store/stragglers.h"
#include <stdbool.h>

struct outer_hooks;

struct store_answer {
    enum piece_kind kind; /* PIECE_NONE: the answer follows later */
    uint32_t chunk;
    uint64_t step;
    struct buf *payload; /* sent as a whole; NULL: no payload */
    enum dtype dtype;    /* format of the payload */
    uint32_t crc32c;     /* checksum of the payload */
    /* REFUSED: the stream ends without an error, since another process has become this member */
    bool replaced;
    size_t placed; /* bytes of the version that the receiver's values have, instead of a payload */
    uint64_t samples; /* 1 + the first sample of the receiver's next step; 0: not reported */
    uint32_t rows;    /* a bucket: rows of the payload */
    const char *why;  /* REFUSED: points to static text or into `text` */
    char text[256];
};

struct store_config {
    const struct chunks *chunks; /* borrowed until destroy */
    const struct net_job *job;   /* copied */
    const int *server;           /* shard map, n_chunks; read by create alone */
    int self;                    /* this server's number in the shard map */
    int n_members;               /* number of members; 0: job->n_workers */
    const int *member; /* members' indices for log lines, by rank; borrowed; NULL: 0, 1, ... */
    uint64_t generation;
    /* If chunks advance independently: first sample to assign (samples.h), unless the source of
     * the chunks has a list of samples. */
    uint64_t position;
    int64_t max_bytes;                /* limit on the memory that create allocates */
    const struct hosts *worker_hosts; /* names of workers in the log; borrowed; NULL: by number */
    int64_t straggler_ms; /* wait in ms above which a step gets a log line; 0: no lines */
    /* Called if the servers clip by the norm: passes the sum of squares of each of this server's
     * chunks at this step, which the callee sends to the other servers (clip_receive_squares). No
     * lock is held. May be NULL if no other server has chunks. */
    void (*squares)(void *ctx, int64_t step, const double *square, int n);
    void *squares_ctx;
    bool hold_last;                  /* handover_hold_last from the start */
    const struct outer_hooks *outer; /* hooks of a region (outer.h); borrowed; NULL: no region */
    bool shared_memory;              /* members on this host can read the versions' memory */
    /* turns of updates on the cores, needed if members on this host use all cores; NULL: none */
    struct core_turns *turns;
    /* threads that make updates; borrowed; NULL: each update has one thread */
    struct thread_pool *threads;
    size_t long_bytes; /* size of a chunk from which on `threads` make updates; 0: 512 KB */
    /* Sends an answer to a member's earlier piece on the stream `from`; the payload is borrowed for
     * the call. */
    void (*answer)(void *ctx, const struct net_frame_head *head, uint64_t from,
                   const struct store_answer *answer);
    void (*stopped)(void *ctx); /* called when all chunks are stopped, with no lock held; or NULL */
    void *ctx;
};

struct store;
enum status store_create(const struct store_config *cfg, struct store **out);
void store_destroy(struct store *s); /* NULL is fine. */

/* Accepts from now on only this incarnation of the member. */
void store_admit(struct store *s, int member, uint64_t incarnation);

/* Marks the member as left, after all steps or before, so that no member waits for it in ssp. Does
 * nothing in other modes. */
void store_leave(struct store *s, int member);

/* Adds checksums to later answers. At first answers have none, because members on this host, and
 * members that connect by TLS, need no checksum. */
void store_sum(struct store *s);

/* Handles one piece. `from` is the caller's number for its stream; if a piece is repeated, the
 * answer goes to the stream of the last repetition. now_ns is the time of arrival; the store reads
 * no clock. *answer is sent on the same stream at once, or is PIECE_NONE; the caller unrefs its
 * payload. PIECE_TAKEN is only a notice: the answer follows. Answers to other members (and to this
 * one, when its piece completes a step) go through cfg.answer, in the same thread or in one of
 * cfg.threads. */
void store_piece(struct store *s, const struct net_frame_head *head, const struct net_piece *piece,
                 uint64_t from, int64_t now_ns, struct store_answer *answer);

/* Receives the sums of squares of another server's chunks at a step, for clipping by the norm. If
 * these are the last missing squares of the step, the step's updates begin. `why` is set for LATER
 * and REFUSED. */
enum squares_answer clip_receive_squares(struct store *s, const struct net_squares *from,
                                         char why[CONTROL_TEXT_BYTES]);

/* Returns the name of the segment with the versions; empty if there is no shared memory. */
void store_segment(const struct store *s, struct segment_name *out);

/* Returns the lowest version of the owned chunks; -1: a chunk has no version yet. If no chunk is
 * owned, returns the job's last step. */
int64_t store_step(struct store *s);

/* Returns the highest version of the owned chunks, or -1 if there is no version. */
int64_t store_highest(struct store *s);

/* Holds the last version back while `on` is nonzero: in lockstep pushes are not answered with it,
 * in other modes pulls of version train_steps are not answered. */
void handover_hold_last(struct store *s, int on);

/* Ends the store: each chunk keeps its present version, and no further one is made. Every piece
 * that waits for an answer, and every later piece, is answered REBASE. */
void handover_stop(struct store *s);
/* Returns true once handover_stop has stopped every chunk. */
bool handover_is_stopped(const struct store *s);

/* Finds the chunks at which a member has waited since before `since_ns`. For each, adds 1 to
 * missing[member] for every member whose contribution is missing. Returns the number of such
 * chunks; *step is the lowest of their steps. */
int store_missing(struct store *s, int64_t since_ns, int *missing, int64_t *step);

/* Returns the record of the members that training waited for, step by step; it is valid as long
 * as the store. */
const struct stragglers *store_stragglers(const struct store *s);

/* Returns a new reference to a chunk's present version; NULL: not owned, or no version yet. */
struct buf *store_read(struct store *s, int chunk, int64_t *version);

#endif
