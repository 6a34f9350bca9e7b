/* worker/main.c - puts a worker together, runs it, and turns its end into an exit code:
 * 0 done, or left by name after SIGTERM; 1 permanent error, 2 usage, 138 a restart may fix it, 143
 * after SIGTERM where it could not leave in order (130 after Ctrl-C). */
#include "base/aligned.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/signals.h"
#include "base/trace.h"
#include "kernels/vector/vector.h"
#include "worker/device/device_list.h"
#include "worker/device/device_scan.h"
#include "worker/device/gpus.h"
#include "worker/export.h"
#include "worker/job_query.h"
#include "worker/options.h"
#include "worker/place/batch_split.h"
#include "worker/place/placement.h"
#include "worker/self_test/self_test.h"
#include "worker/summary.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    LEAVE_MS = 20000, /* for the others to come to the step that it leaves at */
    TELL_MS = 3000,   /* for ps 0 to hear of it: where all are told to end, it may be gone */
};

struct worker {
    struct options opt;
    char host[65];            /* this one's name */
    struct net_status joined; /* --join: the job, as it was then */
    struct gpus gpus;
    const struct backend *cpu;
    struct tower_plan towers;
    struct model *model;
    struct placement *placement;
    struct batch_split *split;
    struct chunks *chunks;
    struct dataset *train, *test;
    float *params;
    struct updates updates;
    struct sample_log *sample_log;
    struct trainer *trainer;

    pthread_t signal_thread;
    int signal_thread_runs;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t signalled;
    int signal;   /* that was taken; 0: none */
    int ended_by; /* signal that ended the run at once; 0: none */
    int ready;    /* trainer and exchange are there to be stopped */
    int training; /* with servers, whom it can leave in order */
    int trained;  /* all steps are taken, or it has left: what remains ends by itself */
    int done;     /* main needs the signal thread no more */
};

/* SIGINT and SIGTERM, for the calling thread: SIG_BLOCK, SIG_UNBLOCK. */
static sigset_t stop_signals(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(how, &set, NULL);
    return set;
}

static void stop_now(struct worker *w)
{
    trainer_stop(w->trainer);
    w->updates.ops->cancel(w->updates.ctx);
}

/* Takes its part until the next generation begins, which is without it. */
static void leave_in_order(struct worker *w)
{
    int64_t deadline = clock_deadline_ns(LEAVE_MS);
    enum status st = w->updates.ops->leave_soon(w->updates.ctx, TELL_MS);
    pthread_mutex_lock(&w->lock);
    while (!w->trained && !w->done && st == ST_OK &&
           clock_cond_wait(&w->signalled, &w->lock, deadline) == 0)
        ;
    int late = !w->trained && !w->done;
    if (late)
        w->ended_by = SIGTERM;
    pthread_mutex_unlock(&w->lock);
    if (!late)
        return;
    LOG_W("SIGTERM: %s within %d s; stopping",
          st == ST_OK ? "the servers did not go on without this worker" : "ps:0 was not reached",
          (st == ST_OK ? LEAVE_MS : TELL_MS) / 1000);
    stop_now(w);
}

/* The one thread that takes SIGINT and SIGTERM, from before the devices are set up; others have
 * them blocked. A driver, or NCCL, may never come back from the set-up: a second signal ends the
 * process at once, by the signal's default. */
