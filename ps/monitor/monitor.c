/* ps/monitor/monitor.c - see monitor.h: records the state once a second, and judges health. */
#include "ps/monitor/monitor.h"
#include "base/clock.h"
#include "checkpoint/names.h"
#include "http/metrics.h"
#include "ps/monitor/monitor_impl.h"
#include "ps/monitor/page.h"
#include "ps/service/run.h"
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    LOOK_MS = 500,
    FRESH_MS = 1000,
    STALL_S = 60,    /* least duration of a stall in seconds */
    STALL_STEPS = 10 /* least duration of a stall, in mean durations of a step */
};

static double unix_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void take_pulse(struct ps_monitor *m, struct monitor_pulse *p)
{
    int ended;
    struct run *run = service_run(m->cfg.service, &ended);
    *p = (struct monitor_pulse){.at_ns = clock_now_ns(), .step = -1};
    if (!run)
        return;
    p->generation = run->generation;
    p->ended = ended;
    p->no_chunks = run->n_bytes == 0;
    if (!p->no_chunks)
        p->step = store_step(run->store);
    int64_t from = run->plan->step;
    p->began = from;
    p->began_position = run_position(run, from);
    p->position = run_position(run, p->step < from ? from : p->step);
    run_unref(run);
}

/* Counts the steps and samples since the last pulse. In the first generation that this server sees,
 * all steps since its beginning are counted. */
static void count_pulse(const struct monitor_pulse *before, struct monitor_pulse *p)
{
    bool is_first = before->generation == 0 || before->step < 0;
    int64_t step = is_first ? p->began : before->step;
    uint64_t position = is_first ? p->began_position : before->position;
    p->steps = before->steps;
    p->samples = before->samples;
    if (p->step <= step)
        return;
    p->steps += p->step - step;
    if (p->position > position)
        p->samples += (int64_t)(p->position - position);
}

/* Records the time when the step has grown. A new generation alone does not count: otherwise many
 * generations in a row would hide that the job stands still. */
static void note_move(struct ps_monitor *m, const struct monitor_pulse *p)
{
    const struct monitor_pulse *before = &m->window[0];
    int goes_on = before->generation == p->generation && before->step >= 0;
    bool is_new = m->moved_ns == 0 || (before->ended && !p->ended);
    if (p->step < 0)
        return;
    if (!goes_on) {
        m->paced_step = p->step;
        m->paced_ns = p->at_ns;
        m->step_s = 0;
    }
    if (!is_new && p->step <= (goes_on ? before->step : p->began))
        return;
    m->moved_ns = p->at_ns;
    m->moved_unix_s = unix_now();
    if (p->step > m->paced_step)
        m->step_s = (double)(p->at_ns - m->paced_ns) * 1e-9 / (double)(p->step - m->paced_step);
}

void monitor_pulse(struct ps_monitor *m, struct monitor_pulse *p)
{
    const struct monitor_pulse *before = &m->window[0];
    count_pulse(before, p);
    note_move(m, p);
    struct history_point point = {
        .unix_s = unix_now(),
        .seconds = m->n_window > 0 ? (double)(p->at_ns - before->at_ns) * 1e-9 : 0,
        .step = p->step,
        .samples = p->samples - before->samples};
    pthread_mutex_lock(&m->lock);
    point.loss_sum = m->loss_sum;
    point.n_losses = m->n_losses;
    m->loss_sum = 0;
    m->n_losses = 0;
    pthread_mutex_unlock(&m->lock);
    if (p->generation != 0)
        history_add(&m->history, &point);
    if (isnan(m->began_unix_s) && p->generation != 0 && (p->step >= 0 || p->no_chunks))
        m->began_unix_s = point.unix_s;
    memmove(m->window + 1, m->window, sizeof m->window - sizeof *m->window);
    m->window[0] = *p;
    m->n_window += m->n_window < MONITOR_WINDOW;
}

static void on_tick(void *ctx)
{
    struct ps_monitor *m = ctx;
    struct monitor_pulse p;
    take_pulse(m, &p);
    monitor_pulse(m, &p);
}

bool monitor_has_chunks(const struct ps_monitor *m)
{
    return !m->window[0].no_chunks && !m->stats.no_chunks;
}

double monitor_rate(const struct ps_monitor *m, int samples)
{
    if (m->n_window < 2)
        return 0;
    const struct monitor_pulse *a = &m->window[m->n_window - 1], *b = &m->window[0];
    int64_t n = samples ? b->samples - a->samples : b->steps - a->steps;
    return (double)n / ((double)(b->at_ns - a->at_ns) * 1e-9);
}

double monitor_step_age_s(const struct ps_monitor *m)
{
    return m->moved_ns && monitor_has_chunks(m) ? (double)(clock_now_ns() - m->moved_ns) * 1e-9
                                                : (double)NAN;
}

