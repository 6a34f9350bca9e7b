/* ps/coordinator/follower_shell.c - keeps a control call to ps 0 under way and carries out the
 * follower's actions (follower_shell.h). A change of the state cancels the call, and the next
 * call reports it.
 * Locks: `lock` is never held over a call into the service, the writer or the net. */
#include "ps/coordinator/follower_shell.h"
#include "base/clock.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/process.h"
#include "base/term.h"
#include "base/threads.h"
#include "checkpoint/folder.h"
#include "net/wire/plan.h"
#include "ps/coordinator/folder_look.h"
#include "ps/coordinator/follower.h"
#include "ps/coordinator/plan_applier.h"
#include "ps/service/run.h"
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    /* timeout of a call; longer than ps 0 waits before it answers without news */
    CALL_MS = 12000,
    LAST_MS = 60000,    /* time limit of the last checkpoint */
    LOOK_MS = 500,      /* interval of the checks for the last checkpoint */
    LOOK_END_MS = 2000, /* at the end: time limit of a read of the folder */
};

struct follower_shell {
    struct follower_shell_config cfg;
    struct plan_applier *applier;
    struct lane *looks; /* NULL: this is ps 0, which never misses itself, or there is no folder */
    pthread_t thread;
    int has_thread;

    /* The fields that the thread alone uses. */
    struct net_control_reply reply; /* last reply, while it is handled */
    char why[CONTROL_TEXT_BYTES];   /* reason of the last failed call */
    int calls, ends;                /* calls: a call is due; ends: this server has no work left */
    struct checkpoint_id ordered;   /* last order for this server's part */
    uint64_t added;                 /* order whose part own_folder has recorded */
    char ps0_folder[CONTROL_FOLDER_BYTES]; /* id of ps 0's folder according to ps 0's last reply */
    char folder_id[FOLDER_ID_BYTES];       /* id of this server's folder, read by own_folder */
    /* a log line is due that reports whether this server's folder is its own or ps 0's */
    int says_folder;
    uint64_t kept_number; /* last reply whose list of kept checkpoints own_folder has received */
    uint64_t kept_ps0;    /* incarnation of the ps 0 that sent this reply */

    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t wake;
    struct follower state; /* changed by the thread alone */
    int64_t wake_ns;
    int wants, leaves, changed, stopping;
    bool has_looked; /* `looked` is not reported to the state yet */
    struct folder_look looked;
    int ended; /* the thread has ended */
};

static void wake_thread(struct follower_shell *f)
{
    f->cfg.cancel(f->cfg.peer);
}

static void note_news(struct follower_shell *f, int *what, int by)
{
    pthread_mutex_lock(&f->lock);
    *what += by;
    pthread_cond_broadcast(&f->wake);
    pthread_mutex_unlock(&f->lock);
    wake_thread(f);
}

void follower_shell_wake(struct follower_shell *f)
{
    note_news(f, &f->changed, 1);
}

void follower_shell_want(struct follower_shell *f)
{
    note_news(f, &f->wants, 1);
}

void follower_shell_leave(struct follower_shell *f)
{
    note_news(f, &f->leaves, 1);
}

static void step_state(struct follower_shell *f, const struct follower_event *e);

/* Stores the result of a look at the folder; the lane's thread calls it. */
static void on_looked(void *ctx, const struct folder_look *look)
{
    struct follower_shell *f = ctx;
    pthread_mutex_lock(&f->lock);
    f->looked = *look;
    f->has_looked = true;
    pthread_mutex_unlock(&f->lock);
    follower_shell_wake(f);
}

/* Reports the result of a look at the folder to the state. */
static void step_looked(struct follower_shell *f)
{
    pthread_mutex_lock(&f->lock);
    const struct folder_look look = f->looked;
    bool has_looked = f->has_looked;
    f->has_looked = false;
    pthread_mutex_unlock(&f->lock);
    const struct follower_event e = {.kind = FOLLOWER_LOOKED,
                                     .generation = look.generation,
                                     .has_all_steps = look.has_all_steps,
                                     .is_over = look.is_over,
                                     .left_out = look.is_left_out};
    if (has_looked && look.is_left_out)
        LOG_I(
            "ps:0 (%s) does not answer, and %s records that the job has continued without this server",
            f->cfg.addr, f->cfg.folder);
    if (has_looked)
        step_state(f, &e);
}

