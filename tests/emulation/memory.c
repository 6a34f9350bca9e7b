/* tests/emulation/memory.c - see the header. */
#include "tests/emulation/memory.h"
#include "tests/emulation/errors.h"
#include "tests/emulation/machine.h"
#include "tests/emulation/runtime.h"
#include "tests/emulation/streams.h"
#include <cuda_runtime_api.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* RED_BYTES: size of the zones before and after each allocation of a device. */
enum { MAX_BLOCKS = 4096, RED_BYTES = 256, NAN_FILE_BYTES = 1 << 22 };
#ifdef __SANITIZE_ADDRESS__
enum { LARGE_BYTES = 1 << 23 }; /* smaller blocks are from malloc(), which checks their ends */
#else
enum { LARGE_BYTES = 1 << 21 };
#endif
enum kind { DEVICE, PINNED, REGISTERED };

static struct block {
    uintptr_t first, end;
    enum kind kind;
    int device; /* device of the allocation */
} blocks[MAX_BLOCKS];
static int n_blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the fields above */

static void block_add(void *at, size_t bytes, enum kind kind)
{
    pthread_mutex_lock(&lock);
    if (n_blocks == MAX_BLOCKS)
        emulation_fail("too many blocks of memory");
    int device = emulation_device();
    blocks[n_blocks++] = (struct block){(uintptr_t)at, (uintptr_t)at + bytes, kind, device};
    if (kind == DEVICE)
        emulation_book(device, (long long)bytes);
    pthread_mutex_unlock(&lock);
}

static struct block *block_at(const void *at, enum kind kind)
{
    for (int i = 0; i < n_blocks; i++)
        if (blocks[i].first == (uintptr_t)at && blocks[i].kind == kind)
            return &blocks[i];
    return NULL;
}

/* Copies the block; returns 0 if there is no such block. */
static int block_find(const void *at, enum kind kind, struct block *out)
{
    pthread_mutex_lock(&lock);
    struct block *b = block_at(at, kind);
    if (b != NULL)
        *out = *b;
    pthread_mutex_unlock(&lock);
    return b != NULL;
}

static void block_remove(const void *at, enum kind kind)
{
    pthread_mutex_lock(&lock);
    struct block *b = block_at(at, kind);
    if (kind == DEVICE)
        emulation_book(b->device, -(long long)(b->end - b->first));
    *b = blocks[--n_blocks];
    pthread_mutex_unlock(&lock);
}

/* ---- red zones ---- */

/* Pattern of a zone. Read as any float type it is NaN, but not a NaN that a computation yields:
 * 0xff at odd addresses, and at even addresses a byte that few other zones have, because sums and
 * copies keep a NaN's bits. */
typedef uint64_t __attribute__((may_alias)) word;

static uint8_t red_byte(uintptr_t zone, uintptr_t at)
{
    return at % 2 != 0 ? 0xff : (uint8_t)(0xc1 + zone / 2 * 37 % 61);
}

__attribute__((no_sanitize("address"))) static void red_fill(uint8_t *at)
{
    for (volatile uint8_t *p = at; p < at + RED_BYTES; p++)
        *p = red_byte((uintptr_t)at, (uintptr_t)p);
    ASAN_POISON_MEMORY_REGION(at, RED_BYTES);
}

/* Returns true if the zone was written. This is checked after each call, by whole words if
 * possible. */
__attribute__((no_sanitize("address"))) static int red_broken(uintptr_t zone)
{
    uintptr_t at = zone, end = zone + RED_BYTES;
    const uint64_t red_word = 0xff00ff00ff00ff00 | red_byte(zone, 0) * (uint64_t)0x0001000100010001;
    for (; at % sizeof(word) != 0; at++)
        if (*(const uint8_t *)at != red_byte(zone, at))
            return 1;
    for (; at + sizeof(word) <= end; at += sizeof(word))
        if (*(const word *)at != red_word)
            return 1;
    for (; at < end; at++)
        if (*(const uint8_t *)at != red_byte(zone, at))
            return 1;
    return 0;
}

void emulation_check_red(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_blocks; i++) {
        const struct block *b = &blocks[i];
        int before = b->kind == DEVICE && red_broken(b->first - RED_BYTES);
        if (!before && (b->kind != DEVICE || !red_broken(b->end)))
            continue;
        fprintf(stderr, "emulation: something wrote %s the %zu bytes of device memory at %p\n",
                before ? "before" : "behind", (size_t)(b->end - b->first), (void *)b->first);
        abort();
    }
    pthread_mutex_unlock(&lock);
}

static int nan_file;

static void make_nan_file(void)
{
    static uint8_t nan[NAN_FILE_BYTES];
    memset(nan, 0xff, sizeof nan);
    nan_file = memfd_create("emulation", MFD_CLOEXEC);
    if (nan_file < 0 || write(nan_file, nan, sizeof nan) != (ssize_t)sizeof nan)
        emulation_fail("no memory file");
}

/* Allocates memory filled with NaN. All its pages are mapped from one file, since most pages of a
 * workspace are never written. */
static void *large_alloc(size_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_nan_file);
    uint8_t *all = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (size_t at = 0; all != MAP_FAILED && at < bytes; at += NAN_FILE_BYTES) {
        size_t n = bytes - at < NAN_FILE_BYTES ? bytes - at : NAN_FILE_BYTES;
        if (mmap(all + at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
                 nan_file, 0) == MAP_FAILED)
            emulation_fail("no memory");
    }
    return all == MAP_FAILED ? NULL : all;
}

/* Allocates memory filled with NaN at a multiple of 256, with red zones around it; NULL: out of
 * memory. */
