/* files/durable.h - files that are there whole or not at all, whenever the process or the machine
 * stops: written under another name in the same folder, synced, renamed, the folder synced. The
 * file is the one that a symbolic link leads to; what is there and is no regular file (a device, a
 * FIFO, /dev/stdout) is written to as it is.
 * Owns:    its temporary file, which goes away unless it is committed; 1 MB of memory meanwhile.
 * Threads: an object belongs to one.
 * Errors:  ST_IO, ST_FULL, ST_NOMEM, logged with the path and errno's text. */
#ifndef FILES_DURABLE_H
#define FILES_DURABLE_H
#include "base/status.h"
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct durable {
    int fd;      /* -1: nothing is open */
    int made;    /* the temporary file is there */
    void *block; /* what is not written yet */
    size_t filled;
    int in_place;   /* no regular file: nothing is renamed */
    int direct;     /* past the page cache */
    uint64_t bytes; /* given so far */
    char path[PATH_MAX], temporary[PATH_MAX];
};

/* On failure there is nothing to end. A folder is refused; a FIFO waits for its reader. */
enum status durable_begin(struct durable *f, const char *path);
/* 0: a file can be begun there, as one was, and is gone again; else errno's value. What is written
 * to as it is is not opened: its reader would take that for the whole. Nothing is logged. */
int durable_try(const char *path);
enum status durable_write(struct durable *f, const void *data, size_t bytes);
/* Afterwards the file stands under its own name, in the place of an older one. */
enum status durable_commit(struct durable *f);
/* After begin, whatever came of the rest; without a commit the temporary file is removed. */
void durable_end(struct durable *f);

/* A small file in one call. */
enum status durable_put(const char *path, const void *data, size_t bytes);
/* A small file that must not be there yet: of several processes that make it at the same time one
 * succeeds, with all of its bytes. A temporary file that another process removes is made again.
 * ST_BUSY (not logged): it is there. Where the file system has no
 * links, readers may find it empty for a moment, or for good after a crash. */
enum status durable_put_new(const char *path, const void *data, size_t bytes);
/* Syncs the folder in which this name was created, changed or removed. */
enum status durable_sync_name(const char *path);
/* Both for good, both for one process alone: ST_NOT_FOUND (not logged) where another was first. */
enum status durable_rename(const char *from, const char *to);
enum status durable_take_away(const char *path);
/* Takes the file away, for good; one that is not there is fine. */
enum status durable_remove(const char *path);

#endif
