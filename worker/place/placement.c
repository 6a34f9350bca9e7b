/* worker/place/placement.c - assigns a device to each layer, see placement.h.
 *
 * DESIGN. Each layer gets a spot: the device and, for the log, the reason. The spot OWN means the
 * tower's own device, so one placement serves all towers. Only a tower that spans devices has spots
 * on GPUs by number. */
#include "worker/place/placement.h"
#include "base/log.h"
#include "worker/model/model.h"
#include "worker/place/placement_rules.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OWN = -2, SHOWN_NAMES = 600, NAME_SIZE = 32 };

enum decider { BY_DEFAULT, BY_RULE, BY_MODEL, BY_INPUT };

struct spot {
    int device; /* OWN, PLACEMENT_CPU or the index of a GPU */
    enum decider by;
    int index;    /* BY_RULE: index of the rule; BY_INPUT: index of the layer that is read */
    bool is_soft; /* true: the layer is not on the device that was requested */
};

struct placement {
    struct placement_request r;
    struct placement_rules rules;
    struct spot *spots; /* [n_layers] */
    int spans;
    int turn; /* round_robin: number of layers placed so far */
    int on_host;
};

/* Writes a text such as "/device:GPU:0". Returns dst. */
static const char *device_name(int device, char dst[NAME_SIZE])
{
    if (device < 0)
        snprintf(dst, NAME_SIZE, "/device:CPU:0");
    else
        snprintf(dst, NAME_SIZE, "/device:GPU:%d", device);
    return dst;
}

enum status placement_check(const char *rules)
{
    struct placement_rules r;
    enum status st = placement_rules_read(rules, &r);
    if (st == ST_OK)
        placement_rules_free(&r);
    return st;
}

/* Returns the first layer on a device whose output `layer` reads; -1: it reads none. */
static int first_input(const struct placement *p, int layer)
{
    const struct layer *l = &p->r.layers[layer];
    for (int k = 0; k < l->n_inputs; k++)
        if (l->input[k] != LAYER_INPUT_IMAGE && !layer_is_on_host(p->r.layers[l->input[k]].kind))
            return l->input[k];
    return -1;
}

/* Returns the number that rules use for the GPU of this index. */
static int number_of(const struct placement *p, int gpu)
{
    return p->r.number && gpu >= 0 && gpu < p->r.n_gpus ? p->r.number[gpu] : gpu;
}

/* Returns the index of the GPU that rules call `number`; -1: it does not exist. */
static int index_of(const struct placement *p, int number)
{
    for (int i = 0; i < p->r.n_gpus; i++)
        if (number_of(p, i) == number)
            return i;
    return -1;
}

static void devices_text(const struct placement *p, char *dst, size_t bytes)
{
    size_t n = (size_t)snprintf(dst, bytes, "there are /device:CPU:0");
    for (int i = 0; i < p->r.n_gpus && n < bytes; i++)
        n += (size_t)snprintf(dst + n, bytes - n, ", /device:GPU:%d", number_of(p, i));
}

static const char *type_of(const struct layer *l)
{
    return model_type_name(l->kind);
}

static const char *names_text(const struct placement *p, char *dst, size_t bytes)
{
    size_t n = 0;
    dst[0] = '\0';
    for (int i = 0; i < p->r.n_layers; i++) {
        if (n + sizeof p->r.layers[i].name + 8 > bytes) {
            snprintf(dst + n, bytes - n, ", ...");
            break;
        }
        n += (size_t)snprintf(dst + n, bytes - n, "%s%s", i ? ", " : "", p->r.layers[i].name);
    }
    return dst;
}

/* Returns true if this rule is the first match of a layer or parameter. Otherwise *shown is a name
 * that this rule matches, but for which the earlier rule *taker decides; *shown NULL: this rule
 * matches no name. */
