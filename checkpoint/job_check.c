/* checkpoint/job_check.c - see job_check.h. */
#include "checkpoint/job_check.h"
#include "base/float_text.h"
#include "base/log.h"
#include "checkpoint/job_described.h"
#include "net/wire/job_steps.h"
#include "net/wire/tables.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Texts for a difference between two jobs. The servers and the worker both log them, so they name
 * both. */
#define SERVERS_HAVE "the servers have"
#define HAVE SERVERS_HAVE " %" PRId64 ", the worker has %" PRId64
#define HAVE_TEXTS SERVERS_HAVE " %s, the worker has %s"
#define OTHER_JOB "another job: "
#define OTHER_DATA "another data set: "
#define TO_INIT                                                                                    \
    ", together with --init=CHECKPOINT at the worker to begin with these parameters and new "      \
    "settings"
#define TO_JOIN                                                                                    \
    "; start an additional worker of a running job with --join, without --worker_hosts and "       \
    "--task_index"

enum status checkpoint_job_check_first(const struct net_join *join, int n_workers, char *why,
                                       size_t why_bytes)
{
    int n = join->job.n_workers;
    if (join->incarnation == 0)
        snprintf(why, why_bytes, "the incarnation is 0");
    else if (n < 1 || n > JOB_MAX_WORKERS)
        snprintf(why, why_bytes, "the job has %d workers; it must have from 1 to %d", n,
                 JOB_MAX_WORKERS);
    else if (n_workers > 0 && n != n_workers)
        snprintf(why, why_bytes, "--worker_hosts: " HAVE "%s", INT64_C(0) + n_workers,
                 INT64_C(0) + n, n > n_workers ? TO_JOIN : "");
    else if (join->member < 0 || join->member >= n)
        snprintf(why, why_bytes, "--task_index: %d must be below %d, the number of workers",
                 join->member, n);
    else if (join->job.train_steps < 1)
        snprintf(why, why_bytes, "--train_steps: %" PRId64 " is below 1", join->job.train_steps);
    else if (optim_check(&join->job.optim) != ST_OK)
        snprintf(why, why_bytes, "the optimizer's settings are out of bounds");
    else if (job_check_mode(&join->job))
        snprintf(why, why_bytes, "%s", job_check_mode(&join->job));
    else
        return ST_OK;
    return ST_INVALID;
}

static bool floats_differ(const char *name, float here, float there, char *why, size_t n)
{
    if (here == there)
        return false;
    char a[FLOAT_TEXT_BYTES], b[FLOAT_TEXT_BYTES];
    snprintf(why, n, "--%s: " HAVE_TEXTS, name, float_text(here, a), float_text(there, b));
    return true;
}

static bool numbers_differ(const char *name, int64_t here, int64_t there, char *why, size_t n)
{
    if (here == there)
        return false;
    snprintf(why, n, "--%s: " HAVE, name, here, there);
    return true;
}

/* Compares two numbers, unless one of them is 0, which means that it is not set. */
static bool set_numbers_differ(const char *name, int64_t here, int64_t there, char *why, size_t n)
{
    return here > 0 && there > 0 && numbers_differ(name, here, there, why, n);
}

static bool split_differs(const struct net_job *a, const struct net_job *b, char *why, size_t n)
{
    if (a->validation_split == b->validation_split)
        return false;
    char here[FLOAT_TEXT_BYTES], there[FLOAT_TEXT_BYTES];
    snprintf(why, n, "--validation_split: " HAVE_TEXTS,
             float_text_double(a->validation_split, here),
             float_text_double(b->validation_split, there));
    return true;
}

static const char *validation_text(const struct net_validation *v, char *text, size_t room)
{
    snprintf(text, room, "none");
    if (v->data.n > 0)
        snprintf(text, room, "%" PRId64 " samples (CRC-32C %08x, labels %08x)", v->data.n,
                 v->data.samples, v->data.labels);
    return text;
}

/* Compares the validation data. If the servers have none, each worker may have its own. */
static bool validation_differs(const struct net_validation *a, const struct net_validation *b,
                               char *why, size_t n)
{
    char here[80], there[80];
    if (!a->data.n)
        return false;
    if (job_validation_same(&a->data, &b->data))
        return numbers_differ("eval_every", a->every, b->every, why, n) ||
               numbers_differ("early_stopping", a->patience, b->patience, why, n);
    snprintf(why, n, "--validation_split, --validation_dir: " HAVE_TEXTS,
             validation_text(a, here, sizeof here), validation_text(b, there, sizeof there));
    return true;
}

