/* tests/trainer_rig.c - see trainer_rig.h. */
#include "tests/trainer_rig.h"
#include "tests/check.h"
#include <stdlib.h>
#include <string.h>

struct fake_seen fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .fail_at_forward = -1};

static int item_of(const uint8_t *image)
{
    return image[0] | image[1] << 8;
}

static enum status fake_create(const struct backend_plan_config *cfg, struct plan **out)
{
    struct plan *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->cfg = *cfg;
    *out = p;
    return ST_OK;
}

static void fake_destroy(struct plan *p)
{
    free(p);
}

static size_t fake_memory(const struct plan *p)
{
    return p ? 1 : 0;
}

static enum status fake_load(struct plan *p, int param)
{
    fake.n_loads += !p->cfg.inference_only;
    return param < p->cfg.n_params ? ST_OK : ST_RANGE;
}

static enum status fake_input(struct plan *p, const uint8_t *const *images, const uint8_t *labels,
                              const uint64_t *position, int n)
{
    float sum = 0;
    pthread_mutex_lock(&fake.lock);
    for (int i = 0; i < n; i++) {
        int item = item_of(images[i]);
        assert_int_equal(labels[i], item % 10);
        sum += (float)item;
        if (!p->cfg.inference_only && fake.n_reads < MAX_READS)
            fake.reads[fake.n_reads++] = item;
    }
    pthread_mutex_unlock(&fake.lock);
    p->mean = sum / (float)n;
    p->n = n;
    return ST_OK;
}

static enum status fake_forward(struct plan *p, int layer, int train)
{
    if (!train || atomic_load(&fake.fail_at_forward) < 0)
        return ST_OK;
    return atomic_fetch_sub(&fake.fail_at_forward, 1) == 0 ? ST_INTERNAL : ST_OK;
}

enum status fake_backward(struct plan *p, int layer)
{
    if (p->cfg.layers[layer].n_params > 0)
        for (int i = 0; i < N_ELEMS; i++)
            p->cfg.grads[0][i] = p->mean + p->cfg.params[0][i] * 0.25f;
    return ST_OK;
}

enum status fake_result(struct plan *p, float *loss, int *n_correct)
{
    *loss = p->mean;
    *n_correct = p->n / 2;
    return ST_OK;
}

const struct backend fake_backend = {
    .name = "fake",
    .description = "fake",
    .plan_create = fake_create,
    .plan_destroy = fake_destroy,
    .plan_memory_bytes = fake_memory,
    .load_param = fake_load,
    .set_input = fake_input,
    .forward = fake_forward,
    .backward = fake_backward,
    .result = fake_result,
};

struct backend_group {
    int n, arrived;
    uint64_t sums;
    float weight[MAX_TOWERS], mean[MAX_TOWERS];
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t changed;
    int cancelled;
};
_Atomic int n_groups, group_hangs; /* group_hangs: nonzero if no sum ever ends */

static enum status group_create(const struct backend_group_config *cfg, struct backend_group **out)
{
    struct backend_group *g = calloc(1, sizeof *g);
    assert_non_null(g);
    g->n = cfg->n;
    memcpy(g->weight, cfg->weight, (size_t)cfg->n * sizeof *g->weight);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    n_groups++;
    *out = g;
    return ST_OK;
}

static void group_destroy(struct backend_group *g)
{
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static void group_cancel(struct backend_group *g)
{
    pthread_mutex_lock(&g->lock);
    g->cancelled = 1;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static enum status group_backward(struct plan *p, int layer)
{
    return layer == 0 && p->cfg.group == NULL ? fake_backward(p, layer) : ST_OK;
}

static void group_sum(struct backend_group *g, struct plan *p)
{
    for (int i = 0; i < N_ELEMS; i++) {
        p->cfg.grads[0][i] = 0;
        for (int r = 0; r < g->n; r++)
            p->cfg.grads[0][i] += g->weight[r] * (g->mean[r] + p->cfg.params[0][i] * 0.25f);
    }
    g->arrived = 0;
    g->sums++;
    pthread_cond_broadcast(&g->changed);
}

static enum status group_wait(struct plan *p, int layer)
{
    struct backend_group *g = p->cfg.group;
    if (layer != 0 || g == NULL)
        return ST_OK;
    pthread_mutex_lock(&g->lock);
    uint64_t before = g->sums;
    g->mean[p->cfg.rank] = p->mean;
    if (++g->arrived == g->n)
        group_sum(g, p);
    while ((g->sums == before || group_hangs) && !g->cancelled)
        pthread_cond_wait(&g->changed, &g->lock);
    enum status st = g->cancelled ? ST_CANCELLED : ST_OK;
    pthread_mutex_unlock(&g->lock);
    return st;
}

struct backend group_backend(void)
{
    struct backend b = fake_backend;
    b.backward = group_backward;
    b.wait_grads = group_wait;
    b.group_create = group_create;
    b.group_destroy = group_destroy;
    b.group_cancel = group_cancel;
    return b;
}

void rig_make(struct rig *r, int task, int n_workers, int n_towers, int batch)
{
    memset(r, 0, sizeof *r);
    r->layers[0] = (struct layer){.kind = LAYER_DENSE, .n_params = 1};
    r->layers[1] = (struct layer){.kind = LAYER_SOFTMAX_XENT};
    r->param = (struct net_param){.name = "w", .shape = {1, {N_ELEMS}}};
    r->model = (struct model){
        .classes = 10, .n_layers = 2, .layers = r->layers, .n_params = 1, .params = &r->param};
    assert_int_equal(chunks_create(&r->param, 1, CHUNKS_MIN_BYTES, &r->chunks), ST_OK);
    assert_true(r->chunks->n_chunks > 1);
    for (int i = 0; i < N_ITEMS; i++) {
        r->images[i * SIDE * SIDE] = (uint8_t)i;
        r->labels[i] = i % 10;
    }
    r->data = (struct dataset){.n = N_ITEMS,
                               .sample = {3, {1, SIDE, SIDE}},
                               .classes = 10,
                               .labels = r->labels,
                               .bytes = r->images};
    struct net_exchange_config xc = {
        .ps_hosts = &r->no_hosts,
        .params = r->params,
        .join = {.incarnation = 1, .job = {.n_workers = 1}, .chunks = r->chunks}};
    optim_defaults(OPTIM_SGD, &xc.join.job.optim);
    assert_int_equal(updates_create(&xc, &r->updates), ST_OK);
    for (int i = 0; i < n_towers; i++)
        r->towers[i] = (struct tower_spec){.own = {.backend = &fake_backend, .n_threads = 1}};
    tower_plan_share(r->towers, n_towers, 0, batch);
    r->cfg = (struct trainer_config){
        .model = &r->model,
        .chunks = r->chunks,
        .train = &r->data,
        .test = &r->data,
        .updates = &r->updates,
        .params = r->params,
        .towers = r->towers,
        .n_towers = n_towers,
        .batch = batch,
        .train_steps = 15,
        .log_every = 1000000,
        .progress = PROGRESS_LINES,
        .seed = 7,
    };
    r->start.place = (struct net_place){.member = task, .rank = task, .n_members = n_workers};
    assert_int_equal(trainer_create(&r->cfg, &r->trainer), ST_OK);
    pthread_mutex_lock(&fake.lock);
    fake.n_reads = 0;
    pthread_mutex_unlock(&fake.lock);
    atomic_store(&fake.fail_at_forward, -1);
}

void rig_free(struct rig *r)
{
    trainer_destroy(r->trainer);
    updates_destroy(&r->updates);
    chunks_destroy(r->chunks);
}
