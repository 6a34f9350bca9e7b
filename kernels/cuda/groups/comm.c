/* kernels/cuda/groups/comm.c - NCCL's communicators of one process. The communicators do not block:
 * if NCCL has not finished a call, the calling thread polls NCCL until the call is done, a deadline
 * passes, or a cancel arrives. gpu_comm_create runs one small sum with known values, so that NCCL
 * connects all GPUs, and checks the result. */
#include "kernels/cuda/groups/comm.h"
#include "base/clock.h"
#include "base/log.h"
#include "kernels/cuda/groups/nccl.h"
#include "kernels/cuda/plan/plan.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { TRIAL_SHARE = 64, POLL_NS = 50000, SPIN_NS = 200000 };
int gpu_comm_limit_ms = 30000;

struct gpu_comm {
    const struct gpu_nccl *nccl;
    int n;
    int *device;
    ncclComm_t *member; /* [n] communicators; NULL: already destroyed */
    int broken;         /* a call failed */
    _Atomic int cancelled;
};

static enum status log_failed_call(const struct gpu_comm *c, const char *call, ncclResult_t code)
{
    LOG_E("NCCL between %d cards: %s: %s: %s", c->n, call, c->nccl->get_error_string(code),
          c->nccl->get_last_error(NULL));
    return ST_INTERNAL;
}

static int is_failure(ncclResult_t code)
{
    return code != ncclSuccess && code != ncclInProgress;
}

static void say_late(const struct gpu_comm *c, const char *what)
{
    LOG_W(
        "NCCL between %d cards: %s did not finish within %d s; the cards cannot reach each other (IOMMU or ACS in the way of PCIe, or a container without shared memory?)",
        c->n, what, gpu_comm_limit_ms / 1000);
}

/* Waits until NCCL has finished the call for all members: then the call's work is queued on the
 * streams. NCCL offers no other way to wait than polling. Only new connections need more time than
 * SPIN_NS, so the polls before that do not sleep, because a sleep would delay each layer's sum. */
static enum status settle_call(const struct gpu_comm *c, const char *call)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    int64_t deadline = clock_deadline_ns(gpu_comm_limit_ms), spin_end = clock_now_ns() + SPIN_NS;
    for (int i = 0; i < c->n;) {
        ncclResult_t state = ncclSuccess;
        ncclResult_t code = c->nccl->comm_get_async_error(c->member[i], &state);
        if (code != ncclSuccess || is_failure(state))
            return log_failed_call(c, call, code != ncclSuccess ? code : state);
        if (state == ncclSuccess) {
            i++;
            continue;
        }
        if (c->cancelled)
            return ST_CANCELLED;
        int64_t now = clock_now_ns();
        if (now >= deadline) {
            say_late(c, call);
            return ST_DEADLINE;
        }
        if (now >= spin_end)
            nanosleep(&pause, NULL);
    }
    return ST_OK;
}

/* One of NCCL's two operations on buffers of n parts. */
enum operation { REDUCE_SCATTER, ALL_GATHER };
static const char *const operation_name[] = {"ncclReduceScatter", "ncclAllGather"};

static ncclResult_t call_one(const struct gpu_comm *c, enum operation op, int i, float *buffer,
                             int64_t share, cudaStream_t stream)
{
    float *own = buffer + i * share;
    if (op == ALL_GATHER)
        return c->nccl->all_gather(own, buffer, (size_t)share, ncclFloat, c->member[i], stream);
    return c->nccl->reduce_scatter(buffer, own, (size_t)share, ncclFloat, ncclSum, c->member[i],
                                   stream);
}

static enum status call_all(const struct gpu_comm *c, enum operation op, float *const *buffers,
                            int64_t share, const cudaStream_t *streams)
{
    ncclResult_t code = c->nccl->group_start(), end;
    if (code != ncclSuccess)
        return log_failed_call(c, "ncclGroupStart", code);
    for (int i = 0; i < c->n && !is_failure(code); i++)
        code = call_one(c, op, i, buffers[i], share, streams[i]);
    end = c->nccl->group_end();
    if (is_failure(code))
        return log_failed_call(c, operation_name[op], code);
    return is_failure(end) ? log_failed_call(c, "ncclGroupEnd", end)
                           : settle_call(c, operation_name[op]);
}

static enum status queue_operation(struct gpu_comm *c, enum operation op, float *const *buffers,
                                   int64_t share, const cudaStream_t *streams)
{
    if (c->broken)
        return ST_INTERNAL;
    enum status st = call_all(c, op, buffers, share, streams);
    c->broken = st != ST_OK;
    return st;
}

enum status gpu_comm_reduce_scatter(struct gpu_comm *c, float *const *buffers, int64_t share,
                                    const cudaStream_t *streams)
{
    return queue_operation(c, REDUCE_SCATTER, buffers, share, streams);
}

enum status gpu_comm_all_gather(struct gpu_comm *c, float *const *buffers, int64_t share,
                                const cudaStream_t *streams)
{
    return queue_operation(c, ALL_GATHER, buffers, share, streams);
}

