/* worker/set_up_tables.c - the tables of a model: reads the model's inputs before the data, refuses
 * what cannot be combined with tables, and adds the tables to the chunks of the job. Warns
 * if their rows will be lost. See worker.h. */
#include "net/exchange/status_client.h"
#include "net/wire/tables.h"
#include "worker/worker.h"
#include <stdlib.h>
#include <string.h>

enum { ASK_MS = 5000 }; /* deadline of the request for the servers' folder */

/* Refuses a model with tables if there are no servers. */
static enum status check_servers(const struct worker *w)
{
    const struct options *o = &w->opt;
    if (w->inputs.n_keys == 0 || o->ps_hosts.n > 0 || o->evaluate || o->predict)
        return ST_OK;
    LOG_E(
        "--model=%s: its layers read rows of tables, and tables need servers: start a server, on this machine or another one (scripts/run_local starts one beside the workers)",
        o->model);
    return ST_UNSUPPORTED;
}

/* Refuses to export a model with tables, because the file would lack their rows. */
static enum status check_export(const struct worker *w)
{
    if (w->inputs.n_keys == 0 || !w->opt.export_file)
        return ST_OK;
    LOG_E(
        "--export=%s: the rows of the model's tables are on the servers and not in an export; set --checkpoint_dir of the servers, and read the checkpoint with --evaluate or --predict",
        w->opt.export_file);
    return ST_UNSUPPORTED;
}

enum status set_up_tables_inputs(struct worker *w)
{
    const struct options *o = &w->opt;
    enum status st =
        o->model_text
            ? model_inputs_parse(o->model_text, strlen(o->model_text),
                                 o->join ? "of the job" : set_up_weights(w).path, &w->inputs)
            : model_inputs_read(o->model, o->models_dir, &w->inputs);
    TRY(st);
    TRY(check_servers(w));
    TRY(check_export(w));
done:
    return st;
}

static const char *table_name(const struct model *m, int table)
{
    return m->layers[m->tables[table].layer].name;
}

enum status set_up_tables_check(struct worker *w)
{
    const struct options *o = &w->opt;
    const struct model *m = w->model;
    for (int i = 0; i < m->n_tables; i++)
        if (o->freeze && weights_freezes(o->freeze, table_name(m, i))) {
            LOG_E(
                "--freeze: '%.300s' matches the layer '%s', whose table cannot be frozen; let the patterns match only names of parameters",
                o->freeze, table_name(m, i));
            return ST_INVALID;
        }
    if (m->n_tables > 0 && job_input_augments(&o->augment)) {
        LOG_E("--augment changes pictures, and model '%s' reads keys beside them; remove the flag",
              m->name);
        return ST_UNSUPPORTED;
    }
    return ST_OK;
}

/* Adds the tables that an inference reads from a checkpoint. It needs only their names and sizes of
 * rows; their other settings may depend on flags of the training. */
static enum status add_to_read(const struct model *m, struct chunks *chunks)
{
    struct net_table tables[TABLES_MAX] = {{0}};
    for (int i = 0; i < m->n_tables; i++) {
        const struct layer *l = &m->layers[m->tables[i].layer];
        tables[i] = (struct net_table){.name = l->name,
                                       .dim = (int)l->out.dim[2],
                                       .n_buckets = 1,
                                       .max_rows = 1,
                                       .step_rows = 1};
        optim_rows_defaults(OPTIM_ROWS_SGD, &tables[i].optimizer);
    }
    return tables_add(chunks, tables, m->n_tables);
}

enum status set_up_tables_add(struct worker *w)
{
    const struct model *m = w->model;
    if (m->n_tables == 0)
        return ST_OK;
    if (!w->train)
        return add_to_read(m, w->chunks);
    const struct net_job job = options_job(&w->opt, w->train->n);
    struct table_wish *wishes = calloc((size_t)m->n_tables, sizeof *wishes);
    if (!wishes) {
        LOG_E("out of memory for the settings of %d tables", m->n_tables);
        return ST_NOMEM;
    }
    model_table_wishes(m, wishes);
    enum status st = table_settings_add(wishes, m->n_tables, &job, w->joined.chunks, w->chunks);
    free(wishes);
    return st;
}

void set_up_tables_log(const struct worker *w)
{
    for (int i = 0; i < w->model->n_tables; i++) {
        const struct net_table *t = &w->chunks->tables[i];
        const struct layer *l = &w->model->layers[w->model->tables[i].layer];
        LOG_I("table '%s': a row of %d %s for each key of input '%s', at most %lld rows; %s",
              t->name, t->dim, t->dim == 1 ? "float" : "floats",
              w->model->inputs.keys[l->keys].name, (long long)t->max_rows,
              optim_rows_name(t->optimizer.kind));
    }
}

void set_up_tables_warn_lost(const struct worker *w)
{
    struct net_status s;
    char why[CONTROL_TEXT_BYTES];
    if (w->model->n_tables == 0 ||
        status_client_ask(w->opt.ps_hosts.addr[0], 0, ASK_MS, &s, why) != ST_OK)
        return;
    if (!*s.checkpoints.folder)
        LOG_W(
            "ps:0 has no --checkpoint_dir: when the job ends, the rows of the model's tables are lost; start the servers with --checkpoint_dir=DIR to keep them");
    net_status_free(&s);
}
