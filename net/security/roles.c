/* net/security/roles.c - see roles.h. */
#include "net/security/roles.h"
#include <stdio.h>
#include <string.h>

static const char prefix[] = "weir://role/";
static const struct {
    const char *name;
    unsigned role;
} names[] = {{"ps", ROLE_PS}, {"worker", ROLE_WORKER}, {"admin", ROLE_ADMIN}};
enum { N_NAMES = sizeof names / sizeof *names };

unsigned roles_of_name(const char *name, size_t n)
{
    for (size_t i = 0; i < N_NAMES; i++)
        if (strlen(names[i].name) == n && memcmp(names[i].name, name, n) == 0)
            return names[i].role;
    return 0;
}

unsigned roles_of_uri(const char *uri, size_t n)
{
    size_t skip = sizeof prefix - 1;
    return n > skip && memcmp(uri, prefix, skip) == 0 ? roles_of_name(uri + skip, n - skip) : 0;
}

const char *roles_text(unsigned roles, char text[ROLES_TEXT_BYTES])
{
    size_t at = 0;
    text[0] = 0;
    for (size_t i = 0; i < N_NAMES; i++)
        if (roles & names[i].role)
            at += (size_t)snprintf(text + at, ROLES_TEXT_BYTES - at, "%s%s", at ? ", " : "",
                                   names[i].name);
    if (at == 0)
        snprintf(text, ROLES_TEXT_BYTES, "none");
    return text;
}
