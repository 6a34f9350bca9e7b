/* net/wire/fragments.h - a job whose chunks take turns (Streaming DiLoCo, Douillard et al. 2025):
 * they are cut into `fragments` of about equal bytes, and step s is for fragment s modulo their
 * number alone, the job's last step for all. To a chunk that has no turn contributions are of
 * weight 0, its version is the one before, slots and all, and answers that carry it have no
 * payload.
 *
 * Fragments are of whole chunks, not of whole parameters: one parameter may hold nearly all bytes.
 * Chunks that follow each other go to different fragments ("strided"; a function of the table and
 * the number alone), so that none is of the first or the last layers alone.
 *
 * Owns: nothing. Threads: any. Errors: ST_NOMEM. */
#ifndef NET_WIRE_FRAGMENTS_H
#define NET_WIRE_FRAGMENTS_H
#include "net/wire/job.h"

/* *out: each chunk's fragment, malloc'd; NULL: there is one, whose turn is always. Their bytes
 * differ by those of the largest chunk at most. */
enum status fragments_create(const struct net_job *job, const struct chunks *chunks, int **out);
/* 1: the chunk takes part in what leads from version `step` to the next. */
int fragments_turn(const struct net_job *job, const int *fragment, int chunk, int64_t step);
/* 1: in one of the steps from `from` on, before `to`. */
int fragments_turn_between(const struct net_job *job, const int *fragment, int chunk, int64_t from,
                           int64_t to);

#endif
