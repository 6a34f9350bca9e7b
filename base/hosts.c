/* base/hosts.c - see hosts.h. */
#include "base/hosts.h"
#include "base/log.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static int host_ok(const char *s, size_t n)
{
    if (n >= 2 && s[0] == '[' && s[n - 1] == ']') {
        for (size_t i = 1; i + 1 < n; i++)
            if (!isxdigit((unsigned char)s[i]) && !strchr(":.%", s[i]))
                return 0;
        return n > 2;
    }
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("-._", s[i]))
            return 0;
    return n > 0 && n < 254;
}

static const char *addr_problem(const char *addr)
{
    const char *colon = strrchr(addr, ':');
    if (!*addr)
        return "is empty";
    if (!colon || !colon[1])
        return "has no port; write host:port";
    if (!host_ok(addr, (size_t)(colon - addr)))
        return addr[0] != '[' && memchr(addr, ':', (size_t)(colon - addr))
                   ? "is IPv6 without brackets; write [address]:port"
                   : "has no valid host name; write host:port";
    long port = 0;
    for (const char *p = colon + 1; *p; p++) {
        if (!isdigit((unsigned char)*p) || port > 65535)
            return "has a port that is no number from 1 to 65535";
        port = port * 10 + (*p - '0');
    }
    if (port < 1 || port > 65535)
        return "has a port that is no number from 1 to 65535";
    return NULL;
}

enum status hosts_parse(const char *text, const char *flag, struct hosts *out)
{
    struct hosts h = {0};
    if (!text || !*text) {
        *out = h;
        return ST_OK;
    }
    enum status st = ST_OK;
    for (const char *p = text; st == ST_OK; p++) {
        const char *end = strchrnul(p, ',');
        char *addr = strndup(p, (size_t)(end - p));
        char **grown = realloc(h.addr, (size_t)(h.n + 1) * sizeof *grown);
        if (grown)
            h.addr = grown;
        if (!addr || !grown) {
            free(addr);
            st = ST_NOMEM;
            break;
        }
        h.addr[h.n++] = addr;
        const char *problem = h.n > HOSTS_MAX ? "is one entry too many" : addr_problem(addr);
        for (int i = 0; !problem && i < h.n - 1; i++)
            if (strcmp(h.addr[i], addr) == 0)
                problem = "is listed twice";
        if (problem) {
            LOG_E("--%s: entry %d '%s' %s", flag, h.n - 1, addr, problem);
            st = ST_INVALID;
        }
        p = end;
        if (!*end)
            break;
    }
    if (st != ST_OK)
        hosts_free(&h);
    else
        *out = h;
    return st;
}

void hosts_free(struct hosts *h)
{
    for (int i = 0; i < h->n; i++)
        free(h->addr[i]);
    free(h->addr);
    *h = (struct hosts){0};
}

int hosts_is_loopback(const char *addr)
{
    return strncmp(addr, "127.", 4) == 0 || strncmp(addr, "localhost:", 10) == 0 ||
           strncmp(addr, "[::1]:", 6) == 0;
}