static bool rule_decides(const struct placement *p, int rule, const char **shown, int *taker)
{
    const struct placement_rule *r = &p->rules.rule[rule];
    *shown = NULL;
    for (int k = 0; k < (r->of == PLACEMENT_OF_PARAMS ? p->r.n_params : p->r.n_layers); k++) {
        int is_param = r->of == PLACEMENT_OF_PARAMS;
        const char *name = is_param ? p->r.params[k].name : p->r.layers[k].name;
        const char *type = is_param ? "" : type_of(&p->r.layers[k]);
        if (!(is_param ? placement_rule_fits_param(r, name) : placement_rule_fits(r, name, type)))
            continue;
        int first = is_param ? placement_rules_find_param(&p->rules, name)
                             : placement_rules_find(&p->rules, name, type);
        if (first == rule)
            return true;
        if (*shown == NULL)
            *taker = first;
        *shown = *shown ? *shown : name;
    }
    return false;
}

/* Refuses a rule that decides nothing, because its pattern is misspelt or earlier rules match all
 * names that it matches. */
static enum status check_rules(const struct placement *p)
{
    char names[SHOWN_NAMES];
    for (int i = 0; i < p->rules.n; i++) {
        const struct placement_rule *rule = &p->rules.rule[i];
        const char *shown;
        int taker = -1;
        if (rule_decides(p, i, &shown, &taker))
            continue;
        if (shown == NULL && rule->of == PLACEMENT_OF_LAYERS)
            LOG_E("--placement: the rule '%.60s=%.60s' fits no layer; the layers are %s",
                  rule->pattern, rule->device, names_text(p, names, sizeof names));
        else if (shown == NULL && rule->of == PLACEMENT_OF_TYPES)
            LOG_E(
                "--placement: the rule '%.60s=%.60s' fits no layer's type; use, for example, type:%s",
                rule->pattern, rule->device, type_of(&p->r.layers[0]));
        else if (shown == NULL)
            LOG_E("--placement: the rule '%.60s=%.60s' fits no parameter%s%.100s", rule->pattern,
                  rule->device, p->r.n_params ? "; use, for example, " : "",
                  p->r.n_params ? p->r.params[0].name : "");
        else
            LOG_E(
                "--placement: the rule '%.60s=%.60s' has no effect: earlier rules match all its %s, for example '%.60s' matches '%s'; the first match counts, so put this rule before them",
                rule->pattern, rule->device,
                rule->of == PLACEMENT_OF_PARAMS ? "parameters" : "layers",
                p->rules.rule[taker].pattern, shown);
        return ST_INVALID;
    }
    return ST_OK;
}

/* Finds the device that was requested for a layer, whether a rule or the model file requested it,
 * and the text in the rule or the file that names the device. */
static enum status layer_want(struct placement *p, int layer, struct placement_target *want,
                              const char **text)
{
    struct spot *spot = &p->spots[layer];
    const char *device = p->r.device ? p->r.device[layer] : NULL;
    int i = placement_rules_find(&p->rules, p->r.layers[layer].name, type_of(&p->r.layers[layer]));
    *want = (struct placement_target){PLACEMENT_ANYWHERE, 0, -1};
    *text = NULL;
    if (i >= 0) {
        *want = p->rules.rule[i].want;
        *text = p->rules.rule[i].device;
        spot->by = BY_RULE;
        spot->index = i;
    } else if (device) {
        if (!placement_rules_read_target(device, want)) {
            LOG_E(
                "layer '%s': \"device\": \"%.60s\" of the model file is not a device; write " PLACEMENT_SPELLINGS,
                p->r.layers[layer].name, device);
            return ST_INVALID;
        }
        *text = device;
        spot->by = BY_MODEL;
    }
    return ST_OK;
}

