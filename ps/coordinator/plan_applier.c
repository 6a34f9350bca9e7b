/* ps/coordinator/plan_applier.c - the thread that applies plans, its retries, and the report of
 * a damaged checkpoint (plan_applier.h). */
#include "ps/coordinator/plan_applier.h"
#include "base/clock.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/term.h"
#include "base/threads.h"
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    AGAIN_MS = 500,
    AGAIN_MOST_MS = 8000,
    MEMORY_MS = 50,
    /* longest delay of files on a network folder, like CHECK_MS of coordinator_disk.c */
    LATE_MS = 60000,
};

struct plan_applier {
    struct plan_applier_config cfg;
    pthread_t thread;
    int has_thread;

    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t wake;
    struct net_plan *next;              /* next plan to apply; NULL: none */
    struct checkpoint_restore *restore; /* checkpoint for that plan; NULL: the one that it names */
    /* generations of the plan that was ordered last and of the plan that was applied last */
    uint64_t asked, taken;
    uint64_t busy;       /* generation being applied; 0: none */
    uint64_t failing;    /* generation of the plan that failed last; 0: no plan failed */
    int64_t failing_ns;  /* time of that plan's first failure */
    int64_t again_ms;    /* back-off until the plan's next try */
    uint64_t unreadable; /* generation of the plan whose checkpoint cannot be read; 0: none */
    int stopping;
};

/* Returns true if the coordinator can restore an older checkpoint instead of the one that this
 * plan names. It cannot if --restore named the file, or if the file's name lacks the generation,
 * by which checkpoints are ordered. */
static bool can_be_passed(const struct net_plan *plan)
{
    struct checkpoint_name is;
    if (plan->source != PLAN_CHECKPOINT || strstr(plan->restore, PLAN_RESTORE_MARK))
        return false;
    checkpoint_name_parse(plan->restore, &is);
    return is.kind == CHECKPOINT_NAME_MANIFEST && is.id.generation > 0;
}

/* Records that the plan failed. Reports its checkpoint as damaged if bytes do not match their
 * checksum, or if a file is missing or short for LATE_MS; a network folder may show a file late. An
 * I/O error is not reported as damage, as in checkpoint/restore.h. The caller holds the lock. */
static void note_failure(struct plan_applier *t, const struct net_plan *plan, enum status st,
                         int was_open)
{
    int64_t now_ns = clock_now_ns();
    if (t->failing != plan->generation) {
        t->failing_ns = now_ns;
        t->again_ms = AGAIN_MS;
    } else if (t->again_ms < AGAIN_MOST_MS) {
        t->again_ms *= 2;
    }
    t->failing = plan->generation;
    bool is_late = !was_open && now_ns - t->failing_ns < LATE_MS * (int64_t)1000000;
    if (st == ST_CORRUPT && !is_late && can_be_passed(plan))
        t->unreadable = plan->generation;
}

static enum status open_restore(struct plan_applier *t, const struct net_plan *plan,
                                struct checkpoint_restore **out)
{
    char name[CONTROL_TEXT_BYTES];
    const char *mark = strstr(plan->restore, PLAN_RESTORE_MARK);
    const char *folder = mark ? t->cfg.restore_folder : t->cfg.folder;
    int n = mark ? (int)(mark - plan->restore) : (int)strlen(plan->restore);
    snprintf(name, sizeof name, "%.*s", n, plan->restore);
    struct checkpoint_restore_query query = {.folder = folder, .name = name};
    enum status st = folder ? checkpoint_restore_open(&query, out) : ST_NOT_FOUND;
    struct checkpoint_name is;
    checkpoint_name_parse(name, &is);
    /* only ps 0's folder has the manifest */
    if (st == ST_NOT_FOUND && folder && is.id.generation > 0)
        st = checkpoint_restore_open_own(folder, is.id, &plan->job, plan->chunks, out);
    if (st == ST_NOT_FOUND)
        LOG_E(
            "%s/%s: ps:0 resumes from this checkpoint, but this folder has neither the checkpoint nor a part of it; start this server with its previous --checkpoint_dir, or with that of ps:0",
            folder ? folder : "", name);
    return st;
}

static bool has_chunks(const struct plan_applier *t, const struct net_plan *plan)
{
    int self = net_plan_server(plan, t->cfg.address), n = 0;
    for (int i = 0; i < plan->chunks->n_chunks && self >= 0; i++)
        n += plan->shard[i] == self;
    return n > 0;
}

