/* worker/train/trainer.c - creates a trainer, runs it from its start to its end, and evaluates. See
 * trainer.h, and trainer_impl.h for the design. */
#include "worker/train/trainer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "base/trace.h"
#include "worker/place/rounding.h"
#include "worker/train/device_data.h"
#include "worker/train/device_group.h"
#include "worker/train/evaluate.h"
#include "worker/train/trainer_impl.h"
#include "worker/train/trainer_observe.h"
#include "worker/train/trainer_resident.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct tower_run {
    struct trainer *t;
    struct tower *tower;
    enum status st;
};

static void *tower_main(void *arg)
{
    struct tower_run *r = arg;
    trace_thread_name("tower", r->tower->index);
    r->st = trainer_step_run(r->t, r->tower);
    if (r->st != ST_OK)
        trainer_state_fail(r->t, r->st);
    return NULL;
}

static enum status collect_results(struct trainer *t)
{
    int asked = 0;
    const struct member_steps m = {
        .updates = t->cfg.updates, .place = &t->towers[0]->place, .own_pace = t->cfg.own_pace};
    enum status st = member_steps_collect(&m, t->cfg.chunks, t->cfg.train_steps, INT64_MAX, &asked);
    if (st == ST_OK)
        st = trainer_ahead_compare_all(t);
    return st == ST_OK ? trainer_fetch_averages(t) : st;
}

static enum status no_memory(int n_towers)
{
    LOG_E("out of memory for the lists of %d towers", n_towers);
    return ST_NOMEM;
}

static enum status run_towers(struct trainer *t)
{
    int n = t->cfg.n_towers, started = 0;
    struct tower_run *runs = calloc((size_t)n, sizeof *runs);
    pthread_t *threads = calloc((size_t)n, sizeof *threads);
    enum status st = runs && threads ? ST_OK : no_memory(n);
    for (; st == ST_OK && started < n; started++) {
        runs[started] = (struct tower_run){t, t->towers[started], ST_OK};
        int err = pthread_create(&threads[started], NULL, tower_main, &runs[started]);
        if (err) {
            LOG_E("the thread of tower %d cannot be started: %s", started, threads_error(err));
            st = ST_NOMEM;
            trainer_state_fail(t, st);
            break;
        }
    }
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    free(runs);
    free(threads);
    if (st == ST_OK)
        st = (enum status)atomic_load(&t->failed);
    return st;
}

/* Returns true if training is stopped, or will end before the next step. */
static int is_stopped_soon(void *ctx)
{
    struct trainer *t = ctx;
    return trainer_state_is_stopped(t) || atomic_load(&t->stops_soon);
}

static enum status evaluate_at(void *ctx, int64_t step)
{
    return trainer_log_accuracy(ctx, step);
}

static void step_done(void *ctx, const struct trainer_result *r, int n_correct)
{
    struct trainer *t = ctx;
    int member = t->result.member;
    t->result = *r;
    t->result.member = member;
    trainer_observe_step(t, r->global_step, n_correct);
}

static void look_at_params(void *ctx, int64_t step)
{
    struct trainer *t = ctx;
    trainer_observe_params(t, step, 0, t->cfg.chunks->n_params);
}

/* Trains on the device if that is possible. *done: the device has run all steps. */
static enum status run_resident(struct trainer *t, int64_t step, bool *done)
{
    struct trainer_resident r = {.cfg = &t->cfg,
                                 .towers = t->towers,
                                 .progress = t->progress,
                                 .member = t->result.member,
                                 .ctx = t,
                                 .stopped = is_stopped_soon,
                                 .evaluate = evaluate_at,
                                 .step_done = step_done,
                                 .look = look_at_params};
    if (!trainer_resident_fits(&t->cfg, t->towers))
        return ST_OK;
    return trainer_resident_run(&r, step, &t->result, done);
}

static enum status round_all(struct trainer *t, const uint8_t *rounded)
{
    enum status st = ST_OK;
    for (int i = 0; i < t->cfg.n_towers && st == ST_OK; i++)
        st = split_tower_set_rounded(t->towers[i]->stages, rounded);
    if (st == ST_OK && t->eval)
        st = split_tower_set_rounded(t->eval->stages, rounded);
    if (st == ST_OK && t->validate)
        st = split_tower_set_rounded(t->validate->stages, rounded);
    return st;
}

static bool is_rounded_so(const uint8_t *a, const uint8_t *b, size_t n)
{
    return a && b ? memcmp(a, b, n) == 0 : a == b;
}

