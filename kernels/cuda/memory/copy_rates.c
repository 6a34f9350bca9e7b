/* kernels/cuda/memory/copy_rates.c - times several copies in each direction, and reports the
 * fastest. The host memory is pinned in the same way as a plan's memory (pin.h). So the measurement
 * also detects a machine on which a plan's memory cannot be pinned. */
#include "kernels/cuda/memory/copy_rates.h"
#include "base/clock.h"
#include "base/log.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/cuda/plan/plan.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REPEATS = 4 };

struct copies {
    void *host, *device;
    size_t bytes;
    cudaStream_t stream;
};

/* Raises *rate if this copy is faster. */
static enum status copy(const struct copies *c, enum cudaMemcpyKind kind, double *rate)
{
    enum status st = ST_OK;
    bool is_up = kind == cudaMemcpyHostToDevice;
    int64_t begin = clock_now_ns();
    TRY(gpu_check_cuda(NULL, "cudaMemcpyAsync",
                       cudaMemcpyAsync(is_up ? c->device : c->host, is_up ? c->host : c->device,
                                       c->bytes, kind, c->stream)));
    TRY(gpu_check_cuda(NULL, "cudaStreamSynchronize", cudaStreamSynchronize(c->stream)));
    *rate = fmax(*rate, (double)c->bytes / (double)(clock_now_ns() - begin));
done:
    return st;
}

static enum status measure(const struct copies *c, struct copy_rate *out)
{
    enum status st = ST_OK;
    *out = (struct copy_rate){0, 0};
    for (int i = 0; i < REPEATS; i++) {
        TRY(copy(c, cudaMemcpyHostToDevice, &out->up));
        TRY(copy(c, cudaMemcpyDeviceToHost, &out->down));
    }
done:
    if (st != ST_OK)
        (void)cudaStreamSynchronize(c->stream); /* no copy to freed memory remains queued */
    return st;
}

static enum status measure_pinned(const struct copies *c, struct copy_rates *out)
{
    struct gpu_range all = {(uintptr_t)c->host, (uintptr_t)c->host + c->bytes};
    struct gpu_range_list pins;
    enum status st = gpu_pin(&all, 1, &pins);
    if (st != ST_OK)
        return st;
    out->is_pinned = pins.n > 0;
    if (out->is_pinned)
        st = measure(c, &out->pinned);
    gpu_pin_release(&pins);
    return st;
}

enum status gpu_copy_rates(int device, size_t bytes, struct copy_rates *out)
{
    enum status st = ST_OK;
    struct copy_rates rates = {.is_pinned = false};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct copies c = {.bytes = bytes / page * page};
    c.host = aligned_alloc(page, c.bytes);
    st = c.host == NULL ? ST_NOMEM : gpu_memory_alloc(device, c.bytes, &c.device);
    if (st == ST_NOMEM)
        LOG_W(
            "CUDA backend: the rates of copies are not measured: the %s lacks %zu bytes of free memory",
            c.host == NULL ? "host" : "GPU", c.bytes);
    TRY(st);
    memset(c.host, 1, c.bytes);
    TRY(gpu_check_cuda(NULL, "cudaStreamCreateWithFlags",
                       cudaStreamCreateWithFlags(&c.stream, cudaStreamNonBlocking)));
    TRY(measure(&c, &rates.pageable));
    TRY(measure_pinned(&c, &rates));
    *out = rates;
done:
    if (c.stream != NULL) {
        (void)cudaStreamDestroy(c.stream);
        (void)cudaGetLastError();
    }
    gpu_memory_free(device, c.device, c.bytes);
    free(c.host);
    return st;
}
