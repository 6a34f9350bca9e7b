/* libweir/gpu.c - reservations of GPUs for programs with their own training loop, by the locks of
 * member/device_claim.h; see weir.h. */
#include "libweir/weir_impl.h"
#include "member/device_claim.h"
#include "member/device_lock.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UUID_MOST = 64 };

struct weir_gpu {
    pid_t pid; /* process that reserved the GPU */
    struct device_claim claim;
};

/* Returns true if the text has the form of a UUID, which becomes a part of a file name. */
static bool is_uuid(const char *s)
{
    size_t n = s ? strlen(s) : 0;
    if (n < 5 || n > UUID_MOST || (strncmp(s, "GPU-", 4) != 0 && strncmp(s, "MIG-", 4) != 0))
        return false;
    for (size_t i = 4; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && s[i] != '-' && s[i] != '/')
            return false;
    return true;
}

static int fail(char *why, int size, int code, const char *text)
{
    if (why && size > 0)
        snprintf(why, (size_t)size, "%s", text);
    return code;
}

int weir_gpu_reserve(const char *uuid, double memory_fraction, const char *lock_dir,
                     struct weir_gpu **out, char *why, int size)
{
    char reason[DEVICE_CLAIM_WHY_SIZE];
    struct device_holders others;
    if (!out || weir_errors_refuses(NULL))
        return fail(why, size, WEIR_E_INVALID,
                    "out is NULL, or a function that was passed to weir_log calls this function");
    if (!is_uuid(uuid))
        return fail(why, size, WEIR_E_INVALID, "uuid is not GPU-... or MIG-...");
    if (!(memory_fraction >= 0 && memory_fraction <= 1))
        return fail(why, size, WEIR_E_INVALID, "memory_fraction is not from 0 to 1");
    struct weir_gpu *gpu = calloc(1, sizeof *gpu);
    if (!gpu)
        return fail(why, size, WEIR_E_NOMEM, "out of memory");
    /* The program may allocate the memory later, so the fraction is only a limit (is_cap). Without
     * is_auto, member/device_claim.c would not count limits when it adds up the fractions that all
     * processes claim of this GPU. */
    const struct device_claim_request want = {.parts = device_claim_parts(memory_fraction),
                                              .is_cap = memory_fraction > 0,
                                              .is_auto = true};
    gpu->pid = getpid();
    enum status st = device_claim_acquire(lock_dir ? lock_dir : device_lock_default_dir(), uuid,
                                          &want, &gpu->claim, &others, reason);
    if (st == ST_OK) {
        *out = gpu;
        return WEIR_OK;
    }
    free(gpu);
    return fail(why, size, st == ST_BUSY || st == ST_REFUSED ? WEIR_AGAIN : WEIR_E_IO, reason);
}

void weir_gpu_release(struct weir_gpu *gpu)
{
    if (!gpu)
        return;
    if (gpu->pid != getpid()) { /* the lock belongs to both processes, the claim file to one */
        device_lock_release(gpu->claim.mark);
        device_lock_release(gpu->claim.lock);
    } else {
        device_claim_release(&gpu->claim);
    }
    free(gpu);
}
