/* ps/service/stream_table.c - see stream_table.h. A number combines a place in the table with a
 * count of the streams that had the place. Places are created when first needed and never freed, so
 * a look-up needs no lock: a thread that has a number got it after its place was created. A sender
 * holds a place's lock while it adds a reference to the stream, not while it sends. So if a stream
 * breaks during a send, any thread can close its place without waiting for the sender. */
#include "ps/service/stream_table.h"
#include "base/guarded.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct place {
    pthread_mutex_t lock;      /* guards stream and number */
    struct net_stream *stream; /* stream of this place; NULL: it has closed */
    uint64_t number;           /* number of the present stream, or of the last one */
    int next_free;             /* next free place; the table's lock guards it */
};

struct stream_table {
    pthread_mutex_t lock; /* guards free and places' next_free; held to add a place */
    int free;             /* first free place, or -1 */
    _Atomic int n_places;
    struct place *places[STREAM_TABLE_MAX]; /* [n_places]; the entries after these are not set */
};

enum status stream_table_create(struct stream_table **out)
{
    struct stream_table *s = malloc(sizeof *s);
    if (!s)
        return ST_NOMEM;
    pthread_mutex_init(&s->lock, NULL);
    s->free = -1;
    atomic_init(&s->n_places, 0);
    *out = s;
    return ST_OK;
}

void stream_table_destroy(struct stream_table *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n_places; i++) {
        pthread_mutex_destroy(&s->places[i]->lock);
        free(s->places[i]);
    }
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static struct place *make_place(int index)
{
    struct place *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    pthread_mutex_init(&p->lock, NULL);
    p->number = (uint64_t)index;
    return p;
}

uint64_t stream_table_open(struct stream_table *s, struct net_stream *stream)
{
    struct place *p = NULL;
    pthread_mutex_lock(&s->lock);
    if (s->free >= 0) {
        p = s->places[s->free];
        s->free = p->next_free;
    } else if (s->n_places < STREAM_TABLE_MAX && (p = make_place(s->n_places))) {
        s->places[s->n_places] = p;
        s->n_places++; /* now other threads may read the place */
    }
    pthread_mutex_unlock(&s->lock);
    if (!p)
        return 0;
    pthread_mutex_lock(&p->lock);
    p->number += STREAM_TABLE_MAX;
    p->stream = stream;
    uint64_t number = p->number;
    pthread_mutex_unlock(&p->lock);
    return number;
}

/* Returns the place of the stream with that number, locked, if the stream is open; otherwise NULL.
 * clang cannot track the lock of a returned place, here and in the two callers below. */
static struct place *lock_place(struct stream_table *s, uint64_t number) UNCHECKED_LOCKS
{
    int index = (int)(number % STREAM_TABLE_MAX);
    if (index >= s->n_places)
        return NULL;
    struct place *p = s->places[index];
    pthread_mutex_lock(&p->lock);
    if (p->number == number && p->stream)
        return p;
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

void stream_table_close(struct stream_table *s, uint64_t number) UNCHECKED_LOCKS
{
    struct place *p = lock_place(s, number);
    if (!p)
        return;
    p->stream = NULL;
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_lock(&s->lock);
    p->next_free = s->free;
    s->free = (int)(number % STREAM_TABLE_MAX);
    pthread_mutex_unlock(&s->lock);
}

struct net_stream *stream_table_ref(struct stream_table *s, uint64_t number) UNCHECKED_LOCKS
{
    struct place *p = lock_place(s, number);
    if (!p)
        return NULL;
    struct net_stream *stream = p->stream;
    net_stream_ref(stream);
    pthread_mutex_unlock(&p->lock);
    return stream;
}

void stream_table_send(struct stream_table *s, uint64_t number, const struct net_frame_head *head,
                       const struct net_piece *piece, struct buf *payload)
{
    struct net_stream *stream = stream_table_ref(s, number);
    if (!stream)
        return;
    net_stream_send(stream, head, piece, payload, 0, payload ? payload->bytes : 0);
    net_stream_unref(stream);
}

void stream_table_end(struct stream_table *s, uint64_t number, const char *why)
{
    struct net_stream *stream = stream_table_ref(s, number);
    if (!stream)
        return;
    net_stream_close(stream, why);
    net_stream_unref(stream);
}

void stream_table_doubt(struct stream_table *s, uint64_t number)
{
    struct net_stream *stream = stream_table_ref(s, number);
    if (!stream)
        return;
    net_stream_trust(stream, 0);
    net_stream_unref(stream);
}
