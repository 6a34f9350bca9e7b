/* ps/bind.c - finds the address that a server listens on (bind.h). */
#include "ps/bind.h"
#include "base/hosts.h"
#include "base/log.h"
#include <stdio.h>
#include <string.h>

enum status ps_bind_address(const char *bind, const char *own, char out[BIND_BYTES])
{
    if (!bind || !*bind)
        bind = own;
    const char *bracket = strrchr(bind, ']');
    const char *port = strchr(bracket ? bracket : bind, ':') ? "" : strrchr(own, ':');
    int n = snprintf(out, BIND_BYTES, "%s%s", bind, port);
    const char *problem = n >= BIND_BYTES ? "is too long" : hosts_problem(out);
    if (!problem)
        return ST_OK;
    LOG_E("--bind: '%.100s' %s", bind, problem);
    return ST_INVALID;
}
