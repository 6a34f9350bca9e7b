/* ps/store/store.h - the chunks that one server owns: their versions, and what members do to them.
 *
 * A version is an immutable buffer (I1); the present one and the one before are kept (I4). In sync
 * mode the last contribution of a step makes the next version in one pass (I2), or, with clip_norm,
 * the last one of all chunks on all servers makes those of all chunks (clip.c); in async and ssp
 * mode each contribution does (consistency.c). What a piece asks for is checked before any memory
 * is taken (I9), and a contribution counts once (I3). Beyond train_steps no version is made, and
 * none beyond the stop that ends a store: the next generation's goes on from what it holds.
 *
 * Owns:    versions, optimizer slots, sums, contributions that wait. Sums and slots are taken by
 *          create, versions and copies as they are first needed, then used again.
 * Memory:  docs/design/exchange.md: per owned element 4 bytes times (2 versions + the one in the
 *          making + 1 sum + the optimizer's slots, in lockstep twice), half as much again for
 *          versions sent in 16 bits, and up to n_workers - 1 copies of contributions ahead of their
 *          turn; async or ssp with delay compensation: up to n_workers versions more, those that
 *          the members compute on, instead of the copies. A version that a member reads in shared
 *          memory is held until its next answer for the chunk: in lockstep one of those kept
 *          anyway, else as many more as members read, at most 13.
 * Threads: any; each chunk has its own lock; `answer` is called with none held.
 * Errors:  ST_NOMEM, ST_RANGE (above max_bytes; logged). */
#ifndef PS_STORE_STORE_H
#define PS_STORE_STORE_H
#include "base/buf.h"
#include "net/wire/frame.h"
#include "net/wire/job.h"
#include "net/wire/squares.h"
#include "ps/store/stragglers.h"

struct outer_hooks;

struct store_answer {
    enum piece_kind kind; /* PIECE_NONE: the answer will come later */
    uint32_t chunk;
    uint64_t step;
    struct buf *payload; /* the whole buffer goes out; NULL: no payload */
    enum dtype dtype;    /* of the payload */
    uint32_t crc32c;     /* likewise */
    int replaced;        /* REFUSED: since another process has this one's place */
    uint64_t samples;    /* 1 + the first sample of the receiver's next step; 0: not said */
    const char *why;     /* REFUSED: points to static text or into `text` */
    char text[160];
};

struct store_config {
    const struct chunks *chunks; /* borrowed until destroy */
    const struct net_job *job;   /* copied */
    const int *server;           /* shard map, n_chunks; read by create alone */
    int self;                    /* this server's number in it */
    int n_members;               /* 0: job->n_workers; fewer or more where members came and went */
    const int *member;           /* their indices, by which lines name them, in the order of their
                                    numbers here; borrowed; NULL: 0, 1, ... */
    uint64_t generation;
    uint64_t position;                /* where chunks go each at its own pace: the first sample that
                                         is given out (samples.h), unless the chunks bring a list */
    int64_t max_bytes;                /* limit of all that create takes */
    const struct hosts *worker_hosts; /* to name workers in the log; borrowed; NULL: by number */
    int64_t straggler_ms; /* a step that waited longer for one worker gets a line; 0: none */
    /* Clipping by the norm, NULL is fine where no other server has chunks: what all chunks here add
     * at this step, ascending, for clip_receive_squares of the others; no lock held. */
    void (*squares)(void *ctx, int64_t step, const double *square, int n);
    void *squares_ctx;
    int hold_last;                   /* as by handover_hold_last, from the start */
    const struct outer_hooks *outer; /* of a region (outer.h); borrowed; NULL: it is none */
    int shared_memory;               /* versions lie where members on this host can read them */
    struct core_turns *turns;    /* of the updates, where members here use all cores; NULL: none */
    struct thread_pool *threads; /* that share updates; borrowed; NULL: each is one thread's */
    /* An answer to a member's earlier piece, for the stream `from`; the payload is borrowed for
     * the call. */
    void (*answer)(void *ctx, const struct net_frame_head *head, uint64_t from,
                   const struct store_answer *answer);
    void (*stopped)(void *ctx); /* all chunks are stopped; no lock held; NULL is fine */
    void *ctx;
};

struct store;
enum status store_create(const struct store_config *cfg, struct store **out);
void store_destroy(struct store *s); /* NULL is fine */

/* From now on this incarnation alone speaks for the member. */
void store_admit(struct store *s, int member, uint64_t incarnation);

/* ssp: the member has left (done, or by name), nobody waits for it. Other modes: nothing. */
void store_leave(struct store *s, int member);

/* From now on answers carry checksums; at first they do not, which members on this host can do
 * without. */
void store_sum(struct store *s);

/* Handles one piece. from: the caller's number for the stream it came on; of a repeated piece the
 * last stream gets the answer. now_ns: when it came; the store reads no clock. *answer: what goes
 * back on the same stream at once, or PIECE_NONE; the caller unrefs its payload. PIECE_TAKEN is
 * none: that is still to come. Answers to other members (and to this one, when its piece completes
 * a step) go through cfg.answer before the return. */
void store_piece(struct store *s, const struct net_frame_head *head, const struct net_piece *piece,
                 uint64_t from, int64_t now_ns, struct store_answer *answer);

/* Clipping by the norm: what another server's chunks add at a step. The last that is missing makes
 * the step's versions before the return, as the last piece does else. `why`: LATER, REFUSED. */
enum squares_answer clip_receive_squares(struct store *s, const struct net_squares *from,
                                         char why[CONTROL_TEXT_BYTES]);

/* Where versions lie; none without shared memory. */
void store_segment(const struct store *s, struct segment_name *out);

/* Lowest version of the owned chunks, -1 before all have their first; without any owned chunk,
 * the job's last step. */
int64_t store_step(struct store *s);

/* Highest version of the owned chunks; -1: there is none. */
int64_t store_highest(struct store *s);

/* While it is on, the last version is held back: in lockstep from pushes, else from pulls that ask
 * for train_steps. */
void handover_hold_last(struct store *s, int on);

/* Ends the store: each chunk keeps its present version, and no further one is made. Every piece
 * that waits for an answer, and every later piece, is answered REBASE. */
void handover_stop(struct store *s);
/* Returns 1 once handover_stop has stopped every chunk. */
int handover_is_stopped(const struct store *s);

/* For each chunk at which somebody has waited since before `since_ns`: adds 1 to missing[member]
 * for every member whose contribution is waited for. Returns the number of such chunks; *step is
 * the lowest of their steps. */
int store_missing(struct store *s, int64_t since_ns, int *missing, int64_t *step);

/* Whom the steps waited for; valid while the store is. */
const struct stragglers *store_stragglers(const struct store *s);

/* A chunk's present version, with a reference for the caller; NULL if not owned or not there. */
struct buf *store_read(struct store *s, int chunk, int64_t *version);

#endif
