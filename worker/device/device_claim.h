/* worker/device/device_claim.h - reservations of GPUs: of a card alone, or of a fraction of its
 * memory (--gpu_memory_fraction) beside others, as long as the fractions add up to no more than 1.
 *
 * A card's lock (device_lock.h) is taken alone for the whole card, shared for a fraction. Beside it
 * each claim has a file of its own, locked as long as its process lives, whose name says what is
 * claimed: "weir-gpu-KEY.use-PID-PARTS-HOW-NUMBER.lock", PARTS in millionths of the memory (0: no
 * limit), HOW "now" where it is taken at once and "cap" where it is a limit alone. Its owner on
 * disk is the claim's user, its time the claim's beginning: nothing is written into it. Who looks
 * at claims and finds one whose process is gone removes it, where it may. Claims of fractions are
 * added up under the lock "KEY.claim", so that two of the same moment do not both fit. Owns: what
 * struct device_claim says; released by device_claim_release or the process' end. Threads: none.
 * Errors: not logged, said in why[DEVICE_CLAIM_WHY_SIZE]: the caller may go on. */
#ifndef WORKER_DEVICE_DEVICE_CLAIM_H
#define WORKER_DEVICE_DEVICE_CLAIM_H
#include "base/status.h"
#include "worker/device/device_info.h"
#include "worker/device/process_info.h"

enum {
    DEVICE_CLAIM_PATH_SIZE = 512,
    DEVICE_CLAIM_WHY_SIZE = 1024,
    DEVICE_CLAIMS_MAX = 64,
    DEVICE_CLAIM_WHOLE = 1000000
};

/* What is wanted of a card. */
struct device_claim_request {
    int parts;   /* millionths of its memory; 0: no limit */
    int is_cap;  /* parts are not taken at once */
    int is_auto; /* caps are added up, too */
};

struct device_claim {
    int lock, mark; /* descriptors; -1: not reserved, no file of its own */
    char mark_path[DEVICE_CLAIM_PATH_SIZE];
};

/* A claim that somebody has. */
struct device_holder {
    int pid; /* 0: not told */
    struct process_info who;
    int parts, is_cap;
    int64_t since; /* seconds since 1970 */
};

struct device_holders {
    int n; /* DEVICE_CLAIMS_MAX at most */
    struct device_holder holder[DEVICE_CLAIMS_MAX];
};

/* ST_OK. ST_BUSY: another has it alone, or (want->parts 0) others share it; ST_REFUSED: the
 * fractions do not fit; ST_IO. Who else has it, in *others, whatever comes of it. */
enum status device_claim_acquire(const char *dir, const char *key,
                                 const struct device_claim_request *want, struct device_claim *out,
                                 struct device_holders *others, char *why);
/* Not reserved, but seen by others: of a card that its user named, which others have. */
void device_claim_mark(const char *dir, const char *key, const struct device_claim_request *want,
                       struct device_claim *out);
void device_claim_release(struct device_claim *c);
/* Who has claims on it now. */
enum status device_claim_list(const char *dir, const char *key, struct device_holders *out);
/* In millionths; 1e6 for all of it. */
int device_claim_parts(double fraction);

#endif
