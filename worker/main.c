/* worker/main.c - creates a worker, runs it, and turns its result into an exit code: 0 done, or
 * left in order after a signal; 1 permanent error; 2 usage; 138 a restart may fix it; 143 after
 * SIGTERM if the worker could not leave in order or had no servers (130 after Ctrl-C). */
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/process.h"
#include "base/trace.h"
#include "files/json_text.h"
#include "net/rpc/environment.h"
#include "worker/device/device_list.h"
#include "worker/inference.h"
#include "worker/results/export.h"
#include "worker/results/summary.h"
#include "worker/results/trained_on.h"
#include "worker/self_test/self_test.h"
#include "worker/train/chance.h"
#include "worker/train/evaluate.h"
#include "worker/worker.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    END_S = 60,         /* highest number of seconds from the last output to the exit */
    OWN_DESCRIPTORS = 4 /* descriptors for gradients, params and their renewal, and a file */
};

/* Returns the values that are the result of training: the averages of the parameters if there are
 * any, otherwise the parameters. */
static const float *result_of(const struct worker *w)
{
    return w->averages ? w->averages : w->params;
}

/* Exports the parameters with everything that --predict needs: preprocessing and names of
 * classes. */
static enum status write_export(const struct worker *w, int64_t global_step, int is_interrupted)
{
    enum status st = ST_OK;
    enum { OWN = 5 };
    char step[32], mean[JOB_NUMBERS_BYTES], std[JOB_NUMBERS_BYTES];
    struct trained_on_texts texts;
    const struct trained_on_source source = set_up_job_source(w);
    const struct job_normal *n = &w->normal;
    snprintf(step, sizeof step, "%" PRId64, global_step);
    const char *meta[OWN + TRAINED_ON_PAIRS][2] = {
        {"model", w->model->name},
        {"global_step", step},
        {"mean", job_input_numbers_text(n->mean, n->n, mean)},
        {"std", job_input_numbers_text(n->std, n->n, std)}};
    int n_meta = n->n > 0 ? OWN - 1 : 2, n_more = 0;
    if (is_interrupted) {
        meta[n_meta][0] = "interrupted";
        meta[n_meta++][1] = "true";
    }
    if (is_interrupted && w->averages)
        TRY(w->updates.ops->averages(w->updates.ctx, w->averages));
    TRY(trained_on_metadata(&source, &texts, meta + n_meta, &n_more));
    TRY(export_write(w->opt.export_file, w->chunks, result_of(w), meta, n_meta + n_more));
    LOG_I("exported %" PRId64 " parameters to %s%s", w->chunks->n_elems, w->opt.export_file,
          is_interrupted ? ", marked as interrupted" : "");
done:
    trained_on_texts_free(&texts);
    return st;
}

static enum status log_divergence(const struct trainer_result *r, const char *what, double loss)
{
    LOG_E(
        "worker %d, step %" PRId64
        ": the %s loss is %g: the parameters are finite, but too large to compute with: training has diverged; nothing is exported, and there are no final figures. A lower --learning_rate may help",
        r->member, r->global_step, what, loss);
    return ST_INVALID;
}

/* Warns if the trained network is no better than a guess. n: samples evaluated. */
static void warn_of_chance(const struct worker *w, const struct trainer_result *r, double accuracy,
                           double loss, int64_t n)
{
    double samples = (double)w->opt.batch_size * (double)r->global_step;
    int together = w->opt.sync_mode == JOB_SYNC && w->opt.aggregate > 1 ? w->opt.aggregate : 1;
    enum layer_kind loss_kind = w->model->layers[w->model->n_layers - 1].kind;
    chance_warn(&(struct chance_figures){.loss_kind = loss_kind,
                                         .accuracy = accuracy,
                                         .loss = loss,
                                         .classes = w->model->classes,
                                         .n = n,
                                         .steps = r->global_step,
                                         .passes = samples * together / (double)w->train->n});
}

/* Computes the figures of the test set. If there is no test set, logs the last evaluation of the
 * validation data that this worker made or received. */
