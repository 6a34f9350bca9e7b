/* ctl/table.h - rows of cells, printed in columns as wide as they have to be.
 * Owns:    its cells. Threads: none.
 * Errors:  ST_NOMEM. */
#ifndef CTL_TABLE_H
#define CTL_TABLE_H
#include "base/status.h"

struct ctl_table;
/* heads: "NAME\t>SIZE": the columns' headlines; one with '>' has its cells at the right. */
enum status ctl_table_create(const char *heads, struct ctl_table **out);
void ctl_table_destroy(struct ctl_table *t); /* NULL is fine */
/* Cells parted by tabs. One that cannot be kept is told by print. */
void ctl_table_row(struct ctl_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* To stdout. */
enum status ctl_table_print(const struct ctl_table *t);

#endif
