/* worker/device/device_cuda.c - calls the driver's library, see device_cuda.h. This file itself
 * declares the few functions that it calls, by the documented binary interface of the driver API,
 * so the build needs no CUDA header. */
#include "worker/device/device_cuda.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CUDA_SUCCESS = 0,
    CUDA_STUB_LIBRARY = 34,
    CUDA_NO_DEVICE = 100,
    ATTRIBUTE_MAJOR = 75,
    ATTRIBUTE_MINOR = 76,
    UUID_BYTES = 16
};

struct cuda_uuid {
    uint8_t bytes[UUID_BYTES];
};

/* Functions of the driver, in the order of `names`. */
struct cuda_api {
    int (*init)(unsigned flags);
    int (*count)(int *n);
    int (*get)(int *device, int ordinal);
    int (*name)(char *name, int size, int device);
    int (*memory)(size_t *bytes, int device);
    int (*attribute)(int *value, int attribute, int device);
    int (*pci)(char *id, int size, int device);
    int (*uuid)(struct cuda_uuid *uuid, int device); /* UUID of the GPU */
    /* Functions that older drivers lack. */
    int (*uuid_v2)(struct cuda_uuid *uuid, int device); /* UUID of the MIG instance, if any */
    int (*error_string)(int error, const char **text);
};

static const char *const names[] = {
    "cuInit",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetAttribute",
    "cuDeviceGetPCIBusId",
    "cuDeviceGetUuid",
    "cuDeviceGetUuid_v2",
    "cuGetErrorString",
};
enum { N_NAMES = sizeof names / sizeof *names, N_NEEDED = N_NAMES - 2 };
_Static_assert(sizeof(struct cuda_api) == N_NAMES * sizeof(void *), "one name for each function");

static bool load_driver(struct cuda_api *api, char *why)
{
    void *so = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (so == NULL) {
        snprintf(why, DEVICE_WHY_SIZE, "there is no NVIDIA driver (%.180s)", dlerror());
        return false;
    }
    for (int i = 0; i < N_NAMES; i++) {
        void *f = dlsym(so, names[i]);
        if (f == NULL && i < N_NEEDED) {
            snprintf(why, DEVICE_WHY_SIZE, "libcuda.so.1 has no %s; the NVIDIA driver is too old",
                     names[i]);
            return false;
        }
        memcpy((char *)api + (size_t)i * sizeof f, &f, sizeof f);
    }
    return true;
}

/* Returns the known remedy for this error of the driver; "" if the error's own text needs no
 * addition. */
static const char *error_advice(int error)
{
    static const struct {
        int error;
        const char *fix;
    } fixes[] = {
        {34, "; this is the toolkit's stub of libcuda.so.1, not the driver's; fix LD_LIBRARY_PATH"},
        {304,
         "; check that this user may read and write /dev/nvidia*, and that the container has these files"},
        {802,
         "; a service of the driver does not run yet (on machines with NVSwitch: nvidia-fabricmanager)"},
        {803,
         "; the driver's kernel module and its libraries have different versions: reboot, or in a container use the host's libraries"},
        {804,
         "; libcuda.so.1 is of a cuda-compat package that does not support this card: remove its folder from LD_LIBRARY_PATH, or update the driver"},
        {999,
         "; the driver's kernel module does not answer: 'nvidia-smi' as root loads it; otherwise reboot"},
    };
    for (size_t i = 0; i < sizeof fixes / sizeof *fixes; i++)
        if (fixes[i].error == error)
            return fixes[i].fix;
    return "";
}

/* Writes the error to `why`, and returns the value that device_cuda_list returns for it. */
static int explain_error(const struct cuda_api *api, const char *call, int error, char *why)
{
    const char *text = NULL;
    if (api->error_string == NULL || api->error_string(error, &text) != CUDA_SUCCESS)
        text = NULL;
    snprintf(why, DEVICE_WHY_SIZE, "CUDA shows no GPU (%s: %d, %.90s)%s", call, error,
             text ? text : "unknown error", error_advice(error));
    return error == CUDA_NO_DEVICE || error == CUDA_STUB_LIBRARY ? 0 : -2;
}

