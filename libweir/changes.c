/* libweir/changes.c - see changes.h.
 *
 * The program does not read a parameter's values between its push and the answer, which replaces
 * them. So the change by own local steps is computed in the array of the values and sent from
 * there. If the answer is lost, the change is sent again from there; a server has counted each
 * change whose answer has begun to replace it, and counts it only once. An answer that only adds to
 * the values needs them, so in such number formats the change is computed in the array of the
 * gradients. */
#include "libweir/changes.h"
#include "kernels/vector/optim.h"

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
