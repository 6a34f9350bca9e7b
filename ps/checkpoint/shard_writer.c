/* ps/checkpoint/shard_writer.c - see shard_writer.h. A separate thread writes a file. It has the
 * lowest priority, so that the write uses only the time that training on this machine leaves, and
 * it holds no lock that training needs. Tables are an exception: rows are copied under the locks of
 * their buckets, so the thread then has the priority of the server, or training would wait for it
 * as long as other threads use the processor. The writer's own thread does the work under its own
 * locks. `use` names the present owner of the capture and of its order: the caller of order or
 * cancel while an order begins or ends, the chunks while the order is armed, the writer's thread
 * while it writes the file.
 * Locks:   a chunk's, then the writer's. */
#include "ps/checkpoint/shard_writer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "ps/checkpoint/snapshot_file.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LOWEST_PRIORITY = 19 };
enum use { USE_NONE, USE_CALLER, USE_CHUNKS, USE_LANE };

struct shard_writer {
    void (*changed)(void *ctx);
    void *ctx;
    pthread_t thread;
    struct shard_writer_order order; /* order in progress; `release` is set until it was called */
    struct snapshot *capture;

    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t wake;
    enum use use;
    int captured, stopping;
    bool wanted; /* the order in progress is still needed */
    int calling; /* nonzero while `changed` or the release of borrowed objects runs */
    bool ended;  /* the thread has nothing left to do but return */
    bool left;   /* the writer was destroyed while a file was being written */
    struct shard_writer_state state;
    int64_t busy_step; /* step of the file that is being written */
};

