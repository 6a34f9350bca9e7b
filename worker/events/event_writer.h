/* worker/events/event_writer.h - a run's event file, written by a thread of its own, so that nobody
 * waits for a disk: who has a record puts it into a ring of RING bytes, and that is all. A disk
 * that is full or broken is tried again every few seconds, and one line says so; meanwhile the ring
 * fills up, and what does not fit is left out and counted. One that hangs is the same, and is left
 * to itself at the end. A write that fails is cut back to the record before it. A file that
 * somebody deletes or cuts is followed by a new one.
 *
 * File: <folder>/events.out.tfevents.<seconds>.<host>.<process>.0; where the folder has one of that
 * second or a later one, the second after that: TensorBoard reads a folder's files in the order of
 * their names.
 * Owns:    the ring, the thread, the file.
 * Threads: put from any. Errors: ST_NOMEM, logged. */
#ifndef WORKER_EVENTS_EVENT_WRITER_H
#define WORKER_EVENTS_EVENT_WRITER_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { EVENT_WRITER_RING_BYTES = 4 << 20 };

struct event_writer_config {
    const char *folder;  /* copied; made, with those above it */
    int64_t retry_ms;    /* 0: 10 s */
    int64_t patience_ms; /* for what is not written at the end; 0: 5 s */
};

/* Makes a folder, and those above it: 0, or errno's value; nothing is logged. */
int event_writer_folder(const char *folder);

struct event_writer;
enum status event_writer_create(const struct event_writer_config *cfg, struct event_writer **out);
/* What goes before the next record, and, after the version, at the top of a file that follows one
 * that was lost: at most 128 bytes. */
void event_writer_session(struct event_writer *w, const void *record, size_t n);
/* One or more whole records, written together; their file has begun with its version. 0: there is
 * no room, and it is counted. */
int event_writer_put(struct event_writer *w, const void *records, size_t n);
/* Writes what there is, if it can be written, and says what was not. NULL is fine. */
void event_writer_destroy(struct event_writer *w);

#endif