/* Adopts the job's choice of layers that multiply in bf16, which the job's first worker has
 * measured in this run, or before the checkpoint from which the job continues. If there is no
 * choice (the first worker had nothing to measure) or the choice is for another network, each
 * worker lets its backend decide, because the workers' own measurements may differ. */
static enum status follow_rounding(struct trainer *t, const struct net_rounding *choice)
{
    enum status st = ST_OK;
    size_t n = (size_t)t->cfg.model->n_layers;
    if (!t->cfg.rounded || !t->cfg.updates->ops->leave_soon) /* a worker without servers uses its
                                                              * own measurement */
        return ST_OK;
    uint8_t *rounded = malloc(n);
    if (!rounded)
        return no_memory(t->cfg.n_towers);
    if (!net_rounding_get(choice, rounded, t->cfg.model->n_layers)) {
        free(rounded);
        rounded = NULL;
    }
    if (!is_rounded_so(rounded, t->follows ? t->rounded : t->cfg.rounded, n)) {
        if (rounded)
            rounding_log(t->cfg.model, rounded, "as measured by the job's first worker");
        st = round_all(t, rounded);
    }
    free(t->rounded);
    t->rounded = rounded;
    t->follows = 1;
    return st;
}

static void start_from(struct trainer *t, const struct net_start *start)
{
    int64_t step = start->step;
    t->first_step = t->newest_step = step;
    t->generation = start->generation;
    t->ps0 = start->ps0;
    t->skipping = 0;
    t->judged_step = -1;
    t->last_step = t->invalid_from = INT64_MAX;
    t->parts.loaded_step = -1;
    t->result.member = start->place.member;
    if (start->place.train_steps > 0)
        t->cfg.train_steps = start->place.train_steps;
    t->result.asked_steps = start->place.asked_steps;
    for (int i = 0; i < t->cfg.n_towers; i++)
        tower_set_place(t->towers[i], &start->place);
    for (int i = 0; i < t->cfg.model->n_layers; i++) {
        t->pushed[i] = step;
        t->arrived[i] = 0;
    }
    trainer_rows_start(t);
    trainer_observe_start(t, start);
}

/* Waits until the copies that the towers have queued have ended. The copies read parameters and
 * write gradients, both of which may be changed by the next start, or by the last versions in full
 * precision. */
static enum status finish_copies(struct trainer *t)
{
    enum status st = ST_OK;
    for (int i = 0; i < t->cfg.n_towers && st == ST_OK; i++)
        st = split_tower_finish(t->towers[i]->stages);
    return st;
}

static void params_move(struct trainer *t, bool on)
{
    size_t bytes = (size_t)t->cfg.chunks->n_elems * sizeof *t->cfg.params;
    for (int i = 0; t->cfg.params_move && i < t->cfg.n_towers; i++)
        split_tower_host_moves(t->towers[i]->stages, t->cfg.params, bytes, on);
}

enum status trainer_join(struct trainer *t, struct net_start *start)
{
    params_move(t, true);
    enum status st = t->cfg.updates->ops->start(t->cfg.updates->ctx, start);
    params_move(t, false);
    return st;
}

/* Returns true if training has ended with `st` because the worker leaves. */
static bool has_left(struct trainer *t, enum status st)
{
    const struct updates *x = t->cfg.updates;
    return st == ST_CANCELLED && !atomic_load(&t->stopped) && x->ops->is_leaving &&
           x->ops->is_leaving(x->ctx);
}

/* Prepares the next start, while no tower runs. *again becomes true if training continues. */
static enum status begin_again(struct trainer *t, int *again)
{
    struct net_start start;
    enum status st = trainer_join(t, &start);
    t->result.left = has_left(t, st);
    *again = st == ST_OK;
    if (st != ST_OK)
        return t->result.left ? ST_OK : st;
    t->steps_before = t->result.local_steps;
    start_from(t, &start);
    TRY(follow_rounding(t, &start.place.rounding));
    TRY(trainer_ahead_start(t, &start));
done:
    return st;
}

/* Number of first steps on a GPU that do not count for the speed: bench/gpu_train.py leaves out the
 * same number for PyTorch. */
enum { WARM_UP_STEPS = 50 };

static int64_t warm_up_images(const struct trainer_config *cfg)
{
    for (int i = 0; i < cfg->n_towers; i++)
        if (cfg->towers[i].own.gpu)
            return (int64_t)WARM_UP_STEPS * cfg->batch;
    return 0;
}

