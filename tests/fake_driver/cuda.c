/* tests/fake_driver/cuda.c - a libcuda.so.1 without a card, for tests. A file describes the machine
 * (state.h). CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER work as in NVIDIA's CUDA programming guide:
 * the list has numbers, or UUIDs or their unique beginnings; the first entry that is not a device
 * ends the list; a device that is named twice empties the list; numbers are read like strtol. One
 * MIG instance is shown: the first named one, otherwise the first one of a card. Unlike the real
 * library, the fake reads the file again at each cuInit. */
#include "tests/fake_driver/state.h"

enum { SUCCESS = 0, INVALID_VALUE = 1, NO_DEVICE = 100, INVALID_DEVICE = 101, UNKNOWN = 999 };

struct uuid {
    unsigned char bytes[16];
};

int cuInit(unsigned flags);
int cuDeviceGetCount(int *n);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetName(char *name, int size, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceGetPCIBusId(char *id, int size, int device);
int cuDeviceGetUuid(struct uuid *uuid, int device);
int cuDeviceGetUuid_v2(struct uuid *uuid, int device);
int cuGetErrorString(int error, const char **text);
int cuDriverGetVersion(int *version);
const struct fake_state *fake_cuda_card(int ordinal, int *card);

static struct fake_state state;
static struct visible {
    const struct fake_gpu *card;
    const struct fake_part *part; /* the card itself or its MIG instance */
} all[FAKE_MAX], visible[FAKE_MAX];
static int n_visible;

static int before(const struct fake_gpu *a, const struct fake_gpu *b, int by_bus)
{
    if (!by_bus && a->speed != b->speed)
        return a->speed > b->speed;
    return memcmp(a->pci, b->pci, sizeof a->pci) < 0; /* sufficient for small numbers */
}

static void order_all(void)
{
    const char *order = getenv("CUDA_DEVICE_ORDER");
    int by_bus = order && strcmp(order, "PCI_BUS_ID") == 0;
    for (int i = 0; i < state.n; i++) {
        const struct fake_gpu *g = &state.gpu[i];
        int at = i;
        for (; at > 0 && before(g, all[at - 1].card, by_bus); at--)
            all[at] = all[at - 1];
        all[at] = (struct visible){g, g->n_migs ? &g->mig[0] : &g->own};
    }
}

/* Returns true if the entry names exactly one device. */
static int find_uuid(const char *entry, struct visible *out)
{
    int found = 0;
    for (int i = 0; i < state.n; i++) {
        const struct fake_gpu *g = all[i].card;
        if (strncmp(g->own.uuid, entry, strlen(entry)) == 0) {
            *out = all[i];
            found++;
        }
        for (int k = 0; k < g->n_migs; k++) {
            if (strncmp(g->mig[k].uuid, entry, strlen(entry)) != 0)
                continue;
            *out = (struct visible){g, &g->mig[k]};
            found++;
        }
    }
    return found == 1;
}

static int find_entry(const char *entry, int by_uuid, struct visible *out)
{
    char *end;
    if (by_uuid)
        return strlen(entry) > 4 && find_uuid(entry, out);
    long i = strtol(entry, &end, 10);
    if (end == entry || i < 0 || i >= state.n)
        return 0;
    *out = all[i];
    return 1;
}

static void choose_visible(const char *text)
{
    char copy[1024], *save = NULL;
    snprintf(copy, sizeof copy, "%s", text);
    int by_uuid = strncmp(copy, "GPU-", 4) == 0 || strncmp(copy, "MIG-", 4) == 0;
    int has_mig = 0;
    n_visible = 0;
    for (char *e = strtok_r(copy, ",", &save); e != NULL; e = strtok_r(NULL, ",", &save)) {
        struct visible v;
        if (!find_entry(e, by_uuid, &v))
            break;
        for (int i = 0; i < n_visible; i++) {
            if (visible[i].part == v.part) {
                n_visible = 0;
                return;
            }
        }
        int is_mig = v.part != &v.card->own;
        if (n_visible == FAKE_MAX || (is_mig && has_mig))
            break;
        has_mig |= is_mig;
        visible[n_visible++] = v;
    }
}

int cuInit(unsigned flags)
{
    n_visible = 0;
    if (flags != 0)
        return INVALID_VALUE;
    if (!fake_read(&state))
        return NO_DEVICE;
    if (state.cuda_init != SUCCESS)
        return state.cuda_init;
    order_all();
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    if (text != NULL) {
        choose_visible(text);
    } else {
        n_visible = state.n;
        memcpy(visible, all, sizeof visible);
    }
    return n_visible > 0 ? SUCCESS : NO_DEVICE;
}

int cuDeviceGetCount(int *n)
{
    *n = n_visible;
    return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal)
{
    if (ordinal < 0 || ordinal >= n_visible)
        return INVALID_DEVICE;
    *device = 1000 + ordinal; /* a handle differs from the device's number */
    return SUCCESS;
}

static const struct visible *of(int device)
{
    return device >= 1000 && device < 1000 + n_visible ? &visible[device - 1000] : NULL;
}

int cuDeviceGetName(char *name, int size, int device)
{
    const struct visible *v = of(device);
    if (v == NULL)
        return INVALID_DEVICE;
    snprintf(name, (size_t)size, "%s%s", v->card->name, v->part != &v->card->own ? " MIG" : "");
    return SUCCESS;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    const struct visible *v = of(device);
    if (v == NULL)
        return INVALID_DEVICE;
    *bytes = (size_t)v->part->total_mb << 20;
    return v->card->lost == 3 ? UNKNOWN : SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    const struct visible *v = of(device);
    if (v == NULL || (attribute != 75 && attribute != 76))
        return INVALID_VALUE;
    *value = v->card->cc[attribute - 75];
    return SUCCESS;
}

int cuDeviceGetPCIBusId(char *id, int size, int device)
{
    const struct visible *v = of(device);
    if (v == NULL)
        return INVALID_DEVICE;
    snprintf(id, (size_t)size, "%04X:%02X:%02X.%X", v->card->pci[0], v->card->pci[1],
             v->card->pci[2], v->card->pci[3]);
    return SUCCESS;
}

static int uuid_of(const struct fake_part *part, struct uuid *out)
{
    return fake_uuid_bytes(part, out->bytes) ? SUCCESS : INVALID_VALUE;
}

int cuDeviceGetUuid(struct uuid *uuid, int device)
{
    const struct visible *v = of(device);
    return v ? uuid_of(&v->card->own, uuid) : INVALID_DEVICE;
}

int cuDeviceGetUuid_v2(struct uuid *uuid, int device)
{
    const struct visible *v = of(device);
    return v ? uuid_of(v->part, uuid) : INVALID_DEVICE;
}

int cuGetErrorString(int error, const char **text)
{
    *text = error == NO_DEVICE ? "no CUDA-capable device is detected" : "an error of the fake";
    return SUCCESS;
}

/* cuDriverGetVersion() works before cuInit(), too. */
int cuDriverGetVersion(int *version)
{
    struct fake_state now;
    *version = fake_read(&now) && now.cuda_version ? now.cuda_version : 12040;
    return SUCCESS;
}

/* Returns the machine for tests/emulation, and sets *card to the index of the card with CUDA's
 * number `ordinal`; -1: there is no such card. */
const struct fake_state *fake_cuda_card(int ordinal, int *card)
{
    if (state.n == 0)
        cuInit(0);
    *card = ordinal >= 0 && ordinal < n_visible ? (int)(visible[ordinal].card - state.gpu) : -1;
    return &state;
}
