/* member/row_reads.c - see row_reads.h. A bucket's rows are read from the last answer if it has all
 * of them. Otherwise all of them are pulled, so that they have one version. A bucket with more keys
 * than its share of step_rows is read in parts. */
#include "member/row_reads.h"
#include "base/log.h"

/* Checks that a bucket in lockstep has exactly the version of the step: servers keep the version
 * before the newest one (I4), so a member that starts again receives the rows of its step. */
static enum status check_version(const struct row_reads *r, int chunk)
{
    int64_t version = r->updates->ops->version(r->updates->ctx, chunk);
    if (!r->exact || version == r->version)
        return ST_OK;
    if (version < 0)
        return ST_REBASED;
    LOG_E("table '%s': a server sent rows of step %lld, but step %lld was requested",
          r->table->name, (long long)version, (long long)r->version);
    return ST_PROTOCOL;
}

/* Reads rows of a bucket from its last answer, and requests those that the answer does not have.
 * Sets *missing to true if it has sent a request. */
static enum status read_bucket(const struct row_reads *r, int bucket, size_t share, bool *missing)
{
    const struct updates *x = r->updates;
    int chunk = r->table->first_chunk + bucket;
    struct row_source answer = {0};
    enum status st = check_version(r, chunk);
    if (st != ST_OK)
        return st;
    answer.rows = x->ops->rows(x->ctx, chunk, &answer.keys, &answer.n);
    while (r->done[bucket] < r->keys->first[bucket + 1]) {
        size_t from = r->done[bucket], to = r->keys->first[bucket + 1];
        to = to - from > share ? from + share : to;
        if (!row_keys_read(r->keys, from, to, &answer, (size_t)r->table->dim, r->rows)) {
            *missing = true;
            return x->ops->pull_rows(x->ctx, chunk, r->version, r->keys->keys + from, to - from);
        }
        r->done[bucket] = (uint32_t)to;
    }
    return ST_OK;
}

enum status row_reads_run(const struct row_reads *r)
{
    const struct updates *x = r->updates;
    const struct net_table *t = r->table;
    size_t share = (size_t)tables_share(t, t->step_rows);
    enum status st = ST_OK;
    for (bool missing = true; missing && st == ST_OK;) {
        missing = false;
        st = x->ops->wait(x->ctx, t->first_chunk, t->n_buckets, r->version, r->deadline_ns);
        for (int b = 0; b < t->n_buckets && st == ST_OK; b++)
            st = read_bucket(r, b, share, &missing);
        x->ops->flush(x->ctx);
    }
    return st;
}
