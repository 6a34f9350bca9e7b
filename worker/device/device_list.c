/* worker/device/device_list.c - prints the devices as text or JSON, see device_list.h. */
#include "worker/device/device_list.h"
#include "base/log.h"
#include "member/device_claim.h"
#include "member/device_lock.h"
#include "worker/device/device_scan.h"
#include "worker/device/devices.h"
#include "worker/device/report_json.h"
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CHOOSE_WAIT_MS = 5000 };

static uint64_t host_memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

/* Returns the memory of the device that one process may use. */
static uint64_t memory_limit(const struct device_list_config *cfg, const struct device_info *d)
{
    double limit = (double)d->memory_bytes * cfg->memory_fraction;
    return cfg->memory_fraction > 0 ? (uint64_t)limit : d->memory_bytes;
}

static void print_text(const struct device_list_config *cfg, const struct device_scan *s)
{
    printf("name: \"/device:CPU:0\"\ndevice_type: \"CPU\"\nmemory_limit: %" PRIu64
           "\nlocality {\n}\n",
           host_memory_bytes());
    for (int i = 0; i < s->n; i++) {
        const struct device_info *d = &s->gpu[i];
        printf(
            "\nname: \"/device:GPU:%d\"\ndevice_type: \"GPU\"\nmemory_limit: %" PRIu64
            "\nlocality {\n}\nphysical_device_desc: \"device: %d, name: %s, pci bus id: %s, compute capability: %d.%d\"\n",
            i, memory_limit(cfg, d), i, d->name, d->pci, d->capability[0], d->capability[1]);
    }
}

/* Returns the number as JSON, or null if it is unknown. */
static json_t *number_or_null(int known, uint64_t v)
{
    return known ? json_integer((json_int_t)v) : json_null();
}

static json_t *text_or_null(const char *s)
{
    return s && *s ? json_string(s) : json_null();
}

static json_t *json_processes(const struct device_load *load)
{
    if (load->n_processes < 0)
        return json_null();
    json_t *list = json_array();
    for (int i = 0; i < load->n_pids; i++)
        json_array_append_new(list, json_integer(load->pid[i]));
    return list;
}

static json_t *watts_or_null(int64_t mw)
{
    return mw >= 0 ? json_real((double)mw / 1000) : json_null();
}

static void add_health(json_t *gpu, const struct device_health *h)
{
    json_object_set_new(gpu, "temperature_celsius",
                        h->temperature_c > INT_MIN ? json_integer(h->temperature_c) : json_null());
    json_object_set_new(gpu, "power_watts", watts_or_null(h->power_mw));
    json_object_set_new(gpu, "power_limit_watts", watts_or_null(h->power_limit_mw));
    json_object_set_new(gpu, "ecc", h->ecc >= 0 ? json_boolean(h->ecc) : json_null());
    json_object_set_new(gpu, "ecc_uncorrected_errors",
                        number_or_null(h->ecc_uncorrected >= 0, (uint64_t)h->ecc_uncorrected));
}

/* Returns the processes that have reserved this GPU or a part of it. */
static json_t *json_holders(const struct device_list_config *cfg, const struct device_info *d)
{
    struct device_holders holders;
    json_t *list = json_array();
    if (device_claim_list(cfg->lock_dir, d->uuid, &holders) != ST_OK)
        return list;
    for (int i = 0; i < holders.n; i++) {
        const struct device_holder *h = &holders.holder[i];
        time_t at = (time_t)h->since;
        struct tm tm;
        char since[32] = "";
        if (gmtime_r(&at, &tm) != NULL)
            strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%SZ", &tm);
        json_array_append_new(
            list,
            json_pack("{so so so so sb so}", "pid", number_or_null(h->pid > 0, (uint64_t)h->pid),
                      "program", text_or_null(h->who.program), "user", text_or_null(h->who.user),
                      "memory_fraction",
                      h->parts ? json_real((double)h->parts / DEVICE_CLAIM_WHOLE) : json_null(),
                      "at_once", h->parts > 0 && !h->is_cap, "since", text_or_null(since)));
    }
    return list;
}