static void *signal_main(void *arg)
{
    struct worker *w = arg;
    sigset_t set = stop_signals(SIG_BLOCK);
    int sig = 0;
    sigwait(&set, &sig);
    pthread_mutex_lock(&w->lock);
    int done = w->done, ready = w->ready;
    int last = !done && sig == SIGTERM && w->trained;
    int leave = !done && sig == SIGTERM && w->training && !last;
    w->signal = done ? 0 : sig;
    w->ended_by = leave || last ? 0 : w->signal;
    pthread_cond_broadcast(&w->signalled);
    pthread_mutex_unlock(&w->lock);
    if (done)
        return NULL;
    if (leave)
        LOG_W("SIGTERM: leaving the job when the others are ready; once more ends at once");
    else if (last)
        LOG_W("SIGTERM: training has ended; ending with its figures; once more ends at once");
    else
        LOG_W("%s: stopping%s; once more ends at once", sig == SIGTERM ? "SIGTERM" : "interrupted",
              ready ? "" : " after this part of the set-up");
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    stop_signals(SIG_UNBLOCK);
    if (leave)
        leave_in_order(w);
    else if (ready && !last)
        stop_now(w);
    pthread_mutex_lock(&w->lock); /* stays: it is the one thread that can be given the second */
    while (!w->done)
        pthread_cond_wait(&w->signalled, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static enum status start_signal_thread(struct worker *w)
{
    if (pthread_create(&w->signal_thread, NULL, signal_main, w) != 0) {
        LOG_E("cannot start a thread: too many threads or no memory");
        return ST_NOMEM;
    }
    w->signal_thread_runs = 1;
    return ST_OK;
}

/* The signal that was taken, 0: none. `done`: none will be taken any more. */
static int signal_taken(struct worker *w, int done)
{
    pthread_mutex_lock(&w->lock);
    w->done |= done;
    pthread_cond_broadcast(&w->signalled);
    int sig = w->signal;
    pthread_mutex_unlock(&w->lock);
    return sig;
}

static enum status cut_model(struct worker *w)
{
    const struct options *o = &w->opt;
    int64_t n_elems = 0;
    for (int i = 0; i < w->model->n_params; i++)
        n_elems += shape_elems(&w->model->params[i].shape);
    int n_servers = o->ps_hosts.n > 0 ? o->ps_hosts.n : 1;
    return chunks_create(
        w->model->params, w->model->n_params,
        o->chunk_bytes > 0 ? o->chunk_bytes : chunks_default_bytes(n_elems, n_servers), &w->chunks);
}

/* Sleeps; a signal ends the sleep and the run. */
static int pause_for_signal(void *arg, int ms)
{
    struct worker *w = arg;
    int64_t deadline = clock_deadline_ns(ms);
    pthread_mutex_lock(&w->lock);
    while (!w->signal && clock_cond_wait(&w->signalled, &w->lock, deadline) == 0)
        ;
    int sig = w->signal;
    pthread_mutex_unlock(&w->lock);
    return sig != 0;
}

static enum status ask_for_job(struct worker *w)
{
    if (!w->opt.join)
        return ST_OK;
    const struct job_query_request request = {w->opt.ps_hosts.addr[0], pause_for_signal, w};
    enum status st = job_query_ask(&request, &w->joined);
    return st == ST_OK ? options_adopt(&w->opt, &w->joined) : st;
}

static enum status read_model(struct worker *w)
{
    const struct options *o = &w->opt;
    if (o->model_text)
        return model_parse(o->model_text, strlen(o->model_text), "of the job", (int)o->hidden_units,
                           &w->model);
    return model_read(o->model, o->models_dir, (int)o->hidden_units, &w->model);
}

/* Which devices compute, and which part of the batch each has. */
static enum status make_towers(struct worker *w)
{
    enum status st = ST_OK;
    const struct options *o = &w->opt;
    const struct gpus_request request = {
        .choice = {.gpus = o->gpus,
                   .wait_seconds = o->gpu_wait,
                   .lock_dir = o->gpu_lock_dir,
                   .pause = pause_for_signal,
                   .ctx = w},
        .backend_dir = o->backend_dir,
        .memory_fraction = o->gpu_memory_fraction,
        .allow_growth = gpus_growth(o->gpu_allow_growth, getenv("TF_FORCE_GPU_ALLOW_GROWTH")),
    };
    struct tower_plan_request towers = {
        .gpus = &w->gpus,
        .cpu_towers = o->towers,
        .towers_per_gpu = o->towers_per_gpu,
        .batch = (int)o->batch_size,
        .cpu_batch = o->cpu_batch_size,
        .n_threads = o->intra_op_threads,
        .n_cores = (int)sysconf(_SC_NPROCESSORS_ONLN),
        .precision = o->precision,
        .deterministic = o->deterministic,
    };
    TRY(gpus_open(&request, &w->gpus));
    /* OpenMP's threads must not spin while they wait: other workers share the cores. */
    setenv("OMP_WAIT_POLICY", "passive", 0);
    TRY(backend_open("cpu", o->backend_dir, &w->cpu));
    towers.cpu = w->cpu;
    TRY(tower_plan_make(&towers, &w->towers));
done:
    return st;
}

/* Which layer lies where, and what that makes of the towers. */
static enum status place_layers(struct worker *w)
{
    enum status st = ST_OK;
    const struct placement_request request = {
        .layers = w->model->layers,
        .n_layers = w->model->n_layers,
        .device = w->model->device,
        .rules = w->opt.placement,
        .n_gpus = w->gpus.chosen.n,
        .cpu_towers = w->towers.n > w->towers.n_gpu,
        .soft = w->opt.soft_placement,
    };
    TRY(placement_create(&request, &w->placement));
    const struct batch_split_request split = {
        .placement = w->placement,
        .n_layers = w->model->n_layers,
        .cpu = w->cpu,
        .n_threads = w->opt.intra_op_threads,
        .n_cores = (int)sysconf(_SC_NPROCESSORS_ONLN),
        .batch = (int)w->opt.batch_size,
    };
    TRY(batch_split_create(&split, &w->towers, &w->split));
    for (int i = 0; w->opt.log_placement && i < w->towers.n; i++)
        placement_log(w->placement, i, w->towers.n, w->towers.tower[i].own.gpu_index);
done:
    return st;
}

static enum status read_inputs(struct worker *w)
{
    enum status st = ST_OK;
    const struct options *o = &w->opt;
    TRY(read_model(w));
    TRY(place_layers(w));
    TRY(cut_model(w));
    TRY(dataset_read(o->data_dir, "train", w->model->classes, &w->train));
    TRY(dataset_read(o->data_dir, "t10k", w->model->classes, &w->test));
    const struct shape *in = &w->model->input;
    const struct dataset *sets[2] = {w->train, w->test};
    for (int i = 0; i < 2; i++) {
        if (in->dim[0] != 1 || in->dim[1] != sets[i]->rows || in->dim[2] != sets[i]->columns) {
            LOG_E("model '%s' wants images of %" PRId64 "x%" PRId64 "x%" PRId64
                  ", %s has 1x%dx%d; take another --model or --data_dir",
                  w->model->name, in->dim[0], in->dim[1], in->dim[2], o->data_dir, sets[i]->rows,
                  sets[i]->columns);
            st = ST_MISMATCH;
            goto done;
        }
    }
    if (w->train->n < o->batch_size) {
        LOG_E("--batch_size: %" PRId64 " is more than the %" PRId64 " training images of %s",
              o->batch_size, w->train->n, o->data_dir);
        st = ST_INVALID;
    }
done:
    return st;
}

static const char *own_name(struct worker *w)
{
    if (gethostname(w->host, sizeof w->host - 1) != 0)
        w->host[0] = 0;
    return w->host;
}

static void first_values(void *ctx, float *params)
{
    const struct worker *w = ctx;
    model_init_params(w->model, (uint64_t)w->opt.seed, params);
}

static enum status make_exchange(struct worker *w)
{
    const struct options *o = &w->opt;
    w->params = aligned_take((size_t)w->chunks->n_elems * sizeof(float));
    if (!w->params) {
        LOG_E("out of memory for %" PRId64 " parameters", w->chunks->n_elems);
        return ST_NOMEM;
    }
    first_values(w, w->params);
    struct net_exchange_config cfg = {
        .ps_hosts = &w->opt.ps_hosts,
        .params = w->params,
        .first_values = first_values,
        .ctx = w,
        .shared_memory = o->shared_memory,
        .join = {.member = o->task_index,
                 .job = options_job(o, w->train->n),
                 .chunks = w->chunks,
                 .address = o->address ? o->address : own_name(w),
                 .model = w->model->text,
                 .hidden_units = w->model->hidden_units},
    };
    while (cfg.join.incarnation == 0)
        if (getrandom(&cfg.join.incarnation, sizeof cfg.join.incarnation, 0) < 0)
            cfg.join.incarnation = rng_mix((uint64_t)clock_now_ns() ^ (uint64_t)getpid());
    return updates_create(&cfg, &w->updates);
}

static void say_towers(const struct worker *w)
{
    char label[DEVICE_LABEL_SIZE];
    for (int i = 0; i < w->towers.n; i++) {
        const struct tower_spec *t = &w->towers.tower[i];
        const struct tower_device *d = &t->own;
        if (d->gpu)
            device_scan_label(d->gpu, label, sizeof label);
        else
            snprintf(label, sizeof label, "CPU, %d %s", d->n_threads,
                     d->n_threads == 1 ? "thread" : "threads");
        LOG_I("tower %d: %s, %d of the %" PRId64 " samples; %s", i, label, t->n, w->opt.batch_size,
              d->backend->description);
        if (t->stage_of)
            LOG_I("tower %d: %d of its %d layers lie on other devices; --log_device_placement says "
                  "which",
                  i, batch_split_n_elsewhere(t, w->model->n_layers), w->model->n_layers);
    }
}

static enum status make_trainer(struct worker *w)
{
    const struct options *o = &w->opt;
    struct net_job job = options_job(o, w->train->n);
    struct trainer_config cfg = {
        .model = w->model,
        .chunks = w->chunks,
        .train = w->train,
        .test = w->test,
        .updates = &w->updates,
        .params = w->params,
        .own_pace = !job_in_lockstep(&job),
        .towers = w->towers.tower,
        .n_towers = w->towers.n,
        .batch = (int)o->batch_size,
        .push_dtype = job.push_dtype,
        .version_dtype = job.version_dtype,
        .train_steps = job.train_steps,
        .eval_every = o->eval_every,
        .log_every = o->log_every,
        .progress = o->progress,
        .seed = (uint64_t)o->seed,
        .cuda_graphs = o->cuda_graphs,
        .push_delay_ms = (int)o->push_delay_ms,
    };
    enum status st = ST_OK;
    if (o->record_samples)
        TRY(sample_log_open(o->record_samples, &w->sample_log));
    cfg.sample_log = w->sample_log;
    TRY(trainer_create(&cfg, &w->trainer));
    LOG_I("model '%s': %" PRId64 " parameters in %d chunks; %d %s, %.0f MB; %" PRId64
          " training images from %s",
          w->model->name, w->chunks->n_elems, w->chunks->n_chunks, w->towers.n,
          w->towers.n == 1 ? "tower" : "towers", (double)trainer_memory_bytes(w->trainer) / 1e6,
          w->train->n, o->data_dir);
    say_towers(w);
    LOG_I("vector loops: %s", vector_description());
done:
    return st;
}

static enum status report(struct worker *w, const struct trainer_result *r)
{
    enum status st = ST_OK;
    const struct options *o = &w->opt;
    struct summary s = {
        .task_index = r->member,
        .model = w->model->name,
        .result = *r,
        .n_params = w->chunks->n_elems,
        .towers = &w->towers,
    };
    LOG_I("Training elapsed time: %f s (%" PRId64 " images, %.0f images/s)", r->elapsed_seconds,
          r->images, r->elapsed_seconds > 0 ? (double)r->images / r->elapsed_seconds : 0);
    TRY(trainer_evaluate(w->trainer, &s.test_accuracy, &s.test_loss));
    LOG_I("test accuracy: %.4f, test loss: %.4f (%" PRId64 " images)", s.test_accuracy, s.test_loss,
          w->test->n);
    w->updates.ops->stats(w->updates.ctx, &s.stats);
    TRY(summary_digest(w->params, w->chunks->n_elems, s.parameters_sha256));
    if (o->export_file) {
        char step[32];
        snprintf(step, sizeof step, "%" PRId64, r->global_step);
        const char *meta[2][2] = {{"model", w->model->name}, {"global_step", step}};
        TRY(export_write(o->export_file, w->chunks, w->params, meta, 2));
        LOG_I("exported %" PRId64 " parameters to %s", w->chunks->n_elems, o->export_file);
    }
    if (o->summary_json)
        TRY(summary_write(o->summary_json, &s));
done:
    return st;
}

/* A signal that comes meanwhile ends it between two parts. */
static enum status set_up(struct worker *w)
{
    enum status st = ST_OK;
    enum status (*const parts[])(struct worker *) = {ask_for_job, make_towers, read_inputs,
                                                     make_exchange, make_trainer};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && !signal_taken(w, 0); i++)
        TRY(parts[i](w));
    pthread_mutex_lock(&w->lock);
    w->ready = !w->signal;
    st = w->ready ? ST_OK : ST_CANCELLED;
    pthread_mutex_unlock(&w->lock);
done:
    return st;
}

/* The job is done: no restart fixes what could not be written. */
static enum status once_done(enum status st)
{
    return st == ST_IO ? ST_INVALID : st;
}

static enum status run(struct worker *w)
{
    enum status st = ST_OK;
    struct trainer_result result;
    struct net_start start;
    TRY(start_signal_thread(w));
    if (w->opt.trace)
        TRY(trace_open(w->opt.trace, "worker", w->opt.task_index < 0 ? 0 : w->opt.task_index));
    TRY(set_up(w));
    TRY(w->updates.ops->start(w->updates.ctx, &start));
    if (w->opt.join)
        LOG_I("joined as worker %d of %d at step %" PRId64, start.place.member,
              start.place.n_members, start.step);
    pthread_mutex_lock(&w->lock);
    w->training = w->updates.ops->leave_soon && !w->signal;
    pthread_mutex_unlock(&w->lock);
    TRY(trainer_run(w->trainer, &start, &result));
    pthread_mutex_lock(&w->lock);
    w->trained = 1;
    pthread_cond_broadcast(&w->signalled);
    pthread_mutex_unlock(&w->lock);
    if (result.left) { /* whoever does not hear it sees that the stream is gone */
        w->updates.ops->leave(w->updates.ctx, 0);
        LOG_I("left the job at step %" PRId64 ", as worker %d", result.global_step, result.member);
        goto done;
    }
    st = once_done(report(w, &result));
    /* The last thing it does: servers that all have left end, and a worker that is killed while it
     * reports has to find them when it is started again. A server that has gone before it heard of
     * this has its log's line. */
    if (st == ST_OK || status_exit_code(st) == EXIT_PERMANENT)
        w->updates.ops->leave(w->updates.ctx, 1);
done:
    return st;
}

/* The trace is written when the threads are gone and the layers' names still there. */
static enum status clean_up(struct worker *w)
{
    if (w->signal_thread_runs) {
        int sig = signal_taken(w, 1);
        if (!sig)
            pthread_kill(w->signal_thread, SIGTERM);
        pthread_join(w->signal_thread, NULL);
        if (sig)
            stop_signals(SIG_UNBLOCK);
    }
    updates_destroy(&w->updates);
    trainer_destroy(w->trainer);
    sample_log_close(w->sample_log);
    gpus_release(&w->gpus);
    enum status st = trace_close();
    dataset_destroy(w->train);
    dataset_destroy(w->test);
    chunks_destroy(w->chunks);
    batch_split_destroy(w->split);
    placement_destroy(w->placement);
    model_destroy(w->model);
    free(w->params);
    options_free(&w->opt);
    net_status_free(&w->joined);
    return st;
}

/* --list_devices, --self_test. */
static enum status report_devices(const struct options *o)
{
    struct self_test_config test = {
        .as_json = o->self_test,
        .gpus = o->gpus,
        .backend_dir = o->backend_dir,
        .seconds = o->self_test_seconds,
    };
    sigset_t all;
    /* Nothing here wants an orderly end: a signal is one, whatever a driver is doing. */
    sigfillset(&all);
    pthread_sigmask(SIG_UNBLOCK, &all, NULL);
    if (o->list_devices >= 0)
        return device_list_print(o->list_devices, o->gpu_lock_dir);
    return self_test_print(&test);
}

int main(int argc, char **argv)
{
    struct worker w = {0};
    int exit_now = 0;
    pthread_mutex_init(&w.lock, NULL);
    clock_cond_init(&w.signalled);
    log_init("worker", -1, LOG_LEVEL_INFO);
    stop_signals(SIG_BLOCK);
    signal(SIGPIPE, SIG_IGN);
    signals_ignore_file_limit();
    if (options_read(argc, argv, &w.opt, &exit_now) != ST_OK)
        return EXIT_USAGE;
    if (exit_now)
        return 0;
    if (w.opt.list_devices >= 0 || w.opt.self_test >= 0) {
        enum status reported = report_devices(&w.opt);
        options_free(&w.opt);
        return reported == ST_OK ? 0 : EXIT_PERMANENT;
    }
    log_start();
    enum status st = run(&w);
    enum status closed = clean_up(&w);
    int sig = w.ended_by;
    if (st == ST_OK)
        st = once_done(closed);
    return sig ? 128 + sig : status_exit_code(st);
}