static const char *decider_text(const struct placement *p, const struct spot *spot, char *dst,
                                size_t bytes)
{
    const char *soft = spot->is_soft ? "; by --allow_soft_placement" : "";
    if (spot->by == BY_RULE)
        snprintf(dst, bytes, "rule '%.60s=%.60s'%s", p->rules.rule[spot->index].pattern,
                 p->rules.rule[spot->index].device, soft);
    else if (spot->by == BY_MODEL)
        snprintf(dst, bytes, "model file%s", soft);
    else if (spot->by == BY_INPUT)
        snprintf(dst, bytes, "default: the device of '%s'", p->r.layers[spot->index].name);
    else
        snprintf(dst, bytes, "default");
    return dst;
}

/* Refuses a device that the layer cannot use; the error names the reason and the fix. If soft
 * placement is allowed, logs a warning instead, and places the layer on the tower's own device. */
static enum status refuse_or_move(struct placement *p, int layer, const char *text, const char *why,
                                  const char *fix)
{
    char who[200];
    struct spot *spot = &p->spots[layer];
    const char *name = p->r.layers[layer].name;
    decider_text(p, spot, who, sizeof who);
    spot->device = OWN;
    spot->is_soft = true;
    if (p->r.soft) {
        LOG_W("layer '%s' cannot be placed on %.60s (%s): %s; its tower's own device computes it",
              name, text, who, why);
        return ST_OK;
    }
    LOG_E(
        "layer '%s' cannot be placed on %.60s (%s): %s; %s, or set --allow_soft_placement, which chooses another device",
        name, text, who, why, fix);
    return ST_INVALID;
}

static enum status refuse_missing(struct placement *p, int layer, const char *text)
{
    char why[SHOWN_NAMES];
    devices_text(p, why, sizeof why);
    return refuse_or_move(p, layer, text, why, "--gpus sets the number of GPUs");
}

/* Places a layer for which no device is requested. */
static void place_by_default(struct placement *p, int layer)
{
    int input = first_input(p, layer);
    struct spot *spot = &p->spots[layer];
    spot->device = OWN;
    if (p->r.layers[layer].n_params > 0 || input < 0)
        return;
    spot->device = p->spots[input].device;
    if (spot->by == BY_DEFAULT) {
        spot->by = BY_INPUT;
        spot->index = input;
    }
}

/* Refuses a GPU for a layer that the host computes. The spot OWN has no effect: no plan of a device
 * computes the layer. */
static enum status place_on_host(struct placement *p, int layer,
                                 const struct placement_target *want, const char *text)
{
    char who[200];
    const char *name = p->r.layers[layer].name;
    struct spot *spot = &p->spots[layer];
    spot->device = OWN;
    if (want->kind != PLACEMENT_ON_GPU && want->kind != PLACEMENT_ON_OWN_GPU)
        return ST_OK;
    decider_text(p, spot, who, sizeof who);
    if (p->r.soft) {
        LOG_W(
            "layer '%s' cannot be placed on %.60s (%s): it reads rows of servers; the host computes it",
            name, text, who);
        return ST_OK;
    }
    LOG_E(
        "layer '%s' cannot be placed on %.60s (%s): it reads rows of servers, and the host computes it; place it on cpu, by an earlier rule, or set --allow_soft_placement",
        name, text, who);
    return ST_INVALID;
}

static enum status place_layer(struct placement *p, int layer)
{
    char why[64];
    struct placement_target want;
    const char *text;
    struct spot *spot = &p->spots[layer];
    enum status st = layer_want(p, layer, &want, &text);
    if (st != ST_OK)
        return st;
    if (want.task >= 0 && p->r.task >= 0 && want.task != p->r.task) {
        snprintf(why, sizeof why, "this is worker %d", p->r.task);
        return refuse_or_move(p, layer, text, why,
                              "a worker computes all layers itself, so remove '/job:worker/task:'");
    }
    if (layer_is_on_host(p->r.layers[layer].kind))
        return place_on_host(p, layer, &want, text);
    switch (want.kind) {
    case PLACEMENT_ON_CPU:
        spot->device = PLACEMENT_CPU;
        return want.index == 0 ? ST_OK : refuse_missing(p, layer, text);
    case PLACEMENT_ON_OWN_GPU:
        spot->device = OWN;
        return p->r.n_gpus > 0 ? ST_OK : refuse_missing(p, layer, text);
    case PLACEMENT_ON_GPU:
        spot->device = index_of(p, want.index);
        if (spot->device < 0)
            return refuse_missing(p, layer, text);
        p->spans = 1;
        return ST_OK;
    case PLACEMENT_ROUND_ROBIN:
        if (p->r.layers[layer].n_params == 0 || p->r.n_gpus < 2) {
            place_by_default(p, layer);
            return ST_OK;
        }
        spot->device = p->turn++ % p->r.n_gpus;
        p->spans = 1;
        return ST_OK;
    default:
        place_by_default(p, layer);
        return ST_OK;
    }
}

