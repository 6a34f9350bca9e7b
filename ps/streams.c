/* ps/streams.c - see streams.h. A number is a place in the table and a count of the streams that
 * stood there. Places are made when they are first needed and never given back, so that looking one
 * up needs no lock: whoever has a number got it after its place was made. A place's lock is
 * recursive, because a stream that breaks under a send may close in the same thread. */
#include "ps/streams.h"
#include <pthread.h>
#include <stdlib.h>

struct place {
    pthread_mutex_t lock;
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
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&p->lock, &attr);
    pthread_mutexattr_destroy(&attr);
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
static struct place *lock_place(struct ps_streams *s, uint64_t number)
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

void ps_streams_close(struct ps_streams *s, uint64_t number)
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

void ps_streams_send(struct ps_streams *s, uint64_t number, const struct net_frame_head *head,
                     const struct net_piece *piece, struct buf *payload)
{
    struct place *p = lock_place(s, number);
    if (!p)
        return;
    net_stream_send(p->stream, head, piece, payload, 0, payload ? payload->bytes : 0);
    pthread_mutex_unlock(&p->lock);
}

void ps_streams_fail(struct ps_streams *s, uint64_t number, const struct net_frame_head *head,
                     const char *why)
{
    struct place *p = lock_place(s, number);
    if (!p)
        return;
    net_stream_fail(p->stream, head, 0, why);
    pthread_mutex_unlock(&p->lock);
}

void ps_streams_doubt(struct ps_streams *s, uint64_t number)
{
    struct place *p = lock_place(s, number);
    if (!p)
        return;
    net_stream_trust(p->stream, 0);
    pthread_mutex_unlock(&p->lock);
}
