/* ps/store/store.h - the chunks that one server owns: their versions, and the effect of pieces.
 *
 * A version is an immutable buffer (I1); the present version and the one before are kept (I4). In
 * sync mode the last contribution of a step makes the next version in one pass (I2). If clip_norm
 * is set, the last contribution to all chunks on all servers makes the versions of all chunks
 * (clip.c). In async and ssp mode each contribution makes one (consistency.c). A piece is checked
 * before memory is allocated for it (I9), and a contribution counts once (I3). No version is made
 * beyond train_steps, nor after the stop that ends a store: the next generation's store continues
 * from its contents.
 *
 * Owns:    versions, optimizer slots, sums, contributions that wait. Create allocates sums and
 *          slots; versions and copies are allocated when first needed, then reused.
 * Memory:  docs/design/exchange.md: per owned element 4 bytes times (2 versions + the one in the
 *          making + 1 sum + the optimizer's slots, in lockstep twice), half as much again for
 *          versions sent in 16 bits, and up to n_workers - 1 copies of contributions ahead of their
 *          turn; async or ssp with delay compensation: up to n_workers versions more, those that
 *          the members compute on, instead of the copies. A version that a member reads in shared
 *          memory is held until its next answer for the chunk: in lockstep it is one of the kept
 *          versions, else as many more as members read, at most 13.
 * Threads: any; each chunk has its own lock; `answer` is called with none held.
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
    bool replaced;       /* REFUSED: another process has this one's place */
    uint64_t samples;    /* 1 + the first sample of the receiver's next step; 0: not reported */
    const char *why;     /* REFUSED: points to static text or into `text` */
    char text[160];
};

struct store_config {
    const struct chunks *chunks; /* borrowed until destroy */
    const struct net_job *job;   /* copied */
    const int *server;           /* shard map, n_chunks; read by create alone */
    int self;                    /* this server's number in it */
    int n_members;               /* 0: job->n_workers; differs where members joined or left */
    const int *member; /* members' indices for log lines, by rank; borrowed; NULL: 0, 1, ... */
    uint64_t generation;
    /* Where chunks advance independently: first sample to assign (samples.h), unless the chunks
     * bring a list. */
    uint64_t position;
    int64_t max_bytes;                /* limit of the memory that create allocates */
    const struct hosts *worker_hosts; /* names of workers in the log; borrowed; NULL: by number */
    int64_t straggler_ms; /* a step that waited longer for a worker gets a line; 0: none */
    /* Called, if the servers clip by the norm, with the squares of all chunks here at this step,
     * ascending, for clip_receive_squares of the other servers; no lock held. May be NULL where no
     * other server has chunks. */
    void (*squares)(void *ctx, int64_t step, const double *square, int n);
    void *squares_ctx;
    bool hold_last;                  /* handover_hold_last from the start */
    const struct outer_hooks *outer; /* hooks of a region (outer.h); borrowed; NULL: no region */
    bool shared_memory;              /* members on this host can read the versions' memory */
    struct core_turns *turns;        /* cores of updates, where members here use all; NULL: none */
    struct thread_pool *threads;     /* shared by updates; borrowed; NULL: one thread each */
    /* Sends an answer to a member's earlier piece on the stream `from`; the payload is borrowed for
     * the call. */
    void (*answer)(void *ctx, const struct net_frame_head *head, uint64_t from,
                   const struct store_answer *answer);
    void (*stopped)(void *ctx); /* all chunks are stopped; no lock held; NULL is fine */
    void *ctx;
};

struct store;
enum status store_create(const struct store_config *cfg, struct store **out);
void store_destroy(struct store *s); /* NULL is fine. */

/* Accepts from now on only this incarnation of the member. */
void store_admit(struct store *s, int member, uint64_t incarnation);

/* Marks the member, in ssp, as left (done, or in order), so that no member waits for it. Does
 * nothing in other modes. */
void store_leave(struct store *s, int member);

/* Adds checksums to later answers. At first answers have none, since members on this host need
 * none. */
void store_sum(struct store *s);

/* Handles one piece. `from` is the caller's number for its stream; of a repeated piece the last
 * stream gets the answer. now_ns is the time of arrival; the store reads no clock. *answer goes
 * back on the same stream at once, or is PIECE_NONE; the caller unrefs its payload. PIECE_TAKEN is
 * no answer: the answer follows. Answers to other members (and to this one, when its piece
 * completes a step) go through cfg.answer before the return. */
void store_piece(struct store *s, const struct net_frame_head *head, const struct net_piece *piece,
                 uint64_t from, int64_t now_ns, struct store_answer *answer);

/* Receives the squares of another server's chunks at a step, for clipping by the norm. The last
 * missing ones make the step's versions before the return, as the last piece does otherwise. `why`
 * is set for LATER and REFUSED. */
enum squares_answer clip_receive_squares(struct store *s, const struct net_squares *from,
                                         char why[CONTROL_TEXT_BYTES]);

/* Returns the name of the segment with the versions; empty without shared memory. */
void store_segment(const struct store *s, struct segment_name *out);

/* Returns the lowest version of the owned chunks: -1 before all have their first; without any owned
 * chunk the job's last step. */
int64_t store_step(struct store *s);

/* Returns the highest version of the owned chunks, or -1 if there is no version. */
int64_t store_highest(struct store *s);

/* Holds the last version back while `on` is nonzero: in lockstep from pushes, else from pulls of
 * train_steps. */
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

/* Returns the record of members that the steps waited for; valid as long as the store. */
const struct stragglers *store_stragglers(const struct store *s);

/* Returns a new reference to a chunk's present version; NULL: not owned, or no version yet. */
struct buf *store_read(struct store *s, int chunk, int64_t *version);

#endif
