/* ps/coordinator/coordinator_evaluation.c - see coordinator_shell_impl.h: workers' evaluations into
 * the mailbox, and the best one in the folder's file `best`. */
#include "checkpoint/best.h"
#include "ps/coordinator/coordinator_shell_impl.h"

void coordinator_evaluated(struct coordinator *l, const struct net_evaluation *evaluation,
                           struct net_evaluation_reply *out)
{
    const struct coord_mail m = {.kind = COORD_EVALUATED, .evaluation = *evaluation};
    pthread_mutex_lock(&l->lock);
    enum coord_verdict verdict = coord_evaluation_verdict(l->state, evaluation, out);
    if (verdict == VERDICT_NEW && l->n_mail < COORDINATOR_MAX_MAIL) /* else it asks again */
        coordinator_post(l, &m);
    out->again = verdict != VERDICT_GO;
    pthread_mutex_unlock(&l->lock);
}

int64_t coordinator_lacks_evaluation(struct coordinator *l, int rank)
{
    int64_t step = -1;
    pthread_mutex_lock(&l->lock);
    if (!coord_evaluation_lacks(l->state, rank, &step))
        step = -1;
    pthread_mutex_unlock(&l->lock);
    return step;
}

enum status coordinator_find_best(const struct coordinator *l, struct coord_best *out)
{
    struct checkpoint_best best;
    enum status st = ST_NOT_FOUND;
    if (l->cfg.folder)
        st = checkpoint_best_find(l->cfg.folder, l->cfg.restore_path, &best);
    if (st == ST_OK)
        *out = (struct coord_best){1,         best.id.generation, best.id.step,
                                   best.loss, best.accuracy,      best.data};
    return st == ST_NOT_FOUND ? ST_OK : st;
}

enum status coordinator_record_best(const char *folder, const struct coord_best *best)
{
    const struct checkpoint_best to = {
        {best->generation, best->step}, best->loss, best->accuracy, best->data};
    return checkpoint_best_write(folder, &to);
}
