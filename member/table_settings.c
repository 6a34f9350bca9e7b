/* member/table_settings.c - see table_settings.h. Names and meanings are those of the job's flags,
 * where the job has the same setting. A setting that has no effect with the table's optimizer,
 * schedule or initial values is an error: otherwise it would be ignored without notice. */
#include "member/table_settings.h"
#include "base/flags.h"
#include "base/log.h"
#include "member/job_settings.h"
#include "net/wire/job_tables.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_BUCKETS = 64, DEFAULT_STEP_ROWS = 65536 };

/* Serves only to compute the offset of a row's field, which is the same in each object. */
static struct table_settings layout;

#define INTEGER(n, lo, hi)                                                                         \
    {                                                                                              \
#n, FLAG_INT, &layout.n, lo, (double)(hi), NULL, NULL, NULL, NULL                          \
    }
#define NUMBER(n, hi)                                                                              \
    {                                                                                              \
#n, FLAG_DOUBLE, &layout.n, 0, hi, NULL, NULL, NULL, NULL                                  \
    }
#define CHOICE(n, field, words)                                                                    \
    {                                                                                              \
        n, FLAG_CHOICE, &layout.field, 0, 0, NULL, words, NULL, NULL                               \
    }

static const struct flag rows[] = {
    INTEGER(buckets, 1, TABLES_MAX_BUCKETS),
    INTEGER(step_rows, 1, TABLES_MAX_STEP_ROWS),
    CHOICE("optimizer", optimizer, OPTIM_ROWS_NAMES),
    NUMBER(learning_rate, 1e6),
    NUMBER(momentum, 1),
    NUMBER(beta1, 1),
    NUMBER(beta2, 1),
    NUMBER(epsilon, 1),
    NUMBER(ftrl_beta, 1e6),
    NUMBER(l1, 1e6),
    NUMBER(l2, 1e6),
    NUMBER(clip_value, 1e30),
    CHOICE("lr_schedule", schedule, SCHEDULE_NAMES),
    INTEGER(lr_warmup_steps, 0, 1e15),
    {"lr_boundaries", FLAG_STRING, &layout.lr_boundaries, 0, 0, NULL, NULL, NULL, NULL},
    NUMBER(lr_decay, 1),
    INTEGER(lr_decay_steps, 0, 1e15),
    CHOICE("init", init, ROW_INIT_NAMES),
    NUMBER(init_scale, 1e6),
    INTEGER(admit_after, 1, TABLES_MAX_STEPS),
    INTEGER(evict_after, 0, TABLES_MAX_STEPS),
    CHOICE("when_full", when_full, ROW_FULL_NAMES),
    CHOICE("row_dtype", row_dtype, ROW_DTYPE_NAMES),
};

void table_settings_init(struct table_settings *s)
{
    *s = (struct table_settings){.buckets = -1,
                                 .step_rows = -1,
                                 .admit_after = -1,
                                 .evict_after = -1,
                                 .lr_warmup_steps = -1,
                                 .lr_decay_steps = -1,
                                 .optimizer = -1,
                                 .schedule = -1,
                                 .init = -1,
                                 .when_full = -1,
                                 .row_dtype = -1,
                                 .learning_rate = -1,
                                 .momentum = -1,
                                 .beta1 = -1,
                                 .beta2 = -1,
                                 .epsilon = -1,
                                 .ftrl_beta = -1,
                                 .l1 = -1,
                                 .l2 = -1,
                                 .clip_value = -1,
                                 .lr_decay = -1,
                                 .init_scale = -1};
}

void table_settings_free(struct table_settings *s)
{
    free(s->lr_boundaries);
    s->lr_boundaries = NULL;
}

static enum status refuse_name(const char *name)
{
    const struct flags_program all = {.flags = rows, .n_flags = sizeof rows / sizeof *rows};
    const char *meant = flags_suggest(&all, name);
    LOG_E("there is no setting '%.100s'%s%s%s; docs/reference/weir-tables-h.md lists all", name,
          meant ? "; did you mean '" : "", meant ? meant : "", meant ? "'?" : "");
    return ST_NOT_FOUND;
}