static void report_refused(const struct follower_shell *f, int is_protocol)
{
    if (is_protocol)
        LOG_E(
            "ps:0 (%s) rejects this server's call: %s; start all servers with the same --ps_hosts and the same version of this program",
            f->cfg.addr, f->why);
    else
        LOG_E("ps:0 (%s) refuses this server: %s", f->cfg.addr, f->reply.refused);
}

static void on_drained(struct follower_shell *f, int how)
{
    bool is_done = how == 1;
    f->ends = 1;
    if (how == 2) {
        if (f->cfg.self != 0) /* ps 0 has already logged this */
            LOG_E(
                "ps:0 (%s) reports that all workers have ended with an error: the job has failed; the log of ps:0 names the errors",
                f->cfg.addr);
        f->cfg.failed(f->cfg.ctx);
        return;
    }
    LOG_I("%s", is_done || f->reply.closing
                    ? "ps:0 reports that the job is done"
                    : "this server has no chunks any more, and has left the job");
    f->cfg.drained(f->cfg.ctx);
}

/* Reads the folder in a lane, since the read may hang, and the calls to ps 0 must continue. */
static void look_at_end(struct follower_shell *f, uint64_t generation)
{
    if (f->looks && f->cfg.folder)
        folder_look_post(f->looks, &(struct folder_look){.folder = f->cfg.folder,
                                                         .address = f->cfg.address,
                                                         .generation = generation,
                                                         .end = on_looked,
                                                         .ctx = f});
}

static void order_checkpoint(struct follower_shell *f, const struct follower_action *a)
{
    f->ordered = (struct checkpoint_id){a->generation, a->step};
    if (f->cfg.own_folder)
        own_folder_note_order(f->cfg.own_folder, f->ordered);
    if (f->cfg.writer)
        checkpoint_writer_order(f->cfg.writer, a->order, a->generation, a->step);
}

static void carry_out(struct follower_shell *f, const struct follower_action *a)
{
    switch (a->kind) {
    case FOLLOWER_ACT_STOP:
        generation_stop(f->cfg.service);
        break;
    case FOLLOWER_ACT_APPLY:
        plan_applier_take(f->applier, f->reply.plan, NULL);
        break;
    case FOLLOWER_ACT_SETTLE:
        generation_settle(f->cfg.service, a->generation);
        break;
    case FOLLOWER_ACT_ORDER:
        order_checkpoint(f, a);
        break;
    case FOLLOWER_ACT_CANCEL:
        checkpoint_writer_cancel(f->cfg.writer);
        break;
    case FOLLOWER_ACT_LOOK:
        look_at_end(f, a->generation);
        break;
    case FOLLOWER_ACT_REFUSED:
        f->ends = 1;
        report_refused(f, a->arg);
        f->cfg.refused(f->cfg.ctx);
        break;
    case FOLLOWER_ACT_DRAINED:
        on_drained(f, a->arg);
        break;
    case FOLLOWER_ACT_NEW_PS0:
        LOG_W("ps:0 (%s) was restarted; training continues from the step that it announces",
              f->cfg.addr);
        break;
    case FOLLOWER_ACT_OLD_PS0:
        LOG_W("a ps:0 (%s) that was replaced (term %" PRIu64 ") is ignored; end that process",
              f->cfg.addr, f->reply.epoch);
        break;
    case FOLLOWER_ACT_NO_FOLDER:
        LOG_W("no checkpoint: this server was started without --checkpoint_dir");
        break;
    case FOLLOWER_ACT_MISSING:
        LOG_W("waiting for ps:0 (%s), the coordinator: %s", f->cfg.addr, f->why);
        break;
    case FOLLOWER_ACT_DONE:
        LOG_I(
            "the job in %s has completed its steps, and ps:0 (%s) does not return: the job is done",
            f->cfg.folder, f->cfg.addr);
        break;
    }
}

