/* member/steps.c - computes positions in lockstep by arithmetic, and in other modes by the
 * servers' answers; see steps.h. */
#include "member/steps.h"

uint64_t member_steps_position(const struct member_steps *m, int64_t step)
{
    uint64_t first = net_place_position(m->place, (int)(m->n_local * m->batch), step / m->n_local);
    return first + (uint64_t)(step % m->n_local * m->batch);
}

uint64_t member_steps_position_now(const struct member_steps *m, int64_t step)
{
    const struct updates *x = m->updates;
    uint64_t given = m->own_pace && x->ops->samples ? x->ops->samples(x->ctx) : 0;
    return given > 0 ? given - 1 : member_steps_position(m, step);
}

int64_t member_steps_lowest_version(const struct updates *x, int n_chunks)
{
    int64_t lowest = INT64_MAX;
    for (int c = 0; c < n_chunks; c++) {
        int64_t version = x->ops->version(x->ctx, c);
        lowest = version < lowest ? version : lowest;
    }
    return lowest;
}

enum status member_steps_collect(const struct member_steps *m, const struct chunks *chunks,
                                 int64_t version, int64_t deadline_ns, int *asked)
{
    const struct updates *x = m->updates;
    enum status st = ST_OK;
    enum dtype d = m->place->version_dtype; /* the job's dtype; the setting of this member may be
                                             * `auto` */
    /* the member receives exactly the servers' values in these formats */
    int exact = d == DTYPE_F32 || dtype_block(d) > 1;
    TRY(x->ops->wait(x->ctx, 0, chunks->n_chunks, version, deadline_ns));
    if ((exact && !m->own_pace) || *asked)
        goto done;
    for (int c = 0; c < chunks->n_dense; c++)
        TRY(x->ops->pull(x->ctx, c, version));
    *asked = 1;
    TRY(x->ops->wait(x->ctx, 0, chunks->n_chunks, version, deadline_ns));
done:
    return st;
}
