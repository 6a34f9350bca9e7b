/* ps/coordinator/evaluation.c - see coordinator_impl.h: what comes of evaluations of the validation
 * data, where all workers go from step to step together.
 *
 * Who evaluates the parameters of a step contributes nothing to the next before ps 0 lets it: so
 * training stands at that step, and all servers have its chunks. One with a lower loss than all
 * before has its checkpoint made there and then; it is the best once that is on the disk and named.
 * Where there was none for as many evaluations as the worker says, the job ends at that step: a
 * Stop, and a plan whose job has no more steps. Both follow from the best one and the step alone,
 * so that a ps 0 that is started anew comes to the same again. */
#include "ps/coordinator/coordinator_impl.h"
#include <math.h>

static int is_same(const struct coord_evaluations *s, const struct net_evaluation *v)
{
    return s->generation == v->generation && s->ps0 == v->ps0 && s->step == v->step &&
           s->n_parts == v->n_parts && job_validation_same(&s->data, &v->data);
}

static int is_whole(const struct coord_evaluations *s)
{
    return s->n_parts > 0 && s->n_heard == s->n_parts;
}

/* Of the job's last step, by one worker: no later generation evaluates that again. Without a plan:
 * as far as the folder's newest checkpoint says. */
static int is_of_the_end(const struct coord *c, const struct net_evaluation *v)
{
    int64_t last = c->generation ? c->train_steps : c->all_steps_before ? c->ckpt.last_step : -1;
    return v->n_parts == 1 && v->step == last;
}

/* It is of the parameters that this generation has. */
static int is_current(const struct coord *c, const struct net_evaluation *v)
{
    int same = v->generation == c->generation && v->ps0 == c->incarnation;
    return c->generation && (same || (is_of_the_end(c, v) && coord_lowest(c) == v->step));
}

/* Training has gone on since. */
static int is_late(const struct coord_evaluations *s, const struct net_evaluation *v)
{
    return s->generation == v->generation && s->ps0 == v->ps0 && v->step < s->step;
}

/* Something may come of it now. */
static int takes(const struct coord *c, const struct net_evaluation *v)
{
    const struct coord_evaluations *s = &c->eval;
    return is_current(c, v) && c->lockstep && !is_late(s, v) && c->phase == PHASE_RUNNING &&
           !c->finishing && !s->next.known && v->n_parts > 0 && v->n_parts <= c->max_workers &&
           v->part >= 0 && v->part < v->n_parts;
}

static void begin(struct coord *c, const struct net_evaluation *v)
{
    struct coord_evaluations *s = &c->eval;
    s->generation = v->generation;
    s->ps0 = v->ps0;
    s->step = v->step;
    s->n_parts = v->n_parts;
    s->n_heard = 0;
    s->data = v->data;
    for (int i = 0; i < v->n_parts; i++)
        coord_parts(c)[i].heard = 0;
}

/* In the parts' order, whatever that of their coming. 0: they are not the whole set. */
static int add_up(struct coord *c)
{
    struct coord_evaluations *s = &c->eval;
    s->n = s->right = 0;
    s->loss = 0;
    for (int i = 0; i < s->n_parts; i++) {
        const struct coord_part *p = &coord_parts(c)[i];
        if (p->n > s->data.n - s->n)
            return 0;
        s->n += p->n;
        s->right += p->right;
        s->loss += p->loss;
    }
    return s->n == s->data.n && s->n > 0;
}

/* Whose checkpoint the new best is: the last step's is made but once. */
static uint64_t generation_of_next(const struct coord *c, int64_t step)
{
    const struct coord_checkpoint *k = &c->ckpt;
    int made = k->phase == CKPT_IDLE && !k->unmade && k->step == step;
    return made && step == c->train_steps ? k->generation : c->generation;
}

