/* kernels/backend_abi.h - the version of kernels/backend.h that a file was built with. A backend
 * exports this version beside its table, so that a program refuses the backend of another build
 * before it reads the table. Threads: any. Errors: none. */
#ifndef KERNELS_BACKEND_ABI_H
#define KERNELS_BACKEND_ABI_H
#include "kernels/backend.h"

/* Version of the interface; it must be equal in the backend and the program. A developer increases
 * BACKEND_ABI_NUMBER when the meaning of a field changes, or a table to which `struct backend`
 * points gets another size. The other numbers are computed from the headers, so an added field
 * changes
 * the version by itself. How many numbers a version has never changes. */
enum { BACKEND_ABI_NUMBER = 4, BACKEND_ABI_PARTS = 6 };
#define BACKEND_ABI                                                                                \
    {                                                                                              \
        BACKEND_ABI_NUMBER, sizeof(struct backend), sizeof(struct backend_plan_config),            \
            sizeof(struct layer), LAYER_N_KINDS, sizeof(struct backend_group_config),              \
    }
#define BACKEND_ABI_EXPORT                                                                         \
    extern const uint32_t weir_backend_abi[BACKEND_ABI_PARTS];                                     \
    const uint32_t weir_backend_abi[BACKEND_ABI_PARTS] = BACKEND_ABI

#endif
