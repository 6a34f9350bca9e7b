/* net/wire/message_tables.c - see message.h: the tables of a job. A peer may be hostile, so all
 * numbers are checked before memory is allocated for buckets: first against the bounds of the
 * fields, and then together by tables_add. */
#include "net/wire/message_impl.h"
#include "net/wire/tables.h"
#include <stdlib.h>

static enum status read_optim(const void *message, void *plain, char *why)
{
    struct optim_rows_config *to = plain, defaults;
    optim_rows_defaults(to->kind, &defaults);
    to->common.kind = defaults.common.kind;
    /* optimizers that do not use epsilon leave it out, but it must be above 0 */
    if (to->common.epsilon == 0 && to->common.kind <= OPTIM_NESTEROV)
        to->common.epsilon = defaults.common.epsilon;
    if (to->common.lr_decay == 0)
        to->common.lr_decay = defaults.common.lr_decay;
    return ST_OK;
}

#define OF Weir__V1__Optimizer, struct optim_rows_config
static const struct message_row optim_rows[] = {
    CHOICE(OF, name, kind, OPTIM_ROWS_NAMES, "unknown optimizer of a table", .is_quoted = true),
    ANY(OF, learning_rate, common.learning_rate),
    ANY(OF, momentum, common.momentum),
    ANY(OF, decay, common.decay),
    ANY(OF, beta1, common.beta1),
    ANY(OF, beta2, common.beta2),
    ANY(OF, epsilon, common.epsilon),
    ANY(OF, weight_decay, common.weight_decay),
    CHOICE(OF, schedule, common.schedule, SCHEDULE_NAMES, "unknown schedule of a table",
           .is_quoted = true, .is_option = true),
    ANY(OF, warmup_steps, common.warmup_steps),
    INSIDE(OF, boundaries, common.n_boundaries, common.boundary, OPTIM_MAX_BOUNDARIES,
           "the learning rate of a table has too many boundaries"),
    ANY(OF, lr_decay, common.lr_decay),
    ANY(OF, lr_decay_steps, common.lr_decay_steps),
    ANY(OF, clip_value, common.clip_value),
    ANY(OF, clip_norm, common.clip_norm),
    ANY(OF, ema_decay, common.ema_decay),
};
static const struct message_type optim_type = {MESSAGE_TYPE(OF, optimizer, optim_rows),
                                               .read = read_optim};
#undef OF

static const char *problem(const void *message)
{
    return ((const Weir__V1__Table *)message)->optimizer ? NULL : "a table has no optimizer";
}

/* The name is not copied, because tables_add copies it. */
static enum status read_name(const void *message, void *plain, char *why)
{
    ((struct net_table *)plain)->name = ((const Weir__V1__Table *)message)->name;
    return ST_OK;
}

static enum status write_name(const void *plain, void *message, struct message_room *room)
{
    /* protobuf-c only reads the name */
    ((Weir__V1__Table *)message)->name = (char *)(uintptr_t)((const struct net_table *)plain)->name;
    return ST_OK;
}

#define OF Weir__V1__Table, struct net_table
static const struct message_row table_rows[] = {
    NUMBER(OF, dim, dim, 1, TABLES_MAX_DIM, "the dim of a table is out of bounds"),
    NUMBER(OF, buckets, n_buckets, 1, TABLES_MAX_BUCKETS,
           "the number of a table's buckets is out of bounds"),
    NUMBER(OF, max_rows, max_rows, 1, TABLES_MAX_ROWS, "max_rows of a table is out of bounds"),
    NUMBER(OF, step_rows, step_rows, 1, TABLES_MAX_STEP_ROWS,
           "step_rows of a table is out of bounds"),
    PART(OF, optimizer, optimizer, &optim_type),
    ANY(OF, ftrl_beta, optimizer.ftrl_beta),
    ANY(OF, l1, optimizer.l1),
    ANY(OF, l2, optimizer.l2),
    CHOICE(OF, init, init, ROW_INIT_NAMES, "unknown initial values of a table", .is_quoted = true),
    ANY(OF, init_scale, init_scale),
    NUMBER(OF, admit_after, admit_after, 1, TABLES_MAX_STEPS,
           "admit_after of a table is out of bounds"),
    NUMBER(OF, evict_after, evict_after, 0, TABLES_MAX_STEPS,
           "evict_after of a table is out of bounds"),
    CHOICE(OF, when_full, when_full, ROW_FULL_NAMES, "unknown effect of a table's bound",
           .is_quoted = true),
    CHOICE(OF, row_dtype, row_dtype, ROW_DTYPE_NAMES, "unknown row_dtype of a table",
           .is_quoted = true, .is_option = true),
};
static const struct message_type table_type = {MESSAGE_TYPE(OF, table, table_rows),
                                               .problem = problem, .read = read_name,
                                               .write = write_name};
#undef OF

enum status message_tables_read(const Weir__V1__Job *from, uint64_t total_steps,
                                struct chunks *chunks, char why[MESSAGE_WHY_BYTES])
{
    enum status st = ST_OK;
    if (from->n_tables == 0)
        return ST_OK;
    if (from->n_tables > TABLES_MAX)
        return message_invalid(why, "the job has too many tables");
    struct net_table *tables = calloc(from->n_tables, sizeof *tables);
    if (!tables)
        return ST_NOMEM;
    for (size_t i = 0; i < from->n_tables; i++) {
        TRY(message_read(&table_type, from->tables[i], &tables[i], why));
        tables[i].optimizer.common.total_steps = total_steps;
    }
    st = tables_add(chunks, tables, (int)from->n_tables);
    if (st != ST_OK && st != ST_NOMEM)
        st = message_invalid(why, "the settings of a table are malformed, or do not fit together");
done:
    free(tables);
    return st;
}

enum status message_tables_write(const struct chunks *chunks, struct message_room *room,
                                 Weir__V1__Job *to)
{
    size_t n = (size_t)chunks->n_tables;
    if (n == 0)
        return ST_OK;
    void **list = message_alloc(room, n, sizeof *list);
    enum status st = list ? ST_OK : ST_NOMEM;
    for (size_t i = 0; i < n && st == ST_OK; i++)
        st = message_write(&table_type, &chunks->tables[i], room, &list[i]);
    to->tables = (Weir__V1__Table **)list;
    to->n_tables = st == ST_OK ? n : 0;
    return st;
}