static const struct flag *find_row(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

const char *table_settings_names(char dst[TABLE_SETTINGS_TEXT_BYTES])
{
    int n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        n += snprintf(dst + n, TABLE_SETTINGS_TEXT_BYTES - (size_t)n, "%s%s", i > 0 ? " " : "",
                      rows[i].name);
    return dst;
}

const char *table_settings_values(const char *name, char dst[TABLE_SETTINGS_TEXT_BYTES])
{
    const struct flag *row = find_row(name);
    if (!row || row->type == FLAG_STRING)
        snprintf(dst, TABLE_SETTINGS_TEXT_BYTES, "a text");
    else if (row->type == FLAG_CHOICE)
        snprintf(dst, TABLE_SETTINGS_TEXT_BYTES, "one of %s", row->choices);
    else
        snprintf(dst, TABLE_SETTINGS_TEXT_BYTES, "a %snumber from %g to %g",
                 row->type == FLAG_INT ? "whole " : "", row->min, row->max);
    return dst;
}

enum status table_settings_set(struct table_settings *s, const char *name, const char *value)
{
    const struct flag *row = find_row(name);
    if (!row)
        return refuse_name(name);
    struct flag f = *row;
    f.target = (char *)s + ((char *)row->target - (char *)&layout);
    if (f.type != FLAG_STRING)
        return flags_set(&f, value);
    char *copy = strdup(value);
    if (!copy)
        return ST_NOMEM;
    free(*(char **)f.target);
    *(char **)f.target = copy;
    return ST_OK;
}

/* Sets the optimizer to that of the job. */
static enum status read_optimizer(const char *table, const struct optim_config *job,
                                  struct optim_rows_config *out)
{
    static const struct {
        enum optim_kind job;
        enum optim_rows_kind rows;
    } same[] = {{OPTIM_SGD, OPTIM_ROWS_SGD},
                {OPTIM_MOMENTUM, OPTIM_ROWS_MOMENTUM},
                {OPTIM_ADAGRAD, OPTIM_ROWS_ADAGRAD},
                {OPTIM_ADAM, OPTIM_ROWS_ADAM}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        if (same[i].job != job->kind)
            continue;
        if (job->weight_decay != 0) {
            LOG_E(
                "table '%.255s': the job's weight_decay would change rows without a gradient; set an optimizer for this table, or weight_decay=0",
                table);
            return ST_INVALID;
        }
        optim_rows_defaults(same[i].rows, out);
        out->common = *job;
        /* job_check_tables refuses both, whichever optimizer the tables have */
        out->common.clip_norm = out->common.ema_decay = 0;
        return ST_OK;
    }
    LOG_E(
        "table '%.255s': the job's optimizer %s has no form for rows; set an optimizer for this table, one of %s",
        table, optim_name(job->kind), OPTIM_ROWS_NAMES);
    return ST_INVALID;
}

/* Copies the numbers of the optimizer, and refuses those that its kind does not use. */
static enum status set_numbers(const struct table_settings *s, const char *table,
                               struct optim_rows_config *o)
{
    enum {
        ALL = (1 << OPTIM_ROWS_N_KINDS) - 1,
        MOMENTUM = 1 << OPTIM_ROWS_MOMENTUM,
        ADAM = 1 << OPTIM_ROWS_ADAM,
        ROOTS = 1 << OPTIM_ROWS_ADAGRAD | 1 << OPTIM_ROWS_ROWWISE_ADAGRAD | ADAM,
        FTRL = 1 << OPTIM_ROWS_FTRL,
    };
    const struct {
        const char *name;
        double value;
        float *field;
        unsigned kinds;
        const char *those;
    } numbers[] = {
        {"learning_rate", s->learning_rate, &o->common.learning_rate, ALL, ""},
        {"clip_value", s->clip_value, &o->common.clip_value, ALL, ""},
        {"momentum", s->momentum, &o->common.momentum, MOMENTUM, "momentum"},
        {"beta1", s->beta1, &o->common.beta1, ADAM, "adam"},
        {"beta2", s->beta2, &o->common.beta2, ADAM, "adam"},
        {"epsilon", s->epsilon, &o->common.epsilon, ROOTS, "adagrad, rowwise_adagrad and adam"},
        {"ftrl_beta", s->ftrl_beta, &o->ftrl_beta, FTRL, "ftrl"},
        {"l1", s->l1, &o->l1, FTRL, "ftrl"},
        {"l2", s->l2, &o->l2, FTRL, "ftrl"},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].value < 0)
            continue;
        if (!(numbers[i].kinds >> o->kind & 1)) {
            LOG_E("table '%.255s': %s: optimizer=%s has no such setting; it is for %s", table,
                  numbers[i].name, optim_rows_name(o->kind), numbers[i].those);
            return ST_INVALID;
        }
        *numbers[i].field = (float)numbers[i].value;
    }
    return ST_OK;
}

static enum status refuse_schedule(const char *table, const char *name, const char *those)
{
    LOG_E("table '%.255s': %s has no effect with this lr_schedule; it is for %s", table, name,
          those);
    return ST_INVALID;
}

