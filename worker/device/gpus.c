/* worker/device/gpus.c - loads the CUDA backend for the chosen GPUs, checks that the backend and
 * the driver use the same numbers for them, and limits their memory. See gpus.h. */
#include "worker/device/gpus.h"
#include "base/log.h"
#include "kernels/device_report.h"
#include "member/process_info.h"
#include "worker/device/device_cuda.h"
#include "worker/device/device_nvml.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Returns true if both describe the same GPU. A MIG instance is compared by its PCI address,
 * because not every runtime reports the UUID of the instance. */
static bool is_same(const struct device_info *gpu, const struct backend_device *d)
{
    char text[DEVICE_UUID_SIZE];
    device_cuda_uuid(d->uuid, 0, text);
    if (!gpu->is_mig)
        return strcmp(gpu->uuid, text) == 0;
    int n = snprintf(text, sizeof text, "%04x:%02x:%02x.", (unsigned)d->pci[0] & 0xffffff,
                     (unsigned)d->pci[1] & 0xff, (unsigned)d->pci[2] & 0xff);
    return strncmp(gpu->pci, text, (size_t)n) == 0;
}

enum status gpus_check(const struct devices *chosen, const struct backend *backend)
{
    enum status st = ST_OK;
    for (int i = 0; i < chosen->n; i++) {
        const struct device_info *gpu = &chosen->gpu[i];
        struct backend_device d;
        char text[DEVICE_UUID_SIZE];
        TRY(backend->device_info(gpu->ordinal, &d));
        if (is_same(gpu, &d))
            continue;
        device_cuda_uuid(d.uuid, 0, text);
        LOG_E(
            "the driver reports GPU %d as %s at %s, but backend '%s' reports it as %s ('%s') at %04x:%02x:%02x: the driver and the backend number the cards differently; name the card by CUDA_VISIBLE_DEVICES=%s",
            gpu->ordinal, gpu->uuid, gpu->pci, backend->name, text, d.name, (unsigned)d.pci[0],
            (unsigned)d.pci[1], (unsigned)d.pci[2], gpu->uuid);
        st = ST_MISMATCH;
        goto done;
    }
done:
    return st;
}

static bool growth_is_true(const char *value)
{
    return strcasecmp(value, "true") == 0 || strcmp(value, "1") == 0;
}

enum status gpus_growth_check(const char *value)
{
    if (value == NULL || growth_is_true(value) || strcasecmp(value, "false") == 0 ||
        strcmp(value, "0") == 0)
        return ST_OK;
    LOG_E(
        "TF_FORCE_GPU_ALLOW_GROWTH='%.100s' in the environment is neither true nor false; unset it (unset TF_FORCE_GPU_ALLOW_GROWTH), and set --gpu_allow_growth",
        value);
    return ST_INVALID;
}

bool gpus_growth(int flag, const char *value)
{
    int before = flag > 0, is_true = value ? growth_is_true(value) : before;
    if (flag >= 0 && is_true != before)
        LOG_W("TF_FORCE_GPU_ALLOW_GROWTH=%s overrides --gpu_allow_growth=%s", value,
              before ? "true" : "false");
    return is_true;
}

static enum status memory_set(const struct gpus_request *r, const struct gpus *g)
{
    enum status st = ST_OK;
    for (int i = 0; r->memory_fraction > 0 && i < g->chosen.n; i++) {
        struct backend_device d;
        int number = g->chosen.gpu[i].ordinal;
        TRY(g->backend->device_info(number, &d));
        double bytes = (double)d.memory_bytes * r->memory_fraction;
        /* at least 1, because 0 would mean no limit */
        uint64_t limit = bytes < 1 ? 1 : (uint64_t)bytes;
        TRY(g->backend->set_memory(number, limit, !r->allow_growth));
    }
done:
    return st;
}

/* Returns the backend if it works on this machine; otherwise returns NULL, with the reason in
 * why[BACKEND_WHY_SIZE]. */
