/* member/device_claim.h - reservations of GPUs by workers and by programs with libweir: of a whole
 * GPU, or of a fraction of its memory beside other processes. The fractions of a GPU add up to at
 * most 1.
 *
 * A process locks the GPU's file (device_lock.h): exclusively for the whole GPU, shared for a
 * fraction. In addition each claim has a file of its own, which is locked while the claim's process
 * lives and has the claim in its name: "weir-gpu-KEY.use-PID-PARTS-HOW-NUMBER.lock". PARTS is in
 * millionths of the memory (0: no limit); HOW is "now" if the memory is allocated at once, "cap" if
 * it is only a limit. The file's owner is the claim's user, and its time is that of the claim; the
 * file is empty. A process that reads the claims removes the files of ended processes, if it has
 * the permission. Claims of fractions are added up under the lock "KEY.claim", so that of two
 * simultaneous claims both fit or one fails.
 * Owns:    the fields of struct device_claim; released by device_claim_release or the process's
 *          exit. Threads: any, one at a time for a struct.
 * Errors:  not logged, but written to why[DEVICE_CLAIM_WHY_SIZE]: the caller may continue. */
#ifndef MEMBER_DEVICE_CLAIM_H
#define MEMBER_DEVICE_CLAIM_H
#include "base/status.h"
#include "member/process_info.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    DEVICE_CLAIM_PATH_SIZE = 512,
    DEVICE_CLAIM_WHY_SIZE = 1024,
    DEVICE_CLAIMS_MAX = 64,
    DEVICE_CLAIM_WHOLE = 1000000
};

/* A request for a GPU. */
struct device_claim_request {
    int parts;    /* share of the GPU's memory in millionths; 0: no limit */
    bool is_cap;  /* the memory is only limited to `parts`, not allocated at once */
    bool is_auto; /* all claims count in the sum of the fractions, also those with is_cap */
};

struct device_claim {
    int lock, mark; /* descriptors of the GPU's file and the claim file; -1: none */
    char mark_path[DEVICE_CLAIM_PATH_SIZE];
};

/* A claim of a process. */
struct device_holder {
    int pid; /* 0: unknown */
    struct process_info who;
    int parts, is_cap;
    int64_t since; /* time of the claim in seconds since 1970 */
};

struct device_holders {
    int n; /* number of holders, at most DEVICE_CLAIMS_MAX */
    struct device_holder holder[DEVICE_CLAIMS_MAX];
};

/* Claims a GPU. ST_BUSY: another process has the whole GPU, or, if want->parts is 0, any part of
 * it; ST_REFUSED: the fractions do not fit; ST_IO. *others receives the other claims, also after an
 * error. */
enum status device_claim_acquire(const char *dir, const char *key,
                                 const struct device_claim_request *want, struct device_claim *out,
                                 struct device_holders *others, char *why);
/* Writes a claim file without a reservation, for a GPU that the user named although other processes
 * have reserved it. */
void device_claim_mark(const char *dir, const char *key, const struct device_claim_request *want,
                       struct device_claim *out);
void device_claim_release(struct device_claim *c);
/* Lists the current claims. */
enum status device_claim_list(const char *dir, const char *key, struct device_holders *out);
/* Returns the fraction in millionths; 1e6: the whole GPU. */
int device_claim_parts(double fraction);

#endif
