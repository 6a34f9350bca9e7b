/* worker/device/device_list.c - see device_list.h. */
#include "worker/device/device_list.h"
#include "base/log.h"
#include "worker/device/device_claim.h"
#include "worker/device/device_lock.h"
#include "worker/device/device_scan.h"
#include "worker/device/report_json.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHOOSE_WAIT_MS = 5000 };

static uint64_t host_memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

static void print_text(const struct device_scan *s)
{
    printf("name: \"/device:CPU:0\"\ndevice_type: \"CPU\"\nmemory_limit: %" PRIu64
           "\nlocality {\n}\n",
           host_memory_bytes());
    for (int i = 0; i < s->n; i++) {
        const struct device_info *d = &s->gpu[i];
        printf("\nname: \"/device:GPU:%d\"\ndevice_type: \"GPU\"\nmemory_limit: %" PRIu64
               "\nlocality {\n}\nphysical_device_desc: \"device: %d, name: %s, pci bus id: %s, "
               "compute capability: %d.%d\"\n",
               i, d->memory_bytes, i, d->name, d->pci, d->capability[0], d->capability[1]);
    }
}

/* What is not known is null. */
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

/* The reason against it, with its own reservation looked at; why empty: auto would take it. */
static void judge(const char *lock_dir, const struct device_info *d, const struct device_load *load,
                  char *why)
{
    struct device_claim claim;
    struct device_holders others;
    const struct device_want want = {.parts = 0};
    if (device_claim_take(lock_dir, d->uuid, &want, &claim, &others, why) != ST_OK)
        return;
    device_claim_release(&claim);
    device_scan_is_idle(load, why);
}

static json_t *json_gpu(const struct device_scan *s, int i, const char *lock_dir)
{
    const struct device_info *d = &s->gpu[i];
    struct device_load load;
    char why[DEVICE_CLAIM_WHY_SIZE], name[64], capability[32];
    device_scan_load(s, i, &load);
    judge(lock_dir, d, &load, why);
    int known = load.state == DEVICE_LOAD_KNOWN;
    snprintf(name, sizeof name, "/device:GPU:%d", i);
    snprintf(capability, sizeof capability, "%d.%d", d->capability[0], d->capability[1]);
    return json_pack(
        "{ss ss ss ss ss ss sb sI so so so so so sb so}", "name", name, "device_type", "GPU",
        "product", d->name, "uuid", d->uuid, "pci_bus_id", d->pci, "compute_capability", capability,
        "mig", d->is_mig, "memory_bytes", (json_int_t)d->memory_bytes, "free_bytes",
        number_or_null(known, load.free_bytes), "used_bytes",
        number_or_null(known, load.used_bytes), "utilization_percent",
        number_or_null(load.percent >= 0, (uint64_t)load.percent), "n_processes",
        number_or_null(load.n_processes >= 0, (uint64_t)load.n_processes), "processes",
        json_processes(&load), "auto", why[0] == '\0', "auto_refuses", text_or_null(why));
}

static enum status print_json(const struct device_scan *s, const char *lock_dir)
{
    /* A glance at a lock must not make another process, that is choosing, pass a card by. */
    int choosing = -1;
    if (s->n > 0)
        device_lock_wait(lock_dir, "choose", CHOOSE_WAIT_MS, &choosing);
    json_t *list = json_array();
    json_array_append_new(list, json_pack("{ss ss sI}", "name", "/device:CPU:0", "device_type",
                                          "CPU", "memory_bytes", (json_int_t)host_memory_bytes()));
    for (int i = 0; i < s->n; i++)
        json_array_append_new(list, json_gpu(s, i, lock_dir));
    device_lock_drop(choosing);
    json_t *all =
        json_pack("{so so so so ss}", "devices", list, "why_no_gpu",
                  text_or_null(s->n ? NULL : s->why), "cuda_visible_devices",
                  s->visible ? json_string(s->visible) : json_null(), "gpus_of_machine",
                  number_or_null(s->n_machine >= 0, (uint64_t)s->n_machine), "lock_dir", lock_dir);
    return report_json_print_take(all);
}

enum status device_list_print(int as_json, const char *lock_dir)
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
    if (as_json)
        TRY(print_json(s, lock_dir));
    else
        print_text(s);
    if (fflush(stdout) != 0) {
        LOG_E("cannot write the list of devices: %s", strerror(errno));
        st = ST_IO;
    }
done:
    device_scan_close(s);
    free(s);
    return st;
}
