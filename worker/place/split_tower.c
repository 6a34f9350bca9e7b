/* worker/place/split_tower.c - runs the stages of one tower in turn, see split_tower.h.
 *
 * DESIGN. One thread calls the layers in their order, across all stages; work that is queued on a
 * device continues while the thread calls another device. An output is copied to the host only when
 * the first layer on another device that reads it is about to run, and not as soon as its layer is
 * queued. So devices whose layers do not depend on each other compute in parallel. Before the
 * backward of a layer whose output several stages read, the gradients from these stages are added
 * in the order of the stages, so that sums are the same in every run. Layers on the host are a
 * stage without a plan. */
#include "worker/place/split_tower.h"
#include "base/aligned.h"
#include "base/log.h"
#include "base/trace.h"
#include "kernels/parts.h"
#include <stdlib.h>
#include <string.h>

struct stage {
    const struct backend *backend;
    enum backend_precision precision;
    struct plan *plan; /* NULL: no layer is on this device */
    int n_layers;      /* number of layers of this stage */
    uint8_t *mine;     /* [n_layers of the network] 1 for each layer of this stage */
    uint8_t *reads; /* [n_layers] 1 for each layer of another stage whose output this stage reads */
    /* [n_layers] 1 for each layer in `reads` whose output the plan has got in this step */
    uint8_t *has;
};

struct split_tower {
    struct split_tower_config cfg; /* cfg.stage_of may be NULL: use stage_of() */
    struct stage *stage; /* [cfg.n + 1] the last one has the layers on the host, and no plan */
    /* [n_layers] host memory of batch x elems floats for a layer's output, and later its gradient;
     * NULL: only the layer's own device uses them */
    float **crossing;
    const float **host_out; /* [n_layers] output of a layer on the host; borrowed */
    uint8_t *is_fetched;    /* [n_layers] 1 if this step's output is in `crossing` */
    uint8_t *trains; /* [n_layers] 1 if the layer, or a layer that it depends on, has parameters */
    int *layer_of_param; /* [n_params] */
    int n;               /* number of samples of the step */
    bool has_parts;
};

static int stage_of(const struct split_tower *s, int layer)
{
    if (layer_is_on_host(s->cfg.plan.layers[layer].kind))
        return s->cfg.n;
    return s->cfg.stage_of ? s->cfg.stage_of[layer] : 0;
}

static struct stage *stage_at(const struct split_tower *s, int layer)
{
    return &s->stage[stage_of(s, layer)];
}

/* Records the layers of each stage, and the outputs of other stages that the stage reads. Records
 * for each layer whether its output needs a gradient. */
static void note_layers(struct split_tower *s)
{
    for (int i = 0; i < s->cfg.plan.n_layers; i++) {
        const struct layer *l = &s->cfg.plan.layers[i];
        struct stage *g = stage_at(s, i);
        g->mine[i] = 1;
        g->n_layers++;
        s->trains[i] = l->n_params > 0 || layer_is_on_host(l->kind);
        for (int k = 0; k < l->n_params; k++)
            s->layer_of_param[l->param[k]] = i;
        for (int k = 0; k < l->n_inputs; k++) {
            int input = l->input[k];
            if (input == LAYER_INPUT_IMAGE)
                continue;
            s->trains[i] |= s->trains[input];
            g->reads[input] |= stage_at(s, input) != g;
        }
    }
}

static enum status no_memory(const char *what)
{
    LOG_E("out of memory for %s", what);
    return ST_NOMEM;
}

static enum status allocate_memory(struct split_tower *s)
{
    size_t n_layers = (size_t)s->cfg.plan.n_layers, n_params = (size_t)s->cfg.plan.n_params;
    s->stage = calloc((size_t)s->cfg.n + 1, sizeof *s->stage);
    s->crossing = calloc(n_layers, sizeof *s->crossing);
    s->is_fetched = calloc(n_layers, 1);
    s->trains = calloc(n_layers, 1);
    s->layer_of_param = calloc(n_params, sizeof *s->layer_of_param);
    s->host_out = calloc(n_layers, sizeof *s->host_out);
    if (!s->stage || !s->crossing || !s->host_out || !s->is_fetched || !s->trains ||
        !s->layer_of_param)
        return no_memory("a network's lists");
    for (int i = 0; i <= s->cfg.n; i++) {
        struct stage *g = &s->stage[i];
        if (i < s->cfg.n) {
            g->backend = s->cfg.device[i].backend;
            g->precision = s->cfg.device[i].precision;
        }
        g->mine = calloc(n_layers, 1);
        g->reads = calloc(n_layers, 1);
        g->has = calloc(n_layers, 1);
        if (!g->mine || !g->reads || !g->has)
            return no_memory("a network's lists");
    }
    return ST_OK;
}