static void step_state(struct follower_shell *f, const struct follower_event *e)
{
    struct follower_out out;
    pthread_mutex_lock(&f->lock);
    follower_step(&f->state, e, clock_now_ns(), &out);
    f->wake_ns = out.wake_ns;
    pthread_cond_broadcast(&f->wake); /* follower_shell_finish checks the state */
    pthread_mutex_unlock(&f->lock);
    f->calls |= out.call;
    for (int i = 0; i < out.n; i++)
        carry_out(f, &out.act[i]);
}

static void step_store(struct follower_shell *f)
{
    struct generation_state s;
    generation_state(f->cfg.service, &s);
    const struct follower_store store = {.generation = s.generation,
                                         .ps0 = s.ps0,
                                         .stopped = s.stopped,
                                         .ended = s.ended,
                                         .lowest = s.lowest,
                                         .highest = s.highest,
                                         .unreadable = plan_applier_unreadable(f->applier)};
    const struct follower_event e = {.kind = FOLLOWER_STORE, .store = &store};
    step_state(f, &e);
}

/* Records a written part in own_folder, before the report to ps 0. */
static void note_part(struct follower_shell *f, const struct checkpoint_writer_state *s)
{
    if (!f->cfg.own_folder || s->phase != PART_WRITTEN || f->added == s->order)
        return;
    const struct checkpoint_part part = {
        {s->generation, s->step}, s->server, s->n_servers, {s->file.bytes, s->file.crc32c}};
    own_folder_add(f->cfg.own_folder, &part);
    f->added = s->order;
}

/* Reports the writer's progress to the state.*/
static void step_snapshot(struct follower_shell *f)
{
    struct checkpoint_writer_state s;
    if (!f->cfg.writer)
        return;
    checkpoint_writer_state(f->cfg.writer, &s);
    note_part(f, &s);
    const struct net_control snapshot = {
        .order = s.order, .phase = s.phase, .bytes = s.file.bytes, .crc32c = s.file.crc32c};
    const struct follower_event e = {.kind = FOLLOWER_SNAPSHOT, .snapshot = &snapshot};
    step_state(f, &e);
}

static void step_news(struct follower_shell *f)
{
    static const struct follower_event want = {.kind = FOLLOWER_WANT},
                                       leave = {.kind = FOLLOWER_LEAVE},
                                       workers = {.kind = FOLLOWER_WORKERS};
    pthread_mutex_lock(&f->lock);
    int wants = f->wants, leaves = f->leaves, changed = f->changed;
    f->leaves = f->changed = 0;
    pthread_mutex_unlock(&f->lock);
    step_store(f);
    step_snapshot(f);
    step_looked(f);
    if (changed)
        step_state(f, &workers);
    for (int i = 0; i < wants; i++)
        step_state(f, &want);
    pthread_mutex_lock(&f->lock);
    /* the requests are subtracted only after the state has received them, because
     * follower_shell_finish checks both */
    f->wants -= wants;
    pthread_mutex_unlock(&f->lock);
    if (leaves)
        step_state(f, &leave);
}

/* Lists the members of the generation that have no stream here. */
static void fill_missing(struct follower_shell *f, struct net_control *out)
{
    struct roster_entry *members = NULL, *waiting = NULL;
    int n = 0, n_waiting = 0;
    if (membership_roster(f->cfg.service, &members, &n, &waiting, &n_waiting) != ST_OK)
        return; /* out of memory: the next call reports them */
    out->missing = malloc((size_t)(n > 0 ? n : 1) * sizeof *out->missing);
    for (int i = 0; out->missing && i < n; i++)
        if (members[i].missing_ms >= 0 && !members[i].done)
            out->missing[out->n_missing++] =
                (struct net_missing){members[i].member, members[i].missing_ms, members[i].came};
    free(members);
    free(waiting);
}

/* Determines whether this server's folder is its own or ps 0's, once the folder's id was read.
 * Returns true if the folder is the server's own, false if it is ps 0's or not known yet. */
