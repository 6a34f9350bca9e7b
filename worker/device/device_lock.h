/* worker/device/device_lock.h - reservations that all processes of a machine, whoever's they are,
 * see.
 *
 * A reservation is flock(2) on an empty file "weir-gpu-KEY.lock", KEY being a GPU's UUID, in a
 * folder where every user may make files and none may remove another's (the sticky bit). The kernel
 * drops it when the process ends, however it ends; the file stays and is used again. Files are made
 * readable for all and are only ever opened for reading: that is enough for flock, and nothing can
 * be written to them. A link, a pipe or a folder at a file's place is refused, not followed.
 *
 * If a file is removed while its lock is held (a cleaner of /tmp), the next process makes and locks
 * a new one: then only the load of the card tells that it is taken.
 * Processes that do not share the folder (containers) do not see each other's reservations.
 * Owns:    nothing; the descriptor is the caller's, closed by device_lock_release.
 * Threads: none; the umask is changed for a moment.
 * Errors:  ST_BUSY, ST_IO; not logged, said in why[DEVICE_WHY_SIZE]: the caller may go on. */
#ifndef WORKER_DEVICE_DEVICE_LOCK_H
#define WORKER_DEVICE_DEVICE_LOCK_H
#include "base/status.h"
#include "worker/device/device_info.h"

/* /run/lock where every user may write there, else /tmp. */
const char *device_lock_default_dir(void);
/* Does not wait. */
enum status device_lock_acquire(const char *dir, const char *key, int *fd, char *why);
/* Beside others who share it, but not beside one who took it alone. */
enum status device_lock_acquire_shared(const char *dir, const char *key, int *fd, char *why);
/* Waits up to `ms`. For locks that are held for moments only. */
enum status device_lock_wait(const char *dir, const char *key, int ms, int *fd);
void device_lock_release(int fd); /* -1 is fine */
/* Where a key's file lies; 0: the path is longer than `size`. */
int device_lock_path(const char *dir, const char *key, char *out, size_t size);
struct stat;
/* The process that holds the lock on this file; 0: not told (it may be in another container). */
int device_lock_holder(const struct stat *s);

#endif