static void judge(struct coord *c, const struct net_evaluation *v, struct coord_out *out)
{
    struct coord_evaluations *s = &c->eval;
    double loss = s->loss / (double)s->n;
    int comparable = s->best.known && job_validation_same(&s->best.data, &s->data);
    if (s->best.known && !comparable)
        coord_say(out, &(struct coord_line){
                           LINE_BEST_OTHER, -1, -1, {s->best.step, s->best.data.n, s->data.n}});
    if (isfinite(loss) && (!comparable || loss < s->best.loss)) {
        s->next.known = 1;
        s->next.generation = generation_of_next(c, s->step);
        s->next.step = s->step;
        s->next.loss = loss;
        s->next.accuracy = v->no_accuracy ? (double)NAN : (double)s->right / (double)s->n;
        s->next.data = s->data;
        s->taken = 0;
        s->since = c->awake;
        return;
    }
    int64_t from = comparable ? s->best.step : s->from;
    s->n_since = job_evaluations(from, s->step, v->every);
    if (v->patience > 0 && s->n_since >= v->patience && s->step < c->train_steps) {
        s->ends = 1;
        s->end_step = s->step;
    }
}

void coord_evaluated(struct coord *c, const struct coord_event *e, struct coord_out *out)
{
    const struct net_evaluation *v = e->evaluation;
    if (!takes(c, v))
        return;
    if (!is_same(&c->eval, v))
        begin(c, v);
    struct coord_part *p = &coord_parts(c)[v->part];
    if (p->heard)
        return;
    p->heard = 1;
    p->n = v->n;
    p->right = v->right;
    p->loss = v->loss;
    c->eval.n_heard++;
    if (!is_whole(&c->eval))
        return;
    if (add_up(c))
        judge(c, v, out);
    else
        c->eval.n = 0;
}

void coord_evaluations_back(struct coord *c, int64_t step)
{
    struct coord_evaluations *s = &c->eval;
    s->generation = 0;
    s->n_parts = s->n_heard = 0;
    s->ends = 0;
    s->next.known = 0;
    if (s->from > step)
        s->from = step > 0 ? step : 0;
    if (s->ordered.step > step || step <= 0)
        s->ordered.known = 0;
    if (s->best.step > step || step <= 0)
        s->best.known = 0;
}

int coord_evaluation_wants(const struct coord *c, int64_t *step)
{
    const struct coord_evaluations *s = &c->eval;
    if (!s->next.known || s->taken || !c->has_folder)
        return 0;
    *step = s->next.step;
    return 1;
}

int coord_evaluation_ends(const struct coord *c)
{
    return c->eval.ends && c->eval.end_step < c->train_steps;
}

static void drop(struct coord *c, struct coord_out *out)
{
    struct coord_evaluations *s = &c->eval;
    s->next.known = 0;
    coord_say(out, &(struct coord_line){LINE_BEST_LOST, -1, -1, {s->next.step, 0, 0}});
}

void coord_evaluations_follow(struct coord *c, struct coord_out *out)
{
    struct coord_evaluations *s = &c->eval;
    const struct coord_checkpoint *k = &c->ckpt;
    if (!s->next.known)
        return;
    if (s->op) { /* a disk that hangs holds up no evaluation for good */
        coord_due(c, out, k->op_since + WRITE_MS * MS);
        if (c->awake - k->op_since >= WRITE_MS * MS)
            drop(c, out);
        return;
    }
    if (!c->has_folder) {
        s->best = s->next;
        s->next.known = 0;
        return;
    }
    int same = k->generation == s->next.generation && k->step == s->next.step;
    int failed = same && k->failed && k->why == WHY_BEST;
    if (same && k->phase != CKPT_IDLE && (k->taken || k->phase == CKPT_MANIFEST))
        s->taken = 1;
    if (same && k->phase == CKPT_IDLE && !k->unmade) {
        s->taken = 1;
        s->ordered = s->next;
        c->ckpt.op_since = c->awake;
        coord_order_disk(c, out, DISK_BEST, &s->op);
    } else if (failed || (s->taken && (!same || k->phase == CKPT_IDLE))) {
        drop(c, out); /* its files or its manifest could not be written */
    } else if (!s->taken && s->next.step < c->train_steps &&
               (c->generation != s->next.generation || c->phase == PHASE_STOPPING)) {
        s->next.known = 0; /* who is there in the next generation evaluates that step again */
    } else if (!s->taken) {
        coord_due(c, out, s->since + BEST_MS * MS);
        if (c->awake - s->since >= BEST_MS * MS)
            drop(c, out);
        else if (c->phase == PHASE_RUNNING) /* of the last step: in the generation that there is */
            s->next.generation = c->generation;
    }
}

