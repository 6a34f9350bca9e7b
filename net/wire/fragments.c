/* net/wire/fragments.c - see fragments.h. */
#include "net/wire/fragments.h"
#include <stdbool.h>
#include <stdlib.h>

enum status fragments_create(const struct net_job *job, const struct chunks *chunks, int **out)
{
    *out = NULL;
    if (job->fragments <= 1)
        return ST_OK;
    int *fragment = malloc((size_t)chunks->n_chunks * sizeof *fragment);
    enum status st = fragment ? chunks_shard(chunks, job->fragments, fragment) : ST_NOMEM;
    if (st == ST_OK)
        *out = fragment;
    else
        free(fragment);
    return st;
}

bool fragments_turn(const struct net_job *job, const int *fragment, int chunk, int64_t step)
{
    return !fragment || step >= job->train_steps - 1 || step % job->fragments == fragment[chunk];
}

bool fragments_turn_between(const struct net_job *job, const int *fragment, int chunk, int64_t from,
                            int64_t to)
{
    if (!fragment)
        return from < to;
    from = to - from > job->fragments ? to - job->fragments
                                      /* number of steps in which each fragment is exchanged */
                                      : from;
    for (int64_t step = from; step < to; step++)
        if (fragments_turn(job, fragment, chunk, step))
            return true;
    return false;
}
