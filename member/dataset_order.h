/* member/dataset_order.h - the order in which the items of a data set are read.
 * Owns:    the order of the last two passes.
 * Threads: one at a time for an object.
 * Errors:  ST_INVALID (no items, or too many; logged), ST_NOMEM. */
#ifndef MEMBER_DATASET_ORDER_H
#define MEMBER_DATASET_ORDER_H
#include "base/status.h"
#include <stdint.h>

enum { DATASET_MAX_ITEMS = 1 << 26 };

/* Order of n items: positions 0 .. n-1 are the first pass, which has each item once, shuffled by
 * (seed, pass); n .. 2n-1 are the second pass. The order depends on nothing else. An object keeps
 * the order of the last two passes. */
struct dataset_order;
enum status dataset_order_create(int64_t n, uint64_t seed, struct dataset_order **out);
void dataset_order_destroy(struct dataset_order *o);
/* Returns the item at the position. One thread at a time may call it for an object. */
int64_t dataset_order_item(struct dataset_order *o, uint64_t position);

#endif
