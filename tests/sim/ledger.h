/* tests/sim/ledger.h - checks of a region's versions and contributions (ledger.c).
 * Owns: nothing beyond the run. Threads: one. Errors: sim_fail. */
#ifndef TESTS_SIM_LEDGER_H
#define TESTS_SIM_LEDGER_H
#include "ps/region/region_chunks.h"
#include "tests/sim/oracle.h"

struct region;
struct region_checkpoint;
enum { LEDGER_STEPS = 16, LEDGER_WORDS = 8 };

/* Account of one chunk of a region. The arrays `value`, `computed` and `learnt` are indexed by the
 * region's version of the chunk. */
struct ledger_chunk {
    float value[LEDGER_STEPS][SIM_ELEMS];
    /* value before the region adopted the parent's version */
    float computed[LEDGER_STEPS][SIM_ELEMS];
    /* sum of the region's progress, without the progress that it lost */
    double learnt[LEDGER_STEPS][SIM_ELEMS];
    bool has_base; /* `learnt` counts from the first version of the parent */
    /* generation in which the parent's versions began, and that generation's ps 0 */
    uint64_t root, root_ps0;
    /* order of the region's ps 0 to its second server for a version of that server's chunk */
    struct ledger_word {
        uint64_t in; /* generation of the order; 0: the entry is unused */
        int64_t version;
        bool has_to, has_from;
        float to[SIM_ELEMS], from[SIM_ELEMS];
        int64_t held; /* version of the parent that ps 0 held at the order */
        uint64_t held_in, held_ps0;
    } word[LEDGER_WORDS];
    int n_words;
    /* the region's process was started again, and has adopted nothing since then */
    bool comes_back;
    bool has_strayed;         /* the first adoption after that start lost some progress */
    int64_t parent;           /* version of the parent that the region adopted last; -1: none */
    uint64_t generation, ps0; /* generation of that version, and its ps 0 */
};

void ledger_reset(void);
/* Begins the region's account, from a checkpoint (NULL: from no checkpoint). again: the region
 * restarts or rolls back. */
void ledger_start(struct region *r, const struct region_checkpoint *from, bool again);
/* Notes the parent's version with which a chunk of the region begins. */
void ledger_first(struct region *r, int chunk, int64_t version, const float *value);
/* Notes a version that the region computed. waits: its value is provisional, because the version
 * waits for the parent (ps/store/outer.h). */
void ledger_made(struct region *r, int chunk, int64_t version, bool waits, const float *value);
/* Checks the value that the region has computed for a version that waited, with the arguments of
 * outer_adopt(). */
void ledger_adopted(struct region *r, int chunk, int64_t version, const float *to,
                    const float *from);
/* Notes how ps 0 orders the second server to make a version that waits. */
void ledger_word(struct region *r, uint64_t generation, const struct region_chunk_adoption *w);
/* Checks that the second server has made the version as ps 0 ordered. */
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