static enum status final_figures(struct worker *w, const struct trainer_result *r,
                                 struct summary *s)
{
    enum status st = ST_OK;
    char text[EVALUATE_TEXT_BYTES];
    const struct validation *v = &w->validated;
    const struct trainer_observer *o = events_observer(w->events);
    if (w->test) {
        TRY(trainer_evaluate(w->trainer, &s->test_accuracy, &s->test_loss, &s->test_auc));
        if (!isfinite(s->test_loss))
            return log_divergence(r, "test", s->test_loss);
        LOG_I("%s (%" PRId64 " samples)",
              evaluate_text(text, "test", s->test_accuracy, s->test_loss, s->test_auc), w->test->n);
        if (o)
            o->evaluated(o->ctx, r->global_step, "test", s->test_accuracy, s->test_loss);
        warn_of_chance(w, r, s->test_accuracy, s->test_loss, w->test->n);
    } else if (!v->known) {
        LOG_I("there are no test data: no accuracy and no loss are reported");
    } else if (!isfinite(v->loss)) {
        return log_divergence(r, "validation", v->loss);
    } else {
        LOG_I("%s (%" PRId64 " samples; there are no test data)",
              evaluate_text(text, "validation", v->accuracy, v->loss, (double)NAN),
              w->validation->n);
        warn_of_chance(w, r, v->accuracy, v->loss, w->validation->n);
    }
done:
    return st;
}

/* Converts an error after the end of the job: the exit code of ST_IO would request a restart, but
 * a restart would not write the missing output. ST_FULL (the disk is full) is unchanged. */
static enum status once_done(enum status st)
{
    return st == ST_IO ? ST_INVALID : st;
}

/* If st is ST_FULL, logs the output that was not written, and the remedy. Returns st. */
static enum status note_no_room(const struct options *o, const char *what, enum status st)
{
    if (st != ST_FULL)
        return st;
    if (o->evaluate || o->predict)
        LOG_E("there was no room for %s: free some space, then start this command again", what);
    else if (o->ps_hosts.n > 0)
        LOG_E(
            "there was no room for %s: free some space, then restart this worker with the same flags; it writes the parameters of the servers while they wait for it (ps 0's --worker_timeout)",
            what);
    else if (o->checkpoint_dir)
        LOG_E(
            "there was no room for %s: free some space, then restart this worker with the same flags; it resumes from the newest checkpoint in %s",
            what, o->checkpoint_dir);
    else
        LOG_E(
            "there was no room for %s, which are lost: free some space before this worker is restarted; it then trains from the first step (with --checkpoint_dir it would resume)",
            what);
    return st;
}

static enum status report_result(struct worker *w, const struct trainer_result *r)
{
    enum status st = ST_OK;
    const struct options *o = &w->opt;
    struct summary s = {
        .task_index = r->member,
        .model = w->model->name,
        .result = *r,
        .n_params = w->chunks->n_elems,
        .towers = &w->towers,
        .test_accuracy = (double)NAN,
        .test_auc = (double)NAN,
        .test_loss = (double)NAN,
        .validation = &w->validated,
    };
    summary_log_elapsed(r, dataset_unit(w->train));
    const struct net_param *bad = trainer_bad_param(w->trainer);
    if (bad) {
        LOG_E(
            "worker %d, step %" PRId64
            ": parameter '%s' is not finite: training has diverged; nothing is exported, and there are no final figures. A lower --learning_rate may help",
            r->member, r->global_step, bad->name);
        return ST_INVALID;
    }
    TRY(final_figures(w, r, &s));
    w->updates.ops->stats(w->updates.ctx, &s.stats);
    TRY(summary_digest(result_of(w), w->chunks->n_elems, s.parameters_sha256));
    if (o->export_file)
        TRY(note_no_room(o, "the trained parameters", write_export(w, r->global_step, w->stopped)));
    if (o->summary_json)
        TRY(note_no_room(o, "the final figures", summary_write(o->summary_json, &s)));
done:
    return st;
}

/* Evaluates the validation data after the last step. */
static enum status validate_last(struct worker *w, int64_t step)
{
    w->validated.is_last = true;
    enum status st = trainer_validate(w->trainer, step);
    return st == ST_CANCELLED ? ST_OK : st;
}

/* Returns true if --early_stopping ended the job at `step`, according to the best evaluation that
 * ps 0 has reported. A command to stop would have ended it at an earlier step. */
static bool is_stopped_early(const struct validation *v, int64_t step)
{
    int64_t from = v->best.known ? v->best.step : 0;
    return v->early_stopping > 0 && job_evaluations(from, step, v->eval_every) >= v->early_stopping;
}

/* Logs the reason if the servers ended the job before its last step. */
static void note_early_end(struct worker *w, const struct trainer_result *r)
{
    int64_t asked = r->asked_steps ? r->asked_steps : options_train_steps(&w->opt, w->train->n);
    if (w->opt.ps_hosts.n == 0 || r->left || r->train_steps >= asked)
        return;
    w->validated.stopped_early = is_stopped_early(&w->validated, r->train_steps);
    w->stopped = !w->validated.stopped_early;
    LOG_I("the job has ended at step %" PRId64 " of %" PRId64 ": %s", r->train_steps, asked,
          w->validated.stopped_early ? "--early_stopping ended it"
                                     : "weirctl stop, or a member's program, stopped it");
}