/* Begins the plan. Sets *was_open once the plan's checkpoint, if it has one, is open. */
static enum status apply_plan(struct plan_applier *t, const struct net_plan *plan,
                              struct checkpoint_restore *restore, int *was_open)
{
    enum status st = ST_OK;
    struct checkpoint_restore *own = NULL;
    if (plan->source == PLAN_CHECKPOINT && !restore && has_chunks(t, plan))
        TRY(open_restore(t, plan, &own));
    *was_open = 1;
    TRY(generation_begin(t->cfg.service, plan, restore ? restore : own));
done:
    checkpoint_restore_close(own);
    return st;
}

/* Applies the plan, or puts it back for another try; releases the lock while it applies the
 * plan. */
static void take_next(struct plan_applier *t) REQUIRES(t->lock)
{
    struct net_plan *plan = t->next;
    struct checkpoint_restore *restore = t->restore;
    t->next = NULL;
    t->restore = NULL;
    t->busy = plan->generation;
    pthread_mutex_unlock(&t->lock);
    int was_open = 0;
    enum status st = apply_plan(t, plan, restore, &was_open);
    pthread_mutex_lock(&t->lock);
    t->busy = 0;
    if (st == ST_OK) {
        t->taken = plan->generation;
        t->unreadable = 0;
    } else if (!t->next && !t->stopping) {
        t->next = plan;
        t->restore = restore;
        plan = NULL;
        restore = NULL;
        uint64_t mine = t->next->generation;
        note_failure(t, t->next, st, was_open);
        int64_t deadline = clock_deadline_ns(t->again_ms);
        pthread_mutex_unlock(&t->lock);
        t->cfg.changed(t->cfg.ctx);
        pthread_mutex_lock(&t->lock);
        while (!t->stopping && t->next && t->next->generation == mine &&
               clock_cond_wait(&t->wake, &t->lock, deadline) == 0)
            ;
    }
    pthread_mutex_unlock(&t->lock);
    net_plan_free(plan);
    checkpoint_restore_close(restore);
    t->cfg.changed(t->cfg.ctx);
    pthread_mutex_lock(&t->lock);
}

static void *plan_applier_main(void *arg)
{
    struct plan_applier *t = arg;
    pthread_mutex_lock(&t->lock);
    while (!t->stopping) {
        if (t->next)
            take_next(t);
        else
            pthread_cond_wait(&t->wake, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

enum status plan_applier_create(const struct plan_applier_config *cfg, struct plan_applier **out)
{
    struct plan_applier *t = calloc(1, sizeof *t);
    if (!t)
        return ST_NOMEM;
    t->cfg = *cfg;
    pthread_mutex_init(&t->lock, NULL);
    clock_cond_init(&t->wake);
    int err = pthread_create(&t->thread, NULL, plan_applier_main, t);
    if (err) {
        LOG_E("the thread that applies plans cannot be started: %s", threads_error(err));
        plan_applier_destroy(t);
        return ST_NOMEM;
    }
    t->has_thread = 1;
    *out = t;
    return ST_OK;
}

void plan_applier_destroy(struct plan_applier *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->stopping = 1;
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    generation_cancel(t->cfg.service, UINT64_MAX);
    if (t->has_thread)
        pthread_join(t->thread, NULL);
    net_plan_free(t->next);
    checkpoint_restore_close(t->restore);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void plan_applier_take(struct plan_applier *t, const struct net_plan *plan,
                       struct checkpoint_restore *restore)
{
    struct net_plan *copy = NULL;
    pthread_mutex_lock(&t->lock);
    int wanted = t->asked != plan->generation;
    /* ps 0 orders a plan one time only, so this function must not drop it */
    while (wanted && !t->stopping && net_plan_copy(plan, &copy) != ST_OK) {
        LOG_FEW("no memory for the plan of generation " TERM_FMT "; retrying",
                TERM_ARG(plan->generation));
        clock_cond_wait(&t->wake, &t->lock, clock_deadline_ns(MEMORY_MS));
    }
    if (!copy) {
        pthread_mutex_unlock(&t->lock);
        checkpoint_restore_close(restore);
        return;
    }
    struct net_plan *old = t->next;
    struct checkpoint_restore *old_restore = t->restore;
    t->next = copy;
    t->restore = restore;
    t->asked = plan->generation;
    uint64_t busy = t->busy;
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    if (busy) /* the new plan replaces the plan under way, whose holders may be gone */
        generation_cancel(t->cfg.service, busy);
    net_plan_free(old);
    checkpoint_restore_close(old_restore);
}

uint64_t plan_applier_unreadable(struct plan_applier *t)
{
    pthread_mutex_lock(&t->lock);
    uint64_t generation = t->unreadable;
    pthread_mutex_unlock(&t->lock);
    return generation;
}

uint64_t plan_applier_generation(struct plan_applier *t)
{
    pthread_mutex_lock(&t->lock);
    uint64_t generation = t->taken;
    pthread_mutex_unlock(&t->lock);
    return generation;
}
