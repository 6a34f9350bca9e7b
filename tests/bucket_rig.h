/* tests/bucket_rig.h - a store that holds a job with two tables, the pieces that members send to
 * its buckets, and the buckets that the answers must agree with. Every row of an answer is compared
 * with them. Owns: all that it creates. Threads: one. Errors: the test fails. */
#ifndef TESTS_BUCKET_RIG_H
#define TESTS_BUCKET_RIG_H
#include "ps/rows/merge.h"
#include "ps/store/store.h"
#include <stdbool.h>

enum {
    RIG_MEMBERS = 3,
    RIG_DENSE = 1,   /* chunk 0 has parameters */
    RIG_BUCKETS = 3, /* chunks 1 and 2 are table 'ads', chunk 3 is table 'words' */
    RIG_WORDS = 3,   /* chunk of 'words' */
    RIG_KEYS = 60,   /* keys of each bucket that the tests use */
    RIG_MAX_DIM = 5,
    RIG_INCARNATION = 7, /* process of member 0; the one of member m is m higher */
    RIG_GENERATION = 2,
};

struct rig_answer { /* last answer to a member for a chunk */
    int n;          /* number of answers */
    enum piece_kind kind;
    int64_t step;
    uint32_t rows;
    enum dtype dtype;
    uint64_t incarnation, from;
    bool replaced;
    char text[256];
    struct buf *lent; /* payload that a member on this host still reads */
    float values[2 * RIG_KEYS * RIG_MAX_DIM];
};

struct rig_push { /* keys and gradients of a contribution, or keys to read */
    size_t n;
    uint64_t keys[RIG_KEYS];
    float gradients[RIG_KEYS * RIG_MAX_DIM];
};

struct rig {
    struct chunks *chunks;
    struct net_job job;
    struct store *store;
    struct thread_pool *threads; /* NULL: none */
    bool is_local; /* members are on this host: they read each answer until the next one */
    bool shifted;  /* members have sent pieces as later processes: RIG_INCARNATION is 100 higher */
    struct rig_answer got[RIG_MEMBERS][RIG_DENSE + RIG_BUCKETS];
    struct bucket *expected[RIG_DENSE + RIG_BUCKETS];
    struct merge *merge[RIG_DENSE + RIG_BUCKETS];
    uint64_t keys[RIG_DENSE + RIG_BUCKETS][RIG_KEYS]; /* ascending */
};

/* Settings that tests change: the tables and the job, before the store is created. */
struct rig_config {
    struct net_job job; /* n_workers is filled; train_steps 0: 20 */
    enum optim_rows_kind kind;
    int64_t max_rows; /* setting of 'words'; 0: it is 1000 */
    enum row_full when_full;
    int64_t admit_after, evict_after;
    bool hold_last;
    bool shared_memory; /* members may read answers in the store's segment */
    bool has_threads;   /* the store has threads, which make each version */
};

void bucket_rig_open(struct rig *r, const struct rig_config *config);
void bucket_rig_close(struct rig *r);
/* Waits until threads have made the versions that are complete, and have sent the answers. */
void bucket_rig_settle(struct rig *r);
/* Returns the settings that a bucket must have. */
void bucket_rig_settings(const struct rig *r, int chunk, struct bucket_config *out);

/* Fills the contribution of a member in a step: about `part` of 100 keys. */
void bucket_rig_fill(const struct rig *r, int chunk, int member, int64_t step, int part,
                     struct rig_push *out);
/* Fills the keys of a chunk from `first` on, `n` of them. */
void bucket_rig_fill_reads(const struct rig *r, int chunk, size_t first, size_t n,
                           struct rig_push *out);

/* Encodes a piece's payload: keys, read keys, gradients. Returns its bytes. */
size_t bucket_rig_encode(const struct rig *r, int chunk, const struct rig_push *push,
                         const struct rig_push *reads, uint8_t *out);
enum { RIG_PAYLOAD_BYTES = RIG_KEYS * (16 + RIG_MAX_DIM * 4) };

/* Sends a PUSH of a member, and returns the kind of its direct answer. push NULL: weight 0. */
enum piece_kind bucket_rig_push(struct rig *r, int chunk, int member, int64_t step,
                                const struct rig_push *push, const struct rig_push *reads);
/* Sends a PULL of version `version`; -1: the newest. */
enum piece_kind bucket_rig_pull(struct rig *r, int chunk, int member, int64_t version,
                                const struct rig_push *reads);
/* Sends any piece, with counts and payload as they are. */
enum piece_kind bucket_rig_send(struct rig *r, int member, struct net_piece piece,
                                const void *payload);
float bucket_rig_weight(int member);

/* Makes the next version of the expected bucket from the contributions [n], by rank; an entry
 * without keys and with weight 0 adds nothing. */
void bucket_rig_expect(struct rig *r, int chunk, const struct rig_push *const *push,
                       const float *weights, int n);
/* Checks that the member's last answer has these rows of a version of the expected bucket. */
void bucket_rig_check(struct rig *r, int chunk, int member, int64_t version,
                      const struct rig_push *reads);
/* Pulls all keys as a member that waits for no answer, and checks them. */
void bucket_rig_check_all_as(struct rig *r, int chunk, int member, int64_t version);
/* Pulls all keys as member 0, and checks them. */
void bucket_rig_check_all(struct rig *r, int chunk, int64_t version);

#endif
