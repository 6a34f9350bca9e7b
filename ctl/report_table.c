/* ctl/report_table.c - prints the tables for operators; see report.h. */
#include "base/float_text.h"
#include "base/log.h"
#include "base/term.h"
#include "ctl/names.h"
#include "ctl/report.h"
#include "ctl/table.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

struct text {
    char s[48];
};

/* Returns "12 s", "3.5 min", "2.1 h", or "-" for an unknown time. */
static struct text duration_text(int64_t ms)
{
    struct text t;
    double s = (double)ms / 1000;
    if (ms < 0)
        snprintf(t.s, sizeof t.s, "-");
    else if (s < 10)
        snprintf(t.s, sizeof t.s, "%.1f s", s);
    else if (s < 120)
        snprintf(t.s, sizeof t.s, "%.0f s", s);
    else if (s < 7200)
        snprintf(t.s, sizeof t.s, "%.1f min", s / 60);
    else
        snprintf(t.s, sizeof t.s, "%.1f h", s / 3600);
    return t;
}

static struct text ago_text(int64_t ms)
{
    struct text t = duration_text(ms);
    if (ms >= 0)
        snprintf(t.s, sizeof t.s, "%.30s ago", duration_text(ms).s);
    return t;
}

static struct text number_text(int64_t n)
{
    struct text t = {"-"};
    if (n >= 0)
        snprintf(t.s, sizeof t.s, "%" PRId64, n);
    return t;
}

static struct text state_of(const struct net_status_member *m)
{
    struct text t;
    if (m->state == MEMBER_MISSING)
        snprintf(t.s, sizeof t.s, "missing for %.30s", duration_text(m->ms).s);
    else
        snprintf(t.s, sizeof t.s, "%s", net_status_member_name(m->state));
    return t;
}

static enum status print_take(struct ctl_table *t, enum status st)
{
    if (st == ST_OK)
        st = ctl_table_print(t);
    if (st != ST_OK)
        LOG_E("out of memory");
    ctl_table_destroy(t);
    fflush(stdout);
    return st;
}

static enum status show_members(const struct net_status *s)
{
    struct ctl_table *t = NULL;
    enum status st = ctl_table_create(">WORKER\t>RANK\tADDRESS\tSTATE\t>WAITED FOR\t>SKIPPED", &t);
    for (int i = 0; st == ST_OK && i < s->n_members; i++) {
        const struct net_status_member *m = &s->members[i];
        ctl_table_row(t, "%d\t%s\t%s\t%s\t%.1f s\t%" PRId64, m->member, number_text(m->rank).s,
                      m->address[0] ? m->address : "-", state_of(m).s, m->seconds, m->skipped);
    }
    st = print_take(t, st);
    for (int i = 0; st == ST_OK && i < s->n_members; i++)
        if (s->members[i].refused[0])
            printf("worker %d was refused %s ago: %s\n", s->members[i].member,
                   duration_text(s->members[i].refused_ms).s, s->members[i].refused);
    fflush(stdout);
    return st;
}

static enum status show_servers(const struct net_status *s)
{
    struct ctl_table *t = NULL;
    enum status st =
        ctl_table_create(">SERVER\tADDRESS\tSTATE\t>MB\t>CHUNKS\t>LAST HEARD\t>UP", &t);
    for (int i = 0; st == ST_OK && i < s->n_servers; i++) {
        const struct net_status_server *v = &s->servers[i];
        ctl_table_row(t, "%s\t%s\t%s\t%.1f\t%d\t%s\t%s", number_text(v->server).s, v->address,
                      net_status_server_name(v->state), (double)v->bytes * 1e-6, v->n_chunks,
                      ago_text(v->heard_ms).s, duration_text(v->up_ms).s);
    }
    return print_take(t, st);
}

static enum status show_late(const struct net_status *s)
{
    char columns[160];
    struct ctl_table *t = NULL;
    if (s->chunks && s->job.sync_mode != JOB_SYNC) {
        printf("%s: no step waits for a worker\n", job_sync_mode_name(s->job.sync_mode));
        return ST_OK;
    }
    snprintf(
        columns, sizeof columns,
        ">WORKER\tADDRESS\t>WAITED FOR\t>WAS LAST IN\t>LAST %d STEPS: WAITED FOR\t>WAS LAST IN\tNOW",
        s->n_recent);
    enum status st = ctl_table_create(columns, &t);
    for (int i = 0; st == ST_OK && i < s->n_members; i++) {
        const struct net_status_member *m = &s->members[i];
        ctl_table_row(t, "%d\t%s\t%.1f s\t%" PRId64 " steps\t%.1f s\t%" PRId64 "\t%s", m->member,
                      m->address[0] ? m->address : "-", m->seconds, m->times, m->recent_seconds,
                      m->recent_times, m->awaited > 0 ? "waited for" : "");
    }
    return print_take(t, st);
}

static void show_data(const struct job_data *d)
{
    if (d->n_train && d->own)
        printf("data: samples of %dx%dx%d; each worker has its own part (--data_shard=own)\n",
               d->dim[0], d->dim[1], d->dim[2]);
    else if (d->n_train)
        printf("data: %s; %" PRId64 " training and %" PRId64 " test samples of %dx%dx%d %s %d %s\n",
               d->name, d->n_train, d->n_test, d->dim[0], d->dim[1], d->dim[2],
               d->labels == JOB_LABELS_TARGETS ? "with" : "in", d->classes,
               d->labels != JOB_LABELS_TARGETS ? "classes"
               : d->classes == 1               ? "target"
                                               : "targets");
}