static enum status allocate_crossing(struct split_tower *s)
{
    for (int i = 0; i < s->cfg.plan.n_layers; i++) {
        const struct layer *l = &s->cfg.plan.layers[i];
        size_t elems = (size_t)s->cfg.plan.batch * (size_t)shape_elems(&l->out);
        int unneeded = layer_is_on_host(l->kind); /* the caller has the memory for one reader */
        for (int k = 0; k < s->cfg.n && !s->crossing[i]; k++) {
            if (!s->stage[k].reads[i] || unneeded-- > 0)
                continue;
            s->crossing[i] = aligned_take(elems * sizeof(float));
            if (!s->crossing[i])
                return no_memory("tensors that are copied between devices");
        }
    }
    return ST_OK;
}

/* Refuses a backend that cannot compute only some layers of a network. */
static enum status check_backends(const struct split_tower *s)
{
    int trains = !s->cfg.plan.inference_only;
    for (int i = 0; i < s->cfg.n; i++) {
        const struct backend *b = s->stage[i].backend;
        int n_mine = s->stage[i].n_layers;
        if (n_mine == 0 || n_mine == s->cfg.plan.n_layers)
            continue;
        if (b->read_output && b->set_output &&
            (!trains || (b->set_output_grad && b->read_output_grad)))
            continue;
        LOG_E("backend %s cannot compute a part of a network; place all layers on one device",
              b->name);
        return ST_UNSUPPORTED;
    }
    return ST_OK;
}

enum status split_tower_create(const struct split_tower_config *cfg, struct split_tower **out)
{
    enum status st = ST_OK;
    struct split_tower *s = calloc(1, sizeof *s);
    if (!s)
        return no_memory("a network's lists");
    s->cfg = *cfg;
    TRY(allocate_memory(s));
    note_layers(s);
    TRY(check_backends(s));
    TRY(allocate_crossing(s));
    for (int i = 0; i < cfg->n; i++) {
        if (s->stage[i].n_layers == 0)
            continue;
        struct backend_plan_config pc = cfg->plan;
        pc.device = cfg->device[i].device;
        pc.n_threads = cfg->device[i].n_threads;
        pc.precision = cfg->device[i].precision;
        pc.deterministic = cfg->device[i].deterministic;
        pc.tuning = cfg->device[i].tuning;
        pc.mine = s->stage[i].n_layers < pc.n_layers ? s->stage[i].mine : NULL;
        s->has_parts = pc.parts && !pc.mine && s->stage[i].backend->parts;
        pc.parts = s->has_parts ? pc.parts : NULL;
        TRY(s->stage[i].backend->plan_create(&pc, &s->stage[i].plan));
    }
    s->cfg.plan.parts = NULL; /* borrowed only until the plans are created */
done:
    if (st == ST_OK)
        *out = s;
    else
        split_tower_destroy(s);
    return st;
}

void split_tower_destroy(struct split_tower *s)
{
    if (!s)
        return;
    for (int i = 0; s->stage && i <= s->cfg.n; i++) {
        struct stage *g = &s->stage[i];
        if (g->plan)
            g->backend->plan_destroy(g->plan);
        free(g->mine);
        free(g->reads);
        free(g->has);
    }
    for (int i = 0; s->crossing && i < s->cfg.plan.n_layers; i++)
        free(s->crossing[i]);
    free(s->stage);
    free(s->crossing);
    free(s->host_out);
    free(s->is_fetched);
    free(s->trains);
    free(s->layer_of_param);
    free(s);
}

size_t split_tower_memory_bytes(const struct split_tower *s)
{
    size_t n = 0;
    for (int i = 0; i < s->cfg.n; i++)
        n += !s->stage[i].plan ? 0 : s->stage[i].backend->plan_memory_bytes(s->stage[i].plan);
    return n;
}

struct plan *split_tower_only_plan(struct split_tower *s)
{
    return s->cfg.n == 1 && s->stage[1].n_layers == 0 ? s->stage[0].plan : NULL;
}

enum status split_tower_set_rounded(struct split_tower *s, const uint8_t *rounded)
{
    enum status st = ST_OK;
    for (int i = 0; i < s->cfg.n && st == ST_OK; i++) {
        const struct stage *g = &s->stage[i];
        if (g->plan && g->backend->set_rounded && g->precision == BACKEND_BF16)
            st = g->backend->set_rounded(g->plan, rounded);
    }
    return st;
}

enum status split_tower_load_param(struct split_tower *s, int param)
{
    struct stage *g = stage_at(s, s->layer_of_param[param]);
    return g->backend->load_param(g->plan, param);
}

/* Marks that no output of this step has been copied to the host. */
static void begin_step(struct split_tower *s, int n)
{
    s->n = n;
    for (int i = 0; i < s->cfg.n; i++)
        memset(s->stage[i].has, 0, (size_t)s->cfg.plan.n_layers);
    memset(s->is_fetched, 0, (size_t)s->cfg.plan.n_layers);
}

