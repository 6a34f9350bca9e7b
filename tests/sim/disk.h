/* tests/sim/disk.h - the file system of a schedule: one folder, SIM_FOLDER, that all servers share,
 * under the system calls that production code makes (--wrap). The code of checkpoint/ and files/
 * runs on it as it is. A call takes time, hangs, or fails as the faults of the calling node say.
 * What a process has not synced is lost when its host is. A rename that is under way when its
 * process is killed may be carried out up to a second later, as by a file server.
 * Owns:    the files, for the run.
 * Threads: fibers, of one.
 * Errors:  errno, as the calls have it. */
#ifndef TESTS_SIM_DISK_H
#define TESTS_SIM_DISK_H
#include "tests/sim/sim.h"

#define SIM_FOLDER "/job"

void disk_reset(void);
/* The host of the node is gone: truncates its files to what was synced. */
void disk_lose_unsynced(int node);
/* Removes all that is in the folder. */
void disk_lose_folder(void);
int disk_was_lost(void); /* true once disk_lose_folder() was called in this run */
/* Carries out a rename of a killed process. */
struct disk_rename;
void disk_rename_late(const struct disk_rename *r);
/* Returns the names in the folder, one after the other; NULL after the last. *at begins at 0. */
const char *disk_next_name(int *at);

#endif
