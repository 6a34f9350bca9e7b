/* member/identity.c - see the header. */
#include "member/identity.h"
#include "base/clock.h"
#include "base/rng.h"
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

const char *member_host(char to[MEMBER_HOST_BYTES])
{
    to[MEMBER_HOST_BYTES - 1] = 0; /* which a name that is cut off lacks */
    if (gethostname(to, MEMBER_HOST_BYTES - 1) != 0)
        to[0] = 0;
    return to;
}

const char *member_address(char to[MEMBER_ADDRESS_BYTES])
{
    char host[MEMBER_HOST_BYTES];
    snprintf(to, MEMBER_ADDRESS_BYTES, "%s:%ld", member_host(host), (long)getpid());
    return to;
}

uint64_t member_incarnation(void)
{
    uint64_t n = 0;
    while (n == 0)
        if (getrandom(&n, sizeof n, 0) < 0)
            n = rng_mix((uint64_t)clock_now_ns() ^ (uint64_t)getpid());
    return n;
}
