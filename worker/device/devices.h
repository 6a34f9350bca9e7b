/* worker/device/devices.h - chooses and reserves the GPUs that this process trains on (--gpus).
 *
 *     auto, auto:N   one idle GPU, or up to N: no process computes on it, its utilisation is low
 *                    (if it is high without a process, it is measured twice), and no other Weir
 *                    process has reserved it. It is no error if fewer or none are idle. If the
 *                    user named the GPUs in CUDA_VISIBLE_DEVICES and too few are idle, auto also
 *                    chooses busy ones, with a warning that names their users. If `named` is
 *                    set, auto without a number chooses the GPUs in `named` that are free
 *     all            each GPU that CUDA shows; an error without a GPU
 *     none           no GPU
 *     0,2            CUDA's numbers, which depend on CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER
 *     GPU-8932f937   a UUID or the beginning of one, also MIG-...; an error if it does not exist
 *
 * If memory_fraction is set, this process reserves that fraction of a GPU's memory, and other
 * processes may reserve other fractions of it. auto prefers an idle GPU, then a GPU on which enough
 * memory is not reserved. If a named GPU has not enough memory left, this is an error. auto
 * reserves a GPU before it measures the load, so two processes never choose the same GPU, not even
 * simultaneously. A GPU that the user names is used even if another process has reserved it, with a
 * warning.
 * Owns:    the reservations in struct devices, until devices_release or the process's exit.
 * Threads: only the main thread.
 * Errors:  ST_INVALID, ST_NOT_FOUND, ST_BUSY, ST_CANCELLED (by pause); logged, except for the
 *          last. */
#ifndef WORKER_DEVICE_DEVICES_H
#define WORKER_DEVICE_DEVICES_H
#include "base/status.h"
#include "member/device_claim.h"
#include "worker/device/device_info.h"

struct devices_request {
    const char *gpus;
    bool is_default;  /* no flag requests a GPU: a missing driver is not logged */
    int wait_seconds; /* auto: wait this long until the requested number is idle; 0: no waiting */
    const char *lock_dir;
    double memory_fraction; /* fraction of each GPU's memory for this process; 0: no limit */
    int allow_growth;       /* the fraction is only a limit, not allocated at once */
    /* [DEVICE_MAX] by CUDA's numbers: GPUs that the placement names. auto without a number chooses
     * these instead of the first free GPU. NULL: none. */
    const uint8_t *named;
    /* Sleeps; returns 1 to end the wait. NULL: the wait cannot be ended. */
    int (*pause)(void *ctx, int ms);
    void *ctx;
};

struct devices {
    int n;
    struct device_info gpu[DEVICE_MAX];
    struct device_claim claim[DEVICE_MAX];
    int by_number; /* GPUs were chosen from request.named, so the placement uses CUDA's numbers */
};

/* Checks only the syntax of `gpus`, and wait_seconds. */
enum status devices_check(const char *gpus, int wait_seconds);
/* Returns true if `gpus` (a valid text) permits the use of the CPU when there is no GPU. */
bool devices_may_be_none(const char *gpus);
/* Chooses and reserves GPUs. ST_OK with n = 0: the CPU is used; the reason is logged. */
enum status devices_choose(const struct devices_request *request, struct devices *out);
void devices_release(struct devices *d);

struct device_scan;
/* Returns true if auto would choose s->gpu[i] now; otherwise why[DEVICE_CLAIM_WHY_SIZE] contains
 * the reason. */
bool devices_auto_accepts(const struct devices_request *r, const struct device_scan *s, int i,
                          char *why);
/* Finds the GPUs that `gpus` may mean, as indices in s->gpu, without reserving them: every GPU for
 * "all" and "auto" (for "auto" there may be none), no GPU for "none", otherwise the listed GPUs.
 * chosen: [DEVICE_MAX]. */
enum status devices_find(const char *gpus, const struct device_scan *s, int *chosen, int *n);

#endif
