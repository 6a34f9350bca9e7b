/* member/device_lock.h - reservations that the processes of all users of a machine see.
 *
 * A reservation is flock(2) on an empty file "weir-gpu-KEY.lock", with a GPU's UUID as KEY, in a
 * folder in which every user may create files but not remove files of other users (the sticky bit).
 * The kernel drops the lock at any exit of the process; the file stays and is reused. Files are
 * readable by all and are only opened for reading, which suffices for flock, so no data can be
 * written to them. A link, a pipe or a folder at the path is refused.
 *
 * If a file is removed while its lock is held (by a cleaner of /tmp), the next process creates and
 * locks a new file: then only the load of the GPU shows that the GPU is in use. Processes that do
 * not share the folder (containers) do not see each other's reservations.
 * Owns:    nothing; the caller owns the descriptor, which device_lock_release closes. Threads:
 *          any.
 * Errors:  ST_BUSY, ST_IO; not logged, but written to why[DEVICE_WHY_SIZE]: the caller may
 *          continue. */
#ifndef MEMBER_DEVICE_LOCK_H
#define MEMBER_DEVICE_LOCK_H
#include "base/status.h"
#include <stddef.h>

enum { DEVICE_WHY_SIZE = 384 };

/* Returns /run/lock if every user may write there, otherwise /tmp. */
const char *device_lock_default_dir(void);
/* Acquires an exclusive lock, without waiting. */
enum status device_lock_acquire(const char *dir, const char *key, int *fd, char *why);
/* Acquires a shared lock, without waiting. */
enum status device_lock_acquire_shared(const char *dir, const char *key, int *fd, char *why);
/* Acquires an exclusive lock, and waits for it up to `ms`. Only for locks that are held for
 * moments. */
enum status device_lock_wait(const char *dir, const char *key, int ms, int *fd);
void device_lock_release(int fd); /* -1 is fine */
/* Writes the path of a key's file. Returns 0 if the path is longer than `size`. */
int device_lock_path(const char *dir, const char *key, char *out, size_t size);
struct stat;
/* Returns the process that holds the lock on this file; 0: unknown (it may be in another
 * container). */
int device_lock_holder(const struct stat *s);

#endif
