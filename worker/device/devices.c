/* worker/device/devices.c - chooses GPUs by the --gpus text, see devices.h. A process holds the
 * lock "choose" while it chooses. Otherwise, if several processes each need several GPUs, each
 * process could get too few GPUs. The lock only helps to share GPUs sensibly: a process that cannot
 * acquire it within seconds chooses without it. Each GPU's own lock ensures that only one process
 * has the GPU. */
#include "base/clock.h"
#include "base/log.h"
#include "member/device_lock.h"
#include "worker/device/devices_impl.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { KIND_AUTO, KIND_ALL, KIND_NONE, KIND_LIST };

void devices_text_add(struct devices_text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(t->s + t->n, sizeof t->s - t->n, fmt, args);
    va_end(args);
    if (n > 0)
        t->n = t->n + (size_t)n < sizeof t->s ? t->n + (size_t)n : sizeof t->s - 1;
}

/* Returns the length of the next entry of a list separated by commas; -1: no more entries. */
static int next_entry(const char **list, const char **entry)
{
    if (*list == NULL)
        return -1;
    int n = (int)strcspn(*list, ",");
    *entry = *list;
    *list = (*list)[n] == ',' ? *list + n + 1 : NULL;
    return n;
}

static bool is_number(const char *s, int n)
{
    int digits = 0;
    while (digits < n && isdigit((unsigned char)s[digits]))
        digits++;
    return n > 0 && n <= 4 && digits == n;
}

static bool is_uuid(const char *s, int n)
{
    if (n < 5 || n >= DEVICE_UUID_SIZE || (strncmp(s, "GPU-", 4) && strncmp(s, "MIG-", 4)))
        return false;
    for (int i = 4; i < n; i++)
        if (!isxdigit((unsigned char)s[i]) && s[i] != '-')
            return false;
    return true;
}

/* Returns the kind of a --gpus text; -1: invalid. *n: highest number of GPUs that auto may
 * choose. */
static int kind_of(const char *gpus, int *n)
{
    *n = 1;
    if (strcmp(gpus, "auto") == 0)
        return KIND_AUTO;
    if (strncmp(gpus, "auto:", 5) == 0) {
        const char *number = gpus + 5;
        *n = is_number(number, (int)strlen(number)) ? atoi(number) : 0;
        return *n >= 1 && *n <= DEVICE_MAX ? KIND_AUTO : -1;
    }
    if (strcmp(gpus, "all") == 0)
        return KIND_ALL;
    if (strcmp(gpus, "none") == 0)
        return KIND_NONE;
    const char *entry;
    for (const char *list = gpus; list != NULL;) {
        int length = next_entry(&list, &entry);
        if (!is_number(entry, length) && !is_uuid(entry, length))
            return -1;
    }
    return KIND_LIST;
}

enum status devices_check(const char *gpus, int wait_seconds)
{
    int n, kind = kind_of(gpus, &n);
    if (kind < 0) {
        LOG_E(
            "--gpus: '%.100s' is invalid; use auto, auto:N (1 to %d), all, none, or numbers or UUIDs with commas, for example 0,2 or GPU-8932f937",
            gpus, DEVICE_MAX);
        return ST_INVALID;
    }
    if (kind != KIND_AUTO && wait_seconds > 0) {
        LOG_E("--gpu_wait: only --gpus=auto waits, not --gpus=%.100s", gpus);
        return ST_INVALID;
    }
    return ST_OK;
}

bool devices_may_be_none(const char *gpus)
{
    int n, kind = kind_of(gpus, &n);
    return kind == KIND_AUTO || kind == KIND_NONE;
}

void devices_keep(struct devices *out, const struct device_info *gpu,
                  const struct device_claim *claim)
{
    out->gpu[out->n] = *gpu;
    out->claim[out->n++] = *claim;
}

struct device_claim_request devices_claim_request(const struct devices_request *r, int is_auto)
{
    return (struct device_claim_request){.parts = device_claim_parts(r->memory_fraction),
                                         .is_cap = r->allow_growth && r->memory_fraction > 0,
                                         .is_auto = is_auto};
}

void devices_release(struct devices *d)
{
    for (int i = 0; i < d->n; i++)
        device_claim_release(&d->claim[i]);
    d->n = 0;
}

void devices_log_chosen(const struct device_scan *s, const struct devices *d)
{
    char label[DEVICE_LABEL_SIZE];
    for (int i = 0; i < d->n; i++) {
        device_scan_label(&d->gpu[i], label, sizeof label);
        LOG_I("%s: %s", label, d->claim[i].lock >= 0 ? "reserved" : "used without a reservation");
    }
    if (d->n > 0 && s->nvml == NULL)
        LOG_I("cannot determine which other processes use the chosen GPUs: %s", s->nvml_why);
}

static enum status reserve_named(const struct devices_request *r, const struct device_scan *s,
                                 int i, struct devices *out)
{
    char why[DEVICE_CLAIM_WHY_SIZE], label[DEVICE_LABEL_SIZE];
    struct device_claim claim = {.lock = -1, .mark = -1};
    struct device_holders others;
    const char *key = s->gpu[i].uuid;
    const struct device_claim_request want = devices_claim_request(r, 0);
    enum status st = device_claim_acquire(r->lock_dir, key, &want, &claim, &others, why);
    device_scan_label(&s->gpu[i], label, sizeof label);
    if (st == ST_REFUSED) {
        LOG_E(
            "--gpu_memory_fraction=%g: %s: %s; set a smaller fraction, choose another card, or set --gpu_allow_growth, which reserves only the needed memory",
            r->memory_fraction, label, why);
        return ST_BUSY;
    }
    if (st != ST_OK) {
        device_claim_mark(r->lock_dir, key, &want, &claim);
        LOG_W("%s was requested, so it is used, but %s", label, why);
    }
    devices_keep(out, &s->gpu[i], &claim);
    return ST_OK;
}

