/* worker/options/options_schedule.c - the flags of the learning rate's course and of clipping,
 * beside what member/job_settings.h says of them: see options_impl.h. */
#include "worker/options/options_impl.h"
#include <string.h>

/* With backup workers chunks are of the contributions of different workers, and have no norm
 * together. */
enum status options_schedule_check_clipping(const struct options *o)
{
    const char *wrong = NULL;
    if (o->optim.clip_norm > 0 && o->optim.clip_value > 0)
        wrong = "--clip_value and --clip_norm are both given; give one of them";
    else if (o->optim.clip_norm > 0 && options_rounds(o) == 1 && o->sync_mode == JOB_SYNC &&
             o->aggregate > 0 && (o->aggregate < o->n_workers || o->n_workers == 0))
        wrong = "--clip_norm in --sync_mode=sync is not for jobs with backup workers "
                "(--replicas_to_aggregate); take --clip_value, or async or ssp";
    if (!wrong)
        return ST_OK;
    LOG_E("%s", wrong);
    return ST_INVALID;
}

void options_schedule_adopt(const struct optim_config *own, struct optim_config *job)
{
    if (options_table_is_given(&options_raw.job.schedule))
        job->schedule = own->schedule;
    if (options_table_is_given(&options_raw.job.lr_warmup_steps))
        job->warmup_steps = own->warmup_steps;
    if (options_table_is_given(&options_raw.job.lr_decay))
        job->lr_decay = own->lr_decay;
    if (options_table_is_given(&options_raw.job.lr_decay_steps))
        job->lr_decay_steps = own->lr_decay_steps;
    if (options_table_is_given(&options_raw.job.clip_value))
        job->clip_value = own->clip_value;
    if (options_table_is_given(&options_raw.job.clip_norm))
        job->clip_norm = own->clip_norm;
    if (options_table_is_given(&options_raw.job.lr_boundaries)) {
        job->n_boundaries = own->n_boundaries;
        memcpy(job->boundary, own->boundary, sizeof job->boundary);
    }
}
