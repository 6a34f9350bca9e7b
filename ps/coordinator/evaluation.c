/* ps/coordinator/evaluation.c - the consequences of evaluations of the validation data, in jobs
 * whose workers make all steps together.
 *
 * A worker that evaluates the parameters of a step contributes to the next step only after ps 0
 * allows it. Until then training stands at that step, which all servers have. If the loss is lower
 * than all losses before, a checkpoint of the step is made at once. The evaluation becomes the best
 * once that checkpoint is written and recorded. If as many evaluations as the worker requires
 * brought no lower loss, the job ends at that step: a Stop, and a plan without further steps. Both
 * decisions depend on the best evaluation and the step alone, so a restarted ps 0 makes the same
 * decisions. */
#include "ps/coordinator/coordinator_impl.h"
#include <math.h>
#include <stdbool.h>

static bool is_same(const struct evaluation_state *s, const struct net_evaluation *v)
{
    return s->generation == v->generation && s->ps0 == v->ps0 && s->step == v->step &&
           s->n_parts == v->n_parts && job_validation_same(&s->data, &v->data);
}

static bool is_whole(const struct evaluation_state *s)
{
    return s->n_parts > 0 && s->n_heard == s->n_parts;
}

/* Returns true for an evaluation of the job's last step by one worker: no later generation
 * repeats it. Without a plan the folder's newest checkpoint names the last step. */
static bool is_of_the_end(const struct coordinator_state *c, const struct net_evaluation *v)
{
    int64_t last = c->generation ? c->train_steps : c->all_steps_before ? c->ckpt.last_step : -1;
    return v->n_parts == 1 && v->step == last;
}

/* Returns true if the evaluated parameters are those of this generation. */
static bool is_current(const struct coordinator_state *c, const struct net_evaluation *v)
{
    int same = v->generation == c->generation && v->ps0 == c->incarnation;
    return c->generation && (same || (is_of_the_end(c, v) && server_registry_lowest(c) == v->step));
}

/* Returns true if training has made steps since the evaluation. */
static bool is_late(const struct evaluation_state *s, const struct net_evaluation *v)
{
    return s->generation == v->generation && s->ps0 == v->ps0 && v->step < s->step;
}

/* Returns true if the evaluation can have consequences now. */
static bool is_wanted(const struct coordinator_state *c, const struct net_evaluation *v)
{
    const struct evaluation_state *s = &c->eval;
    return is_current(c, v) && c->lockstep && !is_late(s, v) && c->phase == PHASE_RUNNING &&
           !c->finishing && !s->next.known && v->n_parts > 0 && v->n_parts <= c->max_workers &&
           v->part >= 0 && v->part < v->n_parts;
}

static void begin_evaluation(struct coordinator_state *c, const struct net_evaluation *v)
{
    struct evaluation_state *s = &c->eval;
    s->generation = v->generation;
    s->ps0 = v->ps0;
    s->step = v->step;
    s->n_parts = v->n_parts;
    s->n_heard = 0;
    s->data = v->data;
    for (int i = 0; i < v->n_parts; i++)
        coordinator_parts(c)[i].heard = 0;
}

/* Adds up the parts in their order, whatever the order of their arrival. Returns false if they do
 * not cover the whole set of validation data. */
static bool add_up(struct coordinator_state *c)
{
    struct evaluation_state *s = &c->eval;
    s->n = s->right = 0;
    s->loss = 0;
    for (int i = 0; i < s->n_parts; i++) {
        const struct evaluation_part *p = &coordinator_parts(c)[i];
        if (p->n > s->data.n - s->n)
            return false;
        s->n += p->n;
        s->right += p->right;
        s->loss += p->loss;
    }
    return s->n == s->data.n && s->n > 0;
}

/* Returns the generation of the new best's checkpoint: if the last step already has a checkpoint,
 * no second one is made. */