enum status gpu_comm_check(const struct gpu_comm *c)
{
    if (c->broken)
        return ST_INTERNAL;
    for (int i = 0; i < c->n; i++) {
        ncclResult_t noticed = ncclSuccess;
        ncclResult_t code = c->nccl->comm_get_async_error(c->member[i], &noticed);
        /* ncclInProgress is no error, because a later sum may still be connecting GPUs */
        if (code != ncclSuccess || is_failure(noticed))
            return log_failed_call(c, "ncclCommGetAsyncError",
                                   code != ncclSuccess ? code : noticed);
    }
    return ST_OK;
}

void gpu_comm_cancel(struct gpu_comm *c)
{
    c->cancelled = 1;
}

void gpu_comm_abort(struct gpu_comm *c)
{
    for (int i = 0; i < c->n; i++)
        if (c->member[i] != NULL) {
            (void)c->nccl->comm_abort(c->member[i]);
            c->member[i] = NULL;
        }
}

/* Ends the work of NCCL's own threads, without which a communicator must not be destroyed. If this
 * fails, the communicators are aborted. */
static void members_finalize(struct gpu_comm *c)
{
    ncclResult_t code = ncclSuccess;
    for (int i = 0; i < c->n && !is_failure(code); i++)
        code = c->nccl->comm_finalize(c->member[i]);
    enum status st = is_failure(code) ? log_failed_call(c, "ncclCommFinalize", code)
                                      : settle_call(c, "ncclCommFinalize");
    if (st != ST_OK)
        gpu_comm_abort(c);
}

void gpu_comm_destroy(struct gpu_comm *c)
{
    if (c == NULL)
        return;
    if (c->member != NULL && c->member[0] != NULL)
        members_finalize(c);
    for (int i = 0; c->member != NULL && i < c->n; i++)
        if (c->member[i] != NULL)
            (void)c->nccl->comm_destroy(c->member[i]);
    free(c->member);
    free(c->device);
    free(c);
}

/* ---- the first sum ---- */

struct trial {
    float **buffer; /* [n] memory on each GPU */
    cudaStream_t *stream;
    float *host;          /* pinned */
    pthread_mutex_t lock; /* guards ended */
    pthread_cond_t changed;
    int ended; /* number of GPUs whose sum has ended */
};

