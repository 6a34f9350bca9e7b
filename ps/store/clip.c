/* ps/store/clip.c - see chunk_state.h: clips by the norm, in lockstep. A chunk that has all
 * contributions of a step waits until every chunk of the model has, here and on the other servers.
 * Then the norm of the step's mean gradient is complete, the same number everywhere, and all
 * versions are made. The thread that adds the last chunk's sum of squares begins the updates.
 * Locks:   a chunk's, the norm's; never both. */
#include "kernels/vector/clip.h"
#include "base/log.h"
#include "ps/store/answers.h"
#include "ps/store/chunk_state.h"
#include "ps/store/versions.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

static void finish_all(struct store *s, int64_t step)
{
    double squares = ps_norm_squares(s->norm, step);
    double factor = clip_factor(squares, s->job.optim.clip_norm);
    if (factor == 0)
        LOG_FEW(
            "step %" PRId64
            ": the norm of the mean gradient is not finite (its square is %g), though each contribution is finite: the step changes no parameter; a lower --learning_rate may help",
            step, squares);
    for (int i = 0; i < s->n_owned; i++) {
        struct chunk_state *c = &s->owned[i];
        pthread_mutex_lock(&c->lock);
        bool has_begun = version_begin_clipped(s, c, step, factor);
        pthread_mutex_unlock(&c->lock);
        if (has_begun)
            chunk_update_launch(s, c, NULL, NULL);
    }
}

/* Sends the sums of squares of this server's chunks to the other servers, then makes this
 * server's versions if the norm is complete. */
static void act(struct store *s, int64_t step, int news)
{
    int n = 0;
    if ((news & NORM_OWN) && s->cfg.squares) {
        const double *own = ps_norm_own(s->norm, step, &n);
        s->cfg.squares(s->cfg.squares_ctx, step, own, n);
    }
    if (news & NORM_ALL)
        finish_all(s, step);
}

void clip_add_squares(struct store *s, int chunk, int64_t step, double squares)
{
    int news;
    ps_norm_put(s->norm, step, chunk, squares, &news);
    act(s, step, news);
}

enum squares_answer clip_receive_squares(struct store *s, const struct net_squares *from,
                                         char why[CONTROL_TEXT_BYTES])
{
    int news;
    if (!s->norm) {
        snprintf(why, CONTROL_TEXT_BYTES, "this job's servers do not clip by the norm");
        return SQUARES_REFUSED;
    }
    int64_t lowest = store_step(s);
    if (from->step < lowest)
        return SQUARES_TAKEN;
    if (from->step > lowest + 1) {
        snprintf(why, CONTROL_TEXT_BYTES, "step %" PRId64 " is more than one above this server's",
                 from->step);
        return SQUARES_LATER;
    }
    if (ps_norm_put_server(s->norm, from->step, from->server, from->square, from->n, &news) !=
        ST_OK) {
        snprintf(why, CONTROL_TEXT_BYTES,
                 "the number of chunks of server %d in this generation is not %d", from->server,
                 from->n);
        return SQUARES_REFUSED;
    }
    act(s, from->step, news);
    return SQUARES_TAKEN;
}
