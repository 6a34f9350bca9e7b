/* tests/fake_backend/stale.c - a backend of another build. Its version is FAKE_ABI, or missing, and
 * its table cannot be read. */
#include "kernels/backend_abi.h"

#if defined(FAKE_ABI)
extern const uint32_t weir_backend_abi[BACKEND_ABI_PARTS];
const uint32_t weir_backend_abi[BACKEND_ABI_PARTS] = {FAKE_ABI};
#endif
#if !defined(FAKE_NO_TABLE)
extern const char weir_backend[1];
const char weir_backend[1] = {1};
#endif
