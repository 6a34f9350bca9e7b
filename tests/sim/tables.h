/* tests/sim/tables.h - the sparse tables of a run, and the keys and gradients of its members. Each
 * table uses ROW_MODEL_KEYS keys. The keys of a batch are a pure function of its samples: few keys
 * that repeat within a batch and across members, other keys after each few batches, and in some
 * batches none. Gradients depend on the bits of the rows that they are computed on, and their sums
 * are exact (job.h).
 * Owns: the tables, for the run. Threads: one. Errors: none. */
#ifndef TESTS_SIM_TABLES_H
#define TESTS_SIM_TABLES_H
#include "net/wire/tables.h"
#include "tests/sim/job.h"
#include "tests/sim/row_model.h"

/* keys that a member's next push reads: none, those of its next step, or other ones */
enum { READS_NONE, READS_NEXT, READS_OTHER };

/* Adds the tables of the schedule to the table of chunks, which has room for SIM_PIECES. */
void tables_make(struct chunks *c);
static inline bool tables_is_bucket(int chunk)
{
    return chunk >= sim_chunks->n_dense;
}
/* Returns the settings of a bucket. */
struct bucket_config tables_config(int chunk);
const uint64_t *tables_keys(int chunk);          /* all keys of the bucket's table, ascending */
int tables_chunk(const struct bucket_config *c); /* chunk of a bucket with these settings */
int tables_index(int chunk, uint64_t key);       /* place of the key among them; -1: none */
bool tables_has_key(int chunk, int i);           /* key i belongs to the bucket */

/* Returns the weight of the member's contribution to the bucket; 0: it has no keys. */
float tables_weight(int chunk, uint64_t position);
/* Returns the factor of the learning rate for a step of the bucket (sim_rate). */
float tables_rate(int chunk, uint64_t step);
/* Returns true if the batch at `position` has key i, which belongs to the bucket. */
bool tables_uses(int chunk, uint64_t position, int i);
/* Returns true if a member that will use the batch at `position` next reads key i in advance. A new
 * life of its process may read other keys. */
bool tables_reads(int chunk, uint64_t position, uint32_t life, int i);
/* Computes the mean gradient of key i in the batch; values: the row that the member has. */
void tables_gradient(int chunk, uint64_t position, int i, const float *values, float *out);

#endif
