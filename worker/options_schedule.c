/* worker/options_schedule.c - the flags of the learning rate's course and of clipping, checked: see
 * options_impl.h. One that has no meaning in the schedule that was asked for is an error, as it
 * would be left out without a word. One that joins may leave the schedule to the job. */
#include "worker/options_impl.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static enum status read_boundaries(const char *text, struct optim_config *out)
{
    const char *at = text;
    do {
        char *end;
        errno = 0;
        unsigned long long v = strtoull(at, &end, 10);
        if (*at < '0' || *at > '9' || errno || (*end && *end != ',') || v < 1 || v > INT64_MAX ||
            (out->n_boundaries > 0 && v <= out->boundary[out->n_boundaries - 1])) {
            LOG_E(
                "--lr_boundaries: '%.100s' is no list of rising numbers of steps, as in 1000,2000",
                text);
            return ST_INVALID;
        }
        if (out->n_boundaries == OPTIM_MAX_BOUNDARIES) {
            LOG_E("--lr_boundaries: more than %d", OPTIM_MAX_BOUNDARIES);
            return ST_INVALID;
        }
        out->boundary[out->n_boundaries++] = v;
        at = *end ? end + 1 : NULL;
    } while (at);
    return ST_OK;
}

static enum status check_uses(void)
{
    enum { STEP = 1 << SCHEDULE_STEP, EXPONENTIAL = 1 << SCHEDULE_EXPONENTIAL };
    const struct {
        const void *value;
        const char *flag, *those;
        unsigned kinds;
    } uses[] = {
        {&options_raw.lr_boundaries, "lr_boundaries", "step", STEP},
        {&options_raw.lr_decay, "lr_decay", "step and exponential", STEP | EXPONENTIAL},
        {&options_raw.lr_decay_steps, "lr_decay_steps", "exponential", EXPONENTIAL},
    };
    int left_to_job = options_raw.join && !options_is_given(&options_raw.schedule);
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        if (!options_is_given(uses[i].value) || left_to_job ||
            uses[i].kinds >> options_raw.schedule & 1)
            continue;
        LOG_E("--%s: --lr_schedule=%s has none; it is for %s", uses[i].flag,
              optim_schedule_name((enum optim_schedule)options_raw.schedule), uses[i].those);
        return ST_INVALID;
    }
    return ST_OK;
}

/* With backup workers chunks are of the contributions of different workers, and have no norm
 * together. */
enum status options_check_clipping(const struct options *o)
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

enum status options_check_schedule(struct options *o)
{
    struct optim_config *to = &o->optim;
    to->schedule = (enum optim_schedule)options_raw.schedule;
    to->warmup_steps = (uint64_t)options_raw.lr_warmup_steps;
    to->lr_decay_steps = (uint64_t)options_raw.lr_decay_steps;
    to->clip_value = (float)options_raw.clip_value;
    to->clip_norm = (float)options_raw.clip_norm;
    if (options_raw.lr_decay >= 0)
        to->lr_decay = (float)options_raw.lr_decay;
    if (check_uses() != ST_OK ||
        (options_raw.lr_boundaries && read_boundaries(options_raw.lr_boundaries, to) != ST_OK))
        return ST_INVALID;
    if (to->schedule == SCHEDULE_STEP && to->n_boundaries == 0 && !options_raw.join) {
        LOG_E("--lr_schedule=step needs --lr_boundaries=STEP,...");
        return ST_INVALID;
    }
    if (to->schedule == SCHEDULE_EXPONENTIAL && to->lr_decay_steps == 0 && !options_raw.join) {
        LOG_E("--lr_schedule=exponential needs --lr_decay_steps=N");
        return ST_INVALID;
    }
    return o->join ? ST_OK : options_check_clipping(o);
}

void options_adopt_schedule(const struct optim_config *own, struct optim_config *job)
{
    if (options_is_given(&options_raw.schedule))
        job->schedule = own->schedule;
    if (options_is_given(&options_raw.lr_warmup_steps))
        job->warmup_steps = own->warmup_steps;
    if (options_is_given(&options_raw.lr_decay))
        job->lr_decay = own->lr_decay;
    if (options_is_given(&options_raw.lr_decay_steps))
        job->lr_decay_steps = own->lr_decay_steps;
    if (options_is_given(&options_raw.clip_value))
        job->clip_value = own->clip_value;
    if (options_is_given(&options_raw.clip_norm))
        job->clip_norm = own->clip_norm;
    if (options_is_given(&options_raw.lr_boundaries)) {
        job->n_boundaries = own->n_boundaries;
        memcpy(job->boundary, own->boundary, sizeof job->boundary);
    }
}
