/* ps/service/stream_table.c - see stream_table.h. A number is a place in the table and a count of
 * the streams that stood there. Places are made when they are first needed and never given back, so
 * that looking one up needs no lock: whoever has a number got it after its place was made. A
 * place's lock is held to take a reference to its stream, never while that is used: a stream that
 * breaks under a send closes, in whatever thread that is, without waiting for the sender. */
#include "ps/service/stream_table.h"
#include "base/guarded.h"
#include <pthread.h>
#include <stdlib.h>

struct place {
    pthread_mutex_t lock;      /* guards stream and number */
    struct net_stream *stream; /* NULL: closed */
    uint64_t number;           /* of the present or last stream */
    int next_free;             /* the table's lock */
};

struct ps_streams {
    pthread_mutex_t lock; /* guards n_places, free and places' next_free */
    int n_places, free;   /* free: first free place, or -1 */
    struct place *_Atomic places[PS_STREAMS_MAX];
};

enum status ps_streams_create(struct ps_streams **out)
{
    struct ps_streams *s = calloc(1, sizeof *s);
    if (!s)
        return ST_NOMEM;
    pthread_mutex_init(&s->lock, NULL);
    s->free = -1;
    *out = s;
    return ST_OK;
}

void ps_streams_destroy(struct ps_streams *s)
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

uint64_t ps_streams_open(struct ps_streams *s, struct net_stream *stream)
{
    struct place *p = NULL;
    pthread_mutex_lock(&s->lock);
    if (s->free >= 0) {
        p = s->places[s->free];
        s->free = p->next_free;
    } else if (s->n_places < PS_STREAMS_MAX && (p = make_place(s->n_places))) {
        s->places[s->n_places++] = p;
    }
    pthread_mutex_unlock(&s->lock);
    if (!p)
        return 0;
    pthread_mutex_lock(&p->lock);
    p->number += PS_STREAMS_MAX;
    p->stream = stream;
    uint64_t number = p->number;
    pthread_mutex_unlock(&p->lock);
    return number;
}

/* The place, locked, if the stream of that number is open. */
static struct place *lock_place(struct ps_streams *s, uint64_t number) UNCHECKED_LOCKS
{
    struct place *p = s->places[number % PS_STREAMS_MAX];
    if (!p)
        return NULL;
    pthread_mutex_lock(&p->lock);
    if (p->number == number && p->stream)
        return p;
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

void ps_streams_close(struct ps_streams *s, uint64_t number) UNCHECKED_LOCKS
{
    struct place *p = lock_place(s, number);
    if (!p)
        return;
    p->stream = NULL;
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_lock(&s->lock);
    p->next_free = s->free;
    s->free = (int)(number % PS_STREAMS_MAX);
    pthread_mutex_unlock(&s->lock);
}

/* The stream of that number, if it is open; a reference. */
static struct net_stream *ref_stream(struct ps_streams *s, uint64_t number) UNCHECKED_LOCKS
{
    struct place *p = lock_place(s, number);
    if (!p)
        return NULL;
    struct net_stream *stream = p->stream;
    net_stream_ref(stream);
    pthread_mutex_unlock(&p->lock);
    return stream;
}

void ps_streams_send(struct ps_streams *s, uint64_t number, const struct net_frame_head *head,
                     const struct net_piece *piece, struct buf *payload)
{
    struct net_stream *stream = ref_stream(s, number);
    if (!stream)
        return;
    net_stream_send(stream, head, piece, payload, 0, payload ? payload->bytes : 0);
    net_stream_unref(stream);
}

void ps_streams_end(struct ps_streams *s, uint64_t number, const char *why)
{
    struct net_stream *stream = ref_stream(s, number);
    if (!stream)
        return;
    net_stream_close(stream, why);
    net_stream_unref(stream);
}

void ps_streams_doubt(struct ps_streams *s, uint64_t number)
{
    struct net_stream *stream = ref_stream(s, number);
    if (!stream)
        return;
    net_stream_trust(stream, 0);
    net_stream_unref(stream);
}
