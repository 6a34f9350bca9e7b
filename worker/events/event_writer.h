/* worker/events/event_writer.h - a run's event file, written by a thread of its own, so that no
 * other thread waits for a disk. A caller puts a record into a ring of RING bytes and returns. If
 * the disk is full or broken, the thread retries every few seconds and logs one line; in the
 * meantime the ring fills, and records that do not fit are dropped and counted. A disk that hangs
 * has the same effect, and its thread is abandoned at the end. A failed write is cut back to the
 * last whole record. A file that was deleted or cut is followed by a new one.
 *
 * File: <folder>/events.out.tfevents.<seconds>.<host>.<process>.0. If the folder has a file of that
 * second or a later one, the name gets the second after that: TensorBoard reads a folder's files in
 * the order of their names.
 * Owns:    the ring, the thread, the file.
 * Threads: put from any. Errors: ST_NOMEM, logged. */
#ifndef WORKER_EVENTS_EVENT_WRITER_H
#define WORKER_EVENTS_EVENT_WRITER_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EVENT_WRITER_RING_BYTES = 4 << 20 };

struct event_writer_config {
    const char *folder;  /* copied; created, with its parents */
    int64_t retry_ms;    /* 0: 10 s */
    int64_t patience_ms; /* time to write the remaining records at the end; 0: 5 s */
};

/* Creates a folder and its parents. Returns 0, or errno's value; logs nothing. */
int event_writer_folder(const char *folder);

struct event_writer;
enum status event_writer_create(const struct event_writer_config *cfg, struct event_writer **out);
/* Sets the record that is written before the next one, and at the top of a file that replaces a
 * lost one, behind the version: at most 128 bytes. */
void event_writer_session(struct event_writer *w, const void *record, size_t n);
/* Puts one or more whole records, which are written together. Returns false if there is no room;
 * that is counted. */
bool event_writer_put(struct event_writer *w, const void *records, size_t n);
/* Writes the remaining records if possible, and logs those that are lost. NULL is fine. */
void event_writer_destroy(struct event_writer *w);

#endif
