/* net/security/roles.h - reads the roles of a program from its certificate or its token. In a
 * certificate each role is a URI among the subject alternative names, for example
 * URI:weir://role/worker.
 * Threads: any.
 * Errors:  none. */
#ifndef NET_SECURITY_ROLES_H
#define NET_SECURITY_ROLES_H
#include <stddef.h>

/* Bits, because a certificate or a token may have several roles. */
enum net_role { ROLE_PS = 1, ROLE_WORKER = 2, ROLE_ADMIN = 4, ROLE_ALL = 7 };
enum { ROLES_TEXT_BYTES = 32 };

/* Returns the role that the n bytes name ("worker"); 0: none. */
unsigned roles_of_name(const char *name, size_t n);
/* Returns the role that a URI such as "weir://role/worker" names; 0: none. */
unsigned roles_of_uri(const char *uri, size_t n);
/* Writes the roles as "ps, worker", or "none". Returns text. */
const char *roles_text(unsigned roles, char text[ROLES_TEXT_BYTES]);

#endif