/* Refuses layers on the tower's own GPU if some towers are on the CPU, and so have no GPU. */
static enum status check_cpu_towers(struct placement *p)
{
    enum status st = ST_OK;
    for (int i = 0; st == ST_OK && i < p->r.n_layers && p->r.cpu_towers && !p->spans; i++) {
        struct placement_target want;
        const char *text;
        if (layer_is_on_host(p->r.layers[i].kind))
            continue;
        st = layer_want(p, i, &want, &text);
        if (st == ST_OK && want.kind == PLACEMENT_ON_OWN_GPU && p->r.n_gpus > 0)
            st = refuse_or_move(p, i, text, "a tower on the CPU has no GPU of its own",
                                "remove --towers, which adds such towers");
    }
    return st;
}

/* Returns the layer of the parameter. */
static int layer_of_param(const struct placement *p, int param)
{
    for (int i = 0; i < p->r.n_layers; i++)
        for (int k = 0; k < p->r.layers[i].n_params; k++)
            if (p->r.layers[i].param[k] == param)
                return i;
    return 0;
}

/* Places parameters on the host or with their layers. */
static enum status place_params(struct placement *p)
{
    for (int i = 0; i < p->r.n_params; i++) {
        int rule = placement_rules_find_param(&p->rules, p->r.params[i].name);
        if (rule < 0)
            continue;
        const struct placement_target *want = &p->rules.rule[rule].want;
        int layer = layer_of_param(p, i), at = p->spots[layer].device;
        if (want->kind == PLACEMENT_ON_CPU && want->index == 0) {
            p->on_host = 1;
            continue;
        }
        if ((want->kind == PLACEMENT_ON_OWN_GPU && p->r.n_gpus > 0 && at != PLACEMENT_CPU) ||
            (want->kind == PLACEMENT_ON_GPU && index_of(p, want->index) >= 0 &&
             (at == OWN ? 0 : at) == index_of(p, want->index)))
            continue;
        if (p->r.soft) {
            LOG_W(
                "parameter '%s' cannot be stored on %.60s (rule '%.60s'): it is stored with its layer '%s'",
                p->r.params[i].name, p->rules.rule[rule].device, p->rules.rule[rule].pattern,
                p->r.layers[layer].name);
            continue;
        }
        LOG_E(
            "parameter '%s' cannot be stored on %.60s (rule '%.60s'): a parameter is stored on cpu or with its layer '%s'; place the layer there, too, or set --allow_soft_placement",
            p->r.params[i].name, p->rules.rule[rule].device, p->rules.rule[rule].pattern,
            p->r.layers[layer].name);
        return ST_INVALID;
    }
    return ST_OK;
}

