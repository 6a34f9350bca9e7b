/* worker/data/reading.h - what a person sees while data are read for long: a bar on a terminal, a
 * line every few seconds in a log; of what is soon done, nothing.
 * Threads: one at a time, and one reading at a time. Errors: none. */
#ifndef WORKER_DATA_READING_H
#define WORKER_DATA_READING_H
#include "base/bar.h"

enum { READING_BAR_MS = 1000, READING_LINE_MS = 5000 };

struct reading {
    const char *path, *what; /* "checksum": what for */
    const char *unit;        /* of how far it is: "GB" */
    int is_bar, is_drawn;
    int64_t begin_ns, said_ns;
    struct bar bar;
};

/* All borrowed until its end. */
void reading_begin(struct reading *r, enum progress_style style, const char *path, const char *what,
                   const char *unit);
void reading_at(struct reading *r, double done, double all); /* all 0: nobody knows */
void reading_end(struct reading *r);

#endif
