/* worker/device/devices_auto.c - --gpus=auto: see devices.h.
 * First what nobody uses. Where that is not enough, and the user named the cards that CUDA shows
 * (CUDA_VISIBLE_DEVICES), those are the user's choice: they are used though they are busy. */
#include "base/clock.h"
#include "base/log.h"
#include "worker/device/device_lock.h"
#include "worker/device/devices_impl.h"
#include <string.h>

enum { POLL_MS = 500, SAY_EVERY_MS = 10000 };

/* Takes what is idle, up to `most`; reasons: why each of the others was not taken. */
static void take_idle(const struct devices_request *r, const struct device_scan *s, int most,
                      struct devices *out, struct devices_text *reasons)
{
    int choosing = -1;
    device_lock_wait(r->lock_dir, "choose", DEVICES_CHOOSE_WAIT_MS, &choosing);
    reasons->n = 0;
    reasons->s[0] = '\0';
    for (int i = 0; i < s->n && out->n < most; i++) {
        char why[DEVICE_WHY_SIZE];
        struct device_load load;
        int lock;
        /* First the lock: its last owner may have ended a moment ago, with the card still full. */
        int taken = device_lock_take(r->lock_dir, s->gpu[i].uuid, &lock, why) == ST_OK;
        if (taken) {
            device_scan_load(s, i, &load);
            if (device_scan_is_idle(&load, why)) {
                devices_keep(out, &s->gpu[i], lock);
                continue;
            }
            device_lock_drop(lock);
        }
        devices_text_add(reasons, "%sGPU %d: %s", reasons->n ? "; " : "", i, why);
    }
    device_lock_drop(choosing);
}

static int pause_ms(const struct devices_request *r, int ms)
{
    if (r->pause != NULL)
        return r->pause(r->ctx, ms);
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
    return 0;
}

static int has(const struct devices *d, const struct device_info *gpu)
{
    for (int i = 0; i < d->n; i++)
        if (d->gpu[i].ordinal == gpu->ordinal)
            return 1;
    return 0;
}

/* What CUDA_VISIBLE_DEVICES names is its user's choice, busy or not; what is reserved by others
 * comes last, what is lost not at all. */
static void take_visible(const struct devices_request *r, const struct device_scan *s, int most,
                         struct devices *out)
{
    for (int pass = 0; s->visible != NULL && pass < 2; pass++)
        for (int i = 0; i < s->n && out->n < most; i++) {
            char why[DEVICE_WHY_SIZE], holder[DEVICE_WHY_SIZE], label[DEVICE_LABEL_SIZE];
            struct device_load load;
            int lock = -1;
            device_scan_load(s, i, &load);
            if (has(out, &s->gpu[i]) || load.state == DEVICE_LOAD_LOST)
                continue;
            if (device_lock_take(r->lock_dir, s->gpu[i].uuid, &lock, holder) != ST_OK) {
                if (pass == 0)
                    continue;
                lock = -1;
            }
            device_scan_label(&s->gpu[i], label, sizeof label);
            if (lock < 0 || !device_scan_is_idle(&load, why))
                LOG_W("%s is shared: CUDA_VISIBLE_DEVICES='%.100s' names it, so it is used, but %s",
                      label, s->visible, lock < 0 ? holder : why);
            devices_keep(out, &s->gpu[i], lock);
        }
}

/* Nobody tells when a card becomes idle, so it is looked at again and again. */
enum status devices_choose_auto(const struct devices_request *r, const struct device_scan *s,
                                int most, struct devices *out)
{
    struct devices_text reasons;
    int64_t deadline = clock_deadline_ns((int64_t)r->wait_seconds * 1000), next_line = 0;
    for (;;) {
        take_idle(r, s, most, out, &reasons);
        int64_t left_ms = (deadline - clock_now_ns()) / 1000000;
        if (out->n == most || left_ms <= 0)
            break;
        if (clock_now_ns() >= next_line) {
            LOG_I("waiting for %d more %s, at most %d s: %s", most - out->n,
                  most - out->n == 1 ? "GPU" : "GPUs", (int)((left_ms + 999) / 1000), reasons.s);
            next_line = clock_deadline_ns(SAY_EVERY_MS);
        }
        devices_release(out);
        if (pause_ms(r, left_ms < POLL_MS ? (int)left_ms + 1 : POLL_MS))
            return ST_CANCELLED;
    }
    int n_free = out->n;
    take_visible(r, s, most, out);
    devices_say_chosen(s, out);
    if (out->n == 0) {
        char hidden[DEVICE_WHY_SIZE];
        device_scan_hidden(s, hidden, sizeof hidden);
        LOG_I("no GPU is free, training on the CPU: %s%s", reasons.s, hidden);
    } else if (out->n < most) {
        LOG_I("%d of the %d GPUs that were asked for are free%s%s", n_free, most,
              reasons.n ? ": " : "; there are no others", reasons.s);
    }
    return ST_OK;
}
