/* checkpoint/manifest_optimizer.c - see the header. */
#include "checkpoint/manifest_optimizer.h"
#include "checkpoint/manifest_names.h"
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

/* Adds the keys to `optimizer`, owns it, and returns it; NULL: out of memory. */
static json_t *add_schedule(json_t *optimizer, const struct optim_config *from)
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

/* Reads the keys. Returns false if they are malformed; optim_check checks the bounds. */
static bool read_schedule(const json_t *optimizer, struct optim_config *to)
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

json_t *manifest_optimizer_to_json(const struct optim_config *from)
{
    json_t *json =
        json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s}", "name", optim_name(from->kind),
                  "learning_rate", (double)from->learning_rate, "momentum", (double)from->momentum,
                  "decay", (double)from->decay, "beta1", (double)from->beta1, "beta2",
                  (double)from->beta2, "epsilon", (double)from->epsilon, "weight_decay",
                  (double)from->weight_decay, "lr_schedule", optim_schedule_name(from->schedule));
    return add_schedule(json, from);
}

static const char *optim_at(int i)
{
    return optim_name((enum optim_kind)i);
}

static const char *schedule_at(int i)
{
    return optim_schedule_name((enum optim_schedule)i);
}

static float number_of(const json_t *o, const char *key)
{
    return (float)json_number_value(json_object_get(o, key));
}

/* Reads an optimizer of this kind. */
static bool read_fields(const json_t *o, enum optim_kind kind, struct optim_config *to)
{
    int schedule = manifest_names_find(o, "lr_schedule", schedule_at, SCHEDULE_N_KINDS);
    if (schedule < 0)
        return false;
    *to = (struct optim_config){.kind = kind,
                                .learning_rate = number_of(o, "learning_rate"),
                                .momentum = number_of(o, "momentum"),
                                .decay = number_of(o, "decay"),
                                .beta1 = number_of(o, "beta1"),
                                .beta2 = number_of(o, "beta2"),
                                .epsilon = number_of(o, "epsilon"),
                                .weight_decay = number_of(o, "weight_decay"),
                                .schedule = (enum optim_schedule)schedule};
    return read_schedule(o, to);
}

bool manifest_optimizer_from_json(const json_t *o, struct optim_config *to)
{
    int kind = manifest_names_find(o, "name", optim_at, OPTIM_N_KINDS);
    return kind >= 0 && read_fields(o, (enum optim_kind)kind, to) && optim_check(to) == ST_OK;
}

json_t *manifest_optimizer_rows_to_json(const struct optim_rows_config *from)
{
    json_t *o = manifest_optimizer_to_json(&from->common);
    if (o && set(o, "name", json_string(optim_rows_name(from->kind))) &&
        set(o, "ftrl_beta", json_real((double)from->ftrl_beta)) &&
        set(o, "l1", json_real((double)from->l1)) && set(o, "l2", json_real((double)from->l2)))
        return o;
    json_decref(o);
    return NULL;
}

static const char *rows_at(int i)
{
    return optim_rows_name((enum optim_rows_kind)i);
}

bool manifest_optimizer_rows_from_json(const json_t *o, struct optim_rows_config *to)
{
    int kind = manifest_names_find(o, "name", rows_at, OPTIM_ROWS_N_KINDS);
    if (kind < 0)
        return false;
    optim_rows_defaults((enum optim_rows_kind)kind, to);
    to->ftrl_beta = number_of(o, "ftrl_beta");
    to->l1 = number_of(o, "l1");
    to->l2 = number_of(o, "l2");
    return read_fields(o, to->common.kind, &to->common);
}
