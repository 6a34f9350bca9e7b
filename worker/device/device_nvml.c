/* worker/device/device_nvml.c - calls NVML, see device_nvml.h. This file itself declares NVML's
 * functions and structs, by their documented binary interface, so the build needs no header of
 * NVIDIA. */
#include "worker/device/device_nvml.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    NVML_SUCCESS = 0,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_GPU_IS_LOST = 15,
    MAX_PROCESSES = 128,
    UUID_BUFFER = 96,
    NVML_SENSOR_GPU = 0,
    NVML_ECC_UNCORRECTED = 1,
    NVML_ECC_VOLATILE = 0,
};

struct nvml_handle; /* NVML's type */

struct nvml_pci {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_utilization {
    unsigned gpu, memory;
};

struct nvml_process_v1 {
    unsigned pid;
    unsigned long long used;
};

struct nvml_process { /* layout in versions 2 and 3 of the function that lists a GPU's processes */
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

/* Functions of NVML, in the order of `names`. */
struct nvml_api {
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int error);
    int (*count)(unsigned *n);
    int (*handle)(unsigned index, struct nvml_handle **out);
    int (*uuid)(struct nvml_handle *h, char *out, unsigned size);
    int (*pci)(struct nvml_handle *h, struct nvml_pci *out);
    int (*memory)(struct nvml_handle *h, struct nvml_memory *out);
    int (*utilization)(struct nvml_handle *h, struct nvml_utilization *out);
    /* Functions that older drivers lack, up to the end of the struct. */
    int (*mig_mode)(struct nvml_handle *h, unsigned *now, unsigned *pending);
    int (*mig_count)(struct nvml_handle *h, unsigned *n);
    int (*mig_handle)(struct nvml_handle *h, unsigned index, struct nvml_handle **out);
    int (*processes_v3)(struct nvml_handle *h, unsigned *n, void *out);
    int (*processes_v2)(struct nvml_handle *h, unsigned *n, void *out);
    int (*processes_v1)(struct nvml_handle *h, unsigned *n, void *out);
    int (*temperature)(struct nvml_handle *h, unsigned sensor, unsigned *celsius);
    int (*power)(struct nvml_handle *h, unsigned *mw);
    int (*power_limit)(struct nvml_handle *h, unsigned *mw);
    int (*ecc_mode)(struct nvml_handle *h, unsigned *now, unsigned *pending);
    int (*ecc_errors)(struct nvml_handle *h, unsigned type, unsigned counter,
                      unsigned long long *n);
    int (*driver)(char *out, unsigned size);
};

static const char *const names[] = {
    "nvmlInit_v2",
    "nvmlShutdown",
    "nvmlErrorString",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlSystemGetDriverVersion",
};
enum { N_NAMES = sizeof names / sizeof *names, N_NEEDED = 9 };
_Static_assert(sizeof(struct nvml_api) == N_NAMES * sizeof(void *), "one name for each function");

struct device_nvml {
    struct nvml_api api;
    void *so;
};

struct device_nvml *device_nvml_open(char *why)
{
    struct device_nvml *n = calloc(1, sizeof *n);
    why[0] = '\0';
    if (n == NULL) {
        snprintf(why, DEVICE_WHY_SIZE, "out of memory");
        return NULL;
    }
    n->so = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (n->so == NULL) {
        snprintf(why, DEVICE_WHY_SIZE, "there is no NVML (%.180s)", dlerror());
        goto failed;
    }
    for (int i = 0; i < N_NAMES; i++) {
        void *f = dlsym(n->so, names[i]);
        if (f == NULL && i < N_NEEDED) {
            snprintf(why, DEVICE_WHY_SIZE, "libnvidia-ml.so.1 has no %s; the driver is too old",
                     names[i]);
            goto failed;
        }
        memcpy((char *)&n->api + (size_t)i * sizeof f, &f, sizeof f);
    }
    int error = n->api.init();
    if (error != NVML_SUCCESS) {
        snprintf(why, DEVICE_WHY_SIZE, "NVML does not start (%d, %.150s)", error,
                 n->api.error_string(error));
        goto failed;
    }
    return n;
failed:
    if (n->so != NULL)
        dlclose(n->so);
    free(n);
    return NULL;
}

void device_nvml_close(struct device_nvml *n)
{
    if (n == NULL)
        return;
    n->api.shutdown();
    dlclose(n->so);
    free(n);
}

int device_nvml_count(const struct device_nvml *n)
{
    unsigned count = 0;
    return n->api.count(&count) == NVML_SUCCESS && count < 1 << 16 ? (int)count : -1;
}

/* Compares only the hexadecimal digits, because CUDA and NVML write different prefixes before
 * them. */
static bool same_uuid(const char *a, const char *b)
{
    return strlen(a) > 4 && strlen(b) > 4 && strcasecmp(a + 4, b + 4) == 0;
}

static bool has_uuid(const struct nvml_api *api, struct nvml_handle *h, const char *uuid)
{
    char own[UUID_BUFFER] = "";
    return api->uuid(h, own, sizeof own) == NVML_SUCCESS && same_uuid(own, uuid);
}

static bool has_pci(const struct nvml_api *api, struct nvml_handle *h, const char *pci)
{
    struct nvml_pci own;
    unsigned domain, bus, device;
    return api->pci(h, &own) == NVML_SUCCESS &&
           sscanf(pci, "%x:%x:%x", &domain, &bus, &device) == 3 && own.domain == domain &&
           own.bus == bus && own.device == device;
}

static struct nvml_handle *find_mig(const struct nvml_api *api, struct nvml_handle *card,
                                    const char *uuid)
{
    unsigned now = 0, pending = 0, n = 0;
    if (!api->mig_mode || !api->mig_count || !api->mig_handle)
        return NULL;
    if (api->mig_mode(card, &now, &pending) != NVML_SUCCESS || now == 0)
        return NULL;
    if (api->mig_count(card, &n) != NVML_SUCCESS)
        return NULL;
    for (unsigned i = 0; i < n && i < DEVICE_MAX; i++) {
        struct nvml_handle *part;
        if (api->mig_handle(card, i, &part) == NVML_SUCCESS && has_uuid(api, part, uuid))
            return part;
    }
    return NULL;
}

/* Finds the GPU by its UUID. CUDA and NVML may name a MIG instance differently. So if no UUID is
 * equal, finds the GPU by its PCI address: the load of the whole GPU is at least that of the
 * instance. NULL: not found; *lost is set if some GPU does not respond any more. */
static struct nvml_handle *find_handle(const struct device_nvml *n, const struct device_info *d,
                                       int *lost)
{
    struct nvml_handle *at_place = NULL;
    int count = device_nvml_count(n);
    *lost = 0;
    for (int i = 0; i < count; i++) {
        struct nvml_handle *h, *part;
        int error = n->api.handle((unsigned)i, &h);
        *lost |= error == NVML_GPU_IS_LOST;
        if (error != NVML_SUCCESS)
            continue;
        if (has_uuid(&n->api, h, d->uuid))
            return h;
        if (!has_pci(&n->api, h, d->pci))
            continue;
        part = find_mig(&n->api, h, d->uuid);
        if (part != NULL)
            return part;
        at_place = h;
    }
    return at_place;
}

static int read_processes(const struct nvml_api *api, struct nvml_handle *h,
                          struct device_load *out)
{
    union {
        struct nvml_process_v1 v1[MAX_PROCESSES];
        struct nvml_process v3[MAX_PROCESSES];
    } list;
    unsigned n = MAX_PROCESSES;
    int old = api->processes_v3 == NULL && api->processes_v2 == NULL;
    int (*ask)(struct nvml_handle *, unsigned *, void *) = api->processes_v3   ? api->processes_v3
                                                           : api->processes_v2 ? api->processes_v2
                                                                               : api->processes_v1;
    out->n_processes = -1;
    if (ask == NULL)
        return NVML_SUCCESS;
    memset(&list, 0, sizeof list);
    int error = ask(h, &n, &list);
    if (error != NVML_SUCCESS && error != NVML_INSUFFICIENT_SIZE)
        return error == NVML_GPU_IS_LOST ? error : NVML_SUCCESS;
    out->n_processes = n < 1 << 20 ? (int)n : 1 << 20;
    for (int i = 0; error == NVML_SUCCESS && i < out->n_processes && i < DEVICE_MAX_PIDS; i++)
        out->pid[out->n_pids++] = (int)(old ? list.v1[i].pid : list.v3[i].pid);
    return NVML_SUCCESS;
}

static void fail_load(const struct nvml_api *api, int error, struct device_load *out)
{
    out->state = error == NVML_GPU_IS_LOST ? DEVICE_LOAD_LOST : DEVICE_LOAD_UNKNOWN;
    snprintf(out->why, sizeof out->why, "NVML: %d, %.150s", error, api->error_string(error));
}

void device_nvml_load(const struct device_nvml *n, const struct device_info *d,
                      struct device_load *out)
{
    struct nvml_memory memory = {0};
    struct nvml_utilization busy = {0};
    int lost;
    *out = (struct device_load){.state = DEVICE_LOAD_KNOWN, .percent = -1, .n_processes = -1};
    struct nvml_handle *h = find_handle(n, d, &lost);
    if (h == NULL) {
        fail_load(&n->api, lost ? NVML_GPU_IS_LOST : NVML_SUCCESS, out);
        if (!lost)
            snprintf(out->why, sizeof out->why, "NVML does not list it");
        return;
    }
    int error = n->api.memory(h, &memory);
    if (error == NVML_SUCCESS)
        error = read_processes(&n->api, h, out);
    if (error != NVML_SUCCESS) {
        fail_load(&n->api, error, out);
        return;
    }
    out->total_bytes = memory.total;
    out->used_bytes = memory.used;
    out->free_bytes = memory.free;
    if (n->api.utilization(h, &busy) == NVML_SUCCESS)
        out->percent = busy.gpu <= 100 ? (int)busy.gpu : 100;
}

void device_nvml_health(const struct device_nvml *n, const struct device_info *d,
                        struct device_health *out)
{
    const struct nvml_api *api = &n->api;
    unsigned v, pending;
    unsigned long long errors;
    int lost;
    *out = (struct device_health){INT_MIN, -1, -1, -1, -1};
    struct nvml_handle *h = find_handle(n, d, &lost);
    if (h == NULL)
        return;
    if (api->temperature && api->temperature(h, NVML_SENSOR_GPU, &v) == NVML_SUCCESS)
        out->temperature_c = (int)v;
    if (api->power && api->power(h, &v) == NVML_SUCCESS)
        out->power_mw = v;
    if (api->power_limit && api->power_limit(h, &v) == NVML_SUCCESS)
        out->power_limit_mw = v;
    if (api->ecc_mode && api->ecc_mode(h, &v, &pending) == NVML_SUCCESS)
        out->ecc = v != 0;
    if (api->ecc_errors &&
        api->ecc_errors(h, NVML_ECC_UNCORRECTED, NVML_ECC_VOLATILE, &errors) == NVML_SUCCESS)
        out->ecc_uncorrected = (int64_t)(errors & INT64_MAX);
}

void device_nvml_driver(const struct device_nvml *n, char *out, size_t size)
{
    out[0] = '\0';
    if (n->api.driver == NULL || n->api.driver(out, (unsigned)size) != NVML_SUCCESS)
        out[0] = '\0';
    out[size - 1] = '\0';
}
