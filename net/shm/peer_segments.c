/* net/shm/peer_segments.c - see peer_segments.h. Segments are opened and closed without the lock,
 * because opening and closing need system calls. */
#include "net/shm/peer_segments.h"
#include "base/log.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

void peer_segments_init(struct peer_segments *l)
{
    pthread_mutex_init(&l->lock, NULL);
    l->list = NULL;
    l->n = 0;
}

void peer_segments_free(struct peer_segments *l)
{
    for (int i = 0; i < l->n; i++)
        segment_unref(l->list[i].segment);
    free(l->list);
    pthread_mutex_destroy(&l->lock);
}

/* Returns the member's entry, which is created if necessary; NULL: no memory. The caller holds the
 * lock. */
static struct peer_segment *place_of(struct peer_segments *l, int member)
{
    if (member < l->n)
        return &l->list[member];
    struct peer_segment *list = realloc(l->list, ((size_t)member + 1) * sizeof *list);
    if (!list)
        return NULL;
    l->list = list;
    while (l->n <= member)
        l->list[l->n++] = (struct peer_segment){0, NULL};
    return &l->list[member];
}

static bool open_values(struct segment *segment, const struct segment_name *name)
{
    char why[SEGMENT_WHY_BYTES];
    struct segment *values;
    if (segment_open_to_write(name, &values, why) != ST_OK) {
        LOG_D("this server cannot write to a member's parameters in shared memory: %s", why);
        return false;
    }
    segment_set_values(segment, values);
    return true;
}

bool peer_segments_put(struct peer_segments *l, int member, uint64_t incarnation,
                       const struct segment_name *names, bool *writes, char why[SEGMENT_WHY_BYTES])
{
    struct segment *segment = NULL, *before = NULL;
    snprintf(why, SEGMENT_WHY_BYTES, "it lends no memory");
    if (names[0].bytes && segment_open(&names[0], &segment, why) != ST_OK)
        segment = NULL;
    *writes = segment && names[1].bytes && open_values(segment, &names[1]);
    pthread_mutex_lock(&l->lock);
    struct peer_segment *p = segment || member < l->n ? place_of(l, member) : NULL;
    bool kept = p && segment;
    if (p) {
        before = p->segment;
        *p = (struct peer_segment){incarnation, segment};
    }
    pthread_mutex_unlock(&l->lock);
    segment_unref(before);
    if (!kept)
        segment_unref(segment);
    *writes &= kept;
    return kept;
}

struct segment *peer_segments_find(struct peer_segments *l, uint32_t member, uint64_t incarnation)
{
    struct segment *found = NULL;
    pthread_mutex_lock(&l->lock);
    if (member < (uint32_t)l->n && l->list[member].incarnation == incarnation &&
        l->list[member].segment)
        found = segment_ref(l->list[member].segment);
    pthread_mutex_unlock(&l->lock);
    return found;
}

void peer_segments_drop(struct peer_segments *l, uint32_t member, const struct segment *segment)
{
    struct segment *gone = NULL;
    pthread_mutex_lock(&l->lock);
    if (member < (uint32_t)l->n && l->list[member].segment == segment) {
        gone = l->list[member].segment;
        l->list[member].segment = NULL;
    }
    pthread_mutex_unlock(&l->lock);
    segment_unref(gone);
}

/* Searches all members' entries, because a member may have another rank in each generation. */
void peer_segments_leave(struct peer_segments *l, uint64_t incarnation)
{
    struct segment *gone;
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
        segment_unref(gone);
    } while (gone);
}