static bool names_differ(const char *name, const char *here, const char *there, bool differ,
                         char *why, size_t n)
{
    if (differ)
        snprintf(why, n, "--%s: " HAVE_TEXTS, name, here, there);
    return differ;
}

/* Names the first channel that differs; all channels may not fit into `why`. */
static bool normal_differs(const struct net_job *a, const struct net_job *b, char *why, size_t n)
{
    const char *of;
    char name[48], here[FLOAT_TEXT_BYTES] = "none", there[FLOAT_TEXT_BYTES] = "none";
    int c = job_input_normal_differ(&a->normal, &b->normal, &of);
    if (c < 0)
        return false;
    if (a->normal.n > 0 && b->normal.n > 0 && a->normal.n != b->normal.n) {
        snprintf(why, n, "--mean, --std: the servers have %d numbers, the worker has %d",
                 a->normal.n, b->normal.n);
        return true;
    }
    bool mean = of[0] == 'm';
    if (a->normal.n > 0)
        float_text(mean ? a->normal.mean[c] : a->normal.std[c], here);
    if (b->normal.n > 0)
        float_text(mean ? b->normal.mean[c] : b->normal.std[c], there);
    snprintf(name, sizeof name, a->normal.n > 1 || b->normal.n > 1 ? "%s (channel %d)" : "%s", of,
             c + 1);
    return names_differ(name, here, there, 1, why, n);
}

static bool augment_differs(const struct net_job *a, const struct net_job *b, char *why, size_t n)
{
    char here[JOB_AUGMENT_BYTES], there[JOB_AUGMENT_BYTES];
    if (!job_input_augments(&a->augment) && !job_input_augments(&b->augment))
        return false;
    job_input_augment_text(&a->augment, here);
    job_input_augment_text(&b->augment, there);
    return names_differ("augment", *here ? here : "none", *there ? there : "none",
                        strcmp(here, there) != 0, why, n);
}

/* Writes the boundaries as "100,200". */
static const char *boundaries_text(const struct optim_config *c, char *text, size_t room)
{
    size_t at = 0;
    if (c->n_boundaries == 0)
        return "none";
    for (int i = 0; i < c->n_boundaries && at < room; i++)
        at += (size_t)snprintf(text + at, room - at, "%s%" PRIu64, i ? "," : "", c->boundary[i]);
    return text;
}

static bool schedule_differs(const struct optim_config *a, const struct optim_config *b, char *why,
                             size_t n)
{
    char here[96], there[96];
    return names_differ("lr_schedule", optim_schedule_name(a->schedule),
                        optim_schedule_name(b->schedule), a->schedule != b->schedule, why, n) ||
           numbers_differ("lr_warmup_steps", (int64_t)a->warmup_steps, (int64_t)b->warmup_steps,
                          why, n) ||
           names_differ("lr_boundaries", boundaries_text(a, here, sizeof here),
                        boundaries_text(b, there, sizeof there),
                        a->n_boundaries != b->n_boundaries ||
                            memcmp(a->boundary, b->boundary,
                                   (size_t)a->n_boundaries * sizeof *a->boundary) != 0,
                        why, n) ||
           floats_differ("lr_decay", a->lr_decay, b->lr_decay, why, n) ||
           numbers_differ("lr_decay_steps", (int64_t)a->lr_decay_steps, (int64_t)b->lr_decay_steps,
                          why, n);
}