double monitor_loss(const struct ps_monitor *m)
{
    for (int i = m->history.n - 1; i >= 0; i--)
        if (m->history.point[i].n_losses > 0)
            return m->history.point[i].loss_sum / (double)m->history.point[i].n_losses;
    return (double)NAN;
}

/* Finds the time at which the manifest of the last checkpoint was written. */
static void find_saved(struct ps_monitor *m)
{
    int64_t last = m->status.checkpoints.last;
    char path[PATH_MAX];
    struct stat st;
    if (!m->cfg.folder || last < 0 || last == m->saved_step)
        return;
    DIR *d = opendir(m->cfg.folder);
    m->saved_step = last;
    m->saved_unix_s = (double)NAN;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct checkpoint_name name;
        checkpoint_name_parse(e->d_name, &name);
        if (name.kind != CHECKPOINT_NAME_MANIFEST || name.old || name.id.step != last)
            continue;
        snprintf(path, sizeof path, "%s/%s", m->cfg.folder, e->d_name);
        if (stat(path, &st) == 0 && !((double)st.st_mtime <= m->saved_unix_s))
            m->saved_unix_s = (double)st.st_mtime;
    }
    if (d)
        closedir(d);
}

double monitor_unsaved_unix_s(const struct ps_monitor *m)
{
    if (!m->status.checkpoints.folder[0])
        return (double)NAN;
    return m->saved_unix_s > m->began_unix_s ? m->saved_unix_s : m->began_unix_s;
}

int64_t monitor_unsaved_steps(const struct ps_monitor *m)
{
    int64_t last = m->status.checkpoints.last, step = m->status.step;
    if (!m->status.checkpoints.folder[0] || step < 0)
        return -1;
    return last < 0 ? step : step > last ? step - last : 0;
}

static bool is_listed(const struct net_status *s, int worker)
{
    for (int i = 0; i < s->n_members; i++)
        if (s->members[i].member == worker)
            return true;
    return false;
}

void monitor_see_workers(struct ps_monitor *m)
{
    const struct net_status *s = &m->status;
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < s->n_members; i++) {
        enum member_state state = s->members[i].state;
        enum monitor_seen *seen = &m->workers[s->members[i].member].seen;
        if (state == MEMBER_LEAVING || state == MEMBER_LEFT || state == MEMBER_DONE)
            *seen = NOT_SEEN;
        else if (state == MEMBER_TRAINING && *seen != REMOVED)
            *seen = SEEN;
    }
    for (int i = 0; i < JOB_MAX_WORKERS; i++)
        if (m->workers[i].seen != NOT_SEEN &&
            (s->state == STATE_DONE || (m->workers[i].seen == REMOVED && !is_listed(s, i))))
            m->workers[i].seen = NOT_SEEN;
    pthread_mutex_unlock(&m->lock);
}

bool monitor_is_lost(struct ps_monitor *m, int worker)
{
    pthread_mutex_lock(&m->lock);
    int seen = m->workers[worker].seen == SEEN;
    pthread_mutex_unlock(&m->lock);
    return seen && !is_listed(&m->status, worker);
}

void ps_monitor_removed(struct ps_monitor *m, int worker)
{
    if (!m || worker < 0 || worker >= JOB_MAX_WORKERS)
        return;
    pthread_mutex_lock(&m->lock);
    m->workers[worker].seen = REMOVED;
    pthread_mutex_unlock(&m->lock);
}

void monitor_look(struct ps_monitor *m)
{
    struct net_status status = {.chunks = NULL};
    if (m->status_ns && clock_now_ns() - m->status_ns < LOOK_MS * INT64_C(1000000))
        return;
    if (m->cfg.status(m->cfg.ctx, 0, &status) != ST_OK) {
        net_status_free(&status);
        return; /* out of memory: the previous copy stays */
    }
    net_status_free(&m->status);
    m->status = status;
    m->status_ns = clock_now_ns();
    service_stats(m->cfg.service, &m->stats);
    if (m->stats.no_chunks) /* a server without chunks has the job's last step in the status */
        m->status.step = -1;
    find_saved(m);
    monitor_see_workers(m);
}

void monitor_disk(const struct ps_monitor *m, struct monitor_disk *out)
{
    struct statvfs v;
    *out = (struct monitor_disk){(double)NAN, (double)NAN};
    if (m->cfg.folder && statvfs(m->cfg.folder, &v) == 0)
        *out = (struct monitor_disk){(double)v.f_bavail * (double)v.f_frsize,
                                     (double)v.f_blocks * (double)v.f_frsize};
}

/* Returns the member that most chunks of a stalled step wait for, or NULL. */
static const struct net_status_member *awaited_member(const struct net_status *s)
{
    const struct net_status_member *most = NULL;
    for (int i = 0; i < s->n_members; i++)
        if (s->members[i].awaited > 0 && (!most || s->members[i].awaited > most->awaited))
            most = &s->members[i];
    return most;
}