/* Returns the program's exit code. */
static int exit_code_of(struct worker *w, enum status st)
{
    pthread_mutex_lock(&w->lock);
    int sig = w->ended_by;
    pthread_mutex_unlock(&w->lock);
    return sig ? 128 + sig : status_exit_code(st);
}

/* Sends the servers a leave message. After it the servers do not wait for this worker, and may
 * exit. So from then on this worker must not request a restart, even if it cannot end in order. */
static void leave(struct worker *w, enum status result, int done, const char *error)
{
    process_set_exit_code(exit_code_of(w, result));
    w->updates.ops->leave(w->updates.ctx, done, error);
}

/* Sends the servers the error with which this worker ends: if all workers end with an error, the
 * servers do not wait for them. If this worker has received a signal, or may succeed after a
 * restart, it sends no error, and the servers wait for its return. */
static void leave_for_good(struct worker *w, enum status why, int done)
{
    char error[LEAVE_ERROR_BYTES] = "";
    if (status_exit_code(why) == EXIT_PERMANENT && why != ST_CANCELLED &&
        !shutdown_received(w, false)) {
        log_last_error(error, sizeof error);
        if (!error[0])
            snprintf(error, sizeof error, "%s", status_text(why));
    }
    if (done || error[0])
        leave(w, why, done, error);
}

/* Ends a run after its last step, or after it left the job. */
static enum status finish_run(struct worker *w, const struct trainer_result *r)
{
    enum status saved = w->saver ? alone_writer_finish(w->saver, r->global_step) : ST_OK;
    if (saved == ST_REFUSED)
        return saved;
    validation_settle(&w->validated);
    if (r->left) { /* if a server misses the leave message, it notices the closed stream */
        leave(w, ST_OK, 0, "");
        LOG_I("left the job at step %" PRId64 ", as worker %d", r->global_step, r->member);
        if (w->opt.export_file)
            LOG_W(
                "--export: %s is not written, because this worker left before the job's end; the remaining workers write their files at the end. If no worker remains, restart one with the same flags: the servers wait for it",
                w->opt.export_file);
        return ST_OK;
    }
    enum status st = once_done(report_result(w, r));
    if (st == ST_OK)
        st = saved;
    /* The worker leaves as its last action: the servers exit when all workers have left. If this
     * worker is killed before it has left, it must find the servers when it is restarted. If a
     * server exits before it has received this message, the server logs that. */
    if (st == ST_OK || status_exit_code(st) == EXIT_PERMANENT)
        leave_for_good(w, st, 1);
    return st;
}

/* Opens the metrics page before the slow parts of the set-up. */
static enum status open_pages(struct worker *w)
{
    const struct options *o = &w->opt;
    const struct monitor_config cfg = {.addr = o->pages,
                                       .task = o->task_index,
                                       .figures = &w->figures,
                                       .updates = &w->updates,
                                       .folder = o->checkpoint_dir};
    figures_init(&w->figures);
    return *o->pages ? monitor_create(&cfg, &w->monitor) : ST_OK;
}

/* Logs the outputs that an interrupted worker without servers does not write. */
static void log_unwritten(const struct worker *w, const struct trainer_result *r)
{
    const char *const name[] = {"export", "summary_json"};
    const char *const path[] = {w->saver ? w->opt.export_file : NULL, w->opt.summary_json};
    const char *folder = w->saver ? w->opt.checkpoint_dir : NULL;
    for (size_t i = 0; i < sizeof path / sizeof *path; i++)
        if (path[i])
            LOG_W("interrupted at step %" PRId64 " of %" PRId64 ": --%s: %s is not written; %s%s%s",
                  r->global_step, r->train_steps, name[i], path[i],
                  folder ? "with the same flags training resumes from the newest checkpoint in "
                         : "training writes it only at its end",
                  folder ? folder : "", folder ? " and writes the file at its end" : "");
}

/* Writes the export of an interrupted worker without servers, if it has no checkpoints and has
 * stopped between two steps. */
