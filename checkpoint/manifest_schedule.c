/* checkpoint/manifest_schedule.c - see the header. */
#include "checkpoint/manifest_schedule.h"
#include <stdbool.h>

static bool set(json_t *to, const char *key, json_t *value)
{
    return json_object_set_new(to, key, value) == 0;
}

static json_t *boundaries(const struct optim_config *from)
{
    json_t *list = json_array();
    for (int i = 0; list && i < from->n_boundaries; i++) {
        if (json_array_append_new(list, json_integer((json_int_t)from->boundary[i])) == 0)
            continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

json_t *manifest_schedule_add(json_t *optimizer, const struct optim_config *from)
{
    struct optim_config usual;
    bool ok = optimizer != NULL;
    optim_defaults(from->kind, &usual);
    if (ok && from->warmup_steps > 0)
        ok = set(optimizer, "lr_warmup_steps", json_integer((json_int_t)from->warmup_steps));
    if (ok && from->n_boundaries > 0)
        ok = set(optimizer, "lr_boundaries", boundaries(from));
    if (ok && from->lr_decay != usual.lr_decay)
        ok = set(optimizer, "lr_decay", json_real((double)from->lr_decay));
    if (ok && from->lr_decay_steps > 0)
        ok = set(optimizer, "lr_decay_steps", json_integer((json_int_t)from->lr_decay_steps));
    if (ok && from->clip_value > 0)
        ok = set(optimizer, "clip_value", json_real((double)from->clip_value));
    if (ok && from->clip_norm > 0)
        ok = set(optimizer, "clip_norm", json_real((double)from->clip_norm));
    if (ok && from->ema_decay > 0)
        ok = set(optimizer, "ema_decay", json_real((double)from->ema_decay));
    if (ok)
        return optimizer;
    json_decref(optimizer);
    return NULL;
}

bool manifest_schedule_read(const json_t *optimizer, struct optim_config *to)
{
    const json_t *list = json_object_get(optimizer, "lr_boundaries");
    const json_t *decay = json_object_get(optimizer, "lr_decay");
    struct optim_config usual;
    optim_defaults(to->kind, &usual);
    to->warmup_steps = (uint64_t)json_integer_value(json_object_get(optimizer, "lr_warmup_steps"));
    to->lr_decay_steps = (uint64_t)json_integer_value(json_object_get(optimizer, "lr_decay_steps"));
    to->lr_decay = decay ? (float)json_number_value(decay) : usual.lr_decay;
    to->clip_value = (float)json_number_value(json_object_get(optimizer, "clip_value"));
    to->clip_norm = (float)json_number_value(json_object_get(optimizer, "clip_norm"));
    to->ema_decay = (float)json_number_value(json_object_get(optimizer, "ema_decay"));
    to->n_boundaries = 0;
    if (json_array_size(list) > OPTIM_MAX_BOUNDARIES)
        return false;
    for (size_t i = 0; i < json_array_size(list); i++)
        to->boundary[to->n_boundaries++] = (uint64_t)json_integer_value(json_array_get(list, i));
    return true;
}
