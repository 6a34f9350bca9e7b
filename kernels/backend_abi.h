/* kernels/backend_abi.h - the version of kernels/backend.h with which a file was built: what a
 * backend exports beside its table, so that one of another build is refused before its table is
 * read. A value. Threads: any. Errors: none. */
#ifndef KERNELS_BACKEND_ABI_H
#define KERNELS_BACKEND_ABI_H
#include "kernels/backend.h"

/* The version of the interface, for which a backend's and the program's must be the same. The
 * number is raised by hand where a meaning, or kernels/resident.h, changes; the other parts follow
 * from the headers, so that a field more or less makes another version by itself. There are never
 * more or fewer parts. */
enum { BACKEND_ABI_NUMBER = 2, BACKEND_ABI_PARTS = 6 };
#define BACKEND_ABI                                                                                \
    {                                                                                              \
        BACKEND_ABI_NUMBER, sizeof(struct backend), sizeof(struct backend_plan_config),            \
            sizeof(struct layer), LAYER_N_KINDS, sizeof(struct backend_group_config),              \
    }
#define BACKEND_ABI_EXPORT                                                                         \
    extern const uint32_t weir_backend_abi[BACKEND_ABI_PARTS];                                     \
    const uint32_t weir_backend_abi[BACKEND_ABI_PARTS] = BACKEND_ABI

#endif
