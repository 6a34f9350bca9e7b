/* ps/store/samples.h - assigns samples to members if chunks advance independently (I6). It assigns
 * them batch by batch: a member has one batch in hand, and receives the next when its contribution
 * has made a version, alone or with others. The next store first assigns the batches that were in
 * hand when a store ended. So no sample is skipped and none counts twice, whatever the members'
 * speeds.
 *
 * The next generation and checkpoints receive the whole state as one list: the first sample that
 * was never assigned, then in ascending order the first samples of the batches that are in hand or
 * have to be assigned again.
 *
 * Owns:    its lists. Memory: 8 bytes for each member and each batch to reassign.
 * Threads: none; the caller holds the lock of the model's first chunk.
 * Errors:  ST_NOMEM; ST_PROTOCOL: an impossible list. */
#ifndef PS_STORE_SAMPLES_H
#define PS_STORE_SAMPLES_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

/* Limits of a list of samples: its length, and the largest number in it. */
enum { SAMPLES_MAX_LIST = 1 << 13 };
#define SAMPLES_MAX ((uint64_t)1 << 62)

struct ps_samples;
/* Creates the state: `batch` samples make one step; `first` is the first sample to assign. */
enum status ps_samples_create(int n_members, int batch, uint64_t first, struct ps_samples **out);
void ps_samples_destroy(struct ps_samples *s); /* NULL is fine. */
/* Returns the first sample of the batch that the member has in hand. */
uint64_t ps_samples_in_hand(struct ps_samples *s, int member);
/* Notes that the member's contribution counts for the next version. */
void ps_samples_counted(struct ps_samples *s, int member);
/* Notes that the next version is made. */
void ps_samples_made(struct ps_samples *s);
/* Returns the largest possible length of a list, until ps_samples_set sets another one. */
size_t ps_samples_room(const struct ps_samples *s);
/* Writes the list; returns the number of its entries. */
size_t ps_samples_list(const struct ps_samples *s, uint64_t *out);
/* Restores a list before the first assignment. On failure nothing has changed. */
enum status ps_samples_set(struct ps_samples *s, const uint64_t *list, size_t n);

#endif
