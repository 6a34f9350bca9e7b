/* ps/store/samples.h - which samples each member reads next where chunks go each at its own pace
 * (I6). They are given out batch by batch: a member has one in hand, and gets the next when its
 * contribution has made a version, alone or with others. What members had in hand as a store ended
 * is given out first by the next one. So none is skipped and none counts twice, whatever the
 * members' speeds.
 *
 * All of it as a list, for the next generation and for checkpoints: the first sample that was never
 * given out, then in ascending order the first samples of the batches that are in hand or were.
 *
 * Owns:    its lists. Memory: 8 bytes for each member and each batch that is to be given out again.
 * Threads: none; under the lock of the model's first chunk.
 * Errors:  ST_NOMEM; ST_PROTOCOL: a list that cannot be. */
#ifndef PS_STORE_SAMPLES_H
#define PS_STORE_SAMPLES_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

/* Of a list: its longest, and what its numbers stay below. */
enum { SAMPLES_MAX_LIST = 1 << 13 };
#define SAMPLES_MAX ((uint64_t)1 << 62)

struct ps_samples;
/* batch: samples of one step; first: the first that is given out. */
enum status ps_samples_create(int n_members, int batch, uint64_t first, struct ps_samples **out);
void ps_samples_destroy(struct ps_samples *s); /* NULL is fine */
/* The first sample of the batch that the member has in hand. */
uint64_t ps_samples_in_hand(struct ps_samples *s, int member);
/* Its contribution counts for the next version; */
void ps_samples_counted(struct ps_samples *s, int member);
/* which is made. */
void ps_samples_made(struct ps_samples *s);
/* Room for this many numbers is enough for `list`, as long as none is set. */
size_t ps_samples_room(const struct ps_samples *s);
/* Returns how many numbers it wrote. */
size_t ps_samples_list(const struct ps_samples *s, uint64_t *out);
/* Goes on from such a list, before anything is given out. On failure nothing has changed. */
enum status ps_samples_set(struct ps_samples *s, const uint64_t *list, size_t n);

#endif
