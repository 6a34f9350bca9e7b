/* ps/store/outer.c - see outer.h. Locks: a chunk's. */
#include "ps/store/outer.h"
#include "ps/store/chunk_state.h"
#include "ps/store/diverged.h"
#include "ps/store/versions.h"
#include <string.h>

static struct chunk_state *owned_chunk(struct ps_store *s, int chunk)
{
    int known = chunk >= 0 && chunk < s->cfg.chunks->n_chunks && s->shelf_of[chunk] >= 0;
    return known ? &s->owned[s->shelf_of[chunk]] : NULL;
}

enum status ps_store_first(struct ps_store *s, int chunk, int64_t version, const float *value)
{
    struct chunk_state *c = owned_chunk(s, chunk);
    struct ps_version v;
    enum status st = ST_OK;
    if (!c)
        return ST_OK;
    pthread_mutex_lock(&c->lock);
    if (c->version < 0 && !c->is_stopped && (st = chunk_state_take_version(s, c, &v)) == ST_OK) {
        memcpy(v.value->data, value, c->n * sizeof(float));
        chunk_state_set_first(c, &v, version);
    }
    pthread_mutex_unlock(&c->lock);
    if (st == ST_OK)
        chunk_state_answer_owed(s, c);
    return st;
}

static void change(float *value, const struct ps_adoption *how, size_t n)
{
    const float *to = how->to, *from = how->from;
    if (to && !from)
        memcpy(value, to, n * sizeof *value);
    for (size_t i = 0; to && from && !how->mixed && i < n; i++)
        value[i] += to[i] - from[i];
    for (size_t i = 0; to && from && how->mixed && i < n; i++)
        value[i] = to[i] + how->mix * (value[i] - to[i]);
}

int ps_store_adopt(struct ps_store *s, int chunk, int64_t version, const struct ps_adoption *how)
{
    struct chunk_state *c = owned_chunk(s, chunk);
    if (!c)
        return 0;
    pthread_mutex_lock(&c->lock);
    int made = c->pending == PENDING_OUTER && c->version + 1 == version && !c->is_stopped;
    if (made) {
        change(c->next.value->data, how, c->n);
        chunk_state_make_adopted(s, c);
    }
    size_t not_finite = diverged_take(c);
    pthread_mutex_unlock(&c->lock);
    if (!made)
        return 0;
    diverged_say(s, c, not_finite, version - 1);
    chunk_state_answer_owed(s, c);
    return 1;
}