enum status split_tower_set_input(struct split_tower *s, const uint8_t *const *images,
                                  const uint8_t *labels, const uint64_t *position, int n)
{
    enum status st = ST_OK;
    begin_step(s, n);
    for (int i = 0; st == ST_OK && i < s->cfg.n; i++)
        if (s->stage[i].plan)
            st = s->stage[i].backend->set_input(s->stage[i].plan, images, labels, position, n);
    return st;
}

enum status split_tower_set_floats(struct split_tower *s, const float *const *samples,
                                   const int32_t *labels, const uint64_t *position, int n)
{
    enum status st = ST_OK;
    begin_step(s, n);
    for (int i = 0; st == ST_OK && i < s->cfg.n; i++) {
        const struct stage *g = &s->stage[i];
        if (g->plan && !g->backend->set_floats) {
            LOG_E(
                "%s: this backend accepts only pixels of one byte, with labels of up to 256 classes",
                g->backend->name);
            return ST_UNSUPPORTED;
        }
        if (g->plan)
            st = g->backend->set_floats(g->plan, samples, labels, position, n);
    }
    return st;
}

enum status split_tower_set_targets(struct split_tower *s, const float *const *targets, int n)
{
    const struct stage *g = stage_at(s, s->cfg.plan.n_layers - 1);
    if (g->backend->set_targets)
        return g->backend->set_targets(g->plan, targets, n);
    LOG_E("%s: this backend accepts only class labels, not regression targets (floats)",
          g->backend->name);
    return ST_UNSUPPORTED;
}

enum status split_tower_set_items(struct split_tower *s, const struct backend_data *data,
                                  const uint32_t *item, const uint64_t *position, int n)
{
    CHECK(s->cfg.n == 1); /* no output is copied between devices if there is only one */
    begin_step(s, n);
    return s->stage[0].backend->set_items(s->stage[0].plan, data, item, position, n);
}

/* Copies the output of `layer` to a stage that reads it, unless the stage already has it. */
static enum status bring_output(struct split_tower *s, struct stage *to, int layer, int64_t step)
{
    enum status st = ST_OK;
    struct stage *from = stage_at(s, layer);
    if (to->has[layer])
        return ST_OK;
    int64_t begin = trace_begin();
    if (from->plan && !s->is_fetched[layer])
        TRY(from->backend->read_output(from->plan, layer, s->crossing[layer]));
    s->is_fetched[layer] = 1;
    TRY(to->backend->set_output(to->plan, layer,
                                from->plan ? s->crossing[layer] : s->host_out[layer]));
    to->has[layer] = 1;
    trace_end(begin, TRACE_CROSS, "output of", s->cfg.plan.layers[layer].name, layer, step);
done:
    return st;
}

/* Waits until all layers on other devices that `layer` must run after have ended. Layers on the
 * same device need no wait, because the device computes in the order of the calls. */
static enum status wait_for_earlier(struct split_tower *s, int layer, int64_t step)
{
    enum status st = ST_OK;
    for (int i = 0; i < s->cfg.n_after; i++) {
        const struct model_after *a = &s->cfg.after[i];
        const struct stage *g = stage_at(s, a->first);
        if (a->then != layer || g == stage_at(s, layer) || !g->plan || !g->backend->finish)
            continue;
        int64_t begin = trace_begin();
        TRY(g->backend->finish(g->plan));
        trace_end(begin, TRACE_CROSS, "end of", s->cfg.plan.layers[a->first].name, a->first, step);
    }
done:
    return st;
}

static enum status forward_layer(struct split_tower *s, int layer, int train, int64_t step)
{
    enum status st = ST_OK;
    const struct layer *l = &s->cfg.plan.layers[layer];
    struct stage *g = stage_at(s, layer);
    if (!g->plan)
        return ST_OK;
    for (int k = 0; k < l->n_inputs; k++)
        if (l->input[k] != LAYER_INPUT_IMAGE && g->reads[l->input[k]])
            TRY(bring_output(s, g, l->input[k], step));
    TRY(wait_for_earlier(s, layer, step));
    int64_t begin = train ? trace_begin() : 0;
    TRY(g->backend->forward(g->plan, layer, train));
    trace_end(begin, TRACE_COMPUTE, "forward", l->name, layer, step);
done:
    return st;
}

enum status split_tower_forward(struct split_tower *s, int layer, int64_t step)
{
    return forward_layer(s, layer, 1, step);
}

enum status split_tower_forward_inference(struct split_tower *s, int layer)
{
    return forward_layer(s, layer, 0, -1);
}