/* Compares the optimizer that the flags without the prefix outer_ set. */
static bool optim_differs(const struct optim_config *a, const struct optim_config *b, char *why,
                          size_t n)
{
    return names_differ("optimizer", optim_name(a->kind), optim_name(b->kind), a->kind != b->kind,
                        why, n) ||
           floats_differ("learning_rate", a->learning_rate, b->learning_rate, why, n) ||
           floats_differ("momentum", a->momentum, b->momentum, why, n) ||
           floats_differ("decay", a->decay, b->decay, why, n) ||
           floats_differ("beta1", a->beta1, b->beta1, why, n) ||
           floats_differ("beta2", a->beta2, b->beta2, why, n) ||
           floats_differ("epsilon", a->epsilon, b->epsilon, why, n) ||
           floats_differ("weight_decay", a->weight_decay, b->weight_decay, why, n) ||
           floats_differ("clip_value", a->clip_value, b->clip_value, why, n) ||
           floats_differ("clip_norm", a->clip_norm, b->clip_norm, why, n) ||
           floats_differ("ema_decay", a->ema_decay, b->ema_decay, why, n) ||
           schedule_differs(a, b, why, n);
}

/* Compares the servers' optimizer in a job with local steps, in which members have optimizers of
 * their own. */
static bool outer_differs(const struct optim_config *a, const struct optim_config *b, char *why,
                          size_t n)
{
    return names_differ("outer_optimizer", optim_name(a->kind), optim_name(b->kind),
                        a->kind != b->kind, why, n) ||
           floats_differ("outer_learning_rate", a->learning_rate, b->learning_rate, why, n) ||
           (a->kind != OPTIM_SGD && /* SGD has no momentum, but the flag may have another default */
            floats_differ("outer_momentum", a->momentum, b->momentum, why, n));
}

static bool optimizers_differ(const struct net_job *a, const struct net_job *b, char *why, size_t n)
{
    int here = a->fragments > 1 ? a->fragments : 1, there = b->fragments > 1 ? b->fragments : 1;
    if (numbers_differ("fragments", here, there, why, n))
        return true;
    if (numbers_differ("local_steps", job_local_steps(a), job_local_steps(b), why, n))
        return true;
    struct optim_config outer = job_steps_follow(a, b) ? job_follow_outer(b, &a->optim) : b->optim;
    if (a->local_steps > 1)
        return outer_differs(&a->optim, &outer, why, n) ||
               optim_differs(&a->local, &b->local, why, n);
    return optim_differs(&a->optim, &b->optim, why, n);
}

static bool mode_differs(const struct net_job *a, const struct net_job *b, char *why, size_t n)
{
    return names_differ("sync_mode", job_sync_mode_name(a->sync_mode),
                        job_sync_mode_name(b->sync_mode), a->sync_mode != b->sync_mode, why, n) ||
           set_numbers_differ("replicas_to_aggregate", job_aggregate(a), job_aggregate(b), why,
                              n) ||
           numbers_differ("staleness", a->staleness, b->staleness, why, n) ||
           floats_differ("delay_compensation", a->delay_compensation, b->delay_compensation, why,
                         n) ||
           names_differ("wire_dtype", dtype_name(a->push_dtype), dtype_name(b->push_dtype),
                        a->push_dtype != b->push_dtype && !b->wire_auto, why, n) ||
           names_differ("wire_dtype (of versions)", dtype_name(a->version_dtype),
                        dtype_name(b->version_dtype),
                        a->version_dtype != b->version_dtype && !b->wire_auto, why, n);
}

/* Compares the steps. If each worker has a part of the data (--data_shard=own), the same
 * --epochs results in a different number of steps for each size of the part: then the job's
 * number of steps counts, and the worker adopts it. */
static bool steps_differ(const struct net_job *job, const struct net_job *other, char *why,
                         size_t n)
{
    /* `other` has the same number of local steps: optim_differs() has compared these numbers */
    int steps = job_local_steps(job);
    char here[FLOAT_TEXT_BYTES], there[FLOAT_TEXT_BYTES];
    if (job_steps_follow(job, other))
        return false;
    bool own = job->data.own && other->data.own;
    if (own && job->epochs > 0 && other->epochs > 0)
        return names_differ("epochs", float_text_double(job->epochs, here),
                            float_text_double(other->epochs, there), 1, why, n);
    if (!set_numbers_differ("train_steps", job_asked_steps(job) * steps, other->train_steps * steps,
                            why, n))
        return false;
    if (own && (job->epochs > 0 || other->epochs > 0))
        snprintf(
            why + strlen(why), n - strlen(why),
            "; with --data_shard=own all workers need the same --train_steps, or all the same --epochs");
    return true;
}

