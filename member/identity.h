/* member/identity.h - names by which a member identifies itself to servers. Owns: nothing. Threads:
 * any. Errors: none. */
#ifndef MEMBER_IDENTITY_H
#define MEMBER_IDENTITY_H
#include <stddef.h>

enum { MEMBER_IDENTITY_HOST_BYTES = 65, MEMBER_IDENTITY_ADDRESS_BYTES = 96 };

/* Writes this host's name, which may be empty. Returns to. */
const char *member_identity_host(char to[MEMBER_IDENTITY_HOST_BYTES]);
/* Writes host and process, "gpu7:4711", which distinguish members of one host. Returns to. */
const char *member_identity_address(char to[MEMBER_IDENTITY_ADDRESS_BYTES]);

#endif
