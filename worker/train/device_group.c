/* worker/train/device_group.c - finds the towers of one backend and creates its group. */
#include "worker/train/device_group.h"
#include "base/log.h"
#include <stdlib.h>

struct device_group {
    const struct backend *backend;
    struct backend_group *group;
    int n;
    int rank[TOWERS_MAX]; /* rank of each tower */
    int device[TOWERS_MAX];
    float weight[TOWERS_MAX];
};

/* Returns true if the host computes some of the layers. A backend's plan of the other layers cannot
 * be in a group. */
static bool has_host_layers(const struct model *m)
{
    bool any = false;
    for (int i = 0; i < m->n_layers; i++)
        any |= layer_is_on_host(m->layers[i].kind);
    return any;
}

static bool may_join(const struct tower_spec *spec, const struct backend *backend)
{
    return spec->n_others == 0 && spec->own.backend == backend && backend->group_create != NULL;
}

/* Assigns ranks 0, 1, ... to the towers of one backend, in the order of the towers. */
static void members_note(struct device_group *g, const struct trainer_config *cfg,
                         const struct backend *backend)
{
    g->backend = backend;
    g->n = 0;
    for (int i = 0; i < cfg->n_towers; i++) {
        const struct tower_spec *spec = &cfg->towers[i];
        g->rank[i] = -1;
        if (!may_join(spec, backend))
            continue;
        g->rank[i] = g->n;
        g->device[g->n] = spec->own.device;
        g->weight[g->n++] = (float)spec->n / (float)cfg->batch;
    }
}

enum status device_group_create(const struct trainer_config *cfg, struct device_group **out)
{
    enum status st = ST_OK;
    struct device_group *g = calloc(1, sizeof *g);
    if (!g) {
        LOG_E("out of memory for a group of %d towers", cfg->n_towers);
        return ST_NOMEM;
    }
    for (int i = 0; i < cfg->n_towers && g->n < 2 && !has_host_layers(cfg->model); i++)
        members_note(g, cfg, cfg->towers[i].own.backend);
    if (g->n < 2) {
        free(g);
        *out = NULL;
        return ST_OK;
    }
    struct backend_group_config gc = {.n = g->n, .device = g->device, .weight = g->weight};
    TRY(g->backend->group_create(&gc, &g->group));
    *out = g;
done:
    if (st != ST_OK)
        free(g);
    return st;
}

void device_group_destroy(struct device_group *g)
{
    if (!g)
        return;
    g->backend->group_destroy(g->group);
    free(g);
}

void device_group_cancel(struct device_group *g)
{
    if (g)
        g->backend->group_cancel(g->group);
}

int device_group_rank(const struct device_group *g, int tower)
{
    return g ? g->rank[tower] : -1;
}

struct backend_group *device_group_backend(const struct device_group *g)
{
    return g ? g->group : NULL;
}