static void on_captured(void *ctx)
{
    struct shard_writer *w = ctx;
    pthread_mutex_lock(&w->lock);
    w->captured = 1;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

/* Must be called before a callback is called. Returns false if this writer was destroyed: then
 * the objects that the callback uses may be gone, and it must not be called. Otherwise
 * shard_writer_destroy waits for end_call. */
static bool begin_call(struct shard_writer *w)
{
    pthread_mutex_lock(&w->lock);
    int there = !w->left;
    w->calling += there;
    pthread_mutex_unlock(&w->lock);
    return there;
}

static void end_call(struct shard_writer *w)
{
    pthread_mutex_lock(&w->lock);
    w->calling--;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

static void report_change(struct shard_writer *w)
{
    if (!begin_call(w))
        return;
    w->changed(w->ctx);
    end_call(w);
}

struct writing {
    const struct checkpoint_shard_file *file;
    struct snapshot *capture;
    struct safetensors_written written;
    enum status st;
};

static void *writing_main(void *arg)
{
    struct writing *w = arg;
    /* on Linux this sets the priority of this thread alone */
    if (w->file->chunks->n_tables == 0)
        setpriority(PRIO_PROCESS, (id_t)gettid(), LOWEST_PRIORITY);
    w->st = snapshot_file_write(w->file, w->capture, &w->written);
    return NULL;
}

static enum status write_aside(const struct checkpoint_shard_file *file, struct snapshot *from,
                               struct safetensors_written *out)
{
    pthread_t thread;
    struct writing w = {.file = file, .capture = from};
    if (pthread_create(&thread, NULL, writing_main, &w) != 0)
        return snapshot_file_write(file, from, out);
    pthread_join(thread, NULL);
    *out = w.written;
    return w.st;
}

/* Releases the capture (the held versions) and the borrowed objects of the order. The owner of the
 * capture calls it. */
static void drop_order(struct shard_writer *w)
{
    snapshot_destroy(w->capture);
    w->capture = NULL;
    if (w->order.release)
        w->order.release(w->order.owner);
    w->order = (struct shard_writer_order){0};
}

static void write_file(struct shard_writer *w)
{
    int64_t begin = clock_now_ns(), step = w->order.file.step;
    struct safetensors_written file = {0};
    enum status st = write_aside(&w->order.file, w->capture, &file);
    if (!begin_call(w))
        return; /* the writer was destroyed: this thread has no work left until the process exits */
    drop_order(w);
    end_call(w);
    if (st == ST_OK)
        LOG_D("checkpoint at step %" PRId64 ": %.1f MB written in %.0f ms", step,
              (double)file.bytes * 1e-6, (double)(clock_now_ns() - begin) * 1e-6);
    pthread_mutex_lock(&w->lock);
    w->use = USE_NONE;
    w->state.busy = 0;
    if (w->wanted) {
        w->wanted = 0;
        w->state.phase = st == ST_OK ? PART_WRITTEN : PART_FAILED;
        w->state.failure = st;
        w->state.file = file;
    }
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

static void *lane_main(void *arg)
{
    struct shard_writer *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->stopping) {
        if (w->use != USE_CHUNKS || !w->captured) {
            pthread_cond_wait(&w->wake, &w->lock);
            continue;
        }
        w->use = USE_LANE;
        if (w->wanted) /* otherwise the state is that of a later order, which was refused */
            w->state.phase = PART_WRITING;
        w->state.busy = 1;
        w->state.busy_since_ns = clock_now_ns();
        w->busy_step = w->order.file.step;
        pthread_mutex_unlock(&w->lock);
        report_change(w);
        write_file(w);
        report_change(w);
        pthread_mutex_lock(&w->lock);
    }
    w->ended = 1;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void destroy_writer(struct shard_writer *w)
{
    drop_order(w);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

enum status shard_writer_create(void (*changed)(void *ctx), void *ctx, struct shard_writer **out)
{
    struct shard_writer *w = calloc(1, sizeof *w);
    if (!w)
        return ST_NOMEM;
    w->changed = changed;
    w->ctx = ctx;
    pthread_mutex_init(&w->lock, NULL);
    clock_cond_init(&w->wake);
    int err = pthread_create(&w->thread, NULL, lane_main, w);
    if (err) {
        LOG_E("the thread that writes checkpoints cannot be started: %s", threads_error(err));
        destroy_writer(w);
        return ST_NOMEM;
    }
    *out = w;
    return ST_OK;
}

bool shard_writer_destroy(struct shard_writer *w, int64_t deadline_ns)
{
    if (!w)
        return true;
    pthread_mutex_lock(&w->lock);
    w->stopping = 1;
    pthread_cond_broadcast(&w->wake);
    while (!w->ended && clock_cond_wait(&w->wake, &w->lock, deadline_ns) == 0)
        ;
    int left = w->left = !w->ended;
    while (left && w->calling)
        pthread_cond_wait(&w->wake, &w->lock);
    int64_t step = w->busy_step;
    pthread_mutex_unlock(&w->lock);
    if (left) {
        LOG_W("the disk has not stored this server's file of the checkpoint at step %" PRId64
              ": this process exits without waiting for the disk",
              step);
        pthread_detach(w->thread); /* the thread still uses the writer, which is not freed */
        return false;
    }
    pthread_join(w->thread, NULL);
    destroy_writer(w);
    return true;
}

/* Makes the caller the owner of the capture. Returns false if the capture is being written, or will
 * be at once. */
static bool seize_capture(struct shard_writer *w)
{
    pthread_mutex_lock(&w->lock);
    int ours = w->use != USE_LANE && !(w->use == USE_CHUNKS && w->captured && w->wanted);
    if (ours)
        w->use = USE_CALLER;
    pthread_mutex_unlock(&w->lock);
    return ours;
}

static void set_state(struct shard_writer *w, enum use use, enum part_phase phase,
                      enum status failure)
{
    pthread_mutex_lock(&w->lock);
    w->use = use;
    w->wanted = phase == PART_ARMED;
    w->state.phase = phase;
    w->state.failure = failure;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

/* Sets the state of a new order, at first FAILED. The fields about a write in progress stay, since
 * it may belong to an earlier order. */
static void begin_state(struct shard_writer *w, uint64_t order, uint64_t generation, int64_t step)
{
    pthread_mutex_lock(&w->lock);
    w->wanted = 0;
    w->state = (struct shard_writer_state){.order = order,
                                           .generation = generation,
                                           .step = step,
                                           .phase = PART_FAILED,
                                           .failure = ST_BUSY,
                                           .busy = w->state.busy,
                                           .busy_since_ns = w->state.busy_since_ns};
    pthread_mutex_unlock(&w->lock);
}

void shard_writer_order(struct shard_writer *w, const struct shard_writer_order *order)
{
    bool seized = seize_capture(w);
    begin_state(w, order->order, order->file.generation, order->file.step);
    if (!seized) {
        LOG_W("no checkpoint at step %" PRId64 ": an earlier one is still being written",
              order->file.step);
        if (order->release)
            order->release(order->owner);
    } else {
        drop_order(w);
        w->order = *order;
        pthread_mutex_lock(&w->lock);
        w->captured = 0; /* no callback sets `captured` again before snapshot_begin */
        pthread_mutex_unlock(&w->lock);
        enum status st = snapshot_create(order->store, on_captured, w, &w->capture);
        if (st == ST_OK)
            st = snapshot_begin(w->capture, order->file.step);
        if (st != ST_OK)
            drop_order(w);
        set_state(w, st == ST_OK ? USE_CHUNKS : USE_NONE, st == ST_OK ? PART_ARMED : PART_FAILED,
                  st);
    }
    report_change(w);
}

void shard_writer_fail(struct shard_writer *w, uint64_t order, int64_t step, enum status why)
{
    bool seized = seize_capture(w);
    begin_state(w, order, 0, step);
    if (seized) {
        drop_order(w);
        set_state(w, USE_NONE, PART_FAILED, why);
    }
    report_change(w);
}

void shard_writer_cancel(struct shard_writer *w)
{
    pthread_mutex_lock(&w->lock);
    w->wanted = 0;
    pthread_mutex_unlock(&w->lock);
    if (seize_capture(w)) {
        drop_order(w);
        set_state(w, USE_NONE, PART_IDLE, ST_OK);
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->state.phase = PART_IDLE;
    pthread_mutex_unlock(&w->lock);
}

void shard_writer_state(struct shard_writer *w, struct shard_writer_state *out)
{
    pthread_mutex_lock(&w->lock);
    *out = w->state;
    pthread_mutex_unlock(&w->lock);
}
