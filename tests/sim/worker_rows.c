/* tests/sim/worker_rows.c - see worker_rows.h. */
#include "tests/sim/worker_rows.h"
#include "net/exchange/rows.h"
#include "tests/sim/client.h"
#include "tests/sim/oracle_rows.h"
#include <string.h>

static int bucket_of(int chunk)
{
    return chunk - sim_chunks->n_dense;
}

void worker_rows_forget(struct worker_rows *w)
{
    for (int b = 0; b < SIM_BUCKETS; b++) {
        w->bucket[b].version = -1;
        w->bucket[b].n_read = 0;
        memset(w->bucket[b].has, 0, sizeof w->bucket[b].has);
    }
}

/* Copies the rows of the bucket's last answer, and checks them. */
static void receive(struct worker_rows *w, struct net_exchange *x, int chunk)
{
    int b = bucket_of(chunk);
    struct oracle_received r = {.chunk = chunk, .version = net_exchange_version(x, chunk)};
    r.generation = client_generation(x, &r.ps0);
    r.values = net_exchange_rows(x, chunk, &r.keys, &r.n);
    if (r.n != w->bucket[b].n_read ||
        (r.n > 0 && memcmp(r.keys, w->bucket[b].read, r.n * sizeof *r.keys) != 0))
        sim_fail("rows", "%s receives other rows of bucket %d than it asked for",
                 sim.node[w->node].name, b);
    oracle_rows_received(&r);
    if (r.version != w->bucket[b].version)
        memset(w->bucket[b].has, 0, sizeof w->bucket[b].has);
    w->bucket[b].version = r.version;
    size_t dim = (size_t)tables_of(sim_chunks, chunk)->dim;
    for (size_t k = 0; k < r.n; k++) {
        int i = tables_index(chunk, r.keys[k]);
        memcpy(w->bucket[b].values[i], r.values + k * dim, dim * sizeof *r.values);
        w->bucket[b].has[i] = true;
    }
}

static bool lacks(const struct worker_rows *w, int chunk, uint64_t position)
{
    for (int i = 0; i < ROW_MODEL_KEYS; i++)
        if (tables_uses(chunk, position, i) && !w->bucket[bucket_of(chunk)].has[i])
            return true;
    return false;
}

/* Sends a pull of the rows that the worker lacks. If members do not advance together, the pull
 * names all rows of the batch, of any version: the bucket may have its last version, which ps 0
 * withholds from pulls that name it. */
static enum status pull(struct worker_rows *w, struct net_exchange *x, int chunk, uint64_t position)
{
    int b = bucket_of(chunk);
    bool is_lockstep = job_in_lockstep(&sim_job);
    uint64_t *read = w->bucket[b].read;
    size_t n = 0;
    for (int i = 0; i < ROW_MODEL_KEYS; i++)
        if (tables_uses(chunk, position, i) && (!is_lockstep || !w->bucket[b].has[i]))
            read[n++] = tables_keys(chunk)[i];
    w->bucket[b].n_read = n;
    return net_exchange_pull_rows(x, chunk, is_lockstep ? net_exchange_version(x, chunk) : 0, read,
                                  n);
}

enum status worker_rows_look_up(struct worker_rows *w, struct net_exchange *x, uint64_t position)
{
    enum status st = ST_OK;
    bool pulls[SIM_BUCKETS] = {false};
    int n = sim_chunks->n_chunks, dense = sim_chunks->n_dense;
    for (int i = dense; i < n; i++) {
        receive(w, x, i);
        pulls[bucket_of(i)] = lacks(w, i, position);
        if (pulls[bucket_of(i)])
            TRY(pull(w, x, i, position));
    }
    TRY(net_exchange_wait(x, dense, n - dense, 0));
    for (int i = dense; i < n; i++)
        if (pulls[bucket_of(i)])
            receive(w, x, i);
done:
    return st;
}

enum status worker_rows_read_all(struct worker_rows *w, struct net_exchange *x)
{
    enum status st = ST_OK;
    int n = sim_chunks->n_chunks, dense = sim_chunks->n_dense;
    for (int i = dense; i < n; i++) {
        uint64_t *read = w->bucket[bucket_of(i)].read;
        size_t n_read = 0;
        for (int k = 0; k < ROW_MODEL_KEYS; k++)
            if (tables_has_key(i, k))
                read[n_read++] = tables_keys(i)[k];
        w->bucket[bucket_of(i)].n_read = n_read;
        TRY(net_exchange_pull_rows(x, i, sim_job.train_steps, read, n_read));
    }
    TRY(net_exchange_wait(x, dense, n - dense, sim_job.train_steps));
    for (int i = dense; i < n; i++)
        receive(w, x, i);
done:
    return st;
}

enum status worker_rows_push(struct worker_rows *w, struct net_exchange *x, int chunk,
                             uint64_t position)
{
    int b = bucket_of(chunk);
    int64_t version = net_exchange_version(x, chunk);
    const uint64_t *all = tables_keys(chunk);
    uint64_t keys[ROW_MODEL_KEYS], next = position + (uint64_t)sim_job.batch;
    float gradients[ROW_MODEL_KEYS * ROW_MODEL_DIM];
    struct net_rows rows = {.keys = keys, .gradients = gradients, .reads = w->bucket[b].read};
    size_t dim = (size_t)tables_of(sim_chunks, chunk)->dim;
    if (job_in_lockstep(&sim_job))
        next = position + (uint64_t)(sim_job.batch * w->n_members);
    for (int i = 0; i < ROW_MODEL_KEYS; i++) {
        if (tables_uses(chunk, position, i)) {
            tables_gradient(chunk, position, i, w->bucket[b].values[i], gradients + rows.n * dim);
            keys[rows.n++] = all[i];
        }
        if (tables_reads(chunk, next, sim.node[w->node].life, i))
            w->bucket[b].read[rows.n_reads++] = all[i];
    }
    w->bucket[b].n_read = rows.n_reads;
    client_set_position(w->node, chunk, position);
    uint64_t step = job_in_lockstep(&sim_job) ? (uint64_t)version : position;
    net_exchange_set_rate(x, tables_rate(chunk, step));
    return net_exchange_push_rows(x, chunk, version, &rows, tables_weight(chunk, position));
}
