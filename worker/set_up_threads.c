/* worker/set_up_threads.c - counts the cores that this worker uses, starts its own threads, and
 * describes the arithmetic that its sums depend on. See worker.h. */
#include "base/cores.h"
#include "base/thread_pool.h"
#include "base/threads.h"
#include "kernels/vector/vector.h"
#include "net/rpc/environment.h"
#include "worker/worker.h"
#include <inttypes.h>
#include <stdio.h>

enum { MAX_OWN_THREADS = 8 };

/* Counts the cores that this worker uses; logs the reason if the machine has more cores. */
static int count_cores(const struct options *o)
{
    const struct cores c = cores_usable();
    int workers = hosts_on_same(&o->worker_hosts, o->task_index);
    /* if this worker's address is a loopback address, all workers run on this machine */
    int n = cores_share(&c, workers,
                        workers > 1 && hosts_is_loopback(o->worker_hosts.addr[o->task_index]));
    char limit[64] = "";
    if (o->intra_op_threads > c.n)
        LOG_W(
            "--intra_op_threads=%" PRId64
            " on %d usable %s: threads that wait for a core make each step many times slower; remove the flag, or set at most %d",
            o->intra_op_threads, c.n, c.n == 1 ? "core" : "cores", c.n);
    if (o->intra_op_threads > 0)
        return n;
    if (c.n < c.n_affinity)
        snprintf(limit, sizeof limit, "the control group's limit is %.2f, and ", c.quota);
    if (n < c.n)
        LOG_I(
            "%d of the machine's %d cores %s used: %s--worker_hosts has %d workers on this host (--intra_op_threads overrides this)",
            n, c.n_machine, n == 1 ? "is" : "are", limit, workers);
    else if (c.n < c.n_affinity)
        LOG_I("%d of the machine's %d cores are used: the control group's limit is %.2f", c.n,
              c.n_machine, c.quota);
    else if (c.n < c.n_machine)
        LOG_I("%d of the machine's %d cores are used: CPU affinity allows no more", c.n,
              c.n_machine);
    return n;
}

/* Returns the number of this worker's threads that do not belong to towers: a quarter of the
 * cores. */
static int n_own_threads(const struct worker *w)
{
    int n = (w->opt.intra_op_threads > 0 ? w->opt.intra_op_threads : w->n_cores) / 4;
    return n < MAX_OWN_THREADS ? n : MAX_OWN_THREADS;
}

/* Returns the number of threads that will be started before training runs. */
static int n_more_threads(const struct worker *w, int trains)
{
    int n = w->n_cores;
    if (trains) /* threads of each tower and of its reader */
        n += 2 + n_own_threads(w);
    /* threads that observe waits and that send reports */
    if (trains && w->opt.ps_hosts.n > 0)
        n += 2 + net_environment_threads() + NET_EXCHANGE_THREADS;
    return n;
}

enum status set_up_threads(struct worker *w)
{
    int trains = !w->opt.evaluate && !w->opt.predict;
    w->n_cores = count_cores(&w->opt);
    enum status st = threads_reserve(n_more_threads(w, trains));
    if (st != ST_OK)
        return st;
    return thread_pool_create(trains ? n_own_threads(w) : 1, &w->threads);
}

static bool are_alike(const struct tower_device *a, const struct tower_device *b)
{
    return a->backend == b->backend && a->n_threads == b->n_threads && a->precision == b->precision;
}

/* Writes the properties of each kind of tower, and of the loops in C, that affect the bits of this
 * worker's sums. */
void set_up_threads_arithmetic(const struct worker *w, char name[JOB_ARITHMETIC_BYTES])
{
    size_t n = 0;
    name[0] = 0;
    for (int i = 0; i < w->towers.n && n < JOB_ARITHMETIC_BYTES; i++) {
        const struct tower_device *d = &w->towers.tower[i].own;
        const struct tower_device *before = i > 0 ? &w->towers.tower[i - 1].own : NULL;
        if (before && are_alike(before, d))
            continue;
        char threads[32] = "", times[32] = "";
        int alike = 1;
        while (i + alike < w->towers.n && are_alike(d, &w->towers.tower[i + alike].own))
            alike++;
        if (alike > 1)
            snprintf(times, sizeof times, "%d x ", alike);
        if (!d->gpu)
            snprintf(threads, sizeof threads, ", %d %s", d->n_threads,
                     d->n_threads == 1 ? "thread" : "threads");
        n += (size_t)snprintf(name + n, JOB_ARITHMETIC_BYTES - n, "%s%s%s%s%s", n > 0 ? "; " : "",
                              times, d->backend->description, threads,
                              d->precision == BACKEND_BF16   ? ", bf16"
                              : d->precision == BACKEND_TF32 ? ", tf32"
                                                             : "");
    }
    if (n < JOB_ARITHMETIC_BYTES)
        snprintf(name + n, JOB_ARITHMETIC_BYTES - n, JOB_VECTOR_LOOPS "%s", vector_description());
}
