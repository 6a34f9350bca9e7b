/* net/wire/fragments.h - jobs that exchange chunks in turns (Streaming DiLoCo, Douillard et al.
 * 2025).
 * The chunks are divided into `fragments` of about equal bytes. Step s exchanges only fragment s
 * modulo their number, and the job's last step exchanges all. For a chunk without a turn,
 * contributions have weight 0, its version and slots equal those before, and answers with that
 * version have no payload.
 *
 * A fragment consists of whole chunks, not of whole parameters, because one parameter may hold
 * nearly all bytes. Neighbouring chunks belong to different fragments ("strided"; a function of
 * the table and the number alone), so that no fragment consists only of the first or the last
 * layers.
 *
 * Owns:    nothing.
 * Threads: any.
 * Errors:  ST_NOMEM. */
#ifndef NET_WIRE_FRAGMENTS_H
#define NET_WIRE_FRAGMENTS_H
#include "net/wire/job.h"
#include <stdbool.h>

/* Computes each chunk's fragment. *out: malloc'd; NULL if there is only one fragment, which
 * always has its turn. The sizes of two fragments differ by at most the largest chunk. */
enum status fragments_create(const struct net_job *job, const struct chunks *chunks, int **out);
/* Returns true if the chunk is exchanged in the step from version `step` to the next. */
bool fragments_turn(const struct net_job *job, const int *fragment, int chunk, int64_t step);
/* Returns true if the chunk is exchanged in a step from `from` on and before `to`. */
bool fragments_turn_between(const struct net_job *job, const int *fragment, int chunk, int64_t from,
                            int64_t to);

#endif