static bool is_stalled(const struct ps_monitor *m)
{
    double limit = STALL_STEPS * m->step_s > STALL_S ? STALL_STEPS * m->step_s : STALL_S;
    return monitor_step_age_s(m) > limit;
}

bool monitor_is_ready(const struct ps_monitor *m, char why[MONITOR_WHY_BYTES])
{
    const struct net_status *s = &m->status;
    char whom[160] = "";
    if (!m->status_ns || s->state == STATE_EMPTY)
        snprintf(why, MONITOR_WHY_BYTES, "no job yet%s%.300s", s->change[0] ? ": " : "", s->change);
    else if (s->state == STATE_STARTING)
        snprintf(why, MONITOR_WHY_BYTES, "the first values have not all arrived");
    else if (s->state == STATE_STOPPED)
        snprintf(why, MONITOR_WHY_BYTES, "training is stopped%s%.300s", s->change[0] ? ": " : "",
                 s->change);
    else if (s->state == STATE_TRAINING && is_stalled(m)) {
        const struct net_status_member *w = awaited_member(s);
        if (w)
            snprintf(whom, sizeof whom, ": it waits for worker %d (%.95s)", w->member, w->address);
        snprintf(why, MONITOR_WHY_BYTES, "step %" PRId64 " has not been completed for %.0f s%s",
                 s->step, monitor_step_age_s(m), whom);
    } else
        return true;
    return false;
}

/* Names the missing workers at once, even though this server is healthy and the workers may return
 * in time. After 3 s without a step it instead names the programs that training waits for, as a
 * worker's log line does. */
static void write_missing(FILE *f, const struct net_status *s)
{
    char sentence[STATUS_SENTENCE_BYTES];
    int n = 0;
    net_status_waiting_text(s->waiting, s->waiting_ms, sentence);
    if (s->waiting[0]) {
        fprintf(f, "; %s", sentence);
        return;
    }
    for (int i = 0; i < s->n_members; i++)
        if (s->state == STATE_TRAINING && s->members[i].state == MEMBER_MISSING)
            fprintf(f, "%s %d", n++ ? "," : "; missing: worker", s->members[i].member);
}

static int on_health(void *ctx, FILE *f)
{
    struct ps_monitor *m = ctx;
    char why[MONITOR_WHY_BYTES];
    monitor_look(m);
    if (monitor_is_ready(m, why)) {
        fprintf(f, "ok: %s", net_status_state_name(m->status.state));
        if (m->status.step >= 0)
            fprintf(f, ", step %" PRId64, m->status.step);
        write_missing(f, &m->status);
        fputc('\n', f);
        return 200;
    }
    fprintf(f, "%s\n", why);
    return 503;
}

static int on_page(void *ctx, FILE *f)
{
    fwrite(page_html, 1, page_html_bytes, f);
    return 200;
}

static const struct http_page pages[] = {
    {"/", "text/html; charset=utf-8", -1, on_page},
    {"/status.json", "application/json", FRESH_MS, monitor_json},
    {"/metrics", METRICS_TYPE, FRESH_MS, monitor_metrics},
    {"/healthz", "text/plain; charset=utf-8", FRESH_MS, on_health},
};

enum status ps_monitor_create(const struct ps_monitor_config *cfg, struct ps_monitor **out)
{
    enum status st = ST_NOMEM;
    struct ps_monitor *m = calloc(1, sizeof *m);
    if (!m) {
        close(cfg->listen_fd);
        return st;
    }
    m->cfg = *cfg;
    m->start_ns = clock_now_ns();
    m->saved_step = -1;
    m->saved_unix_s = m->began_unix_s = (double)NAN;
    m->window[0].step = -1;
    pthread_mutex_init(&m->lock, NULL);
    const struct http_server_config http = {.listen_fd = cfg->listen_fd,
                                            .pages = pages,
                                            .n_pages = sizeof pages / sizeof *pages,
                                            .tick = on_tick,
                                            .ctx = m};
    m->workers = calloc(JOB_MAX_WORKERS, sizeof *m->workers);
    if (!m->workers) {
        close(cfg->listen_fd);
        goto done;
    }
    TRY(http_server_create(&http, &m->http));
    *out = m;
    m = NULL;
done:
    ps_monitor_destroy(m);
    return st;
}

void ps_monitor_stop(struct ps_monitor *m)
{
    if (!m)
        return;
    http_server_destroy(m->http);
    m->http = NULL;
}

void ps_monitor_destroy(struct ps_monitor *m)
{
    if (!m)
        return;
    ps_monitor_stop(m);
    net_status_free(&m->status);
    free(m->workers);
    pthread_mutex_destroy(&m->lock);
    free(m);
}
