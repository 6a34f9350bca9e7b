/* ps/store/table_counts.h - figures on the tables of a store, for operators.
 * Threads: any.
 * Errors:  none. */
#ifndef PS_STORE_TABLE_COUNTS_H
#define PS_STORE_TABLE_COUNTS_H
#include "net/wire/table_status.h"
#include "ps/store/store.h"

/* Fills out[n_tables] with the store's part of each table of the job. */
void store_count_tables(struct store *s, struct net_status_table *out);

#endif
