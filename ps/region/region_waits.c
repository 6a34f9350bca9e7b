/* ps/region/region_waits.c - see region.h: names the program of the parent group that the region
 * waits for. The thread of region_end_watch asks the parent group, and stores the answer for the
 * status of this region's ps 0.
 * Locks:   the region's. */
#include "base/clock.h"
#include "base/utf8.h"
#include "net/exchange/waits.h"
#include "ps/region/region_impl.h"
#include <stdio.h>
#include <string.h>

enum { STANDS_MS = 3000, ASK_MS = 1000 };

/* Replaces "worker 1 (never joined)" by "region 1 ...": the parent group's workers are regions. */
static void name_regions(char *text)
{
    static const char worker[] = "worker ", region[] = "region ";
    for (char *at = text; at; at = strstr(at, ", worker ")) {
        at += *at == ',' ? 2 : 0;
        if (strncmp(at, worker, sizeof worker - 1) == 0)
            memcpy(at, region, sizeof region - 1);
    }
}

/* Asks ps 0 of the parent group which program the parent group waits for. Called if ps 0 is
 * connected but sends no versions. */
static void ask_parent(struct ps_region *r, char text[STATUS_WAITING_BYTES])
{
    const char *address = r->cfg.parents->addr[0];
    struct net_status s;
    char why[CONTROL_TEXT_BYTES] = "";
    if (!r->asker && status_asker_create(address, &r->asker) != ST_OK)
        return;
    enum status st = status_asker_ask(r->asker, ASK_MS, &s, why);
    if (st == ST_REFUSED || st == ST_PROTOCOL || status_asker_is_unanswered(r->asker))
        snprintf(text, STATUS_WAITING_BYTES, "ps:0 of the parent group (%.95s%s%s)", address,
                 st == ST_DEADLINE ? ", " : ": ", why);
    if (st != ST_OK)
        return;
    name_regions(s.waiting);
    char whom[STATUS_WAITING_BYTES - 128];
    utf8_copy_words(whom, sizeof whom, s.waiting);
    if (whom[0])
        snprintf(text, STATUS_WAITING_BYTES, "%s of the parent group (%.95s)", whom, address);
    net_status_free(&s);
}

void region_waits_update(struct ps_region *r, struct net_exchange *x, int is_stuck)
{
    struct net_exchange_wait w = {.ms = 0};
    char text[STATUS_WAITING_BYTES] = "";
    if (x && is_stuck)
        net_exchange_waits(x, &w);
    if (w.ms < STANDS_MS) {
        status_asker_destroy(r->asker);
        r->asker = NULL;
    }
    if (w.ms >= STANDS_MS && w.reason[0] && !w.is_asked)
        snprintf(text, sizeof text, "ps:%d of the parent group (%.95s, no connection)", w.server,
                 w.address);
    else if (w.ms >= STANDS_MS && w.reason[0])
        snprintf(text, sizeof text, "ps:%d of the parent group (%.95s: %s)", w.server, w.address,
                 w.reason);
    else if (w.ms >= STANDS_MS)
        ask_parent(r, text);
    pthread_mutex_lock(&r->lock);
    memcpy(r->waits_for, text, sizeof text);
    pthread_mutex_unlock(&r->lock);
}

void ps_region_waits(struct ps_region *r, char text[STATUS_WAITING_BYTES])
{
    text[0] = 0;
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    memcpy(text, r->waits_for, STATUS_WAITING_BYTES);
    pthread_mutex_unlock(&r->lock);
}