static bool sort_folder(struct follower_shell *f)
{
    if (!own_folder_id(f->cfg.own_folder, f->folder_id))
        return false;
    int is_own = f->ps0_folder[0] && strcmp(f->ps0_folder, f->folder_id) != 0;
    if (!f->says_folder)
        return is_own;
    f->says_folder = 0;
    if (is_own)
        LOG_I(
            "checkpoints: %s is not the folder of ps:0, so only this folder has this server's part of each checkpoint; keep the folder for a restart",
            f->cfg.folder);
    else if (f->ps0_folder[0])
        LOG_I(
            "checkpoints: %s is shared with ps:0: this server can be started again on any machine that can access the folder",
            f->cfg.folder);
    if (is_own)
        own_folder_begin(f->cfg.own_folder);
    return is_own;
}

static bool note_folder(struct follower_shell *f)
{
    const char *ps0 = f->reply.folder;
    if (strcmp(ps0, f->ps0_folder) != 0) {
        snprintf(f->ps0_folder, sizeof f->ps0_folder, "%s", ps0);
        checkpoint_writer_set_home(f->cfg.writer, ps0);
        f->says_folder = 1;
        /* A folder that was lost and replaced has another id. own_folder waits for the disk. */
        if (ps0[0] && strcmp(ps0, f->folder_id) != 0)
            own_folder_reread_id(f->cfg.own_folder);
    }
    return sort_folder(f);
}

static void fill_folder(struct follower_shell *f, struct net_control *out)
{
    if (f->cfg.own_folder) {
        /* own_folder may have read the folder's id after the last call of sort_folder */
        sort_folder(f);
        out->knows_parts = own_folder_parts(f->cfg.own_folder, &out->parts, &out->n_parts);
    }
    snprintf(out->folder, sizeof out->folder, "%s", f->folder_id);
}

/* Passes ps 0's list of kept checkpoints to own_folder, if this ps 0 is obeyed. */
static void note_kept(struct follower_shell *f)
{
    const struct net_control_reply *r = &f->reply;
    struct checkpoint_id kept[CONTROL_MAX_KEPT];
    if (!f->cfg.own_folder || !f->folder_id[0] || f->state.leader != r->incarnation ||
        f->state.epoch != r->epoch || !note_folder(f) || !r->knows_kept ||
        (f->kept_number == r->number && f->kept_ps0 == r->incarnation))
        return;
    for (int i = 0; i < r->n_kept; i++)
        kept[i] = (struct checkpoint_id){r->kept[i].generation, r->kept[i].step};
    const struct checkpoint_keep keep = {.kept = kept,
                                         .n_kept = r->n_kept,
                                         .older_stay = r->older_stay,
                                         .home = r->folder,
                                         .generation = term_of(r->epoch, 1),
                                         .writing = {r->step >= 0 ? r->generation : 0, r->step},
                                         .ordered = f->ordered};
    own_folder_sweep(f->cfg.own_folder, &keep);
    f->kept_number = r->number;
    f->kept_ps0 = r->incarnation;
}

static void call_ps0(struct follower_shell *f)
{
    struct net_control request;
    struct follower_event e = {.kind = FOLLOWER_REPLY, .reply = &f->reply};
    pthread_mutex_lock(&f->lock);
    follower_request(&f->state, &request);
    pthread_mutex_unlock(&f->lock);
    request.server = f->cfg.joining ? 0 : f->cfg.self;
    request.n_servers = f->cfg.joining ? 0 : f->cfg.n_servers;
    request.joining = f->cfg.joining;
    snprintf(request.address, sizeof request.address, "%s", f->cfg.address);
    fill_missing(f, &request);
    fill_folder(f, &request);
    f->reply = (struct net_control_reply){.number = 0};
    e.st = f->cfg.call(f->cfg.peer, &request, CALL_MS, &f->reply, f->why);
    message_control_free(&request);
    if (e.st != ST_OK)
        e.kind = FOLLOWER_FAILED;
    step_state(f, &e);
    if (e.st == ST_OK)
        note_kept(f);
    message_control_reply_free(&f->reply);
}

