/* ps/saver.c - see saver.h. A file is written by a thread of its own at the lowest priority: on a
 * machine that computes, too, it takes what time training leaves. It holds no lock that training
 * takes; what does, the saver's thread does itself. The capture belongs to whoever `use` says: the
 * caller of order and cancel while it begins and ends it, the chunks while it is armed, the thread
 * while it writes. Locks: the saver's is the last: a chunk's may be held when it is taken. */
#include "ps/saver.h"
#include "base/clock.h"
#include "base/log.h"
#include "ps/checkpoint.h"
#include "ps/run.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LOWEST_PRIORITY = 19 };
enum use { USE_NONE, USE_CALLER, USE_CHUNKS, USE_WRITER };

struct saver {
    struct saver_config cfg;
    struct run *run; /* that the capture is of; NULL: no order is under way */
    struct ps_capture *capture;
    pthread_t thread;
    int has_thread;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;
    enum use use;
    int captured, stopping;
    struct saver_state state;
};

static void on_captured(void *ctx)
{
    struct saver *s = ctx;
    pthread_mutex_lock(&s->lock);
    s->captured = 1;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

struct writing {
    const struct ps_checkpoint_file *file;
    const struct ps_capture *capture;
    struct safetensors_written written;
    enum status st;
};

static void *writing_main(void *arg)
{
    struct writing *w = arg;
    setpriority(PRIO_PROCESS, (id_t)gettid(), LOWEST_PRIORITY); /* Linux: of this thread */
    w->st = ps_checkpoint_write(w->file, w->capture, &w->written);
    return NULL;
}

static enum status write_aside(const struct ps_checkpoint_file *file, const struct ps_capture *from,
                               struct safetensors_written *out)
{
    pthread_t thread;
    struct writing w = {.file = file, .capture = from};
    if (pthread_create(&thread, NULL, writing_main, &w) != 0)
        return ps_checkpoint_write(file, from, out);
    pthread_join(thread, NULL);
    *out = w.written;
    return w.st;
}

/* Whoever has the capture: what was captured and its run are needed no more. */
static void let_go(struct saver *s)
{
    ps_capture_destroy(s->capture);
    run_unref(s->run);
    s->capture = NULL;
    s->run = NULL;
}

/* state: of the order that the capture is for. */
static void write_file(struct saver *s, struct saver_state state)
{
    int64_t begin = clock_now_ns();
    struct ps_checkpoint_file file = {
        .folder = s->cfg.folder,
        .step = state.step,
        .generation = s->run->generation,
        .server = s->run->self,
        .n_servers = s->run->plan->servers.n,
        .job = &s->run->job,
        .chunks = s->run->chunks,
        .progress = run_progress(s->run, state.step),
    };
    enum status st = write_aside(&file, s->capture, &state.file);
    let_go(s);
    if (st == ST_OK)
        LOG_D("checkpoint at step %" PRId64 ": %.1f MB written in %.0f ms", state.step,
              (double)state.file.bytes * 1e-6, (double)(clock_now_ns() - begin) * 1e-6);
    pthread_mutex_lock(&s->lock);
    s->use = USE_NONE;
    if (s->state.order == state.order) { /* else another was ordered meanwhile, and refused */
        s->state = state;
        s->state.phase = st == ST_OK ? SAVER_WRITTEN : SAVER_FAILED;
    }
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

static void *saver_main(void *arg)
{
    struct saver *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->stopping) {
        if (s->use != USE_CHUNKS || !s->captured) {
            pthread_cond_wait(&s->wake, &s->lock);
            continue;
        }
        s->use = USE_WRITER;
        s->state.phase = SAVER_WRITING;
        struct saver_state state = s->state;
        pthread_mutex_unlock(&s->lock);
        s->cfg.changed(s->cfg.ctx);
        write_file(s, state);
        s->cfg.changed(s->cfg.ctx);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

enum status saver_create(const struct saver_config *cfg, struct saver **out)
{
    struct saver *s = calloc(1, sizeof *s);
    if (!s)
        return ST_NOMEM;
    s->cfg = *cfg;
    pthread_mutex_init(&s->lock, NULL);
    clock_cond_init(&s->wake);
    int err = pthread_create(&s->thread, NULL, saver_main, s);
    if (err) {
        LOG_E("the thread that writes checkpoints cannot be started: %s", strerror(err));
        saver_destroy(s);
        return ST_NOMEM;
    }
    s->has_thread = 1;
    *out = s;
    return ST_OK;
}

void saver_destroy(struct saver *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = 1;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    if (s->has_thread)
        pthread_join(s->thread, NULL);
    let_go(s);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Takes the capture for the caller; 0: it is being written. */
static int seize(struct saver *s)
{
    pthread_mutex_lock(&s->lock);
    int free_now = s->use != USE_WRITER && !(s->use == USE_CHUNKS && s->captured);
    if (free_now)
        s->use = USE_CALLER;
    pthread_mutex_unlock(&s->lock);
    return free_now;
}

static void set(struct saver *s, enum use use, enum saver_phase phase)
{
    pthread_mutex_lock(&s->lock);
    s->use = use;
    s->state.phase = phase;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

/* The capture of the service's present run, if it is of the generation and has chunks here. */
static enum status take_run(struct saver *s, uint64_t generation)
{
    int ended;
    s->run = ps_service_run(s->cfg.service, &ended);
    if (!s->run)
        return ST_NOT_FOUND;
    if (s->run->generation != generation || s->run->self < 0) {
        LOG_D("an order of generation %" PRIu64 " meets generation %" PRIu64 ", server %d",
              generation, s->run->generation, s->run->self);
        return ST_RANGE;
    }
    return ps_capture_create(s->run->store, on_captured, s, &s->capture);
}

void saver_order(struct saver *s, uint64_t order, uint64_t generation, int64_t step)
{
    int seized = seize(s);
    pthread_mutex_lock(&s->lock);
    s->state = (struct saver_state){.order = order, .step = step, .phase = SAVER_FAILED};
    pthread_mutex_unlock(&s->lock);
    if (!seized) {
        LOG_W("no checkpoint at step %" PRId64 ": an earlier one is still being written", step);
    } else {
        let_go(s);
        pthread_mutex_lock(&s->lock);
        s->captured = 0; /* nobody sets it any more before begin */
        pthread_mutex_unlock(&s->lock);
        enum status st = take_run(s, generation);
        if (st == ST_OK)
            st = ps_capture_begin(s->capture, step);
        if (st != ST_OK)
            let_go(s);
        set(s, st == ST_OK ? USE_CHUNKS : USE_NONE, st == ST_OK ? SAVER_ARMED : SAVER_FAILED);
    }
    s->cfg.changed(s->cfg.ctx);
}

void saver_cancel(struct saver *s)
{
    if (!seize(s))
        return;
    let_go(s);
    set(s, USE_NONE, SAVER_IDLE);
}

void saver_state(struct saver *s, struct saver_state *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->state;
    pthread_mutex_unlock(&s->lock);
}
