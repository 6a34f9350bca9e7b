/* worker/events/event_writer.h - a run's event file, written by a thread of its own, so that no
 * other thread waits for a disk. A caller puts a record into a ring of RING bytes and returns. If
 * the disk is full or broken, the thread retries every few seconds and logs one line. Until a retry
 * succeeds, the ring fills; records that do not fit are dropped and counted. A disk that hangs has
 * the same effect, and at the end the hanging thread is abandoned. After a failed write the file is
 * truncated after its last complete record. If the file was deleted or cut, a new file is begun.
 *
 * File: <folder>/events.out.tfevents.<seconds>.<host>.<process>.0. If the folder has a file whose
 * name contains the same or a later second, the new name contains the second after the latest one,
 * because TensorBoard reads the files of a folder in the order of their names.
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
    const char *folder;  /* path of the folder, copied; the folder is created, with its parents */
    int64_t retry_ms;    /* interval between attempts after a failed write; 0: 10 s */
    int64_t patience_ms; /* time to write the remaining records at the end; 0: 5 s */
};

/* Creates a folder and its parents. Returns 0, or errno's value; logs nothing. */
int event_writer_folder(const char *folder);

struct event_writer;
enum status event_writer_create(const struct event_writer_config *cfg, struct event_writer **out);
/* Sets the record, of at most 128 bytes, that begins a TensorBoard session. It is written before
 * the next record, and again after the version in each file that replaces a lost one. */
void event_writer_session(struct event_writer *w, const void *record, size_t n);
/* Puts one or more complete records, which are written together. Returns false, and counts the
 * records as dropped, if they do not fit. */
bool event_writer_put(struct event_writer *w, const void *records, size_t n);
/* Writes the remaining records if possible, and logs how many are lost. NULL is fine. */
void event_writer_destroy(struct event_writer *w);

#endif