void device_cuda_uuid(const uint8_t uuid[16], int is_mig, char *out)
{
    int n = snprintf(out, DEVICE_UUID_SIZE, is_mig ? "MIG-" : "GPU-");
    for (int i = 0; i < UUID_BYTES; i++)
        n += snprintf(out + n, DEVICE_UUID_SIZE - (size_t)n, "%s%02x",
                      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

static void pci_text(const char *id, char *out)
{
    unsigned domain, bus, device, function;
    if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &device, &function) == 4)
        snprintf(out, DEVICE_PCI_SIZE, "%04x:%02x:%02x.%x", domain, bus & 0xff, device & 0xff,
                 function & 0xf);
    else
        snprintf(out, DEVICE_PCI_SIZE, "unknown");
}

/* Reads one device. Returns 0, or CUDA's error; then *call names the failed function. */
static int read_one(const struct cuda_api *api, int ordinal, struct device_info *d,
                    const char **call)
{
    int device, error;
    char pci[64] = "";
    size_t bytes = 0;
    struct cuda_uuid card = {{0}}, own;
    *d = (struct device_info){.ordinal = ordinal};
#define CALL(what, ...)                                                                            \
    do {                                                                                           \
        *call = #what;                                                                             \
        error = api->what(__VA_ARGS__);                                                            \
        if (error != CUDA_SUCCESS)                                                                 \
            return error;                                                                          \
    } while (0)
    CALL(get, &device, ordinal);
    CALL(name, d->name, (int)sizeof d->name - 1, device);
    CALL(memory, &bytes, device);
    CALL(attribute, &d->capability[0], ATTRIBUTE_MAJOR, device);
    CALL(attribute, &d->capability[1], ATTRIBUTE_MINOR, device);
    CALL(pci, pci, (int)sizeof pci, device);
    CALL(uuid, &card, device);
    own = card;
    if (api->uuid_v2 != NULL)
        CALL(uuid_v2, &own, device);
#undef CALL
    d->memory_bytes = bytes;
    d->is_mig = memcmp(&card, &own, sizeof card) != 0;
    device_cuda_uuid(own.bytes, d->is_mig, d->uuid);
    pci_text(pci, d->pci);
    return CUDA_SUCCESS;
}

int device_cuda_list(struct device_info *list, char *why)
{
    struct cuda_api api;
    int n = 0;
    why[0] = '\0';
    if (!load_driver(&api, why))
        return -1;
    int error = api.init(0);
    if (error != CUDA_SUCCESS)
        return explain_error(&api, "cuInit", error, why);
    error = api.count(&n);
    if (error != CUDA_SUCCESS)
        return explain_error(&api, "cuDeviceGetCount", error, why);
    if (n <= 0) {
        snprintf(why, DEVICE_WHY_SIZE, "CUDA shows no GPU");
        return 0;
    }
    if (n > DEVICE_MAX)
        n = DEVICE_MAX;
    for (int i = 0; i < n; i++) {
        const char *call;
        error = read_one(&api, i, &list[i], &call);
        if (error != CUDA_SUCCESS) {
            char asked[64];
            snprintf(asked, sizeof asked, "query of GPU %d for its %s", i, call);
            int found = explain_error(&api, asked, error, why);
            size_t at = strlen(why);
            snprintf(
                why + at, DEVICE_WHY_SIZE - at,
                "; if it fell off the bus, reset it or reboot, or exclude it by CUDA_VISIBLE_DEVICES");
            return found;
        }
    }
    return n;
}

void device_cuda_driver(int *version, char *path)
{
    Dl_info info;
    char real[PATH_MAX];
    int (*ask)(int *);
    *version = 0;
    path[0] = '\0';
    void *so = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *f = so != NULL ? dlsym(so, "cuDriverGetVersion") : NULL;
    if (f == NULL)
        return;
    memcpy(&ask, &f, sizeof f);
    if (ask(version) != CUDA_SUCCESS)
        *version = 0;
    if (dladdr(f, &info) != 0 && info.dli_fname != NULL)
        snprintf(path, DEVICE_FILE_SIZE, "%.511s",
                 realpath(info.dli_fname, real) ? real : info.dli_fname);
}
