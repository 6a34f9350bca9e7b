/* tests/sim/ledger.h - checks of a region's versions and contributions (ledger.c).
 * Owns: nothing beyond the run. Threads: one. Errors: sim_fail. */
#ifndef TESTS_SIM_LEDGER_H
#define TESTS_SIM_LEDGER_H
#include "ps/region/region_chunks.h"
#include "tests/sim/oracle.h"

struct region;
struct region_checkpoint;
enum { LEDGER_STEPS = 16, LEDGER_WORDS = 8 };

/* One chunk of a region. `value`, `computed` and `learnt` are by version of the region. */
struct ledger_chunk {
    float value[LEDGER_STEPS][SIM_ELEMS];
    float computed[LEDGER_STEPS][SIM_ELEMS]; /* the value before the region adopted the parent's */
    double learnt[LEDGER_STEPS][SIM_ELEMS];  /* sum of its progress, without what it lost */
    bool has_base;           /* `learnt` counts from the beginning of the parent's versions */
    uint64_t root, root_ps0; /* generation in which these began */
    struct ledger_word {     /* order of ps 0 for a version of the second server's chunk */
        uint64_t in;         /* its generation; 0: none */
        int64_t version;
        bool has_to, has_from;
        float to[SIM_ELEMS], from[SIM_ELEMS];
        int64_t held; /* the parent's version that ps 0 held then */
        uint64_t held_in, held_ps0;
    } word[LEDGER_WORDS];
    int n_words;
    bool comes_back;          /* it has adopted nothing since its process was started again */
    bool has_strayed;         /* its first adoption after that lost some progress */
    int64_t parent;           /* the parent's version that it adopted last; -1: none */
    uint64_t generation, ps0; /* generation of that version, and its ps 0 */
};

void ledger_reset(void);
/* Begins the region's account, from a checkpoint or NULL. again: it restarts or rolls back. */
void ledger_start(struct region *r, const struct region_checkpoint *from, bool again);
/* Notes the parent's version with which a chunk of the region begins. */
void ledger_first(struct region *r, int chunk, int64_t version, const float *value);
/* Notes a version that the region computed. waits: its value is provisional (ps/store/outer.h). */
void ledger_made(struct region *r, int chunk, int64_t version, bool waits, const float *value);
/* Checks how the region has made a version that waited, as outer_adopt(). */
void ledger_adopted(struct region *r, int chunk, int64_t version, const float *to,
                    const float *from);
/* Notes how ps 0 orders the second server to make a version that waits. */
void ledger_word(struct region *r, uint64_t generation, const struct region_chunk_adoption *w);
/* Checks that the second server has made the version by that order. */
void ledger_obeyed(struct region *r, uint64_t generation, int chunk, int64_t version,
                   const float *is);
/* Checks that the region ends with the parent's last version. */
void ledger_end(struct region *r);
/* Notes a contribution, at a server of the parent, that may count for version step + 1. */
void ledger_pushed(uint64_t generation, uint64_t ps0, const struct sim_msg *m);
typedef bool ledger_try(void *ctx, const double *sum, double weight);
/* Tries the contributions to version `step`, one of each member, in all combinations until fits()
 * accepts a sum. Returns false if it accepts none. */
bool ledger_find(const struct ledger_step *at, ledger_try *fits, void *ctx);
/* Adds the contribution of this rank in that sum. Returns the incarnation that sent it last; 0: no
 * contribution. */
uint64_t ledger_counted(const struct ledger_step *at, int rank, double sum[SIM_ELEMS]);

#endif
