/* net/shm/peer_segments.c - see peer_segments.h. Opening and closing a segment takes system calls
 * and is done without the lock. */
#include "net/shm/peer_segments.h"
#include <stdio.h>
#include <stdlib.h>

void lenders_init(struct lenders *l)
{
    pthread_mutex_init(&l->lock, NULL);
    l->list = NULL;
    l->n = 0;
}

void lenders_free(struct lenders *l)
{
    for (int i = 0; i < l->n; i++)
        net_shared_unref(l->list[i].segment);
    free(l->list);
    pthread_mutex_destroy(&l->lock);
}

/* The member's place, or NULL; under the lock. */
static struct lender *place_of(struct lenders *l, int member)
{
    if (member < l->n)
        return &l->list[member];
    struct lender *list = realloc(l->list, ((size_t)member + 1) * sizeof *list);
    if (!list)
        return NULL;
    l->list = list;
    while (l->n <= member)
        l->list[l->n++] = (struct lender){0, NULL};
    return &l->list[member];
}

int lenders_put(struct lenders *l, int member, uint64_t incarnation,
                const struct net_shared_name *name, char why[SHARED_WHY_BYTES])
{
    struct net_shared *segment = NULL, *before = NULL;
    snprintf(why, SHARED_WHY_BYTES, "it lends nothing");
    if (name->bytes && net_shared_open(name, &segment, why) != ST_OK)
        segment = NULL;
    pthread_mutex_lock(&l->lock);
    struct lender *p = segment || member < l->n ? place_of(l, member) : NULL;
    int kept = p && segment;
    if (p) {
        before = p->segment;
        *p = (struct lender){incarnation, segment};
    }
    pthread_mutex_unlock(&l->lock);
    net_shared_unref(before);
    if (!kept)
        net_shared_unref(segment);
    return kept;
}

struct net_shared *lenders_find(struct lenders *l, uint32_t member, uint64_t incarnation)
{
    struct net_shared *found = NULL;
    pthread_mutex_lock(&l->lock);
    if (member < (uint32_t)l->n && l->list[member].incarnation == incarnation &&
        l->list[member].segment)
        found = net_shared_ref(l->list[member].segment);
    pthread_mutex_unlock(&l->lock);
    return found;
}

void lenders_drop(struct lenders *l, uint32_t member, const struct net_shared *segment)
{
    struct net_shared *gone = NULL;
    pthread_mutex_lock(&l->lock);
    if (member < (uint32_t)l->n && l->list[member].segment == segment) {
        gone = l->list[member].segment;
        l->list[member].segment = NULL;
    }
    pthread_mutex_unlock(&l->lock);
    net_shared_unref(gone);
}

/* In each generation it may have had another number. */
void lenders_leave(struct lenders *l, uint64_t incarnation)
{
    struct net_shared *gone;
    do {
        gone = NULL;
        pthread_mutex_lock(&l->lock);
        for (int i = 0; i < l->n && !gone; i++) {
            if (l->list[i].segment && l->list[i].incarnation == incarnation) {
                gone = l->list[i].segment;
                l->list[i].segment = NULL;
            }
        }
        pthread_mutex_unlock(&l->lock);
        net_shared_unref(gone);
    } while (gone);
}
