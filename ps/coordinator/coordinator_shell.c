/* ps/coordinator/coordinator_shell.c - the thread, its mailbox, and the actions. Other threads put
 * events into the mailbox under the lock. The thread handles them one by one, and alone calls
 * coordinator_step and carries out the actions.
 * Locks: no call into the service, the store or the net is made under `lock`. */
#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "ps/coordinator/coordinator_shell_impl.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MORE_SERVERS = 256, /* slots beyond those of --ps_hosts, for servers that join */
    FINISH_MS = 340000, /* longest wait for the end; the state machine's own limits are shorter */
    ANNOUNCE_END_MS = 2000,
    MEMORY_MS = 50, /* retry interval after a failed allocation */
};
#define NO_MEMORY "ps:0 is out of memory; retrying"

static void wake_thread(struct coordinator_shell *l)
{
    l->news = 1;
    pthread_cond_broadcast(&l->wake);
}

static void log_line(struct coordinator_shell *l, const struct coordinator_line *line)
{
    char text[640];
    pthread_mutex_lock(&l->lock);
    coordinator_line_text(l->state, line, l->cfg.folder, text, sizeof text);
    pthread_mutex_unlock(&l->lock);
    if (line->id == LINE_SERVER_CLAIM ||
        line->id == LINE_WORKER_CLAIM) /* any unauthenticated peer can cause this line */
        LOG_FEW("%s", text);
    else if (coordinator_line_level(line->id) == 'E')
        LOG_E("%s", text);
    else if (coordinator_line_level(line->id) == 'W')
        LOG_W("%s", text);
    else
        LOG_I("%s", text);
}

/* Sends a reply about the state, which only this thread changes. */
static void reply_to(struct coordinator_shell *l, const struct coordinator_action *a)
{
    struct net_control_reply reply;
    bool with_plan = coordinator_view_fill_reply(l->state, a->server, &reply);
    /* A restarted ps 0 waits for all servers of the list in the folder, so a drained server may
     * exit only once a list without it is recorded. */
    if (reply.drained && !coordinator_view_is_over(l->state) &&
        coordinator_disk_records_servers(l, coordinator_view_server_address(l->state, a->server)))
        reply.drained = 0;
    if (a->server < 0 && a->arg)
        snprintf(reply.later, sizeof reply.later, "%s", a->text);
    else if (a->server < 0)
        snprintf(reply.refused, sizeof reply.refused, "%s", a->text);
    if (with_plan && net_plan_copy(l->plan, &reply.plan) != ST_OK)
        reply.plan = NULL; /* the next reply includes the plan */
    if (a->call & OWN_CALLS) {
        pthread_mutex_lock(&l->lock);
        int waits = a->call == l->own.call && !l->own.answered;
        if (waits) {
            l->own.reply = reply;
            l->own.answered = 1;
            pthread_cond_broadcast(&l->wake);
        }
        pthread_mutex_unlock(&l->lock);
        if (!waits)
            net_plan_free(reply.plan);
        return;
    }
    struct coordinator_saved room;
    coordinator_folders_fill_reply(l, &reply, &room);
    l->cfg.reply(l->cfg.ctx, a->call, &reply);
    net_plan_free(reply.plan);
}

static void hold_last(struct coordinator_shell *l, int on)
{
    int ended;
    struct run *run = service_run(l->cfg.service, &ended);
    if (run)
        handover_hold_last(run->store, on);
    run_unref(run);
}

static void set_finished(struct coordinator_shell *l)
{
    pthread_mutex_lock(&l->lock);
    l->finished = 1;
    pthread_cond_broadcast(&l->wake);
    pthread_mutex_unlock(&l->lock);
}

static void step_state(struct coordinator_shell *l, struct coordinator_event *e);

static void make_plan(struct coordinator_shell *l, uint32_t op)
{
    struct coordinator_event e = {.kind = COORDINATOR_PLANNED, .op = op};
    struct net_plan *next = NULL;
    e.st = coordinator_plan_make(l, &next);
    if (e.st == ST_OK)
        coordinator_plan_publish(l, next);
    step_state(l, &e);
}