/* Shows the progress from t->first_step on. */
static enum status show_progress(struct trainer *t)
{
    struct progress *p = NULL;
    struct progress_config cfg = {.style = t->cfg.progress,
                                  .task_index = t->result.member,
                                  .is_part = t->generation > 0 && !t->cfg.own_pace,
                                  .first_step = t->first_step,
                                  .train_steps = t->cfg.train_steps,
                                  .log_every = t->cfg.log_every,
                                  .warm_up_images = warm_up_images(&t->cfg),
                                  .batch = t->cfg.batch,
                                  .unit = dataset_unit(t->cfg.train),
                                  .figures = t->cfg.figures};
    enum status st = progress_create(&cfg, &p);
    pthread_mutex_lock(&t->progress_lock);
    t->progress = p;
    pthread_mutex_unlock(&t->progress_lock);
    return st;
}

static void hide_progress(struct trainer *t)
{
    pthread_mutex_lock(&t->progress_lock);
    struct progress *p = t->progress;
    t->progress = NULL;
    pthread_mutex_unlock(&t->progress_lock);
    progress_destroy(p);
}

void trainer_wait(struct trainer *t, const char *whom, int64_t ms)
{
    pthread_mutex_lock(&t->progress_lock);
    if (t->progress)
        progress_wait(t->progress, whom, ms);
    pthread_mutex_unlock(&t->progress_lock);
}

/* Trains to the job's last step, in as many generations as the servers begin. */
static enum status run_generations(struct trainer *t)
{
    enum status st = ST_OK;
    int again = 1;
    while (again) {
        st = run_towers(t);
        if (st == ST_CANCELLED && atomic_load(&t->ended))
            return ST_OK;
        t->result.left = has_left(t, st);
        if (t->result.left)
            return ST_OK;
        TRY(st);
        TRY(finish_copies(t));
        st = trainer_state_generation_ended(t) ? ST_REBASED : collect_results(t);
        again = st == ST_REBASED;
        TRY(again ? begin_again(t, &again) : st);
    }
done:
    return st;
}

/* Records the last step that counts. */
static void note_last_step(struct trainer *t)
{
    /* the current step of a worker that leaves does not count */
    if (t->cfg.own_pace || t->result.left)
        t->result.global_step = trainer_push_lowest_version(t);
    if (t->result.left && t->result.global_step < t->first_step)
        /* a chunk's version was still below first_step, which the job had reached */
        t->result.global_step = t->first_step;
    t->result.train_steps = t->cfg.train_steps;
    /* if the job ended early, steps after the job's last one do not count */
    if (t->result.global_step > t->cfg.train_steps)
        t->result.global_step = t->cfg.train_steps;
}

enum status trainer_run_again(struct trainer *t)
{
    enum status st = ST_OK;
    int again;
    TRY(begin_again(t, &again));
    TRY(show_progress(t));
    TRY(again ? run_generations(t) : ST_OK);
    note_last_step(t);
    st = t->result.left ? ST_CANCELLED : ST_OK;
done:
    hide_progress(t);
    return st;
}

enum status trainer_run(struct trainer *t, const struct net_start *start,
                        struct trainer_result *out)
{
    enum status st = ST_OK;
    bool is_done = false;
    t->result = (struct trainer_result){.global_step = start->step};
    start_from(t, start);
    TRY(follow_rounding(t, &start->place.rounding));
    TRY(trainer_ahead_start(t, start));
    TRY(show_progress(t));
    t->steps_before = 0;
    t->n_evaluated = t->cfg.eval_every > 0 ? start->step / t->cfg.eval_every : 0;
    t->start_ns = clock_now_ns();
    TRY(run_resident(t, start->step, &is_done));
    TRY(is_done ? ST_OK : run_generations(t));
    t->result.elapsed_seconds = (double)(clock_now_ns() - t->start_ns) / 1e9;
    t->result.waited_seconds = progress_waited_seconds(t->progress);
    t->result.images_per_second =
        progress_images_per_second(t->progress, t->result.images, &t->result.warm_up_images);
    note_last_step(t);
    trainer_observe_end(t);
done:
    *out = t->result;
    out->train_steps = t->cfg.train_steps;
    hide_progress(t);
    return st;
}

size_t trainer_memory_bytes(const struct trainer *t)
{
    size_t n = 0;
    for (int i = 0; i < t->cfg.n_towers; i++)
        n += split_tower_memory_bytes(t->towers[i]->stages);
    if (t->validate)
        n += split_tower_memory_bytes(t->validate->stages);
    if (t->eval)
        n += split_tower_memory_bytes(t->eval->stages);
    return n;
}

