/* worker/train/tower_tables.c - see tower_tables.h. */
#include "worker/train/tower_tables.h"
#include "base/log.h"
#include "net/wire/tables.h"
#include "worker/train/tower.h"
#include <stdlib.h>

/* Refuses a layer whose rows this worker cannot read. */
static enum status check_source(const struct trainer_config *cfg, int layer)
{
    if (cfg->reader || (cfg->updates && cfg->updates->ops->push_rows))
        return ST_OK;
    LOG_E(
        "layer '%s' of model '%s' reads rows of a table, but this worker has neither servers nor a file with the rows",
        cfg->model->layers[layer].name, cfg->model->name);
    return ST_UNSUPPORTED;
}

enum status tower_tables_create(const struct trainer_config *cfg, int n_towers, bool reads_only,
                                struct table_step ***out)
{
    const struct model *m = cfg->model;
    enum status st = ST_OK;
    int n = 0;
    struct table_step **tables = NULL;
    for (int i = 0; i < m->n_layers; i++) {
        if (!layer_is_on_host(m->layers[i].kind))
            continue;
        TRY(check_source(cfg, i));
        CHECK(n < cfg->chunks->n_tables);
        if (!tables)
            tables = calloc((size_t)m->n_layers, sizeof *tables);
        if (!tables) {
            LOG_E("out of memory for the tables of a model of %d layers", m->n_layers);
            TRY(ST_NOMEM);
        }
        struct table_step_config c = {.updates = cfg->updates,
                                      .table = &cfg->chunks->tables[n],
                                      .reader = cfg->reader,
                                      .index = n,
                                      .mean = m->layers[i].mean,
                                      .n_towers = n_towers,
                                      .own_pace = cfg->own_pace,
                                      .reads_only = reads_only};
        TRY(table_step_create(&c, &tables[i]));
        n++;
    }
    *out = tables;
    tables = NULL;
done:
    tower_tables_free(tables, m->n_layers);
    return st;
}

void tower_tables_free(struct table_step **tables, int n_layers)
{
    for (int i = 0; tables && i < n_layers; i++)
        table_step_destroy(tables[i]);
    free(tables);
}

enum status tower_tables_put(struct tower *t)
{
    enum status st = ST_OK;
    const struct crew crew = {t->spec.own.backend->spread, t->spec.own.n_threads, NULL};
    for (int i = 0; t->tables && i < t->cfg->model->n_layers; i++) {
        const float *out;
        if (!t->tables[i])
            continue;
        table_step_set(t->tables[i], 0, &t->now.keys.bags[t->cfg->model->layers[i].keys]);
        TRY(table_step_read(t->tables[i], t->rows_step));
        TRY(table_step_output(t->tables[i], 0, &crew, &out));
        split_tower_set_host_output(t->stages, i, out);
    }
done:
    return st;
}