static void carry_out(struct coordinator_shell *l, const struct coordinator_action *a)
{
    switch (a->kind) {
    case ACT_REPLY:
        reply_to(l, a);
        break;
    case ACT_PLAN:
        make_plan(l, a->op);
        break;
    case ACT_DISK:
        coordinator_disk_order(l, a);
        break;
    case ACT_HOLD_LAST:
        hold_last(l, a->arg);
        break;
    case ACT_LINE:
        log_line(l, &a->line);
        break;
    case ACT_FENCED:
        l->cfg.fenced(l->cfg.ctx, a->arg);
        break;
    case ACT_FAILED:
        l->cfg.failed(l->cfg.ctx);
        break;
    case ACT_DONE:
        l->cfg.done(l->cfg.ctx);
        break;
    case ACT_FINISHED:
        set_finished(l);
        break;
    }
}

/* Calls coordinator_step. PLAN leads to a further call of it, so only replies may follow PLAN. */
static void step_state(struct coordinator_shell *l, struct coordinator_event *e)
{
    struct generation_state own;
    struct coordinator_out *out = NULL;
    while (!(out = malloc(sizeof *out))) { /* no event may be lost: callers wait for answers */
        LOG_FEW(NO_MEMORY);
        clock_sleep_ms(MEMORY_MS);
    }
    generation_state(l->cfg.service, &own);
    e->lowest = own.lowest;
    e->highest = own.highest > own.lowest ? own.highest : own.lowest;
    pthread_mutex_lock(&l->lock);
    coordinator_step(l->state, e, clock_now_ns(), out);
    l->wake_ns = out->wake_ns;
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < out->n; i++)
        carry_out(l, &out->act[i]);
    free(out);
}

struct coordinator_worker_event coordinator_shell_worker(const struct roster_entry *p, int waits)
{
    return (struct coordinator_worker_event){.member = p->member,
                                             .incarnation = p->incarnation,
                                             .waits = waits,
                                             .missing_ms = p->missing_ms,
                                             .joined = p->joined,
                                             .leaving = p->leaving,
                                             .failed = p->failed,
                                             .done = p->done,
                                             .spoke = p->spoke,
                                             .came = p->came,
                                             .asked = p->asked,
                                             .address = p->address};
}

/* Passes the list of workers of ps 0's service to the state. */
static void step_workers(struct coordinator_shell *l)
{
    struct roster_entry *members = NULL, *waiting = NULL;
    struct generation_state own;
    int n = 0, n_waiting = 0;
    generation_state(l->cfg.service, &own);
    if (membership_roster(l->cfg.service, &members, &n, &waiting, &n_waiting) != ST_OK)
        return;
    struct coordinator_worker_event *list = calloc((size_t)(n + n_waiting) + 1, sizeof *list);
    for (int i = 0; list && i < n + n_waiting; i++) {
        const struct roster_entry *p = i < n ? &members[i] : &waiting[i - n];
        list[i] = coordinator_shell_worker(p, i >= n);
    }
    struct coordinator_event e = {.kind = COORDINATOR_WORKERS,
                                  .workers = {own.generation, own.claim, n + n_waiting, list}};
    if (list)
        step_state(l, &e);
    free(list);
    free(members);
    free(waiting);
}

static void step_job(struct coordinator_shell *l)
{
    struct coordinator_event e = {.kind = COORDINATOR_JOB, .job = l->job};
    step_state(l, &e);
    pthread_mutex_lock(&l->lock);
    struct net_plan *left = l->first; /* a first plan that was not used */
    l->first = NULL;
    l->has_job = 0;
    pthread_mutex_unlock(&l->lock);
    net_plan_free(left);
}

/* Removes the oldest event from the mailbox; returns false if it is empty. Under the lock. */
static bool take_mail(struct coordinator_shell *l, struct coordinator_mail *out)
{
    if (l->n_mail == 0)
        return false;
    *out = l->mail[0];
    memmove(l->mail, l->mail + 1, (size_t)--l->n_mail * sizeof *l->mail);
    return true;
}

static void step_mail(struct coordinator_shell *l, struct coordinator_mail *m)
{
    struct coordinator_event e = {.kind = m->kind, .call = m->call, .op = m->op, .st = m->st};
    if (m->kind == COORDINATOR_CONTROL)
        e.control = m->control;
    else if (m->kind == COORDINATOR_COMMAND)
        e.command.what = m->what, e.command.index = m->index;
    else if (m->kind == COORDINATOR_DISK)
        e.disk.step = m->step, e.disk.epoch = m->epoch;
    else if (m->kind == COORDINATOR_EVALUATED)
        e.evaluation = &m->evaluation;
    if (m->control)
        coordinator_folders_note(l, m->control);
    step_state(l, &e);
    if (!m->control)
        return;
    coordinator_folders_note(l, m->control); /* also for a server that was not known before */
    message_control_free(m->control);
    free(m->control);
}

