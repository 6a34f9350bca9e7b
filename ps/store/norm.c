/* ps/store/norm.c - see norm.h. */
#include "ps/store/norm.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct step {
    int64_t step; /* -1: none yet */
    int n_missing, n_own_missing;
    uint8_t *known; /* [n_chunks] */
    /* square: [n_chunks] sum of squares of each chunk; own: [n_own] copy of those of this
     * server's chunks */
    double *square, *own;
};

struct ps_norm {
    int n_chunks, n_own, self;
    int *server;          /* [n_chunks] */
    pthread_mutex_t lock; /* guards the fields below */
    struct step steps[2]; /* states of two steps, by the last bit of the step */
};

enum status ps_norm_create(int n_chunks, const int *server, int self, struct ps_norm **out)
{
    size_t room = (size_t)n_chunks + 1;
    struct ps_norm *n = calloc(1, sizeof *n);
    if (!n)
        return ST_NOMEM;
    pthread_mutex_init(&n->lock, NULL);
    n->n_chunks = n_chunks;
    n->self = self;
    n->server = malloc(room * sizeof *n->server);
    int ok = n->server != NULL;
    for (int i = 0; i < 2; i++) {
        struct step *s = &n->steps[i];
        s->step = -1;
        s->known = calloc(room, sizeof *s->known);
        s->square = calloc(room, sizeof *s->square);
        s->own = calloc(room, sizeof *s->own);
        ok = ok && s->known && s->square && s->own;
    }
    if (!ok) {
        ps_norm_destroy(n);
        return ST_NOMEM;
    }
    for (int i = 0; i < n_chunks; i++) {
        n->server[i] = server[i];
        n->n_own += server[i] == self;
    }
    *out = n;
    return ST_OK;
}

void ps_norm_destroy(struct ps_norm *n)
{
    if (!n)
        return;
    for (int i = 0; i < 2; i++) {
        free(n->steps[i].known);
        free(n->steps[i].square);
        free(n->steps[i].own);
    }
    pthread_mutex_destroy(&n->lock);
    free(n->server);
    free(n);
}

/* Returns the step's state, or NULL if the step is over. The caller holds the lock. */
static struct step *find(struct ps_norm *n, int64_t step)
{
    struct step *s = &n->steps[step & 1];
    if (step > s->step) {
        s->step = step;
        s->n_missing = n->n_chunks;
        s->n_own_missing = n->n_own;
        memset(s->known, 0, (size_t)n->n_chunks);
    }
    return step == s->step ? s : NULL;
}

/* Sets a chunk's sum of squares, its part of the norm. The caller holds the lock. */
static void put(const struct ps_norm *n, struct step *s, int chunk, double square, int *news)
{
    if (s->known[chunk])
        return;
    s->known[chunk] = 1;
    s->square[chunk] = square;
    if (n->server[chunk] == n->self && --s->n_own_missing == 0) {
        for (int i = 0, at = 0; i < n->n_chunks; i++)
            if (n->server[i] == n->self)
                s->own[at++] = s->square[i];
        *news |= NORM_OWN;
    }
    if (--s->n_missing == 0)
        *news |= NORM_ALL;
}

void ps_norm_put(struct ps_norm *n, int64_t step, int chunk, double square, int *news)
{
    *news = 0;
    pthread_mutex_lock(&n->lock);
    struct step *s = find(n, step);
    if (s)
        put(n, s, chunk, square, news);
    pthread_mutex_unlock(&n->lock);
}

enum status ps_norm_put_server(struct ps_norm *n, int64_t step, int server, const double *square,
                               int n_squares, int *news)
{
    int n_theirs = 0, at = 0;
    *news = 0;
    for (int i = 0; i < n->n_chunks; i++)
        n_theirs += n->server[i] == server;
    if (server == n->self || n_theirs != n_squares)
        return ST_RANGE;
    pthread_mutex_lock(&n->lock);
    struct step *s = find(n, step);
    for (int i = 0; s && i < n->n_chunks; i++)
        if (n->server[i] == server)
            put(n, s, i, square[at++], news);
    pthread_mutex_unlock(&n->lock);
    return ST_OK;
}

const double *ps_norm_own(struct ps_norm *n, int64_t step, int *n_own)
{
    *n_own = n->n_own;
    return n->steps[step & 1].own;
}

double ps_norm_squares(struct ps_norm *n, int64_t step)
{
    double sum = 0;
    pthread_mutex_lock(&n->lock);
    for (int i = 0; i < n->n_chunks; i++)
        sum += n->steps[step & 1].square[i];
    pthread_mutex_unlock(&n->lock);
    return sum;
}
