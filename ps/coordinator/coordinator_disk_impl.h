/* ps/coordinator/coordinator_disk_impl.h - shared by coordinator_disk.c (the thread and its
 * orders) and coordinator_find.c (the search for a checkpoint). Private to them. */
#ifndef PS_COORDINATOR_COORDINATOR_DISK_IMPL_H
#define PS_COORDINATOR_COORDINATOR_DISK_IMPL_H
#include "checkpoint/folder.h"
#include "ps/coordinator/coordinator_shell_impl.h"

/* State of the disk's thread. Other threads use only the fields that `lock` guards. */
struct coordinator_disk {
    /* shell that receives the results; NULL once it is destroyed: then results are dropped; the
     * shell's lock guards this field */
    struct coordinator_shell *l;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int n, stopping, busy;
    struct coordinator_disk_request order[COORDINATOR_DISK_ORDERS];
    char *servers;         /* newest list of servers that is not recorded yet; NULL: none */
    int64_t servers_at_ns; /* time at which the list is to be recorded, before any order */
    int servers_failed;    /* recording this list has failed before */
    int records;           /* a list is being recorded */
    const char *folder, *restore_path, *address;
    char folder_id[FOLDER_ID_BYTES];
    int keep;
    enum status failed;      /* result of the last search if it found no usable checkpoint */
    uint64_t failed_version; /* version of the list of folders in that search */
    int64_t failed_until_ns; /* time until which that search is not repeated; 0: none */
    uint64_t incarnation, first_epoch;
    struct checkpoint_lease looked_at; /* lease of the owner that was checked at the start */
    struct checkpoint_lease lease;
};

/* Posts the result of an order to the coordinator, if that still exists. A search passes `name`
 * and `found` (NULL: no checkpoint), which this function then owns; otherwise name is NULL. */
void coordinator_disk_post(struct coordinator_disk *d, const struct coordinator_mail *m,
                           struct checkpoint_restore *found, const char *name);
/* Searches for the checkpoint that a first job can resume from. */
void coordinator_find_first(struct coordinator_disk *d, struct coordinator_disk_request *o);
/* Searches for the checkpoint that the next generation resumes from, as the order requires. */
void coordinator_find_next(struct coordinator_disk *d, struct coordinator_disk_request *o);

#endif