enum status checkpoint_job_check(const struct net_job *job, const struct chunks *chunks,
                                 const struct net_join *join, char *why, size_t why_bytes)
{
    const struct net_job *other = &join->job;
    /* `other` has the same number of local steps once the optimizers have been compared */
    int steps = job_local_steps(job);
    char what[400];
    if (chunks_compare(chunks, join->chunks, what, sizeof what) != ST_OK) {
        snprintf(why, why_bytes, "another model: %s", what);
        return ST_MISMATCH;
    }
    if (job_data_compare(&job->data, &other->data, what, sizeof what) != ST_OK) {
        snprintf(why, why_bytes, OTHER_DATA "%s (--data_dir, --data_shard)", what);
        return ST_MISMATCH;
    }
    if (set_numbers_differ("worker_hosts", job->n_workers, other->n_workers, what, sizeof what) ||
        mode_differs(job, other, what, sizeof what) ||
        optimizers_differ(job, other, what, sizeof what) ||
        split_differs(job, other, what, sizeof what) ||
        normal_differs(job, other, what, sizeof what) ||
        augment_differs(job, other, what, sizeof what) ||
        floats_differ("label_smoothing", job->label_smoothing, other->label_smoothing, what,
                      sizeof what) ||
        validation_differs(&job->validation, &other->validation, what, sizeof what) ||
        set_numbers_differ("batch_size", job->batch / steps, other->batch / steps, what,
                           sizeof what) ||
        steps_differ(job, other, what, sizeof what) ||
        numbers_differ("seed", (int64_t)job->seed, (int64_t)other->seed, what, sizeof what)) {
        bool more = job->n_workers > 0 && other->n_workers > job->n_workers;
        snprintf(why, why_bytes, OTHER_JOB "%s%s", what, more ? TO_JOIN : "");
        return ST_MISMATCH;
    }
    return ST_OK;
}

/* Returns true if the samples may differ. Then the names of the columns must be equal, whereas
 * equal samples may have columns with different names. If each worker has its own part of the
 * data, its samples are not compared. */
static bool data_may_differ(const struct job_data *had, const struct job_data *has)
{
    char why[400];
    return has->own || job_data_compare(had, has, why, sizeof why) != ST_OK;
}

enum status checkpoint_job_check_running(const struct net_job *job, const struct chunks *chunks,
                                         const char *described, const struct net_join *join,
                                         char *why, size_t why_bytes)
{
    char what[440];
    enum status st = checkpoint_job_check(job, chunks, join, why, why_bytes);
    bool may_differ = chunks_compare(chunks, join->chunks, what, sizeof what) != ST_OK ||
                      data_may_differ(&job->data, &join->job.data);
    if (may_differ &&
        job_described_reading_differs(described, join->trained_on, what, sizeof what)) {
        snprintf(why, why_bytes, OTHER_DATA "%s", what);
        return ST_MISMATCH;
    }
    if (st != ST_OK || !job_described_model_differs(described, join->trained_on, what, sizeof what))
        return st;
    snprintf(why, why_bytes, "another model: %s", what);
    return ST_MISMATCH;
}

/* Returns true if --data_shard may differ. If each worker had its own part, the job can resume with
 * the same data for all workers only if these are the data that the checkpoint records: those of
 * its first worker. */
static bool shard_may_differ(const struct job_data *here, const struct job_data *there)
{
    struct job_data as_there = *here;
    char why[400];
    as_there.own = there->own;
    return !here->own || job_data_compare(&as_there, there, why, sizeof why) == ST_OK;
}

static bool is_part_of_each(const struct net_job *job)
{
    return job->sync_mode != JOB_SYNC && job->local_steps > 1 && job->n_workers > 0 &&
           job->optim.learning_rate == 1 / (float)job->n_workers;
}

/* Returns the checkpoint's job with the settings of `other` that may differ. */
static struct net_job adapt_job(const struct checkpoint_manifest *m, const struct net_job *other)
{
    struct net_job job = m->job;
    job.n_workers = other->n_workers;
    job.batch = other->batch;
    if (job_aggregate(&m->job) == m->job.n_workers)
        job.aggregate = other->aggregate;
    job.train_steps = other->train_steps;
    job.asked_steps = 0; /* the resumed job decides again whether it ends early */
    job.epochs = other->epochs;
    job.optim.total_steps = other->optim.total_steps;
    /* the rate is the default, which depends on the number of workers */
    if (is_part_of_each(&m->job))
        job.optim.learning_rate = other->optim.learning_rate;
    if (shard_may_differ(&job.data, &other->data))
        job.data.own = other->data.own;
    job.validation = other->validation;
    return job;
}

