/* worker/device/devices.h - chooses and reserves the GPUs that this process trains on (--gpus).
 *
 *     auto, auto:N   one GPU, or up to N, that are idle: no process computes on it, its utilisation
 *                    is low (if it is high without a process, it is measured twice), and no other
 *                    Weir process has reserved it. Fewer or none are no error. If the user named
 *                    the GPUs in CUDA_VISIBLE_DEVICES and too few are idle, busy ones are used,
 *                    too, with a warning that names their users. If `named` is set, auto without
 *                    a number chooses those, if they are free
 *     all            each GPU that CUDA shows; an error without a GPU
 *     none           no GPU
 *     0,2            CUDA's numbers, by CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER
 *     GPU-8932f937   a UUID or the beginning of one, also MIG-...; an error if it does not exist
 *
 * If memory_fraction is set, that part of a GPU is reserved, beside the parts of other processes.
 * auto prefers an idle GPU, then one where the part fits; on a named GPU it is an error if it does
 * not fit. auto reserves before it measures, so two processes never choose the same GPU, not even
 * simultaneously. A GPU named by its user is used even if another process reserved it, with a
 * warning.
 * Owns:    the reservations in struct devices, until devices_release or the process's exit.
 * Threads: none; call before other threads start (umask).
 * Errors:  ST_INVALID, ST_NOT_FOUND, ST_BUSY, ST_CANCELLED (by pause); logged, but for the last. */
#ifndef WORKER_DEVICE_DEVICES_H
#define WORKER_DEVICE_DEVICES_H
#include "base/status.h"
#include "worker/device/device_claim.h"

struct devices_request {
    const char *gpus;
    bool is_default;  /* no flag asked for a GPU: a missing driver is not logged */
    int wait_seconds; /* auto: wait this long for the requested number; 0: no waiting */
    const char *lock_dir;
    double memory_fraction; /* share of each GPU's memory for this process; 0: no limit */
    int allow_growth;       /* the fraction is only a limit, and not allocated at once */
    /* [DEVICE_MAX] auto without a number: the GPUs, by CUDA's numbers, that the placement names,
     * instead of the first free one. NULL: none. */
    const uint8_t *named;
    /* Sleeps; returns 1 to abandon the wait. NULL: sleeps without a check. */
    int (*pause)(void *ctx, int ms);
    void *ctx;
};

struct devices {
    int n;
    struct device_info gpu[DEVICE_MAX];
    struct device_claim claim[DEVICE_MAX];
    int by_number; /* GPUs are the free ones of request.named: the placement has CUDA's numbers */
};

/* Checks only the syntax. */
enum status devices_check(const char *gpus, int wait_seconds);
/* Returns true if `gpus` (a valid text) allows to use the CPU when there is no GPU. */
bool devices_may_be_none(const char *gpus);
/* Chooses. n = 0 with ST_OK: the CPU; the reason is logged. */
enum status devices_choose(const struct devices_request *request, struct devices *out);
void devices_release(struct devices *d);

struct device_scan;
/* Returns true if auto would choose s->gpu[i] now; otherwise why[DEVICE_CLAIM_WHY_SIZE] has the
 * reason. */
bool devices_auto_accepts(const struct devices_request *r, const struct device_scan *s, int i,
                          char *why);
/* Finds the entries of s->gpu without reserving them: all for all and auto (none is no error for
 * auto), none, or the listed ones. chosen[DEVICE_MAX]. */
enum status devices_find(const char *gpus, const struct device_scan *s, int *chosen, int *n);

#endif