static void CUDART_CB trial_ended(void *arg)
{
    struct trial *t = arg;
    pthread_mutex_lock(&t->lock);
    t->ended++;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

/* Fills the buffer of GPU i with the value i + 1. */
static enum status trial_fill(struct gpu_comm *c, struct trial *t, int i)
{
    enum status st = ST_OK;
    size_t n = (size_t)TRIAL_SHARE * (size_t)c->n, bytes = n * sizeof(float);
    TRY(gpu_check_cuda(NULL, "cudaSetDevice", cudaSetDevice(c->device[i])));
    TRY(gpu_check_cuda(NULL, "cudaMalloc", cudaMalloc((void **)&t->buffer[i], bytes)));
    TRY(gpu_check_cuda(NULL, "cudaStreamCreateWithFlags",
                       cudaStreamCreateWithFlags(&t->stream[i], cudaStreamNonBlocking)));
    for (size_t k = 0; k < n; k++)
        t->host[k] = (float)(i + 1);
    TRY(gpu_check_cuda(
        NULL, "cudaMemcpyAsync",
        cudaMemcpyAsync(t->buffer[i], t->host, bytes, cudaMemcpyHostToDevice, t->stream[i])));
    TRY(gpu_check_cuda(NULL, "cudaStreamSynchronize", cudaStreamSynchronize(t->stream[i])));
done:
    return st;
}

static enum status trial_wait(struct gpu_comm *c, struct trial *t)
{
    int64_t deadline = clock_deadline_ns(gpu_comm_limit_ms);
    int late = 0;
    pthread_mutex_lock(&t->lock);
    while (t->ended < c->n && !late)
        late = clock_cond_wait(&t->changed, &t->lock, deadline) != 0 && t->ended < c->n;
    pthread_mutex_unlock(&t->lock);
    if (!late)
        return ST_OK;
    gpu_comm_abort(c);
    say_late(c, "the first sum");
    return ST_DEADLINE;
}

/* Queues the sum and waits for it, with a deadline. */
static enum status trial_sum(struct gpu_comm *c, struct trial *t)
{
    enum status st = ST_OK;
    int n_asked = 0;
    TRY(gpu_comm_reduce_scatter(c, t->buffer, TRIAL_SHARE, t->stream));
    for (int i = 0; i < c->n; i++, n_asked++) {
        TRY(gpu_check_cuda(NULL, "cudaSetDevice", cudaSetDevice(c->device[i])));
        TRY(gpu_check_cuda(NULL, "cudaLaunchHostFunc",
                           cudaLaunchHostFunc(t->stream[i], trial_ended, t)));
    }
    TRY(trial_wait(c, t));
    for (int i = 0; i < c->n; i++) {
        TRY(gpu_check_cuda(NULL, "cudaSetDevice", cudaSetDevice(c->device[i])));
        TRY(gpu_check_cuda(NULL, "cudaMemcpyAsync",
                           cudaMemcpyAsync(t->host, t->buffer[i] + i * TRIAL_SHARE,
                                           TRIAL_SHARE * sizeof(float), cudaMemcpyDeviceToHost,
                                           t->stream[i])));
        TRY(gpu_check_cuda(NULL, "cudaStreamSynchronize", cudaStreamSynchronize(t->stream[i])));
        for (int k = 0; k < TRIAL_SHARE; k++)
            if (t->host[k] != (float)(c->n * (c->n + 1) / 2)) {
                LOG_W("NCCL between %d cards: the sum of a test was %g instead of %d", c->n,
                      (double)t->host[k], c->n * (c->n + 1) / 2);
                return ST_INTERNAL;
            }
    }
done:
    if (st != ST_OK)
        gpu_comm_abort(c); /* ends the sum's work on the streams */
    return st;
}

static void trial_free(struct gpu_comm *c, struct trial *t)
{
    for (int i = 0; i < c->n; i++) {
        (void)cudaSetDevice(c->device[i]);
        if (t->stream != NULL && t->stream[i] != NULL) {
            cudaStreamSynchronize(t->stream[i]);
            cudaStreamDestroy(t->stream[i]);
        }
        if (t->buffer != NULL && t->buffer[i] != NULL)
            cudaFree(t->buffer[i]);
    }
    if (t->host != NULL)
        cudaFreeHost(t->host);
    (void)cudaGetLastError(); /* clears the error, or the next launch would report it */
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    free(t->buffer);
    free(t->stream);
}

static enum status run_trial(struct gpu_comm *c)
{
    enum status st = ST_OK;
    struct trial t = {.ended = 0};
    pthread_mutex_init(&t.lock, NULL);
    clock_cond_init(&t.changed);
    t.buffer = calloc((size_t)c->n, sizeof(*t.buffer));
    t.stream = calloc((size_t)c->n, sizeof(*t.stream));
    if (t.buffer == NULL || t.stream == NULL) {
        st = gpu_check_no_host_memory();
        goto done;
    }
    TRY(gpu_check_cuda(NULL, "cudaHostAlloc",
                       cudaHostAlloc((void **)&t.host, (size_t)c->n * TRIAL_SHARE * sizeof(float),
                                     cudaHostAllocPortable)));
    for (int i = 0; i < c->n; i++)
        TRY(trial_fill(c, &t, i));
    TRY(trial_sum(c, &t));
done:
    trial_free(c, &t);
    return st;
}

static enum status members_create(struct gpu_comm *c)
{
    enum status st = ST_OK;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    config.blocking = 0;
    ncclResult_t code = c->nccl->get_unique_id(&id);
    if (code != ncclSuccess)
        return log_failed_call(c, "ncclGetUniqueId", code);
    code = c->nccl->group_start();
    if (code != ncclSuccess)
        return log_failed_call(c, "ncclGroupStart", code);
    for (int i = 0; i < c->n && st == ST_OK && !is_failure(code); i++) {
        st = gpu_check_cuda(NULL, "cudaSetDevice", cudaSetDevice(c->device[i]));
        if (st == ST_OK)
            code = c->nccl->comm_init_rank_config(&c->member[i], c->n, id, i, &config);
    }
    ncclResult_t end = c->nccl->group_end();
    TRY(st);
    if (is_failure(code) || is_failure(end))
        return log_failed_call(c, "ncclCommInitRankConfig", is_failure(code) ? code : end);
    st = settle_call(c, "ncclCommInitRankConfig");
done:
    return st;
}

enum status gpu_comm_create(const int *devices, int n, struct gpu_comm **out)
{
    enum status st = ST_OK;
    int version = 0;
    struct gpu_comm *c = calloc(1, sizeof *c);
    if (c == NULL)
        return gpu_check_no_host_memory();
    c->n = n;
    c->nccl = gpu_nccl_load();
    if (c->nccl == NULL) {
        st = ST_UNSUPPORTED;
        goto done;
    }
    c->device = calloc((size_t)n, sizeof *c->device);
    c->member = calloc((size_t)n, sizeof(*c->member));
    if (c->device == NULL || c->member == NULL) {
        st = gpu_check_no_host_memory();
        goto done;
    }
    for (int i = 0; i < n; i++)
        c->device[i] = devices[i];
    TRY(members_create(c));
    TRY(run_trial(c));
    (void)c->nccl->get_version(&version);
    LOG_I("NCCL %d.%d.%d adds the gradients of %d cards", version / 10000, version / 100 % 100,
          version % 100, n);
    *out = c;
done:
    if (st != ST_OK) {
        if (c->member != NULL)
            gpu_comm_abort(c);
        gpu_comm_destroy(c);
    }
    return st;
}