/* Prints how samples are normalised and augmented, if they are. */
static void show_input(const struct net_job *j)
{
    char mean[JOB_NUMBERS_BYTES], std[JOB_NUMBERS_BYTES], augment[JOB_AUGMENT_BYTES];
    if (j->normal.n > 0)
        printf("samples are normalised: mean %s, standard deviation %s\n",
               job_input_numbers_text(j->normal.mean, j->normal.n, mean),
               job_input_numbers_text(j->normal.std, j->normal.n, std));
    if (job_input_augments(&j->augment))
        printf("training samples are augmented: %s\n",
               job_input_augment_text(&j->augment, augment));
}

static void show_best(const struct net_best *b)
{
    char accuracy[48] = "";
    if (!isnan(b->accuracy)) /* a job whose samples have targets reports no accuracy (NaN) */
        snprintf(accuracy, sizeof accuracy, " validation accuracy %.4f,", b->accuracy);
    printf("best so far: step %" PRId64 ",%s validation loss %.4f\n", b->step, accuracy, b->loss);
}

/* Prints the last and the next checkpoint. A checkpoint of the last step is always ordered; if
 * checkpoints are made by time, there are earlier checkpoints, too. */
static void show_checkpoints(const struct net_status *s)
{
    const struct net_status_checkpoints *c = &s->checkpoints;
    int by_time = c->next_ms >= 0, later = c->ordered > s->step;
    int at_step = c->ordered >= 0 && !(by_time && c->ordered == s->job.train_steps);
    if (!c->folder[0])
        return;
    printf("checkpoints: %s; last at step %s", c->folder, number_text(c->last).s);
    if (at_step && !later)
        printf("; one at step %" PRId64 " is being made", c->ordered);
    else if (at_step)
        printf("; the next at step %" PRId64, c->ordered);
    if (by_time && (later || !at_step))
        printf("%s within %" PRId64 " s", at_step ? ", or" : "; the next",
               c->next_ms / 1000 + (c->next_ms % 1000 > 0));
    putchar('\n');
}

static void show_waiting(const struct net_status *s)
{
    char text[STATUS_SENTENCE_BYTES];
    net_status_waiting_text(s->waiting, s->waiting_ms, text);
    if (s->waiting[0])
        puts(text);
}

static void show_head(const struct net_status *s)
{
    char rate[FLOAT_TEXT_BYTES];
    if (!s->chunks) {
        printf("ps:%s: no job yet; up %s\n", number_text(s->server).s, duration_text(s->up_ms).s);
        show_waiting(s);
        return;
    }
    printf("ps:%s: generation " TERM_FMT ", %s, step %s of %" PRId64 " (%s); %.1f steps/s; up %s\n",
           number_text(s->server).s, TERM_ARG(s->generation), net_status_state(s),
           number_text(s->step).s, s->job.train_steps, job_sync_mode_name(s->job.sync_mode),
           s->steps_per_s, duration_text(s->up_ms).s);
    show_waiting(s);
    if (s->model_name[0])
        printf("model %s: ", s->model_name);
    else
        printf("model: ");
    printf("%d parameters, %" PRId64 " elements in %d %s; %s, learning rate %s; batches of %d\n",
           s->chunks->n_params, s->chunks->n_elems, s->chunks->n_dense,
           s->chunks->n_dense == 1 ? "chunk" : "chunks", optim_name(s->job.optim.kind),
           float_text(s->job.optim.learning_rate, rate), s->job.batch);
    if (s->job.local_steps > 1)
        printf("each step is %d local steps of each worker with %s, learning rate %s\n",
               s->job.local_steps, optim_name(s->job.local.kind),
               float_text(s->job.local.learning_rate, rate));
    if (s->job.fragments > 1)
        printf("parameters have %d fragments: each step exchanges one of them, the last step all\n",
               s->job.fragments);
    if (s->chunks->n_tables > 0)
        printf("%d %s in %d buckets; weirctl tables shows their rows\n", s->chunks->n_tables,
               s->chunks->n_tables == 1 ? "table" : "tables",
               s->chunks->n_chunks - s->chunks->n_dense);
    show_data(&s->job.data);
    show_input(&s->job);
    if (s->job.arithmetic[0])
        printf("computed with: %s\n", s->job.arithmetic);
    if (s->change[0])
        printf("change: %s\n", s->change);
    show_checkpoints(s);
    if (s->best.step >= 0)
        show_best(&s->best);
    if (s->job.asked_steps > 0)
        printf("%s: the job ends at step %" PRId64 " of %" PRId64 "\n",
               s->job.validation.patience > 0 ? "stopped (--early_stopping, or weirctl stop)"
                                              : "stopped (weirctl stop, or a member's program)",
               s->job.train_steps, s->job.asked_steps);
}

enum status ctl_report_table(const struct net_status *s, enum ctl_view view)
{
    enum status st;
    switch (view) {
    case VIEW_STATUS:
        show_head(s);
        putchar('\n');
        st = s->n_members > 0 ? show_members(s) : ST_OK;
        if (st == ST_OK && s->n_members > 0)
            putchar('\n');
        return st == ST_OK ? show_servers(s) : st;
    case VIEW_MEMBERS:
        return show_members(s);
    case VIEW_SERVERS:
        return show_servers(s);
    case VIEW_LATE:
        return show_late(s);
    case VIEW_TABLES: /* ctl_tables_show */
        break;
    }
    return ST_INTERNAL;
}
