/* worker/results/validation_report.c - sends an evaluation to ps 0, and repeats it until ps 0
 * allows this worker to continue. Until then the job makes no step, because this worker does not
 * push gradients. */
#include "base/clock.h"
#include "base/log.h"
#include "net/exchange/status_client.h"
#include "worker/results/validation.h"
#include <inttypes.h>
#include <stdatomic.h>

enum {
    ASK_MS = 5000,
    FIRST_PAUSE_MS = 2,
    MAX_PAUSE_MS = 50,
    LINE_MS = 5000,
    LAST_MS = 20000,
    PARTS_MS = 300000
};

/* Returns true if this worker must stop repeating the report. st, why: result of the last call. */
static bool is_over(const struct validation *v, const struct trainer_evaluation *e, enum status st,
                    int64_t begin_ns, const char *why)
{
    int64_t waited_ms = (clock_now_ns() - begin_ns) / 1000000;
    if (e->is_stopped(e->ctx))
        return true;
    if (v->is_last && st == ST_OK && waited_ms >= PARTS_MS)
        /* the other workers left without reporting their parts, so this worker evaluates all
         * parts */
        return true;
    int gives_up = st != ST_OK && st != ST_UNAVAILABLE && st != ST_DEADLINE;
    if (v->is_last && st != ST_OK && waited_ms >= LAST_MS)
        gives_up = 1;
    if (gives_up)
        LOG_W("ps:0 (%s) did not receive the evaluation at step %" PRId64
              ": %s; this evaluation has no effect",
              v->ps0, e->step, why);
    return gives_up;
}

/* Sends the report until a reply of ps 0 contains the result of all parts. ST_CANCELLED: there is
 * no result. */
static enum status send_report(struct validation *v, const struct trainer_evaluation *e,
                               struct status_client *ps0, struct net_evaluation_reply *reply)
{
    const struct net_evaluation evaluation = {.generation = e->generation,
                                              .ps0 = e->ps0,
                                              .step = e->step / v->local_steps,
                                              .part = e->part,
                                              .n_parts = e->n_parts,
                                              .n = e->n,
                                              .right = e->right,
                                              .loss = e->loss,
                                              .no_accuracy = e->no_accuracy,
                                              .data = v->data,
                                              .every = v->eval_every / v->local_steps,
                                              .patience = v->early_stopping};
    char why[CONTROL_TEXT_BYTES] = "";
    int64_t begin = clock_now_ns(), line_ns = begin + LINE_MS * INT64_C(1000000);
    for (int ms = FIRST_PAUSE_MS;; ms = ms * 2 < MAX_PAUSE_MS ? ms * 2 : MAX_PAUSE_MS) {
        enum status st = status_client_send_evaluation(ps0, &evaluation, ASK_MS, reply, why);
        if (st == ST_OK && !reply->again)
            return ST_OK;
        if (is_over(v, e, st, begin, why))
            return ST_CANCELLED;
        if (clock_now_ns() >= line_ns) {
            LOG_W(
                "the evaluation at step %" PRId64 " waits for ps:0 (%s)%s%s", e->step, v->ps0,
                st == ST_OK
                    ? ", which waits for the other workers' parts or for the checkpoint of this step"
                    : ": ",
                st == ST_OK ? "" : why);
            line_ns = clock_now_ns() + LINE_MS * INT64_C(1000000);
        }
        clock_sleep_ms(ms);
    }
}

enum status validation_report(struct validation *v, struct trainer_evaluation *e)
{
    struct net_evaluation_reply reply;
    struct status_client *ps0 = NULL;
    enum status st = status_client_create(v->ps0, &ps0);
    if (st != ST_OK) {
        LOG_E("out of memory for a channel to ps:0 (%s)", v->ps0);
        return st;
    }
    atomic_store(&v->waits_ns, clock_now_ns());
    st = send_report(v, e, ps0, &reply);
    atomic_store(&v->waits_ns, 0);
    status_client_destroy(ps0);
    if (e->n_parts > 1)
        e->n = 0; /* the result is not known yet */
    if (st != ST_OK)
        return ST_OK;
    if (reply.n > 0) {
        e->n = reply.n;
        e->right = reply.right;
        e->loss = reply.loss;
    }
    if (reply.best.step >= 0)
        v->best = (struct validation_best){1, reply.best.step * v->local_steps, reply.best.loss,
                                           reply.best.accuracy};
    return ST_OK;
}