static void keep_interrupted(const struct worker *w, const struct trainer_result *r)
{
    char at[96];
    log_unwritten(w, r);
    if (w->saver)
        return;
    snprintf(at, sizeof at, "interrupted at step %" PRId64 " of %" PRId64, r->global_step,
             r->train_steps);
    if (atomic_load(&w->is_torn))
        LOG_W("%s: the step was not complete; no results are written", at);
    else if (r->local_steps > 0 && trainer_bad_param(w->trainer))
        LOG_W("%s: the parameters are not finite; no results are written", at);
    else if (!w->opt.export_file || r->local_steps == 0)
        LOG_W(
            "%s: the trained parameters are lost; with --checkpoint_dir=DIR training would resume, with --export=FILE this worker would write them",
            at);
    else if (write_export(w, r->global_step, 1) == ST_OK)
        LOG_W("%s: the export has the parameters of that step, without a final evaluation", at);
}

/* Shows the program that training waits for, in the progress bar and on the pages. */
static void on_waiting(void *ctx, const char *whom, int64_t ms)
{
    struct worker *w = ctx;
    figures_wait(&w->figures, whom, ms);
    trainer_wait(w->trainer, whom, ms);
}

/* Finds the current wait: for answers of servers, or for other workers' parts of an evaluation. */
static void find_wait(void *ctx, struct net_exchange_wait *out)
{
    struct worker *w = ctx;
    int64_t since_ns = atomic_load(&w->validated.waits_ns), now_ns = clock_now_ns();
    w->updates.ops->waits(w->updates.ctx, out);
    if (since_ns > 0 && (now_ns - since_ns) / 1000000 > out->ms)
        out->ms = (now_ns - since_ns) / 1000000;
}

static enum status watch_waits(struct worker *w)
{
    static const struct updates_ops ops = {.waits = find_wait}, none = {.waits = NULL};
    w->watched = (struct updates){w->updates.ops->waits ? &ops : &none, w};
    const struct waiting_config cfg = {.updates = &w->watched,
                                       .ps0 = w->opt.ps_hosts.n > 0 ? w->opt.ps_hosts.addr[0] : "",
                                       .changed = on_waiting,
                                       .ctx = w};
    return waiting_create(&cfg, &w->waiting);
}

static void note_last_step(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->stepped = true;
    pthread_cond_broadcast(&w->signalled);
    pthread_mutex_unlock(&w->lock);
}

static enum status run_worker(struct worker *w)
{
    enum status st = ST_OK;
    struct trainer_result result = {.global_step = 0};
    struct net_start start;
    TRY(shutdown_start(w));
    if (w->opt.ps_hosts.n > 0)
        TRY(descriptors_reserve(OWN_DESCRIPTORS + NET_GRPC_DESCRIPTORS + 2 * w->opt.ps_hosts.n));
    if (w->opt.trace)
        TRY(trace_open(w->opt.trace, "worker", w->opt.task_index < 0 ? 0 : w->opt.task_index));
    if (w->opt.evaluate || w->opt.predict) {
        st = once_done(note_no_room(&w->opt, "the results", inference_run(w)));
        goto done;
    }
    TRY(open_pages(w));
    TRY(set_up(w));
    monitor_at(w->monitor, MONITOR_WAITING);
    TRY(watch_waits(w));
    TRY(trainer_join(w->trainer, &start));
    w->is_over = false; /* a server has answered after this worker had checked for the job's end */
    if (w->opt.ps_hosts.n > 0)
        TRY(reporter_create(w->opt.ps_hosts.addr[0], &w->figures, &w->reporter));
    waiting_set_member(w->waiting, start.place.member);
    set_up_job_log_start(w, &start);
    pthread_mutex_lock(&w->lock);
    w->training = w->updates.ops->leave_soon && !w->signal;
    pthread_mutex_unlock(&w->lock);
    monitor_at(w->monitor, MONITOR_TRAINING);
    st = trainer_run(w->trainer, &start, &result);
    note_last_step(w);
    monitor_at(w->monitor, MONITOR_ENDING);
    reporter_destroy(w->reporter); /* destroyed before the servers exit */
    w->reporter = NULL;
    if (st != ST_OK)
        leave_for_good(w, st, 0);
    if (st == ST_CANCELLED && w->opt.ps_hosts.n == 0)
        keep_interrupted(w, &result);
    TRY(st);
    pthread_mutex_lock(&w->lock);
    w->trained = true;
    if (w->saver) /* a checkpoint has all steps, so a signal during the last step has no effect */
        w->ended_by = 0;
    pthread_cond_broadcast(&w->signalled);
    pthread_mutex_unlock(&w->lock);
    /* Each worker with servers evaluates its part again; the first waits for all parts. */
    bool is_evaluated = w->validated.stopped_early && w->validated.known && w->opt.ps_hosts.n == 0;
    if (!is_evaluated && !result.left)
        st = validate_last(w, result.global_step);
    if (st != ST_OK)
        leave_for_good(w, st, 0);
    TRY(st);
    note_early_end(w, &result);
    TRY(finish_run(w, &result));
done:
    return w->is_over && st == ST_CANCELLED ? ST_OK : st;
}

