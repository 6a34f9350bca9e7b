/* libweir/changes.c - see changes.h.
 *
 * The program does not read a parameter's values between its push and the answer, which replaces
 * them. So the change by own local steps is computed in the array of the values and sent from
 * there. If the answer is lost, the change is sent again from there. By then the answer may have
 * replaced a part of the change. This does no harm: the server that sent the answer has counted the
 * change, and does not read it again. An answer that only adds to the values needs them, so in such
 * number formats the change is computed in the array of the gradients. */
#include "libweir/changes.h"
#include "kernels/vector/optim.h"
#include "net/wire/lacking.h"
#include <string.h>

enum { BLOCK = 1024 }; /* elements that are encoded at once */

bool weir_changes_in_place(const struct weir *w)
{
    const struct net_job *job = &w->job;
    bool replaces = !job->wire_auto && dtype_block(job->version_dtype) == 1 && job->fragments <= 1;
    return w->set.own_local_steps && replaces;
}

void weir_changes_make(struct weir *w, int param, int64_t first, int64_t n, const float *values)
{
    const struct net_param *p = &w->chunks->params[param];
    optim_change(p->rule == PARAM_AVERAGE ? p->keep : -1, (size_t)n, w->values + first, values,
                 w->contributions + first);
}

bool weir_changes_encode(struct weir *w, int chunk, double samples, const uint8_t *lacking)
{
    const struct net_chunk *c = &w->chunks->chunks[chunk];
    enum dtype dtype = job_push_dtype(&w->job, w->chunks, chunk);
    float block[BLOCK], *from = w->contributions + c->first;
    if (w->contributions != w->values || dtype == DTYPE_F32 || dtype_block(dtype) > 1)
        return false;
    bool is_empty =
        samples == 0 || (lacking && lacking_all(lacking, lacking_n_params(w->chunks, chunk)));
    for (int64_t at = 0; at < c->n_elems && !is_empty; at += BLOCK) {
        size_t n = (size_t)(c->n_elems - at < BLOCK ? c->n_elems - at : BLOCK);
        /* the codes overwrite only this block, which was copied, and earlier blocks */
        memcpy(block, from + at, n * sizeof *block);
        dtype_encode(dtype, (uint8_t *)from + dtype_bytes(dtype, (size_t)at), block, n);
    }
    return true;
}
