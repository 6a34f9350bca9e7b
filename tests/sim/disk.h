/* tests/sim/disk.h - the file system of a schedule: one folder, SIM_FOLDER, that all servers share,
 * under the system calls that production code makes (--wrap). The code of checkpoint/ and files/
 * runs on it as it is. A call is slow, hangs or fails by the faults of the calling node. If a host
 * is lost, the data that its process has not synced is lost, too. A rename that is under way when
 * its process is killed may be carried out later, as by a file server.
 * Owns:    the files, for the run.
 * Threads: fibers of one thread.
 * Errors:  errno, as the calls set it. */
#ifndef TESTS_SIM_DISK_H
#define TESTS_SIM_DISK_H
#include "tests/sim/sim.h"

#define SIM_FOLDER "/job"

void disk_reset(void);
/* Truncates the files that the node wrote last to their synced length: its host is lost. */
void disk_lose_unsynced(int node);
/* Removes the folder and all its files. */
void disk_lose_folder(void);
int disk_n_losses(void); /* number of calls of disk_lose_folder in this run */
struct disk_rename;
/* Returns the bytes of a file in the folder, or NULL. The call is instantaneous. */
const char *disk_peek(const char *name, size_t *bytes);
/* Carries out a rename of a killed process. */
void disk_rename_late(const struct disk_rename *r);
/* Returns the next name in the folder; NULL after the last. *at begins at 0. */
const char *disk_next_name(int *at);

#endif