static uint64_t generation_of_next(const struct coordinator_state *c, int64_t step)
{
    const struct checkpoint_schedule *k = &c->ckpt;
    int made = k->phase == SCHEDULE_IDLE && !k->unmade && k->step == step;
    return made && step == c->train_steps ? k->generation : c->generation;
}

static void judge_evaluation(struct coordinator_state *c, const struct net_evaluation *v,
                             struct coordinator_out *out)
{
    struct evaluation_state *s = &c->eval;
    double loss = s->loss / (double)s->n;
    int comparable = s->best.known && job_validation_same(&s->best.data, &s->data);
    if (s->best.known && !comparable)
        coordinator_add_line(
            out, &(struct coordinator_line){
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

void evaluation_note(struct coordinator_state *c, const struct coordinator_event *e,
                     struct coordinator_out *out)
{
    const struct net_evaluation *v = e->evaluation;
    if (!is_wanted(c, v))
        return;
    if (!is_same(&c->eval, v))
        begin_evaluation(c, v);
    struct evaluation_part *p = &coordinator_parts(c)[v->part];
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
        judge_evaluation(c, v, out);
    else
        c->eval.n = 0;
}

void evaluation_rewind(struct coordinator_state *c, int64_t step)
{
    struct evaluation_state *s = &c->eval;
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

bool evaluation_wants_checkpoint(const struct coordinator_state *c, int64_t *step)
{
    const struct evaluation_state *s = &c->eval;
    if (!s->next.known || s->taken || !c->has_folder)
        return false;
    *step = s->next.step;
    return true;
}

bool evaluation_ends_job(const struct coordinator_state *c)
{
    return c->eval.ends && c->eval.end_step < c->train_steps;
}

static void drop_next_best(struct coordinator_state *c, struct coordinator_out *out)
{
    struct evaluation_state *s = &c->eval;
    s->next.known = 0;
    coordinator_add_line(out,
                         &(struct coordinator_line){LINE_BEST_LOST, -1, -1, {s->next.step, 0, 0}});
}

void evaluation_follow(struct coordinator_state *c, struct coordinator_out *out)
{
    struct evaluation_state *s = &c->eval;
    const struct checkpoint_schedule *k = &c->ckpt;
    if (!s->next.known)
        return;
    if (s->op) { /* a disk that hangs delays an evaluation for WRITE_MS at most */
        coordinator_wake_at(c, out, k->op_since + WRITE_MS * MS);
        if (c->awake - k->op_since >= WRITE_MS * MS)
            drop_next_best(c, out);
        return;
    }
    if (!c->has_folder) {
        s->best = s->next;
        s->next.known = 0;
        return;
    }
    int same = k->generation == s->next.generation && k->step == s->next.step;
    int failed = same && k->failed && k->why == WHY_BEST;
    if (same && k->phase != SCHEDULE_IDLE && (k->taken || k->phase == SCHEDULE_MANIFEST))
        s->taken = 1;
    if (same && k->phase == SCHEDULE_IDLE && !k->unmade) {
        s->taken = 1;
        s->ordered = s->next;
        c->ckpt.op_since = c->awake;
        coordinator_order_disk(c, out, DISK_BEST, &s->op);
    } else if (failed || (s->taken && (!same || k->phase == SCHEDULE_IDLE))) {
        drop_next_best(c, out); /* the checkpoint's files or its manifest could not be written */
    } else if (!s->taken && s->next.step < c->train_steps &&
               (c->generation != s->next.generation || c->phase == PHASE_STOPPING)) {
        s->next.known = 0; /* the members of the next generation evaluate that step again */
    } else if (!s->taken) {
        coordinator_wake_at(c, out, s->since + BEST_MS * MS);
        if (c->awake - s->since >= BEST_MS * MS)
            drop_next_best(c, out);
        /* a checkpoint in this generation can save the last step */
        else if (c->phase == PHASE_RUNNING)
            s->next.generation = c->generation;
    }
}

void evaluation_best_recorded(struct coordinator_state *c, const struct coordinator_event *e,
                              struct coordinator_out *out)
{
    struct evaluation_state *s = &c->eval;
    s->op = 0;
    c->number++; /* the servers need a new reply: the list of kept checkpoints may have changed */
    if (e->st == ST_REFUSED)
        coordinator_fence(c, 0, out);
    bool is_next = s->next.known && s->next.generation == s->ordered.generation &&
                   s->next.step == s->ordered.step;
    if (e->st != ST_OK) {
        if (is_next)
            drop_next_best(c, out);
        return;
    }
    s->best = s->ordered; /* even if this best was given up: the folder has it now */
    if (is_next || (s->best.known && s->next.loss >= s->best.loss))
        s->next.known = 0;
    if (s->best.known)
        coordinator_add_line(out,
                             &(struct coordinator_line){LINE_BEST, -1, -1, {s->best.step, 0, 0}});
}

void evaluation_new_best(const struct coordinator_state *c, struct best_evaluation *out)
{
    *out = c->eval.ordered;
}

void evaluation_best(const struct coordinator_state *c, struct best_evaluation *out)
{
    *out = c->eval.best;
}

static void fill_reply(const struct coordinator_state *c, const struct net_evaluation *v,
                       struct net_evaluation_reply *out)
{
    const struct evaluation_state *s = &c->eval;
    const struct best_evaluation *b = &s->best;
    *out = (struct net_evaluation_reply){.best = {.step = -1}};
    if (b->known)
        out->best = (struct net_best){b->step, b->loss, b->accuracy};
    if (!is_same(s, v) || !is_whole(s))
        return;
    out->n = s->n;
    out->right = s->right;
    out->loss = s->loss;
}

/* Returns true while the Stop that ends the job has not reached all servers: a contribution
 * might still count. */
static bool is_stopping(const struct coordinator_state *c)
{
    return evaluation_ends_job(c) || (c->phase == PHASE_STOPPING && !reconfigure_all_stopped(c));
}

enum evaluation_go evaluation_verdict(const struct coordinator_state *c,
                                      const struct net_evaluation *v,
                                      struct net_evaluation_reply *out)
{
    const struct evaluation_state *s = &c->eval;
    bool is_known = is_same(s, v) && is_whole(s);
    fill_reply(c, v, out);
    if (c->finishing || v->n_parts > c->max_workers || (c->generation && !c->lockstep))
        return EVALUATION_GO;
    /* the last step was evaluated during a change */
    if (c->phase != PHASE_RUNNING && is_of_the_end(c, v) && !is_known)
        return c->awake - c->entered < BEST_MS * MS ? EVALUATION_WAIT : EVALUATION_GO;
    if (!is_current(c, v))
        return EVALUATION_GO;
    if (!is_same(s, v)) {
        return is_late(s, v) || c->phase == PHASE_STOPPING ? EVALUATION_GO : EVALUATION_NEW;
    }
    if (!coordinator_parts(c)[v->part].heard)
        return c->phase == PHASE_STOPPING ? EVALUATION_GO : EVALUATION_NEW;
    if (v->part > 0) /* only the sender of part 0 waits until all parts have arrived */
        return EVALUATION_GO;
    if (!is_whole(s))
        return c->phase == PHASE_STOPPING ? EVALUATION_GO : EVALUATION_WAIT;
    if (s->ends && is_stopping(c))
        return EVALUATION_WAIT;
    int64_t step;
    if (s->next.known && s->next.step == s->step && s->step >= c->train_steps)
        /* a later reply would not report whether this evaluation is the best */
        return EVALUATION_WAIT;
    return evaluation_wants_checkpoint(c, &step) && step == s->step ? EVALUATION_WAIT
                                                                    : EVALUATION_GO;
}

bool evaluation_lacks_part(const struct coordinator_state *c, int part, int64_t *step)
{
    const struct evaluation_state *s = &c->eval;
    if (s->generation != c->generation || s->ps0 != c->incarnation || s->n_heard == 0 || part < 0 ||
        part >= s->n_parts || coordinator_parts(c)[part].heard)
        return false;
    *step = s->step;
    return true;
}
