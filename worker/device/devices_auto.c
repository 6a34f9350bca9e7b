/* worker/device/devices_auto.c - --gpus=auto: see devices.h. It chooses idle GPUs first. If there
 * are too few, and the user named the visible GPUs in CUDA_VISIBLE_DEVICES, busy GPUs are used,
 * too, because the user chose them. */
#include "base/clock.h"
#include "base/log.h"
#include "member/device_lock.h"
#include "worker/device/devices_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    POLL_MS = 500,
    SAY_EVERY_MS = 10000,
    LOOK_AGAIN_MS = 1500, /* longer than the 1/6 to 1 s over which NVML measures utilisation */
};

static bool has_pid(const struct device_holders *h, int pid)
{
    for (int i = 0; i < h->n; i++)
        if (h->holder[i].pid == pid)
            return true;
    return false;
}

/* Returns true if the GPU is used only by processes that have reserved a fraction of its memory,
 * and the fraction that this process requests is still free. */
static bool fits_beside(const struct device_load *load, const struct device_holders *others,
                        const struct device_claim_request *want, char *why)
{
    struct device_load rest = *load;
    rest.used_bytes = 0;
    rest.percent = -1;
    rest.n_processes = rest.n_pids = 0;
    for (int i = 0; i < load->n_pids; i++)
        if (!has_pid(others, load->pid[i]))
            rest.pid[rest.n_pids++] = load->pid[i];
    rest.n_processes = rest.n_pids;
    for (int i = 0; i < others->n; i++)
        rest.n_processes -= others->holder[i].pid == 0;
    double bytes = (double)load->total_bytes * want->parts / DEVICE_CLAIM_WHOLE;
    if (!device_scan_is_idle(&rest, why))
        return false;
    if (load->state != DEVICE_LOAD_KNOWN || want->is_cap || (double)load->free_bytes >= bytes)
        return true;
    snprintf(why, DEVICE_WHY_SIZE, "only %.1f of its %.1f GB of memory are free",
             (double)load->free_bytes / 1e9, (double)load->total_bytes / 1e9);
    return false;
}

static bool has_gpu(const struct devices *d, const struct device_info *gpu)
{
    for (int i = 0; i < d->n; i++)
        if (d->gpu[i].ordinal == gpu->ordinal)
            return true;
    return false;
}

static bool may_reserve(const struct devices_request *r, const struct device_scan *s, int i,
                        const struct devices *out)
{
    return (r->named == NULL || r->named[i]) && !has_gpu(out, &s->gpu[i]);
}

enum answer {
    REFUSED,
    TAKEN,
    LAGS /* refused because of a load that may have ended: see device_scan_may_lag */
};

/* Reserves GPU i if it is idle. Reserves it before measuring its load, because otherwise two
 * processes could choose it. beside: also accepts a GPU on which other processes have reserved
 * fractions of the memory. */
static enum answer reserve_one(const struct devices_request *r, const struct device_scan *s, int i,
                               int beside, struct devices *out, char *why)
{
    struct device_load load;
    struct device_claim claim;
    struct device_holders others;
    const struct device_claim_request want = devices_claim_request(r, 1);
    if (device_claim_acquire(r->lock_dir, s->gpu[i].uuid, &want, &claim, &others, why) != ST_OK)
        return REFUSED;
    device_scan_load(s, i, &load);
    if (others.n == 0 ? device_scan_is_idle(&load, why)
                      : beside && fits_beside(&load, &others, &want, why)) {
        devices_keep(out, &s->gpu[i], &claim);
        return TAKEN;
    }
    device_claim_release(&claim);
    return others.n == 0 && device_scan_may_lag(&load) ? LAGS : REFUSED;
}

bool devices_auto_accepts(const struct devices_request *r, const struct device_scan *s, int i,
                          char *why)
{
    struct devices *d = calloc(1, sizeof *d);
    snprintf(why, DEVICE_CLAIM_WHY_SIZE, "out of memory");
    int takes = d != NULL && reserve_one(r, s, i, 1, d, why) == TAKEN;
    if (takes) {
        why[0] = '\0';
        devices_release(d);
    }
    free(d);
    return takes;
}

/* Reserves up to `most` GPUs: idle GPUs first, then GPUs with enough memory left besides the
 * fractions that other processes have reserved. reasons: receives the reason why each of the
 * remaining GPUs was refused. Returns true if a GPU was refused only because of a load that may
 * have ended. */
static bool reserve_idle(const struct devices_request *r, const struct device_scan *s, int most,
                         struct devices *out, struct devices_text *reasons)
{
    int choosing = -1, passes = r->memory_fraction > 0 ? 2 : 1, lags = 0;
    device_lock_wait(r->lock_dir, "choose", DEVICES_CHOOSE_WAIT_MS, &choosing);
    for (int pass = 0; pass < passes && out->n < most; pass++) {
        reasons->n = 0;
        reasons->s[0] = '\0';
        for (int i = 0; i < s->n && out->n < most; i++) {
            char why[DEVICE_CLAIM_WHY_SIZE] = "";
            enum answer answer = TAKEN;
            if (may_reserve(r, s, i, out))
                answer = reserve_one(r, s, i, pass, out, why);
            if (answer != TAKEN)
                devices_text_add(reasons, "%sGPU %d: %s", reasons->n ? "; " : "", i, why);
            lags |= answer == LAGS;
        }
    }
    device_lock_release(choosing);
    return lags;
}

static int pause_ms(const struct devices_request *r, int ms)
{
    if (r->pause != NULL)
        return r->pause(r->ctx, ms);
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
    return 0;
}

/* Reserves GPUs in CUDA_VISIBLE_DEVICES, busy or not: first those that no process has reserved,
 * then those that other processes have reserved; never a GPU that does not respond. */
