/* kernels/cuda/groups/comm_absent.c - replaces comm.c and nccl_load.c in a build without nccl.h:
 * sums across GPUs are refused with a log line. */
#include "base/log.h"
#include "kernels/cuda/groups/comm.h"

enum status gpu_comm_create(const int *devices, int n, struct gpu_comm **out)
{
    (void)devices, (void)out;
    LOG_W(
        "NCCL between %d cards: this build has no NCCL support; install nccl.h and build Weir again",
        n);
    return ST_UNSUPPORTED;
}

/* Never called, because gpu_comm_create never returns a struct gpu_comm. */
void gpu_comm_destroy(struct gpu_comm *comm)
{
    (void)comm;
}

enum status gpu_comm_reduce_scatter(struct gpu_comm *comm, float *const *buffers, int64_t share,
                                    const cudaStream_t *streams)
{
    (void)comm, (void)buffers, (void)share, (void)streams;
    return ST_UNSUPPORTED;
}

enum status gpu_comm_all_gather(struct gpu_comm *comm, float *const *buffers, int64_t share,
                                const cudaStream_t *streams)
{
    (void)comm, (void)buffers, (void)share, (void)streams;
    return ST_UNSUPPORTED;
}

enum status gpu_comm_check(const struct gpu_comm *comm)
{
    (void)comm;
    return ST_UNSUPPORTED;
}

void gpu_comm_cancel(struct gpu_comm *comm)
{
    (void)comm;
}

void gpu_comm_abort(struct gpu_comm *comm)
{
    (void)comm;
}
