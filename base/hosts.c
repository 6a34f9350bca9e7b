/* base/hosts.c - checks and compares addresses by their text, without looking names up; see
 * hosts.h. */
#include "base/hosts.h"
#include "base/log.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

const char *hosts_problem(const char *addr)
{
    const char *colon = strrchr(addr, ':');
    if (!*addr)
        return "is empty; a list with spaces needs quotes";
    if (strchr(addr, ';'))
        return "has a semicolon; write a comma between the entries";
    if (strstr(addr, "://"))
        return "has a scheme; write host:port alone";
    if (!colon || !colon[1])
        return "has no port; write host:port";
    if (!host_ok(addr, (size_t)(colon - addr)))
        return addr[0] != '[' && memchr(addr, ':', (size_t)(colon - addr))
                   ? "is an IPv6 address without brackets; write [address]:port"
                   : "has no valid host name; write host:port";
    long port = 0;
    for (const char *p = colon + 1; *p; p++) {
        if (!isdigit((unsigned char)*p) || port > 65535)
            return "has a port that is not a number from 1 to 65535";
        port = port * 10 + (*p - '0');
    }
    if (port < 1 || port > 65535)
        return "has a port that is not a number from 1 to 65535";
    return NULL;
}

void hosts_lower(char *addr)
{
    for (; *addr; addr++)
        *addr = (char)tolower((unsigned char)*addr);
}

/* Returns a copy of the first n bytes, with small letters. NULL: no memory. */
static char *copy_small(const char *addr, size_t n)
{
    char *copy = strndup(addr, n);
    if (copy)
        hosts_lower(copy);
    return copy;
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
        p += strspn(p, " \t");
        if (strncmp(p, "grpc://", 7) == 0) /* TensorFlow writes addresses in this form */
            p += 7;
        size_t n = (size_t)(end - p);
        while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
            n--;
        char *addr = copy_small(p, n);
        char **grown = realloc(h.addr, (size_t)(h.n + 1) * sizeof *grown);
        if (grown)
            h.addr = grown;
        if (!addr || !grown) {
            free(addr);
            LOG_E("--%s: out of memory", flag);
            st = ST_NOMEM;
            break;
        }
        h.addr[h.n++] = addr;
        const char *problem = h.n > HOSTS_MAX ? "is one entry too many" : hosts_problem(addr);
        if (!problem && hosts_find(&h, addr) < h.n - 1)
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

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Returns 1 if an address is in the list two times, otherwise 0. Sorts the addresses, because a
 * peer may send a long list. */
static int has_twice(const struct hosts *h, const char **room)
{
    size_t n = (size_t)h->n;
    memcpy(room, h->addr, n * sizeof *room);
    qsort(room, n, sizeof *room, by_text);
    size_t i = 1;
    while (i < n && strcmp(room[i - 1], room[i]))
        i++;
    return i < n;
}

enum status hosts_copy(const char *const *addr, size_t n, struct hosts *out)
{
    struct hosts h = {0};
    enum status st = ST_NOMEM;
    if (n > HOSTS_MAX)
        return ST_INVALID;
    const char **room = malloc((n ? n : 1) * sizeof *room);
    h.addr = calloc(n ? n : 1, sizeof *h.addr);
    if (!room || !h.addr)
        goto done;
    while ((size_t)h.n < n) {
        if (hosts_problem(addr[h.n]))
            TRY(ST_INVALID);
        h.addr[h.n] = copy_small(addr[h.n], strlen(addr[h.n]));
        if (!h.addr[h.n])
            goto done;
        h.n++;
    }
    st = has_twice(&h, room) ? ST_INVALID : ST_OK;
done:
    free(room);
    if (st != ST_OK)
        hosts_free(&h);
    else
        *out = h;
    return st;
}

int hosts_find(const struct hosts *h, const char *addr)
{
    int i = 0;
    while (i < h->n && strcmp(h->addr[i], addr))
        i++;
    return i < h->n ? i : -1;
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
    return strncmp(addr, "127.", 4) == 0 || strncasecmp(addr, "localhost:", 10) == 0 ||
           strncmp(addr, "[::1]:", 6) == 0;
}

/* Returns 1 if two addresses have the same host, otherwise 0; for example "a:1" and "a:2";
 * "[::1]:1" and "127.0.0.1:2". */
static int same_host(const char *a, const char *b)
{
    const char *end = strrchr(a, ':');
    size_t n = end ? (size_t)(end - a) + 1 : strlen(a);
    return strncasecmp(a, b, n) == 0 || (hosts_is_loopback(a) && hosts_is_loopback(b));
}

int hosts_on_same(const struct hosts *h, int i)
{
    int n = 0;
    for (int j = 0; i >= 0 && i < h->n && j < h->n; j++)
        n += same_host(h->addr[i], h->addr[j]);
    return n;
}
