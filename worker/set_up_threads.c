/* worker/set_up_threads.c - the cores that this worker takes, and threads of its own: see worker.h.
 */
#include "base/cores.h"
#include "base/thread_pool.h"
#include "worker/worker.h"
#include <stdio.h>

enum { MAX_OWN_THREADS = 8 };

/* The cores that this worker takes; where they are fewer than the machine has, why. */
static int count_cores(const struct options *o)
{
    const struct cores c = cores_usable();
    int workers = hosts_on_same(&o->worker_hosts, o->task_index);
    /* who is reached at a loopback address is where this one is */
    int n = cores_share(&c, workers,
                        workers > 1 && hosts_is_loopback(o->worker_hosts.addr[o->task_index]));
    char limit[64] = "";
    if (o->intra_op_threads > 0)
        return n;
    if (c.n < c.n_affinity)
        snprintf(limit, sizeof limit, "the control group's limit is %.2f, and ", c.quota);
    if (n < c.n)
        LOG_I("%d of the machine's %d cores %s used: %s--worker_hosts has %d workers on this host "
              "(--intra_op_threads says otherwise)",
              n, c.n_machine, n == 1 ? "is" : "are", limit, workers);
    else if (c.n < c.n_affinity)
        LOG_I("%d of the machine's %d cores are used: the control group's limit is %.2f", c.n,
              c.n_machine, c.quota);
    else if (c.n < c.n_machine)
        LOG_I("%d of the machine's %d cores are used: CPU affinity has no more", c.n, c.n_machine);
    return n;
}

/* Beside the towers' threads, so few: a quarter of the cores. */
static int n_own_threads(const struct worker *w)
{
    int n = (w->opt.intra_op_threads > 0 ? w->opt.intra_op_threads : w->n_cores) / 4;
    return n < MAX_OWN_THREADS ? n : MAX_OWN_THREADS;
}

enum status set_up_threads(struct worker *w)
{
    int trains = !w->opt.evaluate && !w->opt.predict;
    w->n_cores = count_cores(&w->opt);
    return thread_pool_create(trains ? n_own_threads(w) : 1, &w->threads);
}
