/* base/process.c - see process.h.
 *
 * The allocator settings are worth a factor of two: gRPC receives into malloc'd blocks of 64 KB,
 * which glibc by default gives back to the kernel and faults in again, message after message. */
#include "base/process.h"
#include "base/clock.h"
#include "base/rng.h"
#include <malloc.h>
#include <signal.h>
#include <sys/random.h>
#include <unistd.h>

static bool is_ours;

void process_set_up(void)
{
    is_ours = true;
    signal(SIGXFSZ, SIG_IGN);
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 64 << 20);
    mallopt(M_ARENA_MAX, 1);
}

bool process_is_ours(void)
{
    return is_ours;
}

uint64_t process_incarnation(void)
{
    uint64_t n = 0;
    while (n == 0)
        if (getrandom(&n, sizeof n, 0) < 0)
            n = rng_mix((uint64_t)clock_now_ns() ^ (uint64_t)getpid());
    return n;
}
