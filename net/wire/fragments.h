/* net/wire/fragments.h - divides the chunks of a job into fragments that are exchanged in turns
 * (Streaming DiLoCo, Douillard et al. 2025). All fragments have about the same size. Step s
 * exchanges only the fragment with the index s modulo the number of fragments; the job's last step
 * exchanges all fragments. In a step that does not exchange a chunk, the chunk's contributions have
 * weight 0, its new version and slots equal the previous ones, and answers with the new version
 * have no payload.
 *
 * A fragment consists of whole chunks, not of whole parameters, because one parameter may hold
 * nearly all bytes. Neighbouring chunks belong to different fragments ("strided"; this depends only
 * on the table and the number of fragments), so that no fragment consists only of the first or the
 * last layers.
 *
 * Owns:    nothing.
 * Threads: any.
 * Errors:  ST_NOMEM. */
#ifndef NET_WIRE_FRAGMENTS_H
#define NET_WIRE_FRAGMENTS_H
#include "net/wire/job.h"
#include <stdbool.h>

/* Computes each chunk's fragment. *out: malloc'd; NULL if there is only one fragment, because then
 * every step exchanges all chunks. The sizes of two fragments differ by at most the largest
 * chunk. */
enum status fragments_create(const struct net_job *job, const struct chunks *chunks, int **out);
/* Returns true if the chunk is exchanged in the step from version `step` to the next. */
bool fragments_turn(const struct net_job *job, const int *fragment, int chunk, int64_t step);
/* Returns true if the chunk is exchanged in any of the steps `from` to `to` - 1. */
bool fragments_turn_between(const struct net_job *job, const int *fragment, int chunk, int64_t from,
                            int64_t to);

#endif
