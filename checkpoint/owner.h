/* checkpoint/owner.h - checks whether the process that claimed a folder of checkpoints is alive, so
 * that a program does not claim the folder of a running job by mistake. A claim itself (folder.h)
 * does not check this: it fences the previous owner, which loses its steps since its last
 * checkpoint.
 *
 * A ps 0 is alive if a server answers at the address in its lease and reports the lease's
 * incarnation; it is gone if another process answers, or the caller has its address. A worker
 * without servers is alive while the file `worker-lock` is locked; the check locks it, shared, for
 * a moment. An owner that cannot be reached, hangs, or whose locks this host does not see counts as
 * gone, because a machine that is gone looks the same. The state is unknown, and the folder is
 * refused, if a program listens that does not identify itself (it refuses this caller, uses TLS or
 * another protocol, or is an older version), if a loopback address belongs to another machine, or
 * if the lock cannot be opened.
 *
 * Threads: any. A call waits until the owner's name is resolved, and then at most OWNER_ANSWER_MS
 *          for its answer.
 * Errors:  ST_REFUSED (the owner is alive, or its state is unknown), ST_BUSY (it is shutting down),
 *          ST_IO; logged. */
#ifndef CHECKPOINT_OWNER_H
#define CHECKPOINT_OWNER_H
#include "checkpoint/folder.h"
#include <stdbool.h>

#define OWNER_ALONE_PREFIX "worker-alone@" /* begins the address of a worker without servers */
#define OWNER_LOCK_NAME "worker-lock"      /* the file that such a worker keeps locked */
#define OWNER_REMEDY                                                                               \
    "stop its owner first, or use another folder; with --take_over this program claims the "       \
    "folder, and the owner loses its steps since its last checkpoint"
/* Deadline of the request; shorter than CONNECT_MS of net/rpc/channel.c. A process that hangs
 * accepts the connection and sends nothing: at CONNECT_MS gRPC reports an error that looks like an
 * answer. */
enum { OWNER_ANSWER_MS = 4000 };

/* Checks that the caller, which listens at this address (NULL: it has none), may claim the folder.
 * An owner with the caller's address is gone, since the caller has its port; if that is a loopback
 * address, the machine must be the same, too. If take_over is set, a living owner causes a warning
 * instead of an error. out: receives the lease of the owner that was checked, for the claim. */
enum status checkpoint_owner_check(const char *folder, const char *address, bool take_over,
                                   struct checkpoint_lease *out);

#endif
