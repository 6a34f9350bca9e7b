/* kernels/cuda/groups/nccl.h - NCCL's functions, which are looked up at the first use, so that a
 * worker with one GPU never loads the library, and workers run on machines without NCCL. Threads:
 * any. Errors: none; a missing library is logged. */
#ifndef KERNELS_CUDA_GROUPS_NCCL_H
#define KERNELS_CUDA_GROUPS_NCCL_H
#include <nccl.h>

struct gpu_nccl {
    ncclResult_t (*get_version)(int *version);
    ncclResult_t (*get_unique_id)(ncclUniqueId *out);
    ncclResult_t (*comm_init_rank_config)(ncclComm_t *out, int n, ncclUniqueId id, int rank,
                                          ncclConfig_t *config);
    ncclResult_t (*comm_finalize)(ncclComm_t comm);
    ncclResult_t (*comm_abort)(ncclComm_t comm);
    ncclResult_t (*comm_destroy)(ncclComm_t comm);
    ncclResult_t (*comm_get_async_error)(ncclComm_t comm, ncclResult_t *out);
    ncclResult_t (*group_start)(void);
    ncclResult_t (*group_end)(void);
    ncclResult_t (*reduce_scatter)(const void *send, void *receive, size_t receive_count,
                                   ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                   cudaStream_t stream);
    ncclResult_t (*all_gather)(const void *send, void *receive, size_t send_count,
                               ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
    const char *(*get_error_string)(ncclResult_t code);
    const char *(*get_last_error)(ncclComm_t comm);
};

/* Returns NULL if libnccl.so.2 is missing or lacks a function; logs the reason each time. */
const struct gpu_nccl *gpu_nccl_load(void);

#endif
