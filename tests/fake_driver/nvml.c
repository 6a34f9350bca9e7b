/* tests/fake_driver/nvml.c - a libnvidia-ml.so.1 without a card, for tests. A file describes the
 * machine (state.h). The fake reads it again at each call, so that a test can change a card's load,
 * or remove a card, while a program runs. Structs and results have the layout of NVML's
 * documentation. FAKE_OLD: the library is that of a driver before MIG and before the third form of
 * the list of processes. */
#include "tests/fake_driver/usage.h"
#include <time.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    GPU_IS_LOST = 15,
};

struct pci_info {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};

struct memory_info {
    unsigned long long total, free, used;
};

struct utilization {
    unsigned gpu, memory;
};

struct process_v1 {
    unsigned pid;
    unsigned long long used;
};

struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

struct handle;

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int error);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct handle **out);
int nvmlDeviceGetUUID(struct handle *h, char *out, unsigned size);
int nvmlDeviceGetPciInfo_v3(struct handle *h, struct pci_info *out);
int nvmlDeviceGetMemoryInfo(struct handle *h, struct memory_info *out);
int nvmlDeviceGetUtilizationRates(struct handle *h, struct utilization *out);
int nvmlDeviceGetMigMode(struct handle *h, unsigned *now, unsigned *pending);
int nvmlDeviceGetTemperature(struct handle *h, unsigned sensor, unsigned *celsius);
int nvmlDeviceGetPowerUsage(struct handle *h, unsigned *mw);
int nvmlDeviceGetEnforcedPowerLimit(struct handle *h, unsigned *mw);
int nvmlDeviceGetEccMode(struct handle *h, unsigned *now, unsigned *pending);
int nvmlDeviceGetTotalEccErrors(struct handle *h, unsigned type, unsigned counter,
                                unsigned long long *n);
int nvmlSystemGetDriverVersion(char *out, unsigned size);
int nvmlDeviceGetMaxMigDeviceCount(struct handle *h, unsigned *n);
int nvmlDeviceGetMigDeviceHandleByIndex(struct handle *h, unsigned index, struct handle **out);
int nvmlDeviceGetComputeRunningProcesses_v3(struct handle *h, unsigned *n, struct process *out);
int nvmlDeviceGetComputeRunningProcesses(struct handle *h, unsigned *n, struct process_v1 *out);

static int n_init;

/* A handle is 1 + card + 256 x (0: the card, otherwise 1 + instance). */
static struct handle *handle_of(unsigned card, unsigned part)
{
    return (struct handle *)(size_t)(1 + card + 256 * part);
}

/* Adds the memory that processes of tests/emulation use on the cards, and these processes. */
static void add_usage(struct fake_state *s)
{
    struct fake_usage *u = fake_usage_open(0);
    for (int i = 0; u != NULL && i < FAKE_MAX_USERS; i++)
        for (int c = 0; c < s->n; c++) {
            struct fake_part *own = &s->gpu[c].own;
            unsigned long long bytes = fake_usage_of(u, i, c);
            if (bytes == 0)
                continue;
            own->used_mb += (bytes + (1 << 20) - 1) >> 20;
            if (own->n_procs < FAKE_MAX_PROCS)
                own->proc[own->n_procs++] = (unsigned)u->user[i].pid;
        }
    fake_usage_close(u);
}

struct found {
    struct fake_state state;
    const struct fake_gpu *card;
    const struct fake_part *part;
};

static int find(struct handle *h, struct found *f)
{
    size_t n = (size_t)h - 1, card = n % 256, part = n / 256;
    if (n_init <= 0)
        return UNINITIALIZED;
    fake_read(&f->state);
    add_usage(&f->state);
    if (card >= (size_t)f->state.n)
        return INVALID_ARGUMENT;
    f->card = &f->state.gpu[card];
    if (part > (size_t)f->card->n_migs)
        return NOT_FOUND;
    f->part = part ? &f->card->mig[part - 1] : &f->card->own;
    return SUCCESS;
}

static int answers(struct handle *h, struct found *f)
{
    int error = find(h, f);
    return error == SUCCESS && f->card->lost ? GPU_IS_LOST : error;
}

int nvmlInit_v2(void)
{
    struct fake_state s;
    fake_read(&s);
    n_init += s.nvml_init == SUCCESS;
    return s.nvml_init;
}

int nvmlShutdown(void)
{
    n_init--;
    return SUCCESS;
}

const char *nvmlErrorString(int error)
{
    return error == GPU_IS_LOST ? "GPU is lost" : "an error of the fake";
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    struct fake_state s;
    if (n_init <= 0)
        return UNINITIALIZED;
    fake_read(&s);
    *n = (unsigned)s.n;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct handle **out)
{
    struct found f;
    int error = find(handle_of(index, 0), &f);
    if (error != SUCCESS)
        return error;
    if (f.card->lost == 1)
        return GPU_IS_LOST;
    *out = handle_of(index, 0);
    return SUCCESS;
}

int nvmlDeviceGetUUID(struct handle *h, char *out, unsigned size)
{
    struct found f;
    int error = find(h, &f);
    if (error == SUCCESS)
        snprintf(out, size, "%s", f.part->uuid);
    return error;
}