void ps_follow_restored(const struct checkpoint_manifest *m, struct net_join *join)
{
    struct net_job job = adapt_job(m, &join->job);
    if (job.local_steps > 1 && job_steps_follow(&job, &join->job))
        join->job.optim = job_follow_outer(&join->job, &job.optim);
    if (join->member != 0 && job_steps_follow(&m->job, &join->job))
        job_set_steps(&join->job, job_asked_steps(&m->job)); /* only worker 0 may change them */
}

/* Replaces the servers by the checkpoint in a difference, since a worker without servers may have
 * written it. */
static void replace_subject(const char *what, char *to, size_t bytes)
{
    static const char *const subjects[][2] = {{SERVERS_HAVE, "the checkpoint has"},
                                              {"on the servers", "in the checkpoint"}};
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        const char *at = strstr(what, subjects[i][0]);
        if (!at)
            continue;
        snprintf(to, bytes, "%.*s%s%s", (int)(at - what), what, subjects[i][1],
                 at + strlen(subjects[i][0]));
        return;
    }
    snprintf(to, bytes, "%s", what);
}

/* Creates the table of chunks that the checkpoint's parameters and tables have in the present job.
 * The bounds of a table may be raised after a job has ended because of them. max_rows cannot be
 * lowered, because the buckets of the checkpoint may have more rows. */
static enum status adapt_chunks(const struct chunks *had, const struct chunks *has,
                                struct chunks **out)
{
    struct chunks *c = NULL;
    enum status st = chunks_create(had->params, had->n_params, has->chunk_bytes, &c);
    if (st == ST_OK)
        st = tables_add(c, had->tables, had->n_tables);
    for (int i = 0; st == ST_OK && i < c->n_tables && i < has->n_tables; i++) {
        if (has->tables[i].max_rows > c->tables[i].max_rows)
            c->tables[i].max_rows = has->tables[i].max_rows;
        c->tables[i].step_rows = has->tables[i].step_rows;
    }
    if (st != ST_OK)
        chunks_destroy(c);
    else
        *out = c;
    return st;
}

enum status checkpoint_job_check_restored(const struct checkpoint_manifest *m,
                                          const struct net_join *join, char *why, size_t why_bytes)
{
    char what[464], said[464], reading[440];
    struct chunks *chunks = NULL;
    struct net_job job = adapt_job(m, &join->job);
    enum status st = adapt_chunks(m->chunks, join->chunks, &chunks);
    snprintf(what, sizeof what, "%s", status_text(st));
    if (st == ST_OK)
        st = checkpoint_job_check(&job, chunks, join, what, sizeof what);
    chunks_destroy(chunks);
    if (st != ST_NOMEM && data_may_differ(&job.data, &join->job.data) &&
        job_described_reading_differs(m->trained_on, join->trained_on, reading, sizeof reading)) {
        snprintf(what, sizeof what, OTHER_DATA "%s", reading);
        st = ST_MISMATCH;
    }
    replace_subject(what, said, sizeof said);
    if (st != ST_OK)
        snprintf(why, why_bytes,
                 "the checkpoint at step %" PRId64
                 " is of %s; set the same flags, or another --checkpoint_dir%s",
                 m->step, said, strncmp(said, OTHER_JOB, sizeof OTHER_JOB - 1) ? "" : TO_INIT);
    else if (m->job.n_workers != join->job.n_workers && !m->progress.known)
        LOG_W(
            "the checkpoint was made with %d workers, the job now has %d: the rest of the current pass over the samples may skip or repeat some of them",
            m->job.n_workers, join->job.n_workers);
    if (st == ST_OK && job_arithmetic_differs(&m->job, &join->job))
        LOG_W(
            "the checkpoint at step %" PRId64
            " was computed with '%s', the job now uses '%s': its results will not be bit-identical to those of an uninterrupted job",
            m->step, m->job.arithmetic, join->job.arithmetic);
    return st;
}
