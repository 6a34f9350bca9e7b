/* member/identity.c - writes the results of gethostname and getpid as texts; see identity.h. */
#include "member/identity.h"
#include <stdio.h>
#include <unistd.h>

const char *member_identity_host(char to[MEMBER_IDENTITY_HOST_BYTES])
{
    to[MEMBER_IDENTITY_HOST_BYTES - 1] = 0; /* gethostname may cut a name off without a final NUL */
    if (gethostname(to, MEMBER_IDENTITY_HOST_BYTES - 1) != 0)
        to[0] = 0;
    return to;
}

const char *member_identity_address(char to[MEMBER_IDENTITY_ADDRESS_BYTES])
{
    char host[MEMBER_IDENTITY_HOST_BYTES];
    snprintf(to, MEMBER_IDENTITY_ADDRESS_BYTES, "%s:%ld", member_identity_host(host),
             (long)getpid());
    return to;
}
