/* worker/data/reading.h - progress of a long read: a bar on a terminal, a line every few seconds in
 * a log; nothing if the read is short.
 * Threads: one at a time, and one reading at a time. Errors: none. */
#ifndef WORKER_DATA_READING_H
#define WORKER_DATA_READING_H
#include "base/bar.h"
#include <stdbool.h>

enum { READING_BAR_MS = 1000, READING_LINE_MS = 5000 };

struct reading {
    const char *path, *what; /* purpose of the read (what), for example "checksum" */
    const char *unit;        /* unit of the progress, for example "GB" */
    bool is_bar, is_drawn;
    int64_t begin_ns, said_ns;
    struct bar bar;
};

/* Begins a reading. All pointers are borrowed until reading_end. */
void reading_begin(struct reading *r, enum progress_style style, const char *path, const char *what,
                   const char *unit);
void reading_at(struct reading *r, double done, double all); /* all 0: the total is unknown */
void reading_end(struct reading *r);

#endif
