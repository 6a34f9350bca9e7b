/* libweir/waits.c - logs the programs that a member waits for, in the same lines as Weir's workers;
 * see weir_impl.h. The lines are warnings, so stderr shows them by default. */
#include "libweir/weir_impl.h"

/* Reports no wait for an unreachable server: the exchange logs its own lines for that. */
static void find_wait(void *ctx, struct net_exchange_wait *out)
{
    const struct weir *w = ctx;
    w->updates.ops->waits(w->updates.ctx, out);
    if (out->reason[0] && !out->is_asked)
        out->ms = 0;
}

/* Does nothing: a library has no bar, and `waiting` has logged its line. */
static void on_changed(void *ctx, const char *whom, int64_t ms)
{
    (void)ctx, (void)whom, (void)ms;
}

enum status weir_watch_waits(struct weir *w)
{
    static const struct updates_ops ops = {.waits = find_wait};
    w->watched = (struct updates){&ops, w};
    const struct waiting_config cfg = {
        .updates = &w->watched, .ps0 = w->cluster.ps.addr[0], .changed = on_changed, .ctx = w};
    return waiting_create(&cfg, &w->waiting);
}
