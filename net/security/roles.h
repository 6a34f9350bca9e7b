/* net/security/roles.h - who a program is, as its certificate or its token says it. A certificate
 * names a role as a URI among its subject's other names: URI:weir://role/worker.
 * Threads: any. Errors: none. */
#ifndef NET_SECURITY_ROLES_H
#define NET_SECURITY_ROLES_H
#include <stddef.h>

/* Bits: a certificate, and a token, may be for several. */
enum net_role { ROLE_PS = 1, ROLE_WORKER = 2, ROLE_ADMIN = 4, ROLE_ALL = 7 };
enum { ROLES_TEXT_BYTES = 32 };

/* The role that the n bytes name ("worker"); 0: none. */
unsigned roles_of_name(const char *name, size_t n);
/* The same of "weir://role/worker". */
unsigned roles_of_uri(const char *uri, size_t n);
/* "ps, worker"; "none". */
const char *roles_text(unsigned roles, char text[ROLES_TEXT_BYTES]);

#endif
