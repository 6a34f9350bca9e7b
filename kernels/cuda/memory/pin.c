/* kernels/cuda/memory/pin.c - pins host memory that plans borrow. The towers of a worker share its
 * parameters, and the driver refuses to pin a page twice, so references are counted here, for the
 * whole process. */
#include "base/log.h"
#include "kernels/cuda/plan/plan.h"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* JOIN_GAP_BYTES: ranges are joined if the gap between them is at most this long, because such gaps
 * separate the blocks of one list of parameters. LEAST_BYTES: shorter ranges are not pinned. */
enum { JOIN_GAP_BYTES = 64, LEAST_BYTES = 65536 };

struct pin {
    struct gpu_range range;
    int n_users;
    int suspended; /* the range is not pinned now (gpu_pin_suspend) */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the three variables below */
static struct pin *pins;
static int n_pins, cap_pins;

static struct pin *pin_find(struct gpu_range r)
{
    for (int i = 0; i < n_pins; i++)
        if (pins[i].range.first == r.first && pins[i].range.end == r.end)
            return &pins[i];
    return NULL;
}

/* Returns true if the range is pinned now. Otherwise *why has CUDA's error. */
static int register_range(struct gpu_range r, cudaError_t *why)
{
    cudaError_t code = cudaHostRegister((void *)r.first, r.end - r.first, cudaHostRegisterPortable);
    if (code == cudaSuccess)
        return 1;
    *why = code;
    (void)cudaGetLastError();
    return 0;
}

static void unregister_range(struct gpu_range r)
{
    /* this call fails if the GPU is lost, and another call logs that error */
    if (cudaHostUnregister((void *)r.first) != cudaSuccess)
        (void)cudaGetLastError();
}

static void log_unpinned(size_t bytes, cudaError_t why)
{
    if (bytes > 0)
        LOG_W(
            "CUDA backend: %zu bytes of host memory cannot be pinned (%s): copies to and from the GPU need one more copy on the host, and are slower",
            bytes, cudaGetErrorString(why));
}

/* Returns true if the range is pinned afterwards. Otherwise *why has CUDA's error. The caller holds
 * the lock. */
static int pin_acquire(struct gpu_range r, cudaError_t *why)
{
    *why = cudaErrorMemoryAllocation;
    struct pin *known = pin_find(r);
    if (known != NULL) {
        known->n_users++;
        return 1;
    }
    if (n_pins == cap_pins) {
        int cap = cap_pins * 2 + 16;
        struct pin *more = realloc(pins, (size_t)cap * sizeof *more);
        if (more == NULL)
            return 0;
        pins = more;
        cap_pins = cap;
    }
    if (!register_range(r, why))
        return 0;
    pins[n_pins++] = (struct pin){r, 1, 0};
    return 1;
}

static void pin_release(struct gpu_range r)
{
    struct pin *known = pin_find(r);
    if (known == NULL || --known->n_users > 0)
        return;
    if (!known->suspended)
        unregister_range(r);
    *known = pins[--n_pins];
    if (n_pins == 0) {
        free(pins);
        pins = NULL;
        cap_pins = 0;
    }
}

enum status gpu_pin(struct gpu_range *ranges, int n, struct gpu_range_list *out)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    n = gpu_pieces_join_ranges(ranges, n, JOIN_GAP_BYTES);
    out->ranges = calloc((size_t)n + 1, sizeof *out->ranges);
    out->n = 0;
    size_t failed_bytes = 0;
    cudaError_t why = cudaSuccess;
    if (out->ranges == NULL)
        return gpu_check_no_host_memory();
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++) {
        struct gpu_range r = gpu_pieces_whole_pages(ranges[i], page);
        if (r.end < r.first + LEAST_BYTES)
            continue;
        cudaError_t code;
        if (pin_acquire(r, &code)) {
            out->ranges[out->n++] = r;
        } else {
            failed_bytes += r.end - r.first;
            why = code;
        }
    }
    pthread_mutex_unlock(&lock);
    log_unpinned(failed_bytes, why);
    return ST_OK;
}

static int overlaps(struct gpu_range a, struct gpu_range b)
{
    return a.first < b.end && b.first < a.end;
}

void gpu_pin_suspend(const struct gpu_range_list *list, struct gpu_range moved, int on)
{
    size_t failed_bytes = 0;
    cudaError_t why = cudaSuccess;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < list->n; i++) {
        struct pin *known = pin_find(list->ranges[i]);
        if (known == NULL || !known->suspended == !on || !overlaps(known->range, moved))
            continue;
        if (on)
            unregister_range(known->range);
        known->suspended = on || !register_range(known->range, &why);
        if (!on && known->suspended)
            failed_bytes += known->range.end - known->range.first;
    }
    pthread_mutex_unlock(&lock);
    log_unpinned(failed_bytes, why);
}

void gpu_pin_release(struct gpu_range_list *list)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < list->n; i++)
        pin_release(list->ranges[i]);
    pthread_mutex_unlock(&lock);
    free(list->ranges);
    *list = (struct gpu_range_list){.n = 0};
}
