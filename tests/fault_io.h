/* tests/fault_io.h - simulates files that fail, and machines that stop, at a chosen system call.
 * Programs that use it are linked with --wrap for open, write, fsync, close, rename, link, unlink
 * and mkdir (CMakeLists.txt). Calls that create, change, sync or name something below the watched
 * folder are counted; all other calls are unchanged. One thread at a time. */
#ifndef TESTS_FAULT_IO_H
#define TESTS_FAULT_IO_H

enum fault_kind {
    FAULT_NONE,    /* count only */
    FAULT_FULL,    /* writes fail from this call on, all other calls work */
    FAULT_PAUSED,  /* the process stops itself before the call (SIGSTOP) */
    FAULT_ERROR,   /* the call fails with `err`; a write does half its work first */
    FAULT_ERRORS,  /* this call and all later ones fail */
    FAULT_KILLED,  /* the process dies at the call, half way through a write */
    FAULT_POWER,   /* a power failure: bytes and names that were not synced are lost */
    FAULT_POWER_2, /* a power failure that keeps names even if they were not synced */
};

/* Starts to count from 1, and chooses call number `at` for the fault; 0: no call. The folder is
 * borrowed. */
void fault_io_set(const char *folder, enum fault_kind kind, int at, int err);
int fault_io_count(void); /* calls since fault_io_set */
/* Simulates a power failure now: never returns; the process's exit status is FAULT_EXIT. */
void fault_io_stop(void) __attribute__((noreturn));
enum { FAULT_EXIT = 77 };

#endif
