/* worker/device/devices_impl.h - what devices*.c share. Private to them.
 * Owns: nothing. Threads, errors: as devices.h. */
#ifndef WORKER_DEVICE_DEVICES_IMPL_H
#define WORKER_DEVICE_DEVICES_IMPL_H
#include "worker/device/device_scan.h"
#include "worker/device/devices.h"

enum { DEVICES_CHOOSE_WAIT_MS = 5000, DEVICES_TEXT_SIZE = 4096 };

/* A line that grows, and is cut when it is too long. */
struct devices_text {
    char s[DEVICES_TEXT_SIZE];
    size_t n;
};
void devices_text_add(struct devices_text *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Into the list of chosen ones. */
void devices_keep(struct devices *out, const struct device_info *gpu,
                  const struct device_claim *claim);
/* What is reserved of each card. */
struct device_claim_request devices_claim_request(const struct devices_request *r, int is_auto);
void devices_log_chosen(const struct device_scan *s, const struct devices *d);
/* --gpus=auto:`most`. */
enum status devices_auto_choose(const struct devices_request *r, const struct device_scan *s,
                                int most, struct devices *out);

#endif