static void *coordinator_shell_main(void *arg)
{
    struct coordinator_shell *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->stopping) {
        struct coordinator_mail m = {.control = NULL};
        int changed = l->changed, has_job = l->has_job, has_mail = take_mail(l, &m);
        int searches = l->searches;
        l->changed = l->news = l->searches = 0;
        pthread_mutex_unlock(&l->lock);
        if (searches)
            coordinator_disk_search(l);
        if (changed || (!has_mail && !has_job)) /* workers are checked even without events */
            step_workers(l);
        if (has_mail)
            step_mail(l, &m);
        if (has_job)
            step_job(l);
        pthread_mutex_lock(&l->lock);
        while (!l->news && l->n_mail == 0 && !l->stopping &&
               clock_cond_wait(&l->wake, &l->lock, l->wake_ns) == 0)
            ;
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Makes space for one more event in the mailbox; false: no memory. Under the lock. */
static bool has_room(struct coordinator_shell *l)
{
    if (l->n_mail < l->mail_room)
        return true;
    int room = l->mail_room ? 2 * l->mail_room : 16;
    struct coordinator_mail *grown = realloc(l->mail, (size_t)room * sizeof *grown);
    if (!grown)
        return false;
    l->mail = grown;
    l->mail_room = room;
    return true;
}

/* Appends an event to the mailbox, which has space for it. Under the lock. */
static void put_mail(struct coordinator_shell *l, const struct coordinator_mail *m)
{
    l->mail[l->n_mail++] = *m;
    wake_thread(l);
}

void coordinator_shell_post(struct coordinator_shell *l, const struct coordinator_mail *m)
{
    while (!has_room(l) && !l->stopping) {
        LOG_FEW(NO_MEMORY);
        clock_cond_wait(&l->wake, &l->lock, clock_deadline_ns(MEMORY_MS));
    }
    if (has_room(l))
        put_mail(l, m);
}

void coordinator_shell_wake(struct coordinator_shell *l)
{
    pthread_mutex_lock(&l->lock);
    l->changed = 1;
    wake_thread(l);
    pthread_mutex_unlock(&l->lock);
}

static void post_command(struct coordinator_shell *l, enum coordinator_command_kind what, int index)
{
    const struct coordinator_mail m = {.kind = COORDINATOR_COMMAND, .what = what, .index = index};
    pthread_mutex_lock(&l->lock);
    l->requested += what == COORDINATOR_CHECKPOINT;
    coordinator_shell_post(l, &m);
    pthread_mutex_unlock(&l->lock);
}

void coordinator_shell_request(struct coordinator_shell *l)
{
    post_command(l, COORDINATOR_CHECKPOINT, 0);
}

bool coordinator_shell_command(struct coordinator_shell *l, enum coordinator_command_kind what,
                               int index, char why[CONTROL_TEXT_BYTES])
{
    pthread_mutex_lock(&l->lock);
    bool can = coordinator_command_text(l->state, what, index, why, CONTROL_TEXT_BYTES);
    pthread_mutex_unlock(&l->lock);
    if (can)
        post_command(l, what, index);
    return can;
}

/* Returns the reason why the caller cannot be one of the job's servers; NULL: it can. */
static const char *misfit_reason(const struct coordinator_shell *l, const struct net_control *c)
{
    const struct hosts *hosts = l->cfg.hosts;
    int fits = c->joining || (c->n_servers == hosts->n && c->server >= 1 && c->server < hosts->n &&
                              strcmp(c->address, hosts->addr[c->server]) == 0);
    if (!fits)
        return "its --ps_hosts differs from that of ps:0";
    return strcmp(c->address, hosts->addr[0]) == 0 ? "its address is that of ps:0" : NULL;
}

/* Copies a message, with its lists, for the mailbox. */
static struct net_control *copy_control(const struct net_control *c)
{
    struct net_control *copy = malloc(sizeof *copy);
    size_t missing = (size_t)c->n_missing * sizeof *c->missing;
    size_t parts = (size_t)c->n_parts * sizeof *c->parts;
    if (!copy)
        return NULL;
    *copy = *c;
    copy->missing = malloc(missing + 1);
    copy->parts = malloc(parts + 1);
    if (!copy->missing || !copy->parts) {
        message_control_free(copy);
        free(copy);
        return NULL;
    }
    if (missing > 0)
        memcpy(copy->missing, c->missing, missing);
    if (parts > 0)
        memcpy(copy->parts, c->parts, parts);
    return copy;
}

/* Replaces an unread message of the same sender. The caller holds l->lock. */
static bool replace_unread(struct coordinator_shell *l, struct net_control *c, uint64_t call,
                           uint64_t *old)
{
    for (int i = 0; i < l->n_mail; i++) {
        struct coordinator_mail *m = &l->mail[i];
        if (m->kind != COORDINATOR_CONTROL || m->control->incarnation != c->incarnation ||
            strcmp(m->control->address, c->address) != 0 || m->control->serial > c->serial)
            continue;
        *old = m->call;
        message_control_free(m->control);
        free(m->control);
        m->control = c;
        m->call = call;
        return true;
    }
    return false;
}

static void refuse_call(struct coordinator_shell *l, uint64_t call, const char *refused,
                        const char *later)
{
    struct net_control_reply reply = {.number = 1, .incarnation = l->incarnation};
    snprintf(reply.refused, sizeof reply.refused, "%s", refused);
    snprintf(reply.later, sizeof reply.later, "%s", later);
    l->cfg.reply(l->cfg.ctx, call, &reply);
}

static bool post_control(struct coordinator_shell *l, const struct net_control *c, uint64_t call,
                         uint64_t *old)
{
    struct coordinator_mail m = {
        .kind = COORDINATOR_CONTROL, .call = call, .control = copy_control(c)};
    int done = 0;
    *old = 0;
    if (!m.control) /* out of memory: the server calls again */
        return false;
    pthread_mutex_lock(&l->lock);
    if (l->n_mail < COORDINATOR_MAX_MAIL)
        done = replace_unread(l, m.control, call, old);
    if (!done && l->n_mail < COORDINATOR_MAX_MAIL && has_room(l)) {
        put_mail(l, &m);
        done = 1;
    }
    pthread_mutex_unlock(&l->lock);
    if (done)
        return true;
    message_control_free(m.control);
    free(m.control);
    return false;
}

void coordinator_shell_control(struct coordinator_shell *l, const struct net_control *c,
                               uint64_t call)
{
    const char *why = misfit_reason(l, c);
    uint64_t old = 0;
    if (why)
        refuse_call(l, call, why, "");
    else if (!post_control(l, c, call, &old))
        refuse_call(l, call, "", "ps:0 is too busy at present");
    if (old)
        refuse_call(l, old, "", "superseded by a newer call from the same server");
}

void coordinator_shell_control_closed(struct coordinator_shell *l, uint64_t call)
{
    const struct coordinator_mail m = {.kind = COORDINATOR_CLOSED, .call = call};
    pthread_mutex_lock(&l->lock);
    coordinator_shell_post(l, &m);
    pthread_mutex_unlock(&l->lock);
}

void coordinator_shell_cancel(void *ctx)
{
    struct coordinator_shell *l = ctx;
    pthread_mutex_lock(&l->lock);
    l->own.cancelled = 1;
    pthread_cond_broadcast(&l->wake);
    pthread_mutex_unlock(&l->lock);
}

enum status coordinator_shell_call(void *ctx, const struct net_control *request,
                                   int64_t deadline_ms, struct net_control_reply *reply,
                                   char why[CONTROL_TEXT_BYTES])
{
    struct coordinator_shell *l = ctx;
    int64_t deadline = clock_deadline_ns(deadline_ms);
    uint64_t old;
    pthread_mutex_lock(&l->lock);
    uint64_t call = l->own.call = OWN_CALLS | ++l->own.n;
    l->own.answered = 0;
    pthread_mutex_unlock(&l->lock);
    snprintf(why, CONTROL_TEXT_BYTES, "out of memory");
    enum status st = post_control(l, request, call, &old) ? ST_OK : ST_NOMEM;
    pthread_mutex_lock(&l->lock);
    while (st == ST_OK && !l->own.answered && !l->own.cancelled && !l->stopping)
        if (clock_cond_wait(&l->wake, &l->lock, deadline) != 0)
            st = ST_DEADLINE;
    if (l->own.answered)
        *reply = l->own.reply;
    else if (st == ST_OK)
        st = ST_CANCELLED;
    l->own.cancelled = l->own.answered = 0;
    l->own.call = 0;
    pthread_mutex_unlock(&l->lock);
    if (st != ST_OK)
        coordinator_shell_control_closed(l, call);
    return st;
}

static enum status start_state(struct coordinator_shell *l, const struct hosts *servers)
{
    enum status st = ST_OK;
    const struct checkpoint_manifest *m =
        l->cfg.restore ? checkpoint_restore_manifest(l->cfg.restore) : NULL;
    struct coordinator_start start = {.incarnation = l->incarnation,
                                      .address = l->cfg.hosts->addr[0],
                                      .servers = servers,
                                      .save_steps = l->cfg.save_steps,
                                      .save_ms = l->cfg.save_ms,
                                      .worker_timeout_ms = l->cfg.worker_timeout_ms,
                                      .min_workers = l->cfg.min_workers,
                                      .serves = l->cfg.serves,
                                      .has_folder = l->cfg.folder != NULL,
                                      .epoch = l->cfg.lease.epoch,
                                      .is_claimed = l->cfg.is_claimed,
                                      .last_step = m ? m->step : -1,
                                      .has_all_steps =
                                          checkpoint_restore_has_all_steps(l->cfg.restore),
                                      .done_ms = l->cfg.done_ms};
    TRY(coordinator_evaluation_find_best(l, &start.best));
    struct coordinator_event e = {.kind = COORDINATOR_START, .start = &start};
    coordinator_init(l->state, l->cfg.hosts->n + servers->n + MORE_SERVERS, JOB_MAX_WORKERS);
    step_state(l, &e);
done:
    return st;
}

enum status coordinator_shell_create(const struct coordinator_shell_config *cfg,
                                     struct coordinator_shell **out)
{
    enum status st = ST_NOMEM;
    struct coordinator_shell *l = calloc(1, sizeof *l);
    if (!l)
        return ST_NOMEM;
    l->cfg = *cfg;
    l->incarnation = cfg->incarnation;
    snprintf(l->folder_id, sizeof l->folder_id, "%s", cfg->folder_id);
    pthread_mutex_init(&l->lock, NULL);
    clock_cond_init(&l->wake);
    l->state =
        malloc(coordinator_bytes(cfg->hosts->n + cfg->servers->n + MORE_SERVERS, JOB_MAX_WORKERS));
    TRY(l->state ? ST_OK : ST_NOMEM);
    TRY(hosts_copy((const char *const *)cfg->servers->addr, (size_t)cfg->servers->n, &l->servers));
    TRY(coordinator_disk_create(l));
    TRY(start_state(l, cfg->servers));
    *out = l;
    l = NULL;
done:
    coordinator_shell_destroy(l);
    return st;
}

enum status coordinator_shell_start(struct coordinator_shell *l)
{
    enum status st = coordinator_disk_start(l);
    if (st != ST_OK)
        return st;
    int err = pthread_create(&l->thread, NULL, coordinator_shell_main, l);
    l->has_thread = err == 0;
    if (err)
        LOG_E("the thread that coordinates cannot be started: %s", threads_error(err));
    return err ? ST_NOMEM : ST_OK;
}

void coordinator_shell_stop(struct coordinator_shell *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stopping = 1;
    pthread_cond_broadcast(&l->wake);
    pthread_mutex_unlock(&l->lock);
    if (l->has_thread)
        pthread_join(l->thread, NULL);
    l->has_thread = 0;
}

void coordinator_shell_destroy(struct coordinator_shell *l)
{
    struct coordinator_mail m;
    if (!l)
        return;
    coordinator_shell_stop(l);
    coordinator_disk_destroy(l);
    while (take_mail(l, &m)) {
        if (m.control)
            message_control_free(m.control);
        free(m.control);
    }
    free(l->mail);
    coordinator_plans_free(l);
    coordinator_folders_free(&l->folders);
    checkpoint_restore_close(l->cfg.restore);
    net_plan_free(l->first);
    hosts_free(&l->servers);
    free(l->state);
    pthread_cond_destroy(&l->wake);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

bool coordinator_shell_finish(struct coordinator_shell *l)
{
    int64_t deadline = clock_deadline_ns(FINISH_MS);
    post_command(l, COORDINATOR_FINISH, 0);
    pthread_mutex_lock(&l->lock);
    while (!l->finished && clock_cond_wait(&l->wake, &l->lock, deadline) == 0)
        ;
    deadline = clock_deadline_ns(ANNOUNCE_END_MS);
    while (coordinator_view_is_unheard(l->state) && clock_now_ns() < deadline) {
        int64_t soon = clock_deadline_ns(20); /* a server whose call ended may call again */
        clock_cond_wait(&l->wake, &l->lock, soon < deadline ? soon : deadline);
    }
    bool lacks_last = coordinator_view_lacks_last(l->state);
    pthread_mutex_unlock(&l->lock);
    return !lacks_last;
}