static void reserve_visible(const struct devices_request *r, const struct device_scan *s, int most,
                            struct devices *out)
{
    const struct device_claim_request want = devices_claim_request(r, 1);
    for (int pass = 0; s->visible != NULL && pass < 2; pass++)
        for (int i = 0; i < s->n && out->n < most; i++) {
            char why[DEVICE_WHY_SIZE], held[DEVICE_CLAIM_WHY_SIZE], label[DEVICE_LABEL_SIZE];
            struct device_load load;
            struct device_claim claim = {.lock = -1, .mark = -1};
            struct device_holders others;
            const char *key = s->gpu[i].uuid;
            device_scan_load(s, i, &load);
            if (!may_reserve(r, s, i, out) || load.state == DEVICE_LOAD_LOST)
                continue;
            enum status st = device_claim_acquire(r->lock_dir, key, &want, &claim, &others, held);
            if (st == ST_REFUSED || (st != ST_OK && pass == 0))
                continue;
            if (st != ST_OK)
                device_claim_mark(r->lock_dir, key, &want, &claim);
            device_scan_label(&s->gpu[i], label, sizeof label);
            if (st != ST_OK || !device_scan_is_idle(&load, why))
                LOG_W("%s is shared: CUDA_VISIBLE_DEVICES='%.100s' names it, so it is used, but %s",
                      label, s->visible, st != ST_OK ? held : why);
            devices_keep(out, &s->gpu[i], &claim);
        }
}

/* Logs which GPUs the worker could use besides the chosen ones: free GPUs and, if the user named
 * GPUs, busy ones. */
static void log_more(const struct devices_request *r, const struct device_scan *s,
                     const struct devices *chosen)
{
    struct devices_text free_ones = {.n = 0}, busy_ones = {.n = 0};
    int choosing = -1, n = 0, n_busy = 0;
    device_lock_wait(r->lock_dir, "choose", DEVICES_CHOOSE_WAIT_MS, &choosing);
    for (int i = 0; i < s->n; i++) {
        char why[DEVICE_WHY_SIZE];
        struct device_load load;
        int lock;
        if (has_gpu(chosen, &s->gpu[i]) ||
            device_lock_acquire(r->lock_dir, s->gpu[i].uuid, &lock, why) != ST_OK)
            continue;
        device_scan_load(s, i, &load);
        if (device_scan_is_idle(&load, why))
            devices_text_add(&free_ones, "%s%d", n++ ? ", " : "", i);
        else if (s->visible != NULL && load.state != DEVICE_LOAD_LOST)
            devices_text_add(&busy_ones, "%s%d", n_busy++ ? ", " : "", i);
        device_lock_release(lock);
    }
    device_lock_release(choosing);
    if (n > 0)
        LOG_I(
            "GPU %s %s free, but this worker does not use %s; with --gpus=auto:%d it trains on %s, too, with one tower on each GPU",
            free_ones.s, n == 1 ? "is" : "are", n == 1 ? "it" : "them", 1 + n,
            n == 1 ? "it" : "them");
    if (n_busy > 0)
        LOG_I(
            "CUDA_VISIBLE_DEVICES also names GPU %s, which %s busy; with --gpus=auto:%d this worker shares %s with other programs",
            busy_ones.s, n_busy == 1 ? "is" : "are", 1 + n + n_busy, n_busy == 1 ? "it" : "them");
}

/* Sorts the GPUs by CUDA's numbers, because a tower that spans several GPUs counts the first one as
 * its own device. */
static void sort_gpus(struct devices *d)
{
    for (int i = 1; i < d->n; i++)
        for (int k = i; k > 0 && d->gpu[k].ordinal < d->gpu[k - 1].ordinal; k--) {
            struct device_info gpu = d->gpu[k];
            struct device_claim claim = d->claim[k];
            d->gpu[k] = d->gpu[k - 1];
            d->claim[k] = d->claim[k - 1];
            d->gpu[k - 1] = gpu;
            d->claim[k - 1] = claim;
        }
}

/* Tries repeatedly until wait_seconds have passed, because no event reports that a GPU became idle.
 * If a GPU was refused because of a load that may have ended, tries at least once more. */
enum status devices_auto_choose(const struct devices_request *r, const struct device_scan *s,
                                int most, struct devices *out)
{
    struct devices_text reasons;
    int64_t deadline = clock_deadline_ns((int64_t)r->wait_seconds * 1000), next_line = 0;
    int looks = r->wait_seconds * 1000LL >= LOOK_AGAIN_MS ? 0 : 1;
    for (;;) {
        bool lags = reserve_idle(r, s, most, out, &reasons);
        int64_t left_ms = (deadline - clock_now_ns()) / 1000000;
        if (out->n == most || (left_ms <= 0 && (!lags || looks == 0)))
            break;
        if (left_ms <= 0) {
            looks--;
            if (pause_ms(r, LOOK_AGAIN_MS))
                return ST_CANCELLED;
            continue;
        }
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
    reserve_visible(r, s, most, out);
    out->by_number = r->named != NULL;
    if (out->by_number)
        sort_gpus(out);
    devices_log_chosen(s, out);
    if (r->named == NULL && out->n == 1 && strcmp(r->gpus, "auto") == 0)
        log_more(r, s, out);
    if (out->n == 0) {
        char hidden[DEVICE_WHY_SIZE];
        device_scan_hidden(s, hidden, sizeof hidden);
        LOG_I("no GPU is free, training on the CPU: %s%s", reasons.s, hidden);
    } else if (out->n < most) {
        LOG_I("%d of the %d requested GPUs are free%s%s", n_free, most,
              reasons.n ? ": " : "; this machine has no more", reasons.s);
    }
    return ST_OK;
}