int placement_numbers(const struct placement_request *r, uint8_t *named, int n)
{
    struct placement_rules rules = {0};
    int highest = -1, own = 0;
    memset(named, 0, (size_t)n);
    if (placement_rules_read(r->rules, &rules) != ST_OK)
        return -1;
    for (int i = 0; i < r->n_layers; i++) {
        struct placement_target want = {PLACEMENT_ANYWHERE, 0, -1};
        int rule =
            placement_rules_find(&rules, r->layers[i].name, model_type_name(r->layers[i].kind));
        if (rule >= 0)
            want = rules.rule[rule].want;
        else if (r->device && r->device[i] && !placement_rules_read_target(r->device[i], &want))
            continue;
        if (want.kind == PLACEMENT_ON_GPU && want.index < n) {
            named[want.index] = 1;
            highest = want.index > highest ? want.index : highest;
        }
        own |= want.kind != PLACEMENT_ON_GPU && want.kind != PLACEMENT_ON_CPU &&
               r->layers[i].n_params > 0;
    }
    if (own)
        named[0] = 1;
    placement_rules_free(&rules);
    return highest;
}

enum status placement_create(const struct placement_request *r, struct placement **out)
{
    enum status st = ST_OK;
    struct placement *p = calloc(1, sizeof *p);
    if (p)
        p->spots = calloc((size_t)r->n_layers, sizeof *p->spots);
    if (!p || !p->spots) {
        LOG_E("out of memory for the placement of %d layers", r->n_layers);
        TRY(ST_NOMEM);
    }
    p->r = *r;
    TRY(placement_rules_read(r->rules, &p->rules));
    TRY(check_rules(p));
    for (int i = 0; i < r->n_layers; i++)
        TRY(place_layer(p, i));
    TRY(check_cpu_towers(p));
    TRY(place_params(p));
done:
    if (st == ST_OK)
        *out = p;
    else
        placement_destroy(p);
    return st;
}

void placement_destroy(struct placement *p)
{
    if (!p)
        return;
    placement_rules_free(&p->rules);
    free(p->spots);
    free(p);
}

bool placement_spans(const struct placement *p)
{
    return p->spans;
}

bool placement_keeps_on_host(const struct placement *p)
{
    return p->on_host;
}

int placement_device(const struct placement *p, int layer, int own)
{
    return p->spots[layer].device == OWN ? own : p->spots[layer].device;
}

/* Logs each parameter of the layer that a rule names itself. Returns the number of these
 * parameters. */
static int log_params(const struct placement *p, int layer, const char *prefix, int own)
{
    const struct layer *l = &p->r.layers[layer];
    char device[NAME_SIZE];
    int n = 0;
    for (int k = 0; k < l->n_params && p->r.n_params > 0; k++) {
        const char *name = p->r.params[l->param[k]].name;
        int rule = placement_rules_find_param(&p->rules, name);
        if (rule < 0)
            continue;
        int on_cpu = p->rules.rule[rule].want.kind == PLACEMENT_ON_CPU;
        int at = on_cpu ? PLACEMENT_CPU : placement_device(p, layer, own);
        LOG_I("%s%s: %s (rule '%.60s=%.60s')", prefix, name, device_name(number_of(p, at), device),
              p->rules.rule[rule].pattern, p->rules.rule[rule].device);
        n++;
    }
    return n;
}

void placement_log(const struct placement *p, int tower, int n_towers, int own)
{
    char prefix[32] = "", who[200], device[NAME_SIZE];
    if (n_towers > 1)
        snprintf(prefix, sizeof prefix, "tower_%d/", tower);
    for (int i = 0; i < p->r.n_layers; i++) {
        const struct layer *l = &p->r.layers[i];
        if (layer_is_on_host(l->kind)) {
            LOG_I("%s%s: the host (rows of servers)", prefix, l->name);
            continue;
        }
        const char *what = l->n_params == 0 || log_params(p, i, prefix, own) > 0 ? ""
                           : l->kind == LAYER_BATCH_NORM || l->kind == LAYER_LAYER_NORM
                               ? "/gamma"
                               : "/weights";
        LOG_I("%s%s%s: %s (%s)", prefix, l->name, what,
              device_name(number_of(p, placement_device(p, i, own)), device),
              decider_text(p, &p->spots[i], who, sizeof who));
    }
}
