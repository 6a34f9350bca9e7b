/* files/durable.h - writes files that either exist completely or not at all, even if the process or
 * the machine stops. The data are written to a temporary file in the same folder and synced; then
 * the file is renamed and its folder synced. Symbolic links are followed. A device, a FIFO or
 * /dev/stdout is "in place": it is written to directly, since it cannot be replaced.
 * Owns:    its temporary file, which is removed unless it is committed; 1 MB until durable_end.
 * Threads: an object belongs to one thread.
 * Errors:  ST_IO, ST_FULL, ST_NOMEM, logged with the path and errno's text. */
#ifndef FILES_DURABLE_H
#define FILES_DURABLE_H
#include "base/status.h"
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct durable {
    int fd;      /* -1: nothing is open */
    int made;    /* the temporary file exists */
    void *block; /* bytes that are not written yet */
    size_t filled;
    int in_place;   /* not a regular file: nothing is renamed */
    int direct;     /* writes bypass the page cache */
    uint64_t bytes; /* number of bytes that durable_write has received so far */
    char path[PATH_MAX], temporary[PATH_MAX];
};

/* Opens the temporary file. After a failure the caller need not call durable_end. A folder is
 * refused; opening a FIFO waits for its reader. */
enum status durable_begin(struct durable *f, const char *path);
/* Creates a temporary file for `path`, and removes it, to check that this is possible. Returns 0 or
 * errno's value, and logs nothing. A file in place is not opened, since its reader would see an
 * empty file. */
int durable_try(const char *path);
enum status durable_write(struct durable *f, const void *data, size_t bytes);
/* Replaces the first bytes of the file, which durable_write has written. Only durable_commit may
 * follow. Must not be called for a file in place. */
enum status durable_rewrite(struct durable *f, const void *data, size_t bytes);
/* Syncs the file and renames it to its own name, replacing an older file. */
enum status durable_commit(struct durable *f);
/* Must be called after each durable_begin that succeeded. Removes the temporary file unless it was
 * committed. */
void durable_end(struct durable *f);

/* Writes a small file in one call. */
enum status durable_put(const char *path, const void *data, size_t bytes);
/* Writes a small file that must not exist yet. If several processes write it at the same time,
 * exactly one succeeds, with all of its bytes. A temporary file that another process removes is
 * written again. ST_BUSY (not logged): the file exists. On a file system without hard links,
 * readers may find the file empty for a moment, or for good after a crash. */
enum status durable_put_new(const char *path, const void *data, size_t bytes);
/* Syncs the folder in which this name was created, changed or removed. */
enum status durable_sync_name(const char *path);
/* Renames the file and syncs the folder. If several processes rename it, one succeeds; the calls
 * of the other processes return ST_NOT_FOUND (not logged). */
enum status durable_rename(const char *from, const char *to);
enum status durable_take_away(const char *path);
/* Removes the file and syncs the folder. A missing file is no error. */
enum status durable_remove(const char *path);

#endif
