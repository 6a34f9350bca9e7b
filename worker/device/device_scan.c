/* worker/device/device_scan.c - combines CUDA's list of GPUs with the loads that NVML reports, and
 * judges whether a GPU is idle. */
#include "worker/device/device_scan.h"
#include "base/log.h"
#include "member/process_info.h"
#include "worker/device/device_cuda.h"
#include "worker/device/device_nvml.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void device_scan_hidden(const struct device_scan *s, char *out, size_t size)
{
    out[0] = '\0';
    if (s->visible != NULL && s->n_machine >= s->n)
        snprintf(out, size, "; CUDA_VISIBLE_DEVICES='%.100s' shows %d of this machine's %d",
                 s->visible, s->n, s->n_machine);
    else if (s->visible != NULL)
        snprintf(out, size, "; CUDA_VISIBLE_DEVICES is '%.100s'", s->visible);
    else if (s->n_machine > s->n)
        snprintf(out, size, "; NVML lists %d, of which CUDA shows %d", s->n_machine, s->n);
}

/* Warns of entries of CUDA_VISIBLE_DEVICES that CUDA ignores silently. */
static void warn_of_dropped(const struct device_scan *s)
{
    if (s->visible == NULL || s->visible[0] == '\0' || strcmp(s->visible, "-1") == 0)
        return;
    int entries = 1;
    for (const char *p = s->visible; *p; p++)
        entries += *p == ',';
    if (entries > s->n && strstr(s->visible, "MIG-") != NULL)
        LOG_W(
            "CUDA_VISIBLE_DEVICES='%.200s' has %d %s, CUDA shows %d %s: a process gets one MIG instance, by its whole UUID; 'nvidia-smi -L' lists them",
            s->visible, entries, entries == 1 ? "entry" : "entries", s->n,
            s->n == 1 ? "GPU" : "GPUs");
    else if (entries > s->n)
        LOG_W(
            "CUDA_VISIBLE_DEVICES='%.100s' has %d %s, CUDA shows %d %s: CUDA stops at the first entry that is not a device, and shows none if one is named twice",
            s->visible, entries, entries == 1 ? "entry" : "entries", s->n,
            s->n == 1 ? "GPU" : "GPUs");
}

void device_scan_open(struct device_scan *s)
{
    char why[DEVICE_WHY_SIZE], hidden[DEVICE_WHY_SIZE];
    memset(s, 0, sizeof *s);
    s->n_machine = -1;
    s->visible = getenv("CUDA_VISIBLE_DEVICES");
    int n = device_cuda_list(s->gpu, why);
    if (n == -1) {
        s->no_driver = 1;
        snprintf(s->why, sizeof s->why, "%s", why);
        snprintf(s->nvml_why, sizeof s->nvml_why, "%s", why);
        return;
    }
    s->n = n > 0 ? n : 0;
    s->is_broken = n < 0;
    s->nvml = device_nvml_open(s->nvml_why);
    if (s->nvml != NULL)
        s->n_machine = device_nvml_count(s->nvml);
    if (s->n == 0) {
        device_scan_hidden(s, hidden, sizeof hidden);
        snprintf(s->why, sizeof s->why, "%s%s", why, hidden);
    }
    warn_of_dropped(s);
}

void device_scan_close(struct device_scan *s)
{
    device_nvml_close(s->nvml);
    s->nvml = NULL;
}

void device_scan_load(const struct device_scan *s, int i, struct device_load *out)
{
    if (s->nvml != NULL) {
        device_nvml_load(s->nvml, &s->gpu[i], out);
        return;
    }
    *out = (struct device_load){.state = DEVICE_LOAD_NO_NVML, .percent = -1, .n_processes = -1};
    snprintf(out->why, sizeof out->why, "%s", s->nvml_why);
}

void device_scan_health(const struct device_scan *s, int i, struct device_health *out)
{
    if (s->nvml != NULL)
        device_nvml_health(s->nvml, &s->gpu[i], out);
    else
        *out = (struct device_health){INT_MIN, -1, -1, -1, -1};
}

bool device_scan_is_idle(const struct device_load *load, char *why)
{
    const uint64_t mb = 1 << 20;
    uint64_t most = load->total_bytes / 100 * DEVICE_IDLE_MEMORY_PERCENT;
    if (most < DEVICE_IDLE_MEMORY_MB * mb)
        most = DEVICE_IDLE_MEMORY_MB * mb;
    why[0] = '\0';
    if (load->state == DEVICE_LOAD_NO_NVML)
        return true;
    if (load->state != DEVICE_LOAD_KNOWN) {
        snprintf(why, DEVICE_WHY_SIZE, "%s (%.150s)",
                 load->state == DEVICE_LOAD_LOST ? "it is lost" : "its load is unknown", load->why);
    } else if (load->n_processes > 0) {
        char first[128] = "of another container";
        if (load->n_pids > 0 && load->pid[0] > 0)
            process_info_text(load->pid[0], first, sizeof first);
        if (load->n_processes == 1)
            snprintf(why, DEVICE_WHY_SIZE, "process %s computes on it", first);
        else
            snprintf(why, DEVICE_WHY_SIZE, "%d processes compute on it, for example process %s",
                     load->n_processes, first);
    } else if (load->used_bytes > most) {
        snprintf(why, DEVICE_WHY_SIZE, "%.1f of its %.1f GB of memory are in use",
                 (double)load->used_bytes / 1e9, (double)load->total_bytes / 1e9);
    } else if (load->percent > DEVICE_IDLE_PERCENT) {
        snprintf(why, DEVICE_WHY_SIZE, "it is busy for %d %% of the time", load->percent);
    }
    return why[0] == '\0';
}

bool device_scan_may_lag(const struct device_load *load)
{
    char why[DEVICE_WHY_SIZE];
    struct device_load rest = *load;
    rest.percent = -1;
    return !device_scan_is_idle(load, why) && device_scan_is_idle(&rest, why);
}

void device_scan_label(const struct device_info *d, char *out, size_t size)
{
    snprintf(out, size, "GPU %d (%s, %s, %s)", d->ordinal, d->name, d->uuid, d->pci);
}
