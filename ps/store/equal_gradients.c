/* ps/store/equal_gradients.c - see equal_gradients.h. Compares checksums of the last bytes of the
 * contributions to the model's last trained chunk, in the first steps of a generation only. In most
 * models these bytes have the gradients of the output layer's bias, which depend on every sample.
 * Bytes that are all 0 are not compared. Gradients that no sample influences, for example those of
 * a penalty on the weights, are equal in all workers. If these bytes have no other gradients, the
 * line is wrong, so it contains the word "probably". */
#include "ps/store/equal_gradients.h"
#include "base/digest.h"
#include "base/log.h"
#include <stdlib.h>

enum { STEPS = 3, TAIL_BYTES = 1024 };

struct tail {
    uint64_t step; /* step of the contribution + 1; 0: there is nothing to compare */
    uint32_t crc;
};

struct equal_gradients {
    int chunk, n_members;
    const int *member;       /* the members' indices; borrowed; NULL: 0, 1, ... */
    int n_compared, n_equal; /* numbers of steps */
    struct tail tails[];     /* [n_members] */
};

enum status equal_gradients_create(const struct store *s, struct equal_gradients **out)
{
    const struct chunks *chunks = s->cfg.chunks;
    int last = chunks->n_dense - 1;
    *out = NULL;
    while (last >= 0 && chunks->params[chunks->chunks[last].param].rule != PARAM_TRAINED)
        last--;
    if (last < 0 || s->shelf_of[last] < 0 || !s->lockstep || s->n_members < 2)
        return ST_OK;
    *out = calloc(1, sizeof **out + (size_t)s->n_members * sizeof *(*out)->tails);
    if (!*out)
        return ST_NOMEM;
    (*out)->chunk = last;
    (*out)->n_members = s->n_members;
    (*out)->member = s->cfg.member;
    return ST_OK;
}

void equal_gradients_destroy(struct equal_gradients *e)
{
    free(e);
}

static void set_tail(struct tail *t, const struct net_piece *piece)
{
    uint8_t bytes[TAIL_BYTES];
    const struct net_payload *p = &piece->payload;
    size_t n = p->bytes < TAIL_BYTES ? p->bytes : TAIL_BYTES, at = 0;
    struct net_payload part = payload_part(p, p->bytes - n, n);
    t->step = 0;
    if (n == 0 || !(piece->weight > 0))
        return;
    payload_copy(&part, bytes);
    while (at < n && bytes[at] == 0)
        at++;
    t->step = at < n ? piece->step + 1 : 0;
    t->crc = digest_crc32c(0, bytes, n);
}

/* Returns true if two contributions to the step are equal, and sets their senders. */
static bool find_equal(const struct equal_gradients *e, uint64_t step, int *first, int *second)
{
    for (int i = 0; i < e->n_members; i++)
        for (int j = i + 1; e->tails[i].step == step + 1 && j < e->n_members; j++)
            if (e->tails[j].step == step + 1 && e->tails[j].crc == e->tails[i].crc) {
                *first = i;
                *second = j;
                return true;
            }
    return false;
}

void equal_gradients_note(struct equal_gradients *e, const struct chunk_state *c,
                          const struct arrival *a, bool is_last)
{
    int i = 0, j = 0;
    if (!e || c->chunk != e->chunk || e->n_compared == STEPS)
        return;
    set_tail(&e->tails[a->head->member], a->piece);
    if (!is_last)
        return;
    e->n_compared++;
    e->n_equal += find_equal(e, a->piece->step, &i, &j);
    if (e->n_equal == STEPS)
        LOG_W(
            "workers %d and %d sent the same gradients in %d steps, so they probably train on the same samples, and the second worker adds nothing; if a script draws its own batches, each worker must draw other ones: use exchange.samples() or a Sampler (Python), weir_sample() (C), or a seed with the worker's number",
            e->member ? e->member[i] : i, e->member ? e->member[j] : j, STEPS);
}
