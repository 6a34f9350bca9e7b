/* ctl/table.h - prints rows of cells in columns that are as wide as their widest cell.
 * Owns:    its cells. Threads: one.
 * Errors:  ST_NOMEM. */
#ifndef CTL_TABLE_H
#define CTL_TABLE_H
#include "base/status.h"

struct ctl_table;
/* Creates a table. heads: headlines of the columns, "NAME\t>SIZE"; '>' aligns a column right. */
enum status ctl_table_create(const char *heads, struct ctl_table **out);
void ctl_table_destroy(struct ctl_table *t); /* NULL is fine */
/* Adds a row of cells with tabs between them. If memory runs out, ctl_table_print fails. */
void ctl_table_row(struct ctl_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints the table to stdout. */
enum status ctl_table_print(const struct ctl_table *t);

#endif
