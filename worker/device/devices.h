/* worker/device/devices.h - which GPUs this process trains on (--gpus), reserved for it.
 *
 *     auto, auto:N   one GPU, or up to N, that nobody uses: no process computes on it, it is not
 *                    busy (a card that is so without a process is looked at twice), and no other
 *                    Weir has reserved it. Fewer or none are no error. Where
 *                    CUDA_VISIBLE_DEVICES names the cards they are its user's choice: if too few
 *                    are free, others of them are used, too, with a warning that says who is there
 *                    With `named` auto alone takes those, if they are free
 *     all            each GPU that CUDA shows; an error if there is none
 *     none           no GPU
 *     0,2            CUDA's numbers, as CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER make them
 *     GPU-8932f937   a UUID or the beginning of one; MIG-... likewise; an error if it is not there
 *
 * With memory_fraction that part of a card is reserved, beside others who reserved parts: auto
 * takes a card that nobody uses first, then one where it fits beside them; on a named card it is an
 * error if it does not fit. auto reserves before it measures, so two processes never choose the
 * same card, not even in the same moment. What was named by its user is used even if another
 * reserved it, with a warning. Owns:    the reservations in struct devices, until devices_release
 * or the process' end. Threads: none; call before other threads start (umask). Errors:  ST_INVALID,
 * ST_NOT_FOUND, ST_BUSY, ST_CANCELLED (by pause); logged, but for the last. */
#ifndef WORKER_DEVICE_DEVICES_H
#define WORKER_DEVICE_DEVICES_H
#include "base/status.h"
#include "worker/device/device_claim.h"

struct devices_request {
    const char *gpus;
    int is_default;   /* no flag asked for a GPU: a machine without a driver is no news */
    int wait_seconds; /* auto: until there are as many as asked for; 0: no waiting */
    const char *lock_dir;
    double memory_fraction; /* of each card, for this process; 0: no limit */
    int allow_growth;       /* it is a limit alone, and not taken at once */
    /* [DEVICE_MAX] auto without a number: the GPUs, by CUDA's numbers, that placement names,
     * instead of the first that is free. NULL: none. */
    const uint8_t *named;
    /* Sleeps; returns 1 to give up. NULL: just sleeps. */
    int (*pause)(void *ctx, int ms);
    void *ctx;
};

struct devices {
    int n;
    struct device_info gpu[DEVICE_MAX];
    struct device_claim claim[DEVICE_MAX];
    int by_number; /* those of request.named that were free: placement means CUDA's numbers */
};

/* The form alone. */
enum status devices_check(const char *gpus, int wait_seconds);
/* 1: `gpus` (of the right form) lets the CPU do it where there is no GPU. */
int devices_may_be_none(const char *gpus);
/* n = 0 on ST_OK: the CPU; one line has said why. */
enum status devices_choose(const struct devices_request *request, struct devices *out);
void devices_release(struct devices *d);

struct device_scan;
/* 1: auto would take s->gpu[i] now; 0: why[DEVICE_CLAIM_WHY_SIZE] says why not. */
int devices_auto_accepts(const struct devices_request *r, const struct device_scan *s, int i,
                         char *why);
/* Which of s->gpu that is, reserved by nobody: all of them for all and auto (for which none is no
 * error), none, or those of a list. chosen[DEVICE_MAX]. */
enum status devices_find(const char *gpus, const struct device_scan *s, int *chosen, int *n);

#endif