/* Waits until something has changed, or for the time of the next call of follower_step. */
static void wait_for_news(struct follower_shell *f) REQUIRES(f->lock)
{
    while (!f->stopping && !f->changed && !f->wants && !f->leaves)
        if (clock_cond_wait(&f->wake, &f->lock, f->wake_ns) != 0)
            return;
}

static void *follower_shell_main(void *arg)
{
    struct follower_shell *f = arg;
    static const struct follower_event timer = {.kind = FOLLOWER_TIMER};
    pthread_mutex_lock(&f->lock);
    while (!f->stopping && !f->ends) {
        pthread_mutex_unlock(&f->lock);
        step_news(f);
        if (f->calls && !f->ends) {
            f->calls = 0;
            call_ps0(f);
        } else if (!f->ends) {
            step_state(f, &timer);
        }
        pthread_mutex_lock(&f->lock);
        if (!f->calls && !f->ends)
            wait_for_news(f);
    }
    f->ended = 1;
    pthread_cond_broadcast(&f->wake);
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static void on_applied(void *ctx)
{
    follower_shell_wake(ctx);
}

enum status follower_shell_create(const struct follower_shell_config *cfg,
                                  struct follower_shell **out)
{
    enum status st = ST_NOMEM;
    struct follower_start start = {
        .keeps_checkpoints = cfg->writer != NULL, .joins = cfg->joining, .done_ms = cfg->done_ms};
    struct follower_shell *f = calloc(1, sizeof *f);
    if (!f)
        return ST_NOMEM;
    f->cfg = *cfg;
    if (cfg->folder_id)
        snprintf(f->folder_id, sizeof f->folder_id, "%s", cfg->folder_id);
    pthread_mutex_init(&f->lock, NULL);
    clock_cond_init(&f->wake);
    start.incarnation = process_incarnation();
    struct plan_applier_config applier = {.service = cfg->service,
                                          .folder = cfg->folder,
                                          .restore_folder = cfg->restore_folder,
                                          .address = cfg->address,
                                          .changed = on_applied,
                                          .ctx = f};
    const struct follower_event e = {.kind = FOLLOWER_START, .start = &start};
    follower_init(&f->state);
    step_state(f, &e);
    TRY(plan_applier_create(&applier, &f->applier));
    if (cfg->folder && (cfg->self != 0 || cfg->joining))
        TRY(lane_create("reads the folder while ps:0 is missing", &f->looks));
    *out = f;
    f = NULL;
done:
    follower_shell_destroy(f);
    return st;
}

enum status follower_shell_start(struct follower_shell *f)
{
    int err = pthread_create(&f->thread, NULL, follower_shell_main, f);
    f->has_thread = err == 0;
    if (err)
        LOG_E("the thread that calls ps:0 cannot be started: %s", threads_error(err));
    return err ? ST_NOMEM : ST_OK;
}

void follower_shell_stop(struct follower_shell *f)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    f->stopping = 1;
    pthread_cond_broadcast(&f->wake);
    pthread_mutex_unlock(&f->lock);
    if (!f->has_thread)
        return;
    wake_thread(f);
    pthread_join(f->thread, NULL);
    f->has_thread = 0;
}

void follower_shell_destroy(struct follower_shell *f)
{
    if (!f)
        return;
    follower_shell_stop(f);
    lane_destroy(f->looks, clock_deadline_ns(LOOK_END_MS));
    plan_applier_destroy(f->applier);
    pthread_cond_destroy(&f->wake);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

void follower_shell_finish(struct follower_shell *f)
{
    int64_t deadline = clock_deadline_ns(LAST_MS);
    if (!f->cfg.writer)
        return;
    follower_shell_want(f);
    pthread_mutex_lock(&f->lock);
    while (!f->ended && clock_now_ns() < deadline &&
           (f->wants || !follower_is_heard(&f->state, clock_now_ns())))
        clock_cond_wait(&f->wake, &f->lock, clock_deadline_ns(LOOK_MS));
    pthread_mutex_unlock(&f->lock);
}