void coord_best_recorded(struct coord *c, const struct coord_event *e, struct coord_out *out)
{
    struct coord_evaluations *s = &c->eval;
    s->op = 0;
    c->number++; /* other checkpoints than before may be kept */
    if (e->st == ST_REFUSED)
        coord_fence(c, 0, out);
    int is_next = s->next.known && s->next.generation == s->ordered.generation &&
                  s->next.step == s->ordered.step;
    if (e->st != ST_OK) {
        if (is_next)
            drop(c, out);
        return;
    }
    s->best = s->ordered; /* given up meanwhile or not: that is what the folder says */
    if (is_next || (s->best.known && s->next.loss >= s->best.loss))
        s->next.known = 0;
    if (s->best.known)
        coord_say(out, &(struct coord_line){LINE_BEST, -1, -1, {s->best.step, 0, 0}});
}

void coord_new_best(const struct coord *c, struct coord_best *out)
{
    *out = c->eval.ordered;
}

void coord_best(const struct coord *c, struct coord_best *out)
{
    *out = c->eval.best;
}

static void fill_reply(const struct coord *c, const struct net_evaluation *v,
                       struct net_evaluation_reply *out)
{
    const struct coord_evaluations *s = &c->eval;
    const struct coord_best *b = &s->best;
    *out = (struct net_evaluation_reply){.best = {.step = -1}};
    if (b->known)
        out->best = (struct net_best){b->step, b->loss, b->accuracy};
    if (!is_same(s, v) || !is_whole(s))
        return;
    out->n = s->n;
    out->right = s->right;
    out->loss = s->loss;
}

/* The Stop with which the job ends is not everywhere yet: a contribution might count. */
static int stops(const struct coord *c)
{
    return coord_evaluation_ends(c) || (c->phase == PHASE_STOPPING && !coord_all_stopped(c));
}

enum coord_verdict coord_evaluation_verdict(const struct coord *c, const struct net_evaluation *v,
                                            struct net_evaluation_reply *out)
{
    const struct coord_evaluations *s = &c->eval;
    int is_known = is_same(s, v) && is_whole(s);
    fill_reply(c, v, out);
    if (c->finishing || v->n_parts > c->max_workers || (c->generation && !c->lockstep))
        return VERDICT_GO;
    if (c->phase != PHASE_RUNNING && is_of_the_end(c, v) && !is_known) /* a change takes a while */
        return c->awake - c->entered < BEST_MS * MS ? VERDICT_WAIT : VERDICT_GO;
    if (!is_current(c, v))
        return VERDICT_GO;
    if (!is_same(s, v)) {
        return is_late(s, v) || c->phase == PHASE_STOPPING ? VERDICT_GO : VERDICT_NEW;
    }
    if (!coord_parts(c)[v->part].heard)
        return c->phase == PHASE_STOPPING ? VERDICT_GO : VERDICT_NEW;
    if (v->part > 0) /* the first waits for all */
        return VERDICT_GO;
    if (!is_whole(s))
        return c->phase == PHASE_STOPPING ? VERDICT_GO : VERDICT_WAIT;
    if (s->ends && stops(c))
        return VERDICT_WAIT;
    int64_t step;
    if (s->next.known && s->next.step == s->step && s->step >= c->train_steps)
        return VERDICT_WAIT; /* no later reply tells whether it is the best */
    return coord_evaluation_wants(c, &step) && step == s->step ? VERDICT_WAIT : VERDICT_GO;
}

int coord_evaluation_lacks(const struct coord *c, int part, int64_t *step)
{
    const struct coord_evaluations *s = &c->eval;
    if (s->generation != c->generation || s->ps0 != c->incarnation || s->n_heard == 0 || part < 0 ||
        part >= s->n_parts || coord_parts(c)[part].heard)
        return 0;
    *step = s->step;
    return 1;
}
