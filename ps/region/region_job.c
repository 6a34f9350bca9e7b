/* ps/region/region_job.c - see region.h: checks which jobs a region can train, and derives the job
 * of the parent group from the region's own.
 *
 * The flags count steps of a worker. If the workers make local steps, a version of the region is
 * made from `steps_each` steps of each worker. So the flags' numbers are divided by steps_each when
 * the job becomes known, and the numbers in log lines and in the parent's job are multiplied by it
 * again.
 *
 * Locks:   the region's. */
#include "base/log.h"
#include "ps/region/region_chunks.h"
#include "ps/service/service.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

/* Returns the reason if a number of steps in the flags is not a whole number of the workers'
 * rounds of local steps; NULL: all numbers are. */
static const char *check_rounds(const struct ps_region_config *c, int64_t each)
{
    if (c->steps % each != 0)
        return c->fragments > 1
                   ? "the region's --region_steps / --fragments is not a multiple of --local_steps"
                   : "the region's --region_steps is not a multiple of --local_steps";
    if (c->overlap % each != 0)
        return "the region's --overlap_steps is not a multiple of --local_steps";
    return NULL;
}

enum status ps_region_check(struct ps_region *r, const struct net_join *join, char *why,
                            size_t why_bytes)
{
    const struct net_job *job = &join->job;
    int64_t each = job_local_steps(job);
    const char *rounds = check_rounds(&r->asked, each), *wrong = NULL;
    if (!job_in_lockstep(job))
        wrong = "a region needs --sync_mode=sync without backup workers";
    else if (job_sends_changes(job))
        wrong =
            "in a region parameters cannot be sent in int8, int4 or topk: set --wire_dtype=int8,fp32 to send only gradients in int8";
    else if (join->chunks->n_tables > 0)
        wrong =
            "a region cannot train tables, whose contributions are not changes of a whole model: start the servers without --parent_hosts";
    else if (job->optim.ema_decay > 0 || job->local.ema_decay > 0)
        wrong = "a region keeps no average of its parameters: remove --ema_decay";
    else if (job->validation.patience > 0)
        wrong = "--early_stopping would end the job in one region alone";
    else if (r->asked.steps == 1 && chunks_have_factors(join->chunks))
        wrong = "factors of single parameters (weir_param_factors) need --region_steps above 1";
    else if (job->train_steps > 0 && job->train_steps * each <= r->asked.overlap)
        wrong = "the job has no more steps than --overlap_steps";
    if (!wrong && rounds) {
        snprintf(why, why_bytes,
                 "%s: --region_steps=%" PRId64 ", --overlap_steps=%" PRId64
                 ", --local_steps=%" PRId64 "; change one of them",
                 rounds, r->asked.steps * (r->asked.fragments > 1 ? r->asked.fragments : 1),
                 r->asked.overlap, each);
        return ST_INVALID;
    }
    if (!wrong && r->cfg.fragments > 1 && r->cfg.fragments > join->chunks->n_chunks) {
        snprintf(
            why, why_bytes,
            "the region's server has --fragments=%d, but the model has only %d chunk(s) of at most %" PRId64
            " bytes: set fewer --fragments at the server, or a smaller --chunk_bytes at the workers",
            r->cfg.fragments, join->chunks->n_chunks, join->chunks->chunk_bytes);
        return ST_INVALID;
    }
    if (wrong) {
        snprintf(why, why_bytes, "%s", wrong);
        return ST_INVALID;
    }
    return ST_OK;
}

void region_job_count_steps(struct ps_region *r, const struct net_job *job)
{
    int64_t each = job_local_steps(job);
    r->steps_each = each;
    r->cfg.steps = r->asked.steps / each;
    r->cfg.overlap = r->asked.overlap / each;
    r->cfg.max_drift = (r->asked.max_drift + each - 1) / each;
}

/* Returns the number of exchanges of each parameter in the whole job. */
static int64_t n_exchanges(const struct ps_region *r)
{
    int n = r->cfg.fragments > 1 ? r->cfg.fragments : 1;
    return (r->n_gates + n - 1) / n;
}

void region_job_warn_few(const struct ps_region *r)
{
    int64_t n = n_exchanges(r);
    if (r->cfg.n_regions > 1 && n < JOB_FEW_EXCHANGES)
        LOG_W(
            "region %d: the regions exchange their parameters only %" PRId64
            " times in this job of %" PRId64
            " steps; the result may be much worse than with %d exchanges or more: use a smaller --region_steps, or train for more steps",
            r->cfg.index, n, r->train_steps * r->steps_each, JOB_FEW_EXCHANGES);
}

/* Sets the parent's optimizer. Momentum needs several exchanges to help: after a single one
 * Nesterov's step is one and a half times the mean of the changes, so a job with few exchanges uses
 * the mean itself. */
static void settle_outer(const struct ps_region *r, struct optim_config *out)
{
    const struct ps_region_config *c = &r->cfg;
    bool is_few = n_exchanges(r) < JOB_FEW_EXCHANGES && c->outer_momentum <= 0;
    int kind = c->outer >= 0 ? c->outer : is_few ? OPTIM_SGD : OPTIM_NESTEROV;
    optim_outer_defaults((enum optim_kind)kind, r->chunks->n_elems, out);
    if (c->outer_rate >= 0)
        out->learning_rate = (float)c->outer_rate;
    if (kind != OPTIM_SGD && c->outer_momentum >= 0)
        out->momentum = (float)c->outer_momentum;
}

void region_job_make(struct ps_region *r, const struct net_job *own)
{
    struct net_job *j = &r->job;
    int64_t steps = r->cfg.steps * r->steps_each;
    *j = *own;
    j->n_workers = r->cfg.n_regions;
    j->sync_mode = JOB_SYNC;
    j->local = own->local_steps > 1 ? own->local : own->optim;
    settle_outer(r, &j->optim);
    j->local_steps = steps > 1 ? (int)steps : 0;
    j->fragments = r->cfg.fragments > 1 ? r->cfg.fragments : 0;
    j->train_steps = r->n_gates;
    j->optim.total_steps = (uint64_t)r->n_gates;
    j->asked_steps = 0;
    j->epochs = 0;
    j->aggregate = 0;
    j->push_dtype = r->cfg.push_dtype;
    j->version_dtype = r->cfg.version_dtype;
    j->wire_auto = r->cfg.wire_auto;
    j->batch = 0; /* the parent group compares no batches: regions have their own */
    j->validation_split = 0;
    j->validation = (struct net_validation){.every = 0};
    j->arithmetic[0] = 0;
    j->rounding.n_bytes = 0;
}
