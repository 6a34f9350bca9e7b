/* checkpoint/owner.c - see owner.h. */
#include "checkpoint/owner.h"
#include "base/hosts.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "net/exchange/status_client.h"
#include "net/rpc/reach.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <unistd.h>

enum owner_state { OWNER_GONE, OWNER_ALIVE, OWNER_ENDING, OWNER_UNKNOWN };

/* Returns the state of an owner that is a worker without servers: it is alive while it holds its
 * lock. On a file system without locks the worker counts as gone. */
static enum owner_state look_at_lock(const char *folder, char why[CONTROL_TEXT_BYTES])
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, OWNER_LOCK_NAME) >= sizeof path)
        return OWNER_GONE;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return OWNER_GONE;
    if (fd < 0) {
        snprintf(why, CONTROL_TEXT_BYTES, "its lock, %s in that folder, cannot be opened: %s",
                 OWNER_LOCK_NAME, status_errno_text(errno));
        return OWNER_UNKNOWN;
    }
    bool is_held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return is_held ? OWNER_ALIVE : OWNER_GONE;
}

/* Returns true if the lease's address is a loopback address of another machine. */
static bool is_elsewhere(const struct checkpoint_lease *lease)
{
    char host[LEASE_HOST_BYTES];
    checkpoint_folder_host(host);
    return lease->host[0] && hosts_is_loopback(lease->address) && strcmp(lease->host, host) != 0;
}

/* Requests the status at the lease's address. The owner is alive only if the answer has the lease's
 * incarnation, and is gone if another ps answers. If no program listens or answers in time, the
 * owner counts as gone, since its machine may be gone. */
static enum owner_state ask_server(const struct checkpoint_lease *lease,
                                   char why[CONTROL_TEXT_BYTES])
{
    struct net_status s;
    int64_t resolve_ms = reach_resolve_ms(lease->address);
    if (resolve_ms < 0) {
        snprintf(why, CONTROL_TEXT_BYTES, "no name server answers for its name");
        return OWNER_UNKNOWN;
    }
    enum status st = status_client_ask(lease->address, 0, OWNER_ANSWER_MS + resolve_ms, &s, why);
    if (st == ST_DEADLINE)
        return OWNER_GONE;
    if (st != ST_OK)
        return st == ST_UNAVAILABLE && !reach_is_listening(lease->address, OWNER_ANSWER_MS)
                   ? OWNER_GONE
                   : OWNER_UNKNOWN;
    uint64_t owner = s.checkpoints.owner;
    bool has_folder = s.checkpoints.folder[0], is_ending = s.checkpoints.is_ending;
    net_status_free(&s);
    snprintf(why, CONTROL_TEXT_BYTES, "the ps:0 there does not report which process it is");
    if (owner == 0 && has_folder)
        return OWNER_UNKNOWN;
    return owner != lease->incarnation ? OWNER_GONE : is_ending ? OWNER_ENDING : OWNER_ALIVE;
}

static enum owner_state look_at_server(const struct checkpoint_lease *lease, const char *address,
                                       char why[CONTROL_TEXT_BYTES])
{
    snprintf(why, CONTROL_TEXT_BYTES, "this address belongs to the machine %s, not to this one",
             lease->host);
    if (is_elsewhere(lease))
        return OWNER_UNKNOWN;
    bool is_own = address && strcasecmp(lease->address, address) == 0;
    return is_own ? OWNER_GONE : ask_server(lease, why);
}

static void log_claimed(const char *folder, const struct checkpoint_lease *lease, const char *ps0,
                        enum owner_state state, const char *why)
{
    if (state != OWNER_UNKNOWN)
        LOG_W(
            "--take_over: %s is claimed from %s%s, which is running: it ends before its next checkpoint, and loses its steps since the last one",
            folder, ps0, lease->address);
    else
        LOG_W(
            "--take_over: %s is claimed from %s%s. It is unknown whether that process is running (%s): if so, it ends before its next checkpoint, and loses its steps since the last one",
            folder, ps0, lease->address, why);
}

static void log_refused(const char *folder, const struct checkpoint_lease *lease, bool is_alone,
                        enum owner_state state, const char *why)
{
    if (state == OWNER_UNKNOWN)
        LOG_E(
            "--checkpoint_dir: %s belongs to %s%s, and it is unknown whether that process is running (%s). If it is not, start this program once with --take_over; otherwise " OWNER_REMEDY,
            folder, is_alone ? "" : "ps:0 at ", lease->address, why);
    else if (state == OWNER_ENDING)
        LOG_E(
            "--checkpoint_dir: %s belongs to a job whose ps:0, at %s, is shutting down: start this program again when it has ended",
            folder, lease->address);
    else if (is_alone)
        LOG_E(
            "--checkpoint_dir: %s belongs to a running worker without servers (%s): " OWNER_REMEDY,
            folder, lease->address);
    else
        LOG_E(
            "--checkpoint_dir: %s belongs to a running job, whose ps:0 answers at %s: " OWNER_REMEDY,
            folder, lease->address);
}

enum status checkpoint_owner_check(const char *folder, const char *address, bool take_over,
                                   struct checkpoint_lease *out)
{
    struct checkpoint_lease lease = {0};
    char why[CONTROL_TEXT_BYTES] = "";
    enum status st = checkpoint_folder_lease(folder, &lease);
    *out = lease;
    if (st != ST_OK || lease.epoch == 0 || !lease.address[0])
        return st;
    bool is_alone = strncmp(lease.address, OWNER_ALONE_PREFIX, strlen(OWNER_ALONE_PREFIX)) == 0;
    enum owner_state state =
        is_alone ? look_at_lock(folder, why) : look_at_server(&lease, address, why);
    if (state == OWNER_GONE)
        return ST_OK;
    if (take_over)
        log_claimed(folder, &lease, is_alone ? "" : "ps:0 at ", state, why);
    else
        log_refused(folder, &lease, is_alone, state, why);
    return take_over ? ST_OK : state == OWNER_ENDING ? ST_BUSY : ST_REFUSED;
}
