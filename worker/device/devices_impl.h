/* worker/device/devices_impl.h - shared by devices*.c and private to them.
 * Owns:    nothing. Threads, errors: as devices.h. */
#ifndef WORKER_DEVICE_DEVICES_IMPL_H
#define WORKER_DEVICE_DEVICES_IMPL_H
#include "worker/device/device_scan.h"
#include "worker/device/devices.h"

enum { DEVICES_CHOOSE_WAIT_MS = 5000, DEVICES_TEXT_SIZE = 4096 };

/* A text that grows up to its size; further text is cut. */
struct devices_text {
    char s[DEVICES_TEXT_SIZE];
    size_t n;
};
void devices_text_add(struct devices_text *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Adds a GPU to the chosen ones. */
void devices_keep(struct devices *out, const struct device_info *gpu,
                  const struct device_claim *claim);
/* Returns the request that is used to claim each GPU. */
struct device_claim_request devices_claim_request(const struct devices_request *r, int is_auto);
void devices_log_chosen(const struct device_scan *s, const struct devices *d);
/* Chooses for --gpus=auto:`most`. */
enum status devices_auto_choose(const struct devices_request *r, const struct device_scan *s,
                                int most, struct devices *out);

#endif