int nvmlDeviceGetPciInfo_v3(struct handle *h, struct pci_info *out)
{
    struct found f;
    int error = find(h, &f);
    if (error != SUCCESS)
        return error;
    memset(out, 0, sizeof *out);
    out->domain = f.card->pci[0];
    out->bus = f.card->pci[1];
    out->device = f.card->pci[2];
    snprintf(out->id, sizeof out->id, "%08X:%02X:%02X.0", out->domain, out->bus, out->device);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(struct handle *h, struct memory_info *out)
{
    struct found f;
    int error = answers(h, &f);
    if (error != SUCCESS)
        return error;
    out->total = f.part->total_mb << 20;
    out->used = f.part->used_mb << 20;
    out->free = out->total - out->used;
    return SUCCESS;
}

/* Returns true if a card's utilisation is still that of an ended job. */
static int still_busy(const struct found *f)
{
    static long long asked_ms[FAKE_MAX]; /* time of the first query of each card */
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    long long ms = ts.tv_sec * 1000LL + ts.tv_nsec / 1000000;
    long long *asked = &asked_ms[f->card - f->state.gpu];
    if (*asked == 0)
        *asked = ms;
    return ms - *asked < f->card->lag;
}

int nvmlDeviceGetUtilizationRates(struct handle *h, struct utilization *out)
{
    struct found f;
    int error = answers(h, &f);
    if (error != SUCCESS)
        return error;
    if (f.card->n_migs > 0)
        return NOT_SUPPORTED;
    out->gpu = f.card->lag == 0 || still_busy(&f) ? (unsigned)f.card->busy : 0;
    out->memory = 0;
    return SUCCESS;
}

static int count_processes(struct handle *h, unsigned *n, struct found *f)
{
    int error = answers(h, f);
    if (error != SUCCESS)
        return error;
    unsigned room = *n;
    *n = f->state.nvml_container ? 0 : (unsigned)f->part->n_procs;
    return *n > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#ifdef FAKE_OLD
int nvmlDeviceGetComputeRunningProcesses(struct handle *h, unsigned *n, struct process_v1 *out)
{
    struct found f;
    int error = count_processes(h, n, &f);
    for (unsigned i = 0; error == SUCCESS && i < *n; i++)
        out[i] = (struct process_v1){.pid = f.part->proc[i], .used = 1 << 20};
    return error;
}
#else
int nvmlDeviceGetComputeRunningProcesses_v3(struct handle *h, unsigned *n, struct process *out)
{
    struct found f;
    int error = count_processes(h, n, &f);
    for (unsigned i = 0; error == SUCCESS && i < *n; i++)
        out[i] = (struct process){f.part->proc[i], 1 << 20, 0xffffffff, 0xffffffff};
    return error;
}

/* Sets *out. Returns NOT_SUPPORTED if the value is negative. */
static int told(long value, unsigned *out)
{
    if (value < 0)
        return NOT_SUPPORTED;
    *out = (unsigned)value;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(struct handle *h, unsigned sensor, unsigned *celsius)
{
    struct found f;
    int error = answers(h, &f);
    if (error != SUCCESS)
        return error;
    return sensor == 0 ? told(f.card->temp, celsius) : INVALID_ARGUMENT;
}

int nvmlDeviceGetPowerUsage(struct handle *h, unsigned *mw)
{
    struct found f;
    int error = answers(h, &f);
    return error != SUCCESS ? error : told(f.card->power, mw);
}

int nvmlDeviceGetEnforcedPowerLimit(struct handle *h, unsigned *mw)
{
    struct found f;
    int error = answers(h, &f);
    return error != SUCCESS ? error : told(f.card->limit, mw);
}

int nvmlDeviceGetEccMode(struct handle *h, unsigned *now, unsigned *pending)
{
    struct found f;
    int error = answers(h, &f);
    *pending = 0;
    return error != SUCCESS ? error : told(f.card->ecc, now);
}

int nvmlDeviceGetTotalEccErrors(struct handle *h, unsigned type, unsigned counter,
                                unsigned long long *n)
{
    struct found f;
    unsigned errors = 0;
    int error = answers(h, &f);
    if (error == SUCCESS)
        error = type == 1 && counter == 0 ? told(f.card->eccerr, &errors) : INVALID_ARGUMENT;
    if (error == SUCCESS)
        *n = errors;
    return error;
}

int nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    struct fake_state s;
    fake_read(&s);
    snprintf(out, size, "%s", s.nvml_driver);
    return s.nvml_driver[0] ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetMigMode(struct handle *h, unsigned *now, unsigned *pending)
{
    struct found f;
    int error = answers(h, &f);
    if (error == SUCCESS)
        *now = *pending = f.card->n_migs > 0;
    return error;
}

int nvmlDeviceGetMaxMigDeviceCount(struct handle *h, unsigned *n)
{
    *n = 7;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct handle *h, unsigned index, struct handle **out)
{
    struct found f;
    int error = answers(h, &f);
    if (error != SUCCESS)
        return error;
    if (index >= (unsigned)f.card->n_migs)
        return NOT_FOUND;
    *out = handle_of((unsigned)((size_t)h - 1), index + 1);
    return SUCCESS;
}
#endif
