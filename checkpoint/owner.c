/* checkpoint/owner.c - see owner.h. */
#include "checkpoint/owner.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "net/exchange/status_client.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <unistd.h>

/* Returns true while a worker without servers holds its lock. */
static bool is_locked(const char *folder)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, OWNER_LOCK_NAME) >= sizeof path)
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool is_held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return is_held;
}

/* Returns true if the server at the lease's address is the process that made the lease. A server
 * that refuses to answer this caller is running, and counts as that process. */
static bool answers(const struct ps_lease *lease)
{
    struct net_status s;
    char why[CONTROL_TEXT_BYTES];
    enum status st = net_status_ask(lease->address, 0, OWNER_ANSWER_MS, &s, why);
    if (st != ST_OK)
        return st == ST_REFUSED;
    bool is_owner = s.checkpoints.owner == lease->incarnation;
    net_status_free(&s);
    return is_owner;
}

enum status ps_owner_check(const char *folder, const char *address, bool take_over)
{
    struct ps_lease lease;
    enum status st = ps_folder_lease(folder, &lease);
    if (st != ST_OK || lease.epoch == 0 || !lease.address[0])
        return st;
    bool is_alone = strncmp(lease.address, OWNER_ALONE_PREFIX, strlen(OWNER_ALONE_PREFIX)) == 0;
    bool is_own = address && strcasecmp(lease.address, address) == 0;
    if (is_own || !(is_alone ? is_locked(folder) : answers(&lease)))
        return ST_OK;
    if (take_over) {
        LOG_W("--take_over: %s is taken from %s%s, which is running: it ends before its next "
              "checkpoint, and loses its steps since the last one",
              folder, is_alone ? "" : "ps:0 at ", lease.address);
        return ST_OK;
    }
    if (is_alone)
        LOG_E(
            "--checkpoint_dir: %s belongs to a running worker without servers (%s): " OWNER_REMEDY,
            folder, lease.address);
    else
        LOG_E("--checkpoint_dir: %s belongs to a running job, whose ps:0 answers at "
              "%s: " OWNER_REMEDY,
              folder, lease.address);
    return ST_REFUSED;
}