/* Adds the gradients of the output of `layer` that other stages have computed. */
static enum status bring_gradients(struct split_tower *s, int layer, int64_t step)
{
    enum status st = ST_OK;
    struct stage *to = stage_at(s, layer);
    for (int i = 0; i < s->cfg.n && s->trains[layer]; i++) {
        struct stage *from = &s->stage[i];
        if (!from->reads[layer])
            continue;
        int64_t begin = trace_begin();
        TRY(from->backend->read_output_grad(from->plan, layer, s->crossing[layer]));
        TRY(to->backend->set_output_grad(to->plan, layer, s->crossing[layer]));
        trace_end(begin, TRACE_CROSS, "gradient of", s->cfg.plan.layers[layer].name, layer, step);
    }
done:
    return st;
}

enum status split_tower_backward(struct split_tower *s, int layer, int64_t step)
{
    enum status st = ST_OK;
    struct stage *g = stage_at(s, layer);
    if (!g->plan)
        return ST_OK;
    TRY(bring_gradients(s, layer, step));
    int64_t begin = trace_begin();
    TRY(g->backend->backward(g->plan, layer));
    trace_end(begin, TRACE_COMPUTE, "backward", s->cfg.plan.layers[layer].name, layer, step);
done:
    return st;
}

void split_tower_set_host_output(struct split_tower *s, int layer, const float *out)
{
    s->host_out[layer] = out;
}

enum status split_tower_read_host_grad(struct split_tower *s, int layer, float *grad)
{
    enum status st = ST_OK;
    size_t elems = (size_t)s->n * (size_t)shape_elems(&s->cfg.plan.layers[layer].out);
    bool has = false;
    int64_t begin = trace_begin();
    for (int i = 0; i < s->cfg.n; i++) {
        struct stage *from = &s->stage[i];
        if (!from->reads[layer])
            continue;
        TRY(from->backend->read_output_grad(from->plan, layer, has ? s->crossing[layer] : grad));
        for (size_t k = 0; k < elems && has; k++)
            grad[k] += s->crossing[layer][k];
        has = true;
    }
    trace_end(begin, TRACE_CROSS, "gradient of", s->cfg.plan.layers[layer].name, layer, -1);
done:
    return st;
}

enum status split_tower_result(struct split_tower *s, float *loss, int *n_correct)
{
    struct stage *g = stage_at(s, s->cfg.plan.n_layers - 1);
    return g->backend->result(g->plan, loss, n_correct);
}

enum status split_tower_output(struct split_tower *s, float *dst)
{
    int last = s->cfg.plan.n_layers - 1;
    struct stage *g = stage_at(s, last);
    if (g->backend->read_output)
        return g->backend->read_output(g->plan, last, dst);
    LOG_E("backend %s cannot copy outputs to the host; use --gpus=none", g->backend->name);
    return ST_UNSUPPORTED;
}

int split_tower_backward_lead(const struct split_tower *s)
{
    int n_plans = 0, is_late = 0;
    for (int i = 0; i < s->cfg.n; i++) {
        n_plans += s->stage[i].plan != NULL;
        is_late |= s->stage[i].plan && s->stage[i].backend->wait_grads;
    }
    return is_late && n_plans == 1 ? s->cfg.plan.n_layers : is_late;
}

bool split_tower_has_parts(const struct split_tower *s)
{
    return s->has_parts;
}

enum status split_tower_wait_part(struct split_tower *s, int param, int64_t part)
{
    struct stage *g = stage_at(s, s->layer_of_param[param]);
    return g->backend->parts->wait(g->plan, param, part);
}

enum status split_tower_load_part(struct split_tower *s, int param, int64_t part)
{
    struct stage *g = stage_at(s, s->layer_of_param[param]);
    return g->backend->parts->load(g->plan, param, part);
}

enum status split_tower_check_grads(struct split_tower *s, int layer, bool *suspect)
{
    struct stage *g = stage_at(s, layer);
    return g->backend->parts->check(g->plan, layer, suspect);
}

enum status split_tower_finish(struct split_tower *s)
{
    enum status st = ST_OK;
    for (int i = 0; i < s->cfg.n && st == ST_OK; i++)
        if (s->stage[i].plan && s->stage[i].backend->finish)
            st = s->stage[i].backend->finish(s->stage[i].plan);
    return st;
}

void split_tower_host_moves(struct split_tower *s, const void *at, size_t bytes, bool on)
{
    for (int i = 0; i < s->cfg.n; i++)
        if (s->stage[i].plan && s->stage[i].backend->host_moves)
            s->stage[i].backend->host_moves(s->stage[i].plan, at, bytes, on);
}

enum status split_tower_wait_grads(struct split_tower *s, int layer)
{
    struct stage *g = stage_at(s, layer);
    return g->plan && g->backend->wait_grads ? g->backend->wait_grads(g->plan, layer) : ST_OK;
}
