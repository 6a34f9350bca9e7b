/* net/wire/job_tables.c - see job_tables.h. Rows change only if they have a gradient in a step, and
 * each contribution has only a few of the rows. So no setting may need the change, the norm or the
 * rounding error of a whole model. */
#include "net/wire/job_tables.h"

const char *job_check_tables(const struct net_job *job, int n_tables)
{
    if (n_tables == 0)
        return NULL;
    if (job->local_steps > 1)
        return "tables cannot be combined with local_steps or own_local_steps, whose contributions are changes of a whole model; remove the setting";
    if (job->fragments > 1)
        return "tables cannot be combined with fragments, whose contributions are changes of a whole model; remove the setting";
    if (job->wire_auto || dtype_block(job->push_dtype) > 1 || dtype_block(job->version_dtype) > 1)
        return "tables cannot be combined with wire_dtype int8, int4, topk or auto, which round whole chunks; use fp32, bf16 or fp16";
    if (job->sync_mode == JOB_SYNC && !job_in_lockstep(job))
        return "tables cannot be combined with backup workers (aggregate), whose contributions are added in order of arrival; remove the setting, or use sync_mode async or ssp";
    if (job->optim.clip_norm > 0 || job->local.clip_norm > 0)
        return "tables cannot be combined with clip_norm, which needs the gradients of all rows in one order; use clip_value";
    if (job->optim.ema_decay > 0 || job->local.ema_decay > 0)
        return "tables cannot be combined with ema_decay, which changes rows without a gradient; remove the setting";
    if (job->delay_compensation > 0)
        return "tables cannot be combined with delay_compensation, for which servers would have to keep the rows that each member computes on; remove the setting";
    return NULL;
}