/* Refuses a listed GPU that disappeared from the bus after CUDA had counted it. */
static enum status check_there(const struct device_scan *s, int i)
{
    struct device_load load;
    char label[DEVICE_LABEL_SIZE];
    device_scan_load(s, i, &load);
    if (load.state != DEVICE_LOAD_LOST)
        return ST_OK;
    device_scan_label(&s->gpu[i], label, sizeof label);
    LOG_E("--gpus: %s does not answer any more (%s); remove it from the flag, or reset it", label,
          load.why);
    return ST_NOT_FOUND;
}

/* Returns the index of the GPU that an entry names; -1: it names no GPU, -2: several. */
static int find_named(const struct device_scan *s, const char *entry, int n)
{
    int found = -1;
    if (is_number(entry, n)) {
        int i = atoi(entry);
        return i < s->n ? i : -1;
    }
    for (int i = 0; i < s->n; i++) {
        if (strncasecmp(s->gpu[i].uuid, entry, (size_t)n) != 0)
            continue;
        if (found >= 0)
            return -2;
        found = i;
    }
    return found;
}

static enum status not_found(const struct device_scan *s, const char *entry, int n, int several)
{
    struct devices_text there = {.n = 0};
    char label[DEVICE_LABEL_SIZE], hidden[DEVICE_WHY_SIZE];
    for (int i = 0; i < s->n; i++) {
        device_scan_label(&s->gpu[i], label, sizeof label);
        devices_text_add(&there, "%s%s", i ? ", " : "", label);
    }
    device_scan_hidden(s, hidden, sizeof hidden);
    LOG_E("--gpus: '%.*s' is %s; CUDA shows %s%s", n, entry,
          several ? "the beginning of several UUIDs" : "not a GPU that CUDA shows", there.s,
          hidden);
    return ST_NOT_FOUND;
}

enum status devices_find(const char *gpus, const struct device_scan *s, int *chosen, int *n)
{
    int most, kind = kind_of(gpus, &most), is_chosen[DEVICE_MAX] = {0};
    const char *entry, *list = kind == KIND_LIST ? gpus : NULL;
    *n = 0;
    if (s->n == 0 && (kind == KIND_ALL || kind == KIND_LIST)) {
        LOG_E("--gpus=%.100s: there is no GPU, only the CPU: %s", gpus, s->why);
        return ST_NOT_FOUND;
    }
    for (int length; (length = next_entry(&list, &entry)) >= 0;) {
        int i = find_named(s, entry, length);
        if (i < 0)
            return not_found(s, entry, length, i == -2);
        if (is_chosen[i]) {
            LOG_E("--gpus: '%.*s' names GPU %d a second time", length, entry, i);
            return ST_INVALID;
        }
        is_chosen[i] = 1;
        chosen[(*n)++] = i;
    }
    for (int i = 0; (kind == KIND_ALL || kind == KIND_AUTO) && i < s->n; i++)
        chosen[(*n)++] = i;
    return ST_OK;
}

static enum status choose_named(const struct devices_request *r, const struct device_scan *s,
                                struct devices *out)
{
    enum status st = ST_OK;
    int chosen[DEVICE_MAX], n, choosing = -1;
    TRY(devices_find(r->gpus, s, chosen, &n));
    for (int i = 0; i < n; i++)
        TRY(check_there(s, chosen[i]));
    device_lock_wait(r->lock_dir, "choose", DEVICES_CHOOSE_WAIT_MS, &choosing);
    for (int i = 0; i < n && st == ST_OK; i++)
        st = reserve_named(r, s, chosen[i], out);
    device_lock_release(choosing);
    TRY(st);
    devices_log_chosen(s, out);
done:
    return st;
}

/* Chooses GPUs for auto. If auto has no number, chooses the GPUs that the placement names. */
static enum status choose_auto(const struct devices_request *r, const struct device_scan *s,
                               int most, struct devices *out)
{
    struct devices_request any = *r;
    int n = 0;
    for (int i = 0; r->named != NULL && strcmp(r->gpus, "auto") == 0 && i < s->n; i++)
        n += r->named[i] != 0;
    if (n > 0)
        return devices_auto_choose(r, s, n, out);
    any.named = NULL;
    return devices_auto_choose(&any, s, most, out);
}

enum status devices_choose(const struct devices_request *r, struct devices *out)
{
    enum status st = ST_OK;
    int most, kind = kind_of(r->gpus, &most);
    struct devices *d = calloc(1, sizeof *d);
    struct device_scan *s = calloc(1, sizeof *s);
    if (!d || !s) {
        LOG_E("out of memory for a list of GPUs");
        TRY(ST_NOMEM);
    }
    TRY(devices_check(r->gpus, r->wait_seconds));
    if (kind != KIND_NONE)
        device_scan_open(s);
    if (kind == KIND_AUTO && s->no_driver && r->is_default)
        LOG_D("training on the CPU: %s", s->why);
    else if (kind == KIND_AUTO && s->n == 0)
        LOG_I("training on the CPU: %s", s->why);
    else if (kind == KIND_AUTO)
        TRY(choose_auto(r, s, most, d));
    else if (kind != KIND_NONE)
        TRY(choose_named(r, s, d));
done:
    if (st == ST_OK)
        *out = *d;
    else if (d)
        devices_release(d);
    if (s)
        device_scan_close(s);
    free(d);
    free(s);
    return st;
}
