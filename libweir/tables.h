/* libweir/tables.h - the tables of a handle (weir_tables.h). Private to libweir/.
 *
 *   tables.c       tables and their settings; their buckets
 *   lookups.c      weir_lookup and weir_next_keys
 *   row_pushes.c   weir_push_rows
 * Calls for one table hold its lock, also while they wait for servers. The handle's lock is
 * acquired within it.
 * Owns:    tables, and the memory for the keys of their calls.
 * Threads: any.
 * Errors:  codes of weir.h; ST_INVALID, ST_NOMEM, logged. */
#ifndef LIBWEIR_TABLES_H
#define LIBWEIR_TABLES_H
#include "libweir/steps.h"
#include "libweir/weir_tables.h"
#include "member/row_keys.h"
#include "member/table_settings.h"

/* A lookup whose timeout has passed. A lookup of the same keys continues it, so that lookups of
 * many requests end even if each call waits only briefly. */
struct lookup_rest {
    float *rows; /* [asked.n_given][dim] rows that it has read; NULL: no lookup has to continue */
    int64_t version, generation;
};

struct row_table {
    char *name;
    int dim;
    int64_t max_rows;
    struct table_settings set;
    int64_t pushed; /* 1 + step of the last push; 0: not pushed in this generation; guarded by the
                       handle's lock */

    pthread_mutex_t lock; /* guards the fields below */
    /* keys of the last lookup, of weir_next_keys, and of pushes of other keys than the last lookup
     */
    struct row_keys asked, next, pushing;
    const struct row_keys *sent; /* keys of the push in progress: `asked` or `pushing` */
    uint32_t *done; /* [n_buckets] index in asked.keys of each bucket's first key without a row */
    struct lookup_rest rest;
    int64_t next_step, next_generation; /* step in which `next` was set; -1: not set */
    float *sums;                        /* [sums_room] gradients of a push */
    size_t sums_room;
};

/* Adds the buckets of all tables to w->chunks. Called before the exchange exists. */
enum status weir_tables_add(struct weir *w);
void weir_tables_free(struct weir *w);
/* Finds a table. NULL, with the error set: there is no such table. */
struct row_table *weir_tables_find(struct weir *w, int table);
/* Returns the table as the servers have it. */
const struct net_table *weir_tables_net(const struct weir *w, int table);
/* Checks the keys of a call. Returns OK or WEIR_E_INVALID. */
int weir_tables_check_keys(struct weir *w, const struct row_table *t, const uint64_t *keys,
                           int64_t n);
/* Sets *k to the keys of a call, unless it has them already. bounded: the number of keys of a
 * bucket may not exceed its share of step_rows. Returns OK, WEIR_E_INVALID or WEIR_E_NOMEM. */
int weir_tables_sort_keys(struct weir *w, int table, struct row_keys *k, const uint64_t *keys,
                          int64_t n, bool bounded);
/* Ends the continuation of a lookup whose timeout has passed. The caller holds the table's lock. */
void weir_lookups_forget(struct row_table *t);
/* Returns the name of a table that was not pushed in this step; NULL: all were. Under w->lock. */
const char *weir_tables_unpushed(const struct weir *w);
/* Notes that a generation begins. Under w->lock. */
void weir_tables_begin(struct weir *w);

#endif
