/* member/identity.h - who a member says that it is. Owns: nothing. Threads: any. Errors: none. */
#ifndef MEMBER_IDENTITY_H
#define MEMBER_IDENTITY_H
#include <stddef.h>

enum { MEMBER_IDENTITY_HOST_BYTES = 65, MEMBER_IDENTITY_ADDRESS_BYTES = 96 };

/* This host's name; empty where it has none. Returns to. */
const char *member_identity_host(char to[MEMBER_IDENTITY_HOST_BYTES]);
/* "gpu7:4711", host and process: members of one host are told apart. Returns to. */
const char *member_identity_address(char to[MEMBER_IDENTITY_ADDRESS_BYTES]);

#endif
