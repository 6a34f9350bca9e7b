/* ps/coordinator/coordinator_evaluation.c - puts workers' evaluations into the mailbox, and
 * reads and writes the best one in the folder's file `best` (coordinator_shell_impl.h). */
#include "checkpoint/best.h"
#include "ps/coordinator/coordinator_shell_impl.h"

void coordinator_evaluation_report(struct coordinator_shell *l,
                                   const struct net_evaluation *evaluation,
                                   struct net_evaluation_reply *out)
{
    const struct coordinator_mail m = {.kind = COORDINATOR_EVALUATED, .evaluation = *evaluation};
    pthread_mutex_lock(&l->lock);
    enum evaluation_go verdict = evaluation_verdict(l->state, evaluation, out);
    /* If the mailbox is full, the worker sends the evaluation again later. */
    if (verdict == EVALUATION_NEW && l->n_mail < COORDINATOR_MAX_MAIL)
        coordinator_shell_post(l, &m);
    out->again = verdict != EVALUATION_GO;
    pthread_mutex_unlock(&l->lock);
}

int64_t coordinator_evaluation_lacks(struct coordinator_shell *l, int rank)
{
    int64_t step = -1;
    pthread_mutex_lock(&l->lock);
    if (!evaluation_lacks_part(l->state, rank, &step))
        step = -1;
    pthread_mutex_unlock(&l->lock);
    return step;
}

enum status coordinator_evaluation_find_best(const struct coordinator_shell *l,
                                             struct best_evaluation *out)
{
    struct checkpoint_best best;
    enum status st = ST_NOT_FOUND;
    if (l->cfg.folder)
        st = checkpoint_best_find(l->cfg.folder, l->cfg.restore_path, &best);
    if (st == ST_OK)
        *out = (struct best_evaluation){1,         best.id.generation, best.id.step,
                                        best.loss, best.accuracy,      best.data};
    return st == ST_NOT_FOUND ? ST_OK : st;
}

enum status coordinator_evaluation_record_best(const char *folder,
                                               const struct best_evaluation *best)
{
    const struct checkpoint_best to = {
        {best->generation, best->step}, best->loss, best->accuracy, best->data};
    return checkpoint_best_write(folder, &to);
}
