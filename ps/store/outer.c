/* ps/store/outer.c - see outer.h. Locks: a chunk's. */
#include "ps/store/outer.h"
#include "ps/store/answers.h"
#include "ps/store/chunk_state.h"
#include "ps/store/diverged.h"
#include "ps/store/versions.h"
#include <stdbool.h>
#include <string.h>

static struct chunk_state *owned_chunk(struct store *s, int chunk)
{
    int known = chunk >= 0 && chunk < s->cfg.chunks->n_chunks && s->shelf_of[chunk] >= 0;
    return known ? &s->owned[s->shelf_of[chunk]] : NULL;
}

enum status outer_set_first(struct store *s, int chunk, int64_t version, const float *value)
{
    struct chunk_state *c = owned_chunk(s, chunk);
    struct chunk_version v;
    enum status st = ST_OK;
    if (!c)
        return ST_OK;
    pthread_mutex_lock(&c->lock);
    if (c->version < 0 && !c->is_stopped && (st = version_reserve(s, c, &v)) == ST_OK) {
        memcpy(v.value->data, value, c->n * sizeof(float));
        version_set_first(c, &v, version);
    }
    pthread_mutex_unlock(&c->lock);
    if (st == ST_OK)
        answer_owed(s, c);
    return st;
}

static void change(float *value, const struct outer_adoption *how, size_t n)
{
    const float *to = how->to, *from = how->from;
    if (to && !from)
        memcpy(value, to, n * sizeof *value);
    for (size_t i = 0; to && from && !how->mixed && i < n; i++)
        value[i] += to[i] - from[i];
    for (size_t i = 0; to && from && how->mixed && i < n; i++)
        value[i] = to[i] + how->mix * (value[i] - to[i]);
}

bool outer_adopt(struct store *s, int chunk, int64_t version, const struct outer_adoption *how)
{
    struct chunk_state *c = owned_chunk(s, chunk);
    if (!c)
        return false;
    pthread_mutex_lock(&c->lock);
    int made = c->pending == CHUNK_PENDING_OUTER && c->version + 1 == version && !c->is_stopped;
    if (made) {
        change(c->next.value->data, how, c->n);
        version_make_adopted(s, c);
    }
    size_t not_finite = diverged_take(c);
    pthread_mutex_unlock(&c->lock);
    if (!made)
        return false;
    diverged_log(s, c, not_finite, version - 1);
    answer_owed(s, c);
    return true;
}