/* Frees the worker. Writes the trace after the threads have ended and while the layers' names still
 * exist. */
static enum status clean_up(struct worker *w, enum status result)
{
    /* writing a checkpoint may need more time than the limit below */
    alone_writer_settle(w->saver);
    shutdown_end(w);
    /* All outputs except the trace are written, so the process may exit even if a library or a
     * driver hangs. */
    process_end_within(END_S, exit_code_of(w, result), "a thread of this worker");
    waiting_destroy(w->waiting);
    monitor_destroy(w->monitor);
    reporter_destroy(w->reporter);
    alone_writer_destroy(w->saver);
    updates_destroy(&w->updates);
    trainer_destroy(w->trainer);
    thread_pool_destroy(w->threads);
    sample_log_close(w->sample_log);
    events_destroy(w->events, result != ST_OK);
    gpus_release(&w->gpus);
    enum status st = trace_close();
    dataset_destroy(w->train);
    dataset_destroy(w->test);
    dataset_destroy(w->validation);
    chunks_destroy(w->chunks);
    batch_split_destroy(w->split);
    placement_destroy(w->placement);
    model_destroy(w->model);
    model_inputs_free(&w->inputs);
    free(w->array_names);
    if (!w->values)
        free(w->params);
    segment_unref(w->values);
    free(w->averages);
    free(w->rounded);
    free(w->init);
    free(w->given);
    trained_on_free(&w->trained_on);
    checkpoint_restore_close(w->begins_with);
    free(w->data_text);
    options_free(&w->opt);
    net_status_free(&w->joined);
    return st;
}

/* Runs --list_devices or --self_test. */
static enum status report_devices(const struct options *o)
{
    struct self_test_config test = {
        .as_json = o->self_test,
        .gpus = o->gpus,
        .backend_dir = o->backend_dir,
        .seconds = o->self_test_seconds,
    };
    sigset_t all;
    /* These commands need not end in order: a signal may kill them even inside a driver. */
    sigfillset(&all);
    pthread_sigmask(SIG_UNBLOCK, &all, NULL);
    if (o->list_devices >= 0)
        return device_list_print(&(struct device_list_config){
            .as_json = o->list_devices,
            .lock_dir = o->gpu_lock_dir,
            .memory_fraction = o->gpu_memory_fraction,
            .allow_growth = gpus_growth(o->gpu_allow_growth, getenv("TF_FORCE_GPU_ALLOW_GROWTH")),
        });
    return self_test_print(&test);
}

/* Configures libraries that read only the environment. Called before the first thread starts,
 * because another thread may read the environment at any time. */
static void set_environment(const struct options *o)
{
    /* OpenMP's threads must not spin while they wait, because other workers use the same cores. */
    setenv("OMP_WAIT_POLICY", "passive", 0);
    if (o->deterministic) { /* NCCL must add in the same order in each run */
        setenv("NCCL_ALGO", "Ring", 0);
        setenv("NCCL_PROTO", "Simple", 0);
    }
}

int main(int argc, char **argv)
{
    struct worker w = {0};
    int exit_now = 0;
    pthread_mutex_init(&w.lock, NULL);
    clock_cond_init(&w.signalled);
    log_init("worker", -1, LOG_LEVEL_INFO);
    shutdown_signals(SIG_BLOCK);
    signal(SIGPIPE, SIG_IGN);
    process_set_up();
    json_text_set_up();
    enum status st = options_read(argc, argv, &w.opt, &exit_now);
    if (st != ST_OK)
        return status_exit_code(st) == EXIT_RETRY ? EXIT_RETRY : EXIT_USAGE;
    if (exit_now)
        return 0;
    if (w.opt.list_devices >= 0 || w.opt.self_test >= 0) {
        enum status reported = report_devices(&w.opt);
        options_free(&w.opt);
        return reported == ST_OK ? 0 : EXIT_PERMANENT;
    }
    set_environment(&w.opt);
    log_start();
    st = run_worker(&w);
    enum status closed = clean_up(&w, st);
    if (st == ST_OK)
        st = once_done(closed);
    return exit_code_of(&w, st);
}
