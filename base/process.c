/* base/process.c - see process.h.
 *
 * The allocator settings are worth a factor of two: gRPC receives into malloc'd blocks of 64 KB,
 * which glibc by default gives back to the kernel and faults in again, message after message. */
#include "base/process.h"
#include <malloc.h>
#include <signal.h>

static int ours;

void process_set_up(void)
{
    ours = 1;
    signal(SIGXFSZ, SIG_IGN);
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 64 << 20);
    mallopt(M_ARENA_MAX, 1);
}

int process_is_ours(void)
{
    return ours;
}
