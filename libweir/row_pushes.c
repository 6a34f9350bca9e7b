/* libweir/row_pushes.c - pushes the gradients of rows; see tables.h and weir_tables.h. A push of a
 * table is one contribution to each of its buckets, also to those without a key, because a version
 * of a bucket needs the contributions of all members. */
#include "libweir/tables.h"
#include <stdlib.h>

/* Returns true if a request of the table has no answer yet. */
static bool is_under_way(const struct weir *w, const struct net_table *net)
{
    const struct updates *x = &w->updates;
    for (int c = net->first_chunk; c < net->first_chunk + net->n_buckets; c++)
        if (x->ops->is_busy(x->ctx, c))
            return true;
    return false;
}

/* Marks the table as pushed. A refused push changes nothing. Sets *last to true if it is the last
 * push of the step. */
static int mark_pushed(struct weir *w, struct row_table *t, const struct net_table *net,
                       const struct within *in, bool *last)
{
    bool busy = !in->invalid && is_under_way(w, net);
    pthread_mutex_lock(&w->lock);
    bool twice = t->pushed == in->step + 1;
    if (!twice && !busy) {
        t->pushed = in->step + 1;
        w->n_unpushed--;
        w->n_pushing++;
    }
    *last = w->n_unpushed == 0;
    pthread_mutex_unlock(&w->lock);
    if (twice)
        return weir_errors_fail(w, WEIR_E_INVALID, "table '%.255s' is pushed twice at step %lld",
                                t->name, (long long)in->step);
    if (busy)
        return weir_errors_fail(
            w, WEIR_E_INVALID,
            "table '%.255s' is still in flight at step %lld: repeat weir_lookup for this table until it returns WEIR_OK",
            t->name, (long long)in->step);
    return WEIR_OK;
}

/* Sorts the keys of a push. Often the step's lookup had the same keys, and so has sorted them. */
static int sort_pushed(struct weir *w, int table, const uint64_t *keys, int64_t n)
{
    struct row_table *t = w->tables[table];
    struct row_keys *k = row_keys_are(&t->asked, keys, (size_t)n) ? &t->asked : &t->pushing;
    t->sent = k;
    return weir_tables_sort_keys(w, table, k, keys, n, true);
}

/* Adds the gradients of equal keys. */
static int sum_gradients(struct weir *w, struct row_table *t, const float *gradients)
{
    size_t n = t->sent->n * (size_t)t->dim;
    if (!t->sums || n > t->sums_room) {
        free(t->sums);
        t->sums_room = n + n / 4 + 1;
        t->sums = malloc(t->sums_room * sizeof *t->sums);
        if (!t->sums) {
            t->sums_room = 0;
            return weir_errors_fail(w, WEIR_E_NOMEM,
                                    "out of memory for %zu gradients of table '%.255s'", t->sent->n,
                                    t->name);
        }
    }
    row_keys_sum(t->sent, (size_t)t->dim, gradients, t->sums);
    return WEIR_OK;
}

static int send_bucket(struct weir *w, const struct row_table *t, int chunk, int bucket,
                       double samples, bool reads)
{
    const struct updates *x = &w->updates;
    int64_t version = w->own_pace ? x->ops->version(x->ctx, chunk) : w->step;
    if (version >= w->train_steps) /* async, ssp: the bucket has had all updates of the job */
        return WEIR_OK;
    size_t first = t->sent->first[bucket];
    struct net_rows rows = {.n = row_keys_in(t->sent, bucket),
                            .keys = t->sent->keys + first,
                            .gradients = t->sums + first * (size_t)t->dim};
    if (reads) {
        rows.n_reads = row_keys_in(&t->next, bucket);
        rows.reads = t->next.keys + t->next.first[bucket];
    }
    enum status st = ST_REBASED;
    if (version >= 0)
        st = x->ops->push_rows(x->ctx, chunk, version, &rows, (float)samples);
    int code = weir_steps_code_of_wait(w, st, 0);
    return code == WEIR_REBASED ? WEIR_OK : code;
}

static int send_table(struct weir *w, struct row_table *t, const struct net_table *net,
                      double samples)
{
    bool reads = t->next_step == w->step && t->next_generation == w->generation;
    int code = WEIR_OK;
    for (int b = 0; b < net->n_buckets && code == WEIR_OK; b++)
        code = send_bucket(w, t, net->first_chunk + b, b, samples, reads);
    t->next_step = -1;
    return code;
}

/* Pushes the sorted keys. The caller holds the table's lock. */
static int push_sorted(struct weir *w, int table, const struct within *in, double samples)
{
    struct row_table *t = w->tables[table];
    const struct net_table *net = weir_tables_net(w, table);
    bool last;
    int code = mark_pushed(w, t, net, in, &last);
    if (code != WEIR_OK)
        return code;
    weir_lookups_forget(t);
    if (!in->invalid)
        code = send_table(w, t, net, samples);
    if (code == WEIR_OK && last)
        w->updates.ops->flush(w->updates.ctx);
    pthread_mutex_lock(&w->lock);
    w->n_pushing--;
    pthread_mutex_unlock(&w->lock);
    return code;
}

static int check_push(struct weir *w, const struct row_table *t, const uint64_t *keys, int64_t n,
                      const float *gradients, double samples)
{
    int code = weir_tables_check_keys(w, t, keys, n);
    if (code != WEIR_OK)
        return code;
    if (!(samples >= 0 && samples <= JOB_MAX_BATCH))
        return weir_errors_fail(w, WEIR_E_INVALID,
                                "table '%.255s': the number of samples is %g, but must be 0 to %d",
                                t->name, samples, JOB_MAX_BATCH);
    if (n > 0 && samples > 0 && !gradients)
        return weir_errors_fail(
            w, WEIR_E_INVALID,
            "table '%.255s': gradients is NULL, but n is %lld: push 0 samples if there are none",
            t->name, (long long)n);
    return WEIR_OK;
}

int weir_push_rows(struct weir *w, int table, const uint64_t *keys, int64_t n,
                   const float *gradients, double samples)
{
    struct within in;
    int code = weir_steps_enter_call(w, &in);
    if (code != WEIR_OK)
        return code;
    struct row_table *t = weir_tables_find(w, table);
    code = t ? check_push(w, t, keys, n, gradients, samples) : WEIR_E_INVALID;
    if (code == WEIR_OK) {
        pthread_mutex_lock(&t->lock);
        code = sort_pushed(w, table, keys, samples > 0 ? n : 0);
        if (code == WEIR_OK)
            code = sum_gradients(w, t, gradients);
        if (code == WEIR_OK)
            code = push_sorted(w, table, &in, samples);
        pthread_mutex_unlock(&t->lock);
    }
    weir_steps_exit(w);
    return code;
}
