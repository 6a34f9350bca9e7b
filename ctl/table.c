/* ctl/table.c - keeps all rows, then computes the widths and prints; see table.h. */
#include "ctl/table.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 16 };

struct ctl_table {
    char **rows; /* [n_rows] cells with tabs between them; the first row has the headlines */
    int n_rows, room;
    int lacks; /* true: a row is missing, because memory was lacking */
};

static void add(struct ctl_table *t, char *row)
{
    if (row && t->n_rows == t->room) {
        char **rows = realloc(t->rows, (size_t)(t->room + 64) * sizeof *rows);
        if (rows) {
            t->rows = rows;
            t->room += 64;
        }
    }
    if (row && t->n_rows < t->room) {
        t->rows[t->n_rows++] = row;
        return;
    }
    free(row);
    t->lacks = 1;
}

enum status ctl_table_create(const char *heads, struct ctl_table **out)
{
    struct ctl_table *t = calloc(1, sizeof *t);
    if (!t)
        return ST_NOMEM;
    add(t, strdup(heads));
    *out = t;
    return ST_OK;
}

void ctl_table_destroy(struct ctl_table *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->n_rows; i++)
        free(t->rows[i]);
    free(t->rows);
    free(t);
}

void ctl_table_row(struct ctl_table *t, const char *fmt, ...)
{
    char *row = NULL;
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&row, fmt, args) < 0)
        row = NULL;
    va_end(args);
    add(t, row);
}

/* Returns the length of the cell at *at, and moves *at to the next one. */
static int cell(const char **at, const char **text)
{
    size_t n = strcspn(*at, "\t");
    *text = *at;
    *at += n + ((*at)[n] == '\t');
    return (int)n;
}

enum status ctl_table_print(const struct ctl_table *t)
{
    int width[MAX_COLUMNS] = {0}, right[MAX_COLUMNS] = {0}, n_columns = 0;
    const char *text, *at;
    if (t->lacks)
        return ST_NOMEM;
    for (int r = 0; r < t->n_rows; r++) {
        at = t->rows[r];
        for (int c = 0; *at && c < MAX_COLUMNS; c++) {
            int n = cell(&at, &text);
            if (r == 0) {
                right[c] = text[0] == '>';
                n_columns = c + 1;
                n -= right[c];
            }
            width[c] = n > width[c] ? n : width[c];
        }
    }
    for (int r = 0; r < t->n_rows; r++) {
        at = t->rows[r];
        for (int c = 0; *at && c < n_columns; c++) {
            int n = cell(&at, &text), skip = r == 0 && right[c];
            int pad = width[c] - (n - skip);
            int last = c + 1 == n_columns || !*at;
            printf("%*s%.*s%*s", right[c] ? pad : 0, "", n - skip, text + skip,
                   last ? 0 : (right[c] ? 0 : pad) + 2, "");
        }
        putchar('\n');
    }
    return ST_OK;
}