/* Sets the schedule of the learning rate. */
static enum status set_schedule(const struct table_settings *s, const char *table,
                                struct optim_config *o)
{
    char of[CHUNKS_MAX_NAME + 16];
    snprintf(of, sizeof of, "table '%.255s': ", table);
    if (s->schedule >= 0)
        o->schedule = (enum optim_schedule)s->schedule;
    bool is_step = o->schedule == SCHEDULE_STEP, decays = o->schedule == SCHEDULE_EXPONENTIAL;
    if (s->lr_boundaries && !is_step)
        return refuse_schedule(table, "lr_boundaries", "step");
    if (s->lr_decay >= 0 && !is_step && !decays)
        return refuse_schedule(table, "lr_decay", "step and exponential");
    if (s->lr_decay_steps > 0 && !decays)
        return refuse_schedule(table, "lr_decay_steps", "exponential");
    if (s->lr_warmup_steps >= 0)
        o->warmup_steps = (uint64_t)s->lr_warmup_steps;
    if (s->lr_decay >= 0)
        o->lr_decay = (float)s->lr_decay;
    if (s->lr_decay_steps >= 0)
        o->lr_decay_steps = (uint64_t)s->lr_decay_steps;
    if (s->lr_boundaries) {
        o->n_boundaries = 0;
        enum status st = job_settings_boundaries(s->lr_boundaries, of, o);
        if (st != ST_OK)
            return st;
    }
    if ((is_step && o->n_boundaries == 0) || (decays && o->lr_decay_steps == 0)) {
        LOG_E("%slr_schedule=%s needs %s", of, optim_schedule_name(o->schedule),
              is_step ? "lr_boundaries=STEP,..." : "lr_decay_steps=N");
        return ST_INVALID;
    }
    return ST_OK;
}

/* Sets the initial values of rows. The two random kinds have a scale of 1 / sqrt(dim) by default.
 * ftrl computes a row from sums that begin with zeros, so its rows begin with zeros. */
static enum status set_init(const struct table_settings *s, bool runs, struct net_table *t)
{
    bool is_ftrl = t->optimizer.kind == OPTIM_ROWS_FTRL;
    if (s->init >= 0)
        t->init = (enum row_init)s->init;
    else if (!runs)
        t->init = is_ftrl ? ROW_INIT_ZEROS : ROW_INIT_NORMAL;
    if (t->init == ROW_INIT_ZEROS && s->init_scale >= 0) {
        LOG_E("table '%.255s': init_scale has no effect with init=zeros; set init, too", t->name);
        return ST_INVALID;
    }
    if (s->init_scale >= 0)
        t->init_scale = (float)s->init_scale;
    else if (!runs || s->init >= 0)
        t->init_scale = t->init == ROW_INIT_ZEROS ? 0 : 1 / sqrtf((float)t->dim);
    return ST_OK;
}

static int64_t number_or(int64_t given, int64_t other)
{
    return given >= 0 ? given : other;
}

enum status table_settings_make(const struct table_settings *s, const struct net_job *job,
                                const struct net_table *running, struct net_table *t)
{
    enum status st = ST_OK;
    struct net_table made = {.n_buckets = DEFAULT_BUCKETS,
                             .step_rows = DEFAULT_STEP_ROWS,
                             .admit_after = 1,
                             .when_full = ROW_FULL_STOP};
    if (running)
        made = *running;
    made.name = t->name;
    made.dim = t->dim;
    made.max_rows = t->max_rows;
    if (s->optimizer >= 0)
        optim_rows_defaults((enum optim_rows_kind)s->optimizer, &made.optimizer);
    else if (!running)
        TRY(read_optimizer(t->name, &job->optim, &made.optimizer));
    TRY(set_numbers(s, t->name, &made.optimizer));
    TRY(set_schedule(s, t->name, &made.optimizer.common));
    TRY(set_init(s, running != NULL, &made));
    made.optimizer.common.total_steps = job->optim.total_steps;
    made.n_buckets = (int)number_or(s->buckets, made.n_buckets);
    while (!running && made.step_rows > 1 && !tables_step_fits(&made))
        made.step_rows /= 2; /* a lower default, since the rows are long or the buckets are few */
    made.step_rows = number_or(s->step_rows, made.step_rows);
    made.admit_after = number_or(s->admit_after, made.admit_after);
    made.evict_after = number_or(s->evict_after, made.evict_after);
    if (s->when_full >= 0)
        made.when_full = (enum row_full)s->when_full;
    if (s->row_dtype >= 0)
        made.row_dtype = (enum dtype)s->row_dtype;
    *t = made;
done:
    return st;
}

/* Returns the table of the running job with this name; NULL: none. */
static const struct net_table *find_running(const struct chunks *running, const char *name)
{
    for (int i = 0; running && i < running->n_tables; i++)
        if (strcmp(running->tables[i].name, name) == 0)
            return &running->tables[i];
    return NULL;
}

enum status table_settings_add(const struct table_wish *wishes, int n, const struct net_job *job,
                               const struct chunks *running, struct chunks *chunks)
{
    enum status st = ST_OK;
    struct net_table *tables = calloc((size_t)n, sizeof *tables);
    const char *problem = job_check_tables(job, n);
    TRY(tables ? ST_OK : ST_NOMEM);
    if (problem) {
        LOG_E("%s", problem);
        TRY(ST_UNSUPPORTED);
    }
    for (int i = 0; i < n; i++) {
        const struct table_wish *w = &wishes[i];
        tables[i] = (struct net_table){.name = w->name, .dim = w->dim, .max_rows = w->max_rows};
        TRY(table_settings_make(w->settings, job, find_running(running, w->name), &tables[i]));
    }
    TRY(tables_add(chunks, tables, n));
done:
    free(tables);
    if (st == ST_NOMEM)
        LOG_E("out of memory for %d tables", n);
    return st;
}