static const struct backend *backend_that_works(const char *dir, char *why)
{
    const struct backend *b = NULL;
    if (backend_find("cuda", dir, &b, why) != ST_OK)
        return NULL;
    if (b->device_info == NULL || b->set_memory == NULL) {
        snprintf(why, BACKEND_WHY_SIZE, "backend 'cuda' is of another version than this worker");
        return NULL;
    }
    if (b->n_devices() == 0) {
        snprintf(why, BACKEND_WHY_SIZE, "the driver shows a GPU, but CUDA cannot use it");
        return NULL;
    }
    return b;
}

/* Guards NVML and the variables below: the GPUs of this process, for log lines about memory. */
static pthread_mutex_t used_lock = PTHREAD_MUTEX_INITIALIZER;
static struct device_info used[DEVICE_MAX];
static int n_used;

/* Writes a text such as "it is also used by process 812 (python3 of anna)", or "". */
static void users_text(int device, char *dst, size_t bytes)
{
    char why[DEVICE_WHY_SIZE];
    struct device_load load;
    size_t n = 0;
    dst[0] = '\0';
    pthread_mutex_lock(&used_lock);
    struct device_nvml *nvml = device_nvml_open(why);
    for (int i = 0; nvml != NULL && i < n_used; i++) {
        if (used[i].ordinal != device)
            continue;
        device_nvml_load(nvml, &used[i], &load);
        for (int k = 0; k < load.n_pids && n < bytes; k++) {
            char one[2 * PROCESS_INFO_NAME_SIZE + 16];
            if (load.pid[k] == (int)getpid())
                continue;
            process_info_text(load.pid[k], one, sizeof one);
            n += (size_t)snprintf(dst + n, bytes - n, "%sprocess %s",
                                  n ? ", " : "the GPU is also used by ", one);
        }
    }
    device_nvml_close(nvml);
    pthread_mutex_unlock(&used_lock);
}

static void log_libraries(const struct gpus *g)
{
    char why[DEVICE_WHY_SIZE], driver[64] = "", path[DEVICE_FILE_SIZE], libraries[1024] = "";
    int version;
    struct device_nvml *nvml = device_nvml_open(why);
    if (nvml != NULL)
        device_nvml_driver(nvml, driver, sizeof driver);
    device_nvml_close(nvml);
    device_cuda_driver(&version, path);
    if (g->backend->report != NULL)
        g->backend->report->libraries(libraries, sizeof libraries);
    LOG_I("NVIDIA driver %s%sfor CUDA up to %d.%d (%s); %s", driver, driver[0] ? " " : "",
          version / 1000, version % 1000 / 10, path, libraries);
}

static void set_backend_users(const struct gpus *g)
{
    pthread_mutex_lock(&used_lock);
    n_used = g->chosen.n;
    memcpy(used, g->chosen.gpu, (size_t)n_used * sizeof *used);
    pthread_mutex_unlock(&used_lock);
    if (g->backend->report != NULL)
        g->backend->report->set_users(users_text);
}

enum status gpus_open(const struct gpus_request *r, struct gpus *out)
{
    enum status st = ST_OK;
    char why[BACKEND_WHY_SIZE];
    struct gpus *g = calloc(1, sizeof *g);
    if (!g) {
        LOG_E("out of memory for a list of GPUs");
        return ST_NOMEM;
    }
    struct devices_request choice = r->choice;
    choice.memory_fraction = r->memory_fraction;
    choice.allow_growth = r->allow_growth;
    TRY(devices_choose(&choice, &g->chosen));
    if (g->chosen.n > 0)
        g->backend = backend_that_works(r->backend_dir, why);
    if (g->chosen.n > 0 && g->backend == NULL) {
        if (!devices_may_be_none(r->choice.gpus)) {
            LOG_E("--gpus=%.100s: %s", r->choice.gpus, why);
            st = ST_NOT_FOUND;
            goto done;
        }
        LOG_W("training on the CPU: %s", why);
        gpus_release(g);
    }
    if (g->chosen.n > 0) {
        log_libraries(g);
        TRY(gpus_check(&g->chosen, g->backend));
        set_backend_users(g);
        TRY(memory_set(r, g));
    }
    *out = *g;
done:
    if (st != ST_OK && g)
        gpus_release(g);
    free(g);
    return st;
}

void gpus_release(struct gpus *g)
{
    devices_release(&g->chosen);
    g->backend = NULL;
}