static void *red_alloc(size_t bytes)
{
    size_t n = RED_BYTES + (bytes + 255) / 256 * 256 + RED_BYTES;
    uint8_t *all = bytes >= LARGE_BYTES ? large_alloc(n) : aligned_alloc(256, n);
    if (all == NULL)
        return NULL;
    red_fill(all);
    red_fill(all + RED_BYTES + bytes);
    if (bytes < LARGE_BYTES)
        emulation_fill_nan(all + RED_BYTES, bytes);
    return all + RED_BYTES;
}

static void red_free(void *at, size_t bytes)
{
    uint8_t *all = (uint8_t *)at - RED_BYTES;
    ASAN_UNPOISON_MEMORY_REGION(all, RED_BYTES + bytes + RED_BYTES);
    if (bytes >= LARGE_BYTES)
        munmap(all, RED_BYTES + (bytes + 255) / 256 * 256 + RED_BYTES);
    else
        free(all);
}

/* ---- owners of memory ---- */

/* Counts the bytes that belong to devices, or to the host if `device` is 0. */
static size_t bytes_of_kind(const void *at, size_t bytes, int device)
{
    uintptr_t first = (uintptr_t)at, end = first + bytes;
    size_t n = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_blocks; i++) {
        uintptr_t from = blocks[i].first > first ? blocks[i].first : first;
        uintptr_t to = blocks[i].end < end ? blocks[i].end : end;
        if ((blocks[i].kind == DEVICE) == device && from < to)
            n += to - from;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

size_t emulation_pinned_bytes(const void *at, size_t bytes)
{
    return bytes_of_kind(at, bytes, 0);
}

int emulation_is_device(const void *at, size_t bytes)
{
    return bytes_of_kind(at, bytes, 1) != 0;
}

/* The range must be within one allocation: an access that continues in the next allocation is an
 * error even if both are adjacent. */
void emulation_check_device(const char *what, const void *at, size_t bytes)
{
    uintptr_t first = (uintptr_t)at, end = first + bytes;
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_blocks && !found; i++)
        found = blocks[i].kind == DEVICE && blocks[i].first <= first && end <= blocks[i].end;
    pthread_mutex_unlock(&lock);
    if (!found && bytes > 0) {
        fprintf(stderr, "emulation: %s: %zu bytes at %p are not device memory of one allocation\n",
                what, bytes, at);
        abort();
    }
}

size_t emulation_bytes_taken(void)
{
    size_t n = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_blocks; i++)
        n += blocks[i].kind == DEVICE ? blocks[i].end - blocks[i].first : 0;
    pthread_mutex_unlock(&lock);
    return n;
}

static size_t free_bytes_now(void)
{
    pthread_mutex_lock(&lock);
    size_t n = emulation_free_bytes(emulation_device());
    pthread_mutex_unlock(&lock);
    return n;
}

/* Large blocks, such as a library's workspace, keep their pages from one plan to the next. */
__attribute__((constructor)) static void keep_pages(void)
{
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    FAULT(emulation_answer(cudaErrorMemoryAllocation));
    FAULT_AS("cudaMalloc of a broken card", emulation_answer(cudaErrorUnknown));
    cudaError_t code = emulation_forbid();
    if (code != cudaSuccess)
        return code;
    void *at = NULL;
    if (bytes <= free_bytes_now())
        at = red_alloc(bytes);
    if (at == NULL)
        return emulation_answer(cudaErrorMemoryAllocation);
    block_add(at, bytes, DEVICE);
    *out = at;
    return cudaSuccess;
}

/* cudaFree() also waits for all work of the device. */
cudaError_t cudaFree(void *at)
{
    struct block b;
    cudaError_t code = emulation_forbid();
    if (at == NULL || code == cudaErrorStreamCaptureUnsupported)
        return code;
    if (!block_find(at, DEVICE, &b))
        return emulation_answer(cudaErrorInvalidValue);
    emulation_device_run(b.device);
    block_remove(at, DEVICE);
    red_free(at, b.end - b.first);
    return emulation_answer(cudaSuccess);
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    FAULT(emulation_answer(cudaErrorMemoryAllocation));
    cudaError_t code = emulation_forbid();
    if (code != cudaSuccess)
        return code;
    *out = malloc(bytes);
    if (*out == NULL)
        return emulation_answer(cudaErrorMemoryAllocation);
    memset(*out, 0xff, bytes);
    block_add(*out, bytes, PINNED);
    return cudaSuccess;
}

/* Removes a block of pinned memory, after a check that no copy uses it. Returns 0 if there is no
 * such block. */
static int pinned_end(const char *what, void *at, enum kind kind)
{
    struct block b;
    if (!block_find(at, kind, &b))
        return 0;
    emulation_check_idle(what, at, b.end - b.first);
    block_remove(at, kind);
    return 1;
}

cudaError_t cudaFreeHost(void *at)
{
    cudaError_t code = emulation_forbid();
    if (code == cudaErrorStreamCaptureUnsupported)
        return code;
    if (!pinned_end("cudaFreeHost", at, PINNED))
        return emulation_answer(cudaErrorInvalidValue);
    free(at);
    return code;
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    cudaError_t code = emulation_forbid();
    if (code != cudaSuccess)
        return code;
    if (emulation_is_unpinned(emulation_device()))
        return emulation_answer(cudaErrorNotSupported);
    if (bytes_of_kind(at, bytes, 0) != 0)
        return emulation_answer(cudaErrorHostMemoryAlreadyRegistered);
    block_add(at, bytes, REGISTERED);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *at)
{
    cudaError_t code = emulation_forbid();
    if (code == cudaErrorStreamCaptureUnsupported)
        return code;
    return pinned_end("cudaHostUnregister", at, REGISTERED)
               ? code
               : emulation_answer(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    *all = emulation_total_bytes(emulation_device());
    *free_bytes = free_bytes_now();
    return emulation_answer(cudaSuccess);
}
