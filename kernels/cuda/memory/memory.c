/* kernels/cuda/memory/memory.c - one budget per device under one lock. Memory is allocated by
 * cudaMalloc, or, if the budget was allocated at once, from the budget's block. */
#include "kernels/cuda/memory/memory.h"
#include "base/log.h"
#include "kernels/cuda/memory/budget.h"
#include "kernels/cuda/plan/plan.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEVICES = 128 };

static struct {
    int is_set;
    struct gpu_budget budget;
    char *block; /* block for all allocations; NULL: each allocation is a cudaMalloc */
} devices[MAX_DEVICES];
static void (*tell_users)(int device, char *dst, size_t bytes);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the two variables below */

static enum status device_check(int device)
{
    if (device >= 0 && device < MAX_DEVICES)
        return ST_OK;
    LOG_E("CUDA backend: device %d: only %d devices are supported", device, MAX_DEVICES);
    return ST_UNSUPPORTED;
}

/* Returns the device's budget, which is unlimited if no limit was set. The caller holds the
 * lock. */
static struct gpu_budget *budget_of(int device)
{
    if (!devices[device].is_set) {
        gpu_budget_init(&devices[device].budget, UINT64_MAX, 0);
        devices[device].is_set = 1;
    }
    return &devices[device].budget;
}

/* Calls cudaMalloc without logging. */
static enum status malloc_try(uint64_t bytes, void **out)
{
    cudaError_t code = cudaMalloc(out, bytes);
    if (code == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        *out = NULL;
        return ST_NOMEM;
    }
    return gpu_check_cuda(NULL, "cudaMalloc", code);
}

void gpu_memory_set_users(void (*users)(int device, char *dst, size_t bytes))
{
    pthread_mutex_lock(&lock);
    tell_users = users;
    pthread_mutex_unlock(&lock);
}

struct card {
    struct cudaDeviceProp prop;
    size_t free_bytes, all_bytes;
    char users[256]; /* text about other users, which begins with "; ", or "" */
};

/* Reads the state of the GPU. Values that CUDA does not report are 0 or "". users: callback of
 * gpu_memory_set_users. */
static void card_read(int device, void (*users)(int, char *, size_t), struct card *out)
{
    char text[240] = "";
    memset(out, 0, sizeof *out);
    if (cudaGetDeviceProperties(&out->prop, device) != cudaSuccess ||
        cudaMemGetInfo(&out->free_bytes, &out->all_bytes) != cudaSuccess)
        (void)cudaGetLastError();
    if (users != NULL)
        users(device, text, sizeof text);
    if (text[0] != '\0')
        snprintf(out->users, sizeof out->users, "; %s", text);
}

void gpu_memory_advice(int device, int is_set, char *dst, size_t bytes)
{
    struct card c;
    pthread_mutex_lock(&lock);
    void (*users)(int, char *, size_t) = tell_users;
    pthread_mutex_unlock(&lock);
    card_read(device, users, &c);
    snprintf(
        dst, bytes,
        "; CUDA device %d ('%.95s') has %.1f MB free of its %.1f MB%s; use a smaller --batch_size%s",
        device, c.prop.name, (double)c.free_bytes / 1e6, (double)c.all_bytes / 1e6, c.users,
        is_set ? " or a larger --gpu_memory_fraction" : " or another card (--gpus)");
}

/* Logs that less memory is free than the limit allows. The caller holds the lock. */
static void say_not_free(int device, uint64_t limit)
{
    struct card c;
    card_read(device, tell_users, &c);
    LOG_E(
        "CUDA device %d ('%.95s'): %.1f MB of its memory must be free at once, but only %.1f MB of its %.1f MB are free%s; use a smaller --gpu_memory_fraction, another card (--gpus), or --gpu_allow_growth, which allocates only what is needed",
        device, c.prop.name, (double)limit / 1e6, (double)c.free_bytes / 1e6,
        (double)c.all_bytes / 1e6,
        c.users[0] ? c.users : ", and other programs use the remaining memory");
}

enum status gpu_memory_set_limit(int device, uint64_t limit, int reserve)
{
    enum status st = ST_OK;
    void *block = NULL;
    TRY(device_check(device));
    pthread_mutex_lock(&lock);
    struct gpu_budget *b = budget_of(device);
    if (b->taken > 0) {
        LOG_E(
            "CUDA device %d: the memory limit must be set before the first plan of the device is created",
            device);
        st = ST_BUSY;
        goto unlock;
    }
    if (devices[device].block != NULL)
        cudaFree(devices[device].block);
    devices[device].block = NULL;
    gpu_budget_free(b);
    devices[device].is_set = 0;
    if (limit == 0)
        goto unlock;
    if (reserve)
        st = malloc_try(limit, &block);
    if (st == ST_NOMEM)
        say_not_free(device, limit);
    if (st != ST_OK)
        goto unlock;
    gpu_budget_init(b, limit, reserve);
    devices[device].block = block;
    devices[device].is_set = 1;
unlock:
    pthread_mutex_unlock(&lock);
done:
    return st;
}

enum status gpu_memory_left(int device, uint64_t *out, int *is_set)
{
    enum status st = ST_OK;
    size_t free_bytes, all;
    TRY(device_check(device));
    TRY(gpu_check_cuda(NULL, "cudaMemGetInfo", cudaMemGetInfo(&free_bytes, &all)));
    pthread_mutex_lock(&lock);
    const struct gpu_budget *b = budget_of(device);
    *out = gpu_budget_left(b);
    *is_set = b->has_block || *out <= free_bytes;
    if (!*is_set)
        *out = free_bytes;
    pthread_mutex_unlock(&lock);
done:
    return st;
}

enum status gpu_memory_alloc(int device, uint64_t bytes, void **out)
{
    uint64_t at;
    *out = NULL;
    enum status st = device_check(device);
    if (st != ST_OK)
        return st;
    pthread_mutex_lock(&lock);
    struct gpu_budget *b = budget_of(device);
    st = gpu_budget_reserve(b, bytes, &at);
    if (st == ST_OK && b->has_block) {
        *out = devices[device].block + at;
    } else if (st == ST_OK) {
        st = malloc_try(bytes, out);
        if (st != ST_OK)
            gpu_budget_release(b, at, bytes);
    }
    pthread_mutex_unlock(&lock);
    return st;
}

void gpu_memory_free(int device, void *at, uint64_t bytes)
{
    if (at == NULL)
        return;
    pthread_mutex_lock(&lock);
    struct gpu_budget *b = budget_of(device);
    if (b->has_block) {
        gpu_budget_release(b, (uint64_t)((char *)at - devices[device].block), bytes);
    } else {
        cudaFree(at);
        gpu_budget_release(b, 0, bytes);
    }
    pthread_mutex_unlock(&lock);
}
