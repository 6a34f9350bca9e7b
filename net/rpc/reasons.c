/* net/rpc/reasons.c - see reasons.h. For a name without an address gRPC 1.51 writes
 *     DNS resolution failed for HOST:PORT: C-ares status is not ARES_SUCCESS qtype=A name=HOST
 *     is_balancer=0: CAUSE
 * if it uses its own resolver, and "UNKNOWN: CAUSE" after the address if it uses the system's. */
#include "net/rpc/reasons.h"
#include "base/status.h"
#include "net/rpc/credentials.h"
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Returns the part of the text after the mark, or the whole text if the mark is not in it. */
static const char *after(const char *text, const char *mark)
{
    const char *at = strstr(text, mark);
    return at ? at + strlen(mark) : text;
}

static bool explain_name(char *text, size_t room)
{
    static const char failed[] = "DNS resolution failed for ";
    char copy[REASON_BYTES];
    const char *host = strstr(text, failed);
    if (!host)
        return false;
    snprintf(copy, sizeof copy, "%s", host + sizeof failed - 1);
    char *address_end = strstr(copy, ": ");
    const char *cause = address_end ? address_end + 2 : "no answer";
    cause = after(after(after(cause, "is_balancer=0: "), "is_balancer=1: "), "UNKNOWN: ");
    if (address_end)
        *address_end = 0;
    char *port = strrchr(copy, ':');
    if (port)
        *port = 0;
    snprintf(text, room, "the host name '%.255s' cannot be resolved: %.200s", copy, cause);
    return true;
}

/* Explains missing descriptors, for which gRPC uses the text of strerror. */
static bool explain_descriptors(char *text, size_t room)
{
    char *at = strstr(text, strerror(EMFILE));
    if (at)
        snprintf(at, room - (size_t)(at - text), "%s", status_errno_text(EMFILE));
    return at != NULL;
}

/* Explains a refused connection: gRPC names the address, as the caller does, too. */
static bool explain_refused(char *text, size_t room)
{
    if (!strstr(text, "failed to connect to all addresses") ||
        !strstr(text, strerror(ECONNREFUSED)))
        return false;
    snprintf(text, room, "failed to connect: " NET_REASON_REFUSED " (%s)", strerror(ECONNREFUSED));
    return true;
}

void net_reason_explain(char *text, size_t room)
{
    if (!explain_name(text, room) && !explain_descriptors(text, room) &&
        !explain_refused(text, room))
        credentials_explain(text, room);
}
