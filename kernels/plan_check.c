/* kernels/plan_check.c - see plan_check.h. */
#include "kernels/plan_check.h"
#include "base/log.h"

static const int n_params_of[LAYER_N_KINDS] = {
    [LAYER_CONV2D] = 2, [LAYER_DENSE] = 2, [LAYER_BATCH_NORM] = 4};

/* What the backends do not have yet: they compute chains, and all of it. */
static enum status check_chain(const struct backend_plan_config *cfg, int i, const char *backend)
{
    const struct layer *l = &cfg->layers[i];
    if (cfg->mine == NULL && l->kind != LAYER_ADD && l->kind != LAYER_CONCAT && l->n_inputs == 1 &&
        l->input[0] == i - 1)
        return ST_OK;
    LOG_E("layer '%s': the %s backend only computes whole networks in which each layer reads the "
          "one before",
          l->name, backend);
    return ST_UNSUPPORTED;
}

static enum status check_inputs(const struct backend_plan_config *cfg, int i)
{
    const struct layer *l = &cfg->layers[i];
    int joins = l->kind == LAYER_ADD || l->kind == LAYER_CONCAT;
    if (l->n_inputs < 1 + joins || l->n_inputs > (joins ? LAYER_MAX_INPUTS : 1)) {
        LOG_E("layer '%s': %d inputs, but its kind has %s", l->name, l->n_inputs,
              joins ? "2 to 16" : "one");
        return ST_UNSUPPORTED;
    }
    for (int k = 0; k < l->n_inputs; k++)
        if (l->input[k] < LAYER_INPUT_IMAGE || l->input[k] >= i) {
            LOG_E("layer '%s': is layer %d, and cannot read layer %d", l->name, i, l->input[k]);
            return ST_RANGE;
        }
    return ST_OK;
}

static enum status check_layer(const struct backend_plan_config *cfg, int i, const char *backend)
{
    const struct layer *l = &cfg->layers[i];
    if ((unsigned)l->kind >= LAYER_N_KINDS) {
        LOG_E("layer '%s': the %s backend does not know kind %d", l->name, backend, (int)l->kind);
        return ST_UNSUPPORTED;
    }
    if ((l->kind == LAYER_SOFTMAX_XENT) != (i == cfg->n_layers - 1) &&
        (l->kind == LAYER_SOFTMAX_XENT || !cfg->inference_only)) {
        LOG_E("layer '%s': softmax_xent must be the last layer, and the only one", l->name);
        return ST_UNSUPPORTED;
    }
    if (l->n_params != n_params_of[l->kind]) {
        LOG_E("layer '%s': %d parameters, but its kind has %d", l->name, l->n_params,
              n_params_of[l->kind]);
        return ST_UNSUPPORTED;
    }
    for (int k = 0; k < l->n_params; k++)
        if (l->param[k] < 0 || l->param[k] >= cfg->n_params) {
            LOG_E("layer '%s': parameter %d of %d", l->name, l->param[k], cfg->n_params);
            return ST_RANGE;
        }
    enum status st = check_inputs(cfg, i);
    return st == ST_OK ? check_chain(cfg, i, backend) : st;
}

enum status plan_check_layers(const struct backend_plan_config *cfg, const char *backend)
{
    enum status st = ST_OK;
    for (int i = 0; i < cfg->n_layers && st == ST_OK; i++)
        st = check_layer(cfg, i, backend);
    return st;
}