static enum status towers_make(struct trainer *t)
{
    enum status st = ST_OK;
    struct tower_member member = {.first = NULL};
    TRY(device_group_create(&t->cfg, &t->group));
    member.group = device_group_backend(t->group);
    for (int i = 0; i < t->cfg.n_towers; i++) {
        member.rank = device_group_rank(t->group, i);
        TRY(tower_create(&t->cfg, &t->cfg.towers[i], i, member.rank >= 0 ? &member : NULL,
                         &t->towers[i]));
        if (member.rank == 0)
            member.first = t->towers[i];
    }
    trainer_push_list_contributions(t);
    TRY(trainer_parts_make(t));
    t->crew = (struct crew){t->cfg.towers[0].own.backend->spread, t->cfg.towers[0].own.n_threads,
                            t->cfg.threads};
    if (t->cfg.updates->ops->set_crew)
        t->cfg.updates->ops->set_crew(t->cfg.updates->ctx, &t->crew);
done:
    return st;
}

/* Copies the data sets to the devices, after all networks have allocated their memory there. */
static enum status data_place(struct trainer *t)
{
    enum status st = ST_OK;
    int n_outputs = t->cfg.model->classes;
    TRY(device_data_create(&t->data));
    for (int i = 0; i < t->cfg.n_towers && !job_input_augments(&t->cfg.augment); i++)
        TRY(device_data_get(t->data, &t->towers[i]->spec, n_outputs, t->cfg.train,
                            &t->towers[i]->data));
    for (int i = 0; i < t->cfg.n_towers; i++)
        TRY(tower_make_reader(t->towers[i]));
    if (t->eval)
        TRY(device_data_get(t->data, &t->eval->spec, n_outputs, t->cfg.test, &t->eval->data));
    if (t->validate)
        TRY(device_data_get(t->data, &t->validate->spec, n_outputs, t->cfg.validation,
                            &t->validate->data));
done:
    return st;
}

enum status trainer_create(const struct trainer_config *cfg, struct trainer **out)
{
    enum status st = ST_OK;
    struct trainer *t = calloc(1, sizeof *t);
    if (!t)
        return no_memory(cfg->n_towers);
    t->cfg = *cfg;
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_init(&t->progress_lock, NULL);
    clock_cond_init(&t->handed_out);
    size_t n_layers = (size_t)cfg->model->n_layers, n_towers = (size_t)cfg->n_towers;
    t->towers = calloc(n_towers, sizeof *t->towers);
    t->arrived = calloc(n_layers, sizeof *t->arrived);
    t->pushed = calloc(n_layers, sizeof *t->pushed);
    t->share = calloc(n_towers, sizeof *t->share);
    t->contributions = calloc(n_towers, sizeof *t->contributions);
    if (!t->towers || !t->arrived || !t->pushed || !t->share || !t->contributions) {
        st = no_memory(cfg->n_towers);
        goto done;
    }
    TRY(trainer_rows_create(t));
    while (t->lowest + 1 < cfg->model->n_layers && cfg->model->layers[t->lowest].n_params == 0 &&
           !trainer_rows_has(&t->rows, t->lowest))
        t->lowest++;
    TRY(towers_make(t));
    t->eval_cfg = t->cfg; /* its `params` are the averages, if there are any */
    if (t->cfg.averages)
        t->eval_cfg.params = t->cfg.averages;
    if (t->cfg.test)
        TRY(evaluate_tower_create(&t->eval_cfg, &t->eval));
    t->validation_cfg = t->eval_cfg;
    t->validation_cfg.test = t->cfg.validation;
    if (t->cfg.validation)
        TRY(evaluate_tower_create(&t->validation_cfg, &t->validate));
    TRY(data_place(t));
done:
    if (st == ST_OK)
        *out = t;
    else
        trainer_destroy(t);
    return st;
}

void trainer_destroy(struct trainer *t)
{
    if (!t)
        return;
    for (int i = t->cfg.n_towers - 1; t->towers && i >= 0; i--)
        tower_destroy(t->towers[i]);
    device_group_destroy(t->group);
    tower_destroy(t->eval);
    tower_destroy(t->validate);
    device_data_destroy(t->data);
    pthread_cond_destroy(&t->handed_out);
    pthread_mutex_destroy(&t->lock);
    pthread_mutex_destroy(&t->progress_lock);
    free(t->towers);
    free(t->arrived);
    free(t->pushed);
    free(t->share);
    free(t->contributions);
    trainer_parts_free(t);
    trainer_ahead_free(t);
    trainer_rows_free(t);
    free(t->rounded);
    free(t);
}