static json_t *json_gpu(const struct device_list_config *cfg, const struct device_scan *s, int i)
{
    const struct device_info *d = &s->gpu[i];
    struct device_load load;
    char why[DEVICE_CLAIM_WHY_SIZE], name[64], capability[32];
    const struct devices_request auto_one = {.gpus = "auto",
                                             .lock_dir = cfg->lock_dir,
                                             .memory_fraction = cfg->memory_fraction,
                                             .allow_growth = cfg->allow_growth};
    struct device_health health;
    /* called before devices_auto_accepts, which locks the GPU for this process for a short time */
    json_t *holders = json_holders(cfg, d);
    device_scan_load(s, i, &load);
    device_scan_health(s, i, &health);
    devices_auto_accepts(&auto_one, s, i, why);
    int known = load.state == DEVICE_LOAD_KNOWN;
    snprintf(name, sizeof name, "/device:GPU:%d", i);
    snprintf(capability, sizeof capability, "%d.%d", d->capability[0], d->capability[1]);
    json_t *gpu =
        json_pack("{ss ss ss ss ss ss sb sI so so so so so sb so}", "name", name, "device_type",
                  "GPU", "product", d->name, "uuid", d->uuid, "pci_bus_id", d->pci,
                  "compute_capability", capability, "mig", d->is_mig, "memory_bytes",
                  (json_int_t)d->memory_bytes, "free_bytes", number_or_null(known, load.free_bytes),
                  "used_bytes", number_or_null(known, load.used_bytes), "utilization_percent",
                  number_or_null(load.percent >= 0, (uint64_t)load.percent), "n_processes",
                  number_or_null(load.n_processes >= 0, (uint64_t)load.n_processes), "processes",
                  json_processes(&load), "auto", why[0] == '\0', "auto_refuses", text_or_null(why));
    json_object_set_new(gpu, "memory_limit_bytes", json_integer((json_int_t)memory_limit(cfg, d)));
    add_health(gpu, &health);
    json_object_set_new(gpu, "reservations", holders);
    return gpu;
}

static enum status print_json(const struct device_list_config *cfg, const struct device_scan *s)
{
    /* Holds the lock "choose" for the whole listing. Otherwise a process that chooses GPUs could
     * skip a GPU that this process has locked for a short time. */
    int choosing = -1;
    if (s->n > 0)
        device_lock_wait(cfg->lock_dir, "choose", CHOOSE_WAIT_MS, &choosing);
    json_t *list = json_array();
    json_array_append_new(list, json_pack("{ss ss sI}", "name", "/device:CPU:0", "device_type",
                                          "CPU", "memory_bytes", (json_int_t)host_memory_bytes()));
    for (int i = 0; i < s->n; i++)
        json_array_append_new(list, json_gpu(cfg, s, i));
    device_lock_release(choosing);
    json_t *all = json_pack("{so so so so ss}", "devices", list, "why_no_gpu",
                            text_or_null(s->n ? NULL : s->why), "cuda_visible_devices",
                            s->visible ? json_string(s->visible) : json_null(), "gpus_of_machine",
                            number_or_null(s->n_machine >= 0, (uint64_t)s->n_machine), "lock_dir",
                            cfg->lock_dir);
    return report_json_print_free(all);
}

enum status device_list_print(const struct device_list_config *cfg)
{
    enum status st = ST_OK;
    struct device_scan *s = calloc(1, sizeof *s);
    if (s == NULL) {
        LOG_E("out of memory");
        return ST_NOMEM;
    }
    device_scan_open(s);
    if (s->n == 0)
        LOG_I("no GPU: %s", s->why);
    if (cfg->as_json)
        TRY(print_json(cfg, s));
    else
        print_text(cfg, s);
    if (fflush(stdout) != 0) {
        LOG_E("cannot write the list of devices: %s", strerror(errno));
        st = ST_IO;
    }
done:
    device_scan_close(s);
    free(s);
    return st;
}
