/* tests/net_message_tables_test.c - the tables of a job cross the wire unchanged, and a job is
 * refused with a sentence if its tables are out of bounds, or if a setting cannot be combined with
 * tables. */
#include "net/wire/job_tables.h"
#include "net/wire/tables.h"
#include "net/wire/weir.pb-c.h"
#include "tests/capture.h"
#include "tests/net_wire.h"
#include <stdlib.h>
#include <string.h>

enum { N_TABLES = 2, TRAIN_STEPS = 100 };

static struct chunks *chunks;

static struct net_table table_of(const char *name, enum optim_rows_kind kind)
{
    struct net_table t = {.name = name,
                          .dim = 16,
                          .n_buckets = 64,
                          .max_rows = 250000,
                          .step_rows = 65536,
                          .init = ROW_INIT_NORMAL,
                          .init_scale = 0.25f,
                          .admit_after = 3,
                          .evict_after = INT64_C(1) << 40,
                          .when_full = ROW_FULL_EVICT};
    optim_rows_defaults(kind, &t.optimizer);
    return t;
}

static int set_up(void **state)
{
    const struct net_param param = {.name = "w", .shape = {2, {64, 1024}}};
    struct net_table tables[N_TABLES] = {table_of("ads", OPTIM_ROWS_FTRL),
                                         table_of("users", OPTIM_ROWS_MOMENTUM)};
    struct optim_config *o = &tables[1].optimizer.common;
    tables[0].optimizer.ftrl_beta = 0.5f;
    tables[0].optimizer.l1 = 2;
    tables[0].optimizer.l2 = 3;
    tables[1].row_dtype = DTYPE_BF16;
    tables[1].dim = 1;
    tables[1].n_buckets = 1;
    tables[1].step_rows = 1000;
    o->schedule = SCHEDULE_STEP;
    o->warmup_steps = 7;
    o->n_boundaries = OPTIM_MAX_BOUNDARIES;
    for (int i = 0; i < OPTIM_MAX_BOUNDARIES; i++)
        o->boundary[i] = (uint64_t)i + 1;
    o->clip_value = 5;
    return chunks_create(&param, 1, 1 << 17, &chunks) != ST_OK ||
           tables_add(chunks, tables, N_TABLES) != ST_OK;
}

static int tear_down(void **state)
{
    chunks_destroy(chunks);
    return 0;
}

static struct net_join good_join(void)
{
    struct net_join j = {
        .member = 1,
        .incarnation = 5,
        .job = {.n_workers = 2, .aggregate = 2, .train_steps = TRAIN_STEPS, .batch = 64},
        .chunks = chunks};
    optim_defaults(OPTIM_SGD, &j.job.optim);
    return j;
}

static void tables_cross_the_wire_unchanged(void **state)
{
    struct net_join got = {.model = NULL}, join = good_join();
    struct chunks *made = NULL;
    struct wire w = {.why = ""};
    char why[256] = "";
    assert_int_equal(message_join_pack(&join, &w.data, &w.bytes), ST_OK);
    assert_int_equal(wire_end(&w, message_join_unpack(w.data, w.bytes, &got, &made, w.why)), ST_OK);
    enum status st = chunks_compare(made, chunks, why, sizeof why);
    assert_string_equal(why, "");
    assert_int_equal(st, ST_OK);
    assert_int_equal(made->n_chunks, chunks->n_chunks);
    assert_int_equal(made->n_chunks, made->n_dense + 65);
    for (int i = 0; i < N_TABLES; i++)
        assert_int_equal(made->tables[i].optimizer.common.total_steps, TRAIN_STEPS);
    message_join_free(&got);
    chunks_destroy(made);
}

/* Changes a field of the job's message before it is sent. */
typedef void (*change_fn)(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second);

static void no_dim(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    first->dim = 0;
}
static void large_dim(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    second->dim = TABLES_MAX_DIM + 1;
}
static void many_buckets(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    first->buckets = 2 * TABLES_MAX_BUCKETS;
}
static void odd_buckets(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    first->buckets = 63;
}
static void many_rows(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    first->max_rows = UINT64_MAX;
}
static void many_step_rows(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    first->step_rows = TABLES_MAX_STEP_ROWS;
}
static void more_step_rows(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    first->step_rows = TABLES_MAX_STEP_ROWS + 1;
}
static void no_admission(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    first->admit_after = 0;
}
static void late_eviction(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    first->evict_after = (uint64_t)TABLES_MAX_STEPS + 1;
}
static void unknown_init(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    first->init = (char *)(uintptr_t) "ones";
}
static void unknown_full(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    first->when_full = (char *)(uintptr_t) "grow";
}
static void unknown_dtype(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    first->row_dtype = (char *)(uintptr_t) "fp16"; /* a dtype, but none of a table */
}
static void unknown_optimizer(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    first->optimizer->name = (char *)(uintptr_t) "adamw";
}
static void no_optimizer(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    first->optimizer = NULL;
}
static void many_boundaries(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    static uint64_t list[OPTIM_MAX_BOUNDARIES + 1];
    for (int i = 0; i <= OPTIM_MAX_BOUNDARIES; i++)
        list[i] = (uint64_t)i + 1;
    second->optimizer->boundaries = list;
    second->optimizer->n_boundaries = OPTIM_MAX_BOUNDARIES + 1;
}
static void decays_weights(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    first->optimizer->weight_decay = 0.1f;
}
static void same_name(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    second->name = first->name;
}
static void no_name(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    second->name = (char *)(uintptr_t) "";
}
static void many_tables(Weir__V1__Job *job, Weir__V1__Table *first, Weir__V1__Table *second)
{
    static Weir__V1__Table *list[TABLES_MAX + 1];
    for (int i = 0; i <= TABLES_MAX; i++)
        list[i] = first;
    job->tables = list;
    job->n_tables = TABLES_MAX + 1;
}

/* Decodes a valid join, changes it, and returns the status of a reader of the changed join. */
static enum status read_changed(change_fn change, char why[MESSAGE_WHY_BYTES])
{
    struct net_join got = {.model = NULL}, join = good_join();
    struct chunks *made = NULL;
    uint8_t *data;
    size_t bytes;
    assert_int_equal(message_join_pack(&join, &data, &bytes), ST_OK);
    Weir__V1__JoinRequest *wire = weir__v1__join_request__unpack(NULL, bytes, data);
    free(data);
    Weir__V1__Job kept_job = *wire->job;
    Weir__V1__Table kept[N_TABLES] = {*wire->job->tables[0], *wire->job->tables[1]};
    Weir__V1__Optimizer kept_optim[N_TABLES] = {*kept[0].optimizer, *kept[1].optimizer};
    change(wire->job, wire->job->tables[0], wire->job->tables[1]);
    data = malloc(weir__v1__join_request__get_packed_size(wire));
    bytes = weir__v1__join_request__pack(wire, data);
    *wire->job = kept_job;
    for (int i = 0; i < N_TABLES; i++) {
        *wire->job->tables[i] = kept[i];
        *wire->job->tables[i]->optimizer = kept_optim[i];
    }
    weir__v1__join_request__free_unpacked(wire, NULL);
    enum status st = message_join_unpack(data, bytes, &got, &made, why);
    free(data);
    message_join_free(&got);
    assert_true(st == ST_OK || made == NULL);
    chunks_destroy(made);
    return st;
}

static void tables_out_of_bounds_are_refused(void **state)
{
    static const struct {
        change_fn change;
        const char *why;
    } cases[] = {
        {no_dim, "dim"},
        {large_dim, "dim"},
        {many_buckets, "buckets"},
        {odd_buckets, "settings of a table"},
        {many_rows, "max_rows"},
        {many_step_rows, "settings of a table"}, /* more bytes in one push than a payload has */
        {more_step_rows, "step_rows"},
        {no_admission, "admit_after"},
        {late_eviction, "evict_after"},
        {unknown_init, "'ones'; this server supports zeros|uniform|normal"},
        {unknown_full, "'grow'; this server supports stop|evict"},
        {unknown_dtype, "unknown row_dtype of a table 'fp16'; this server supports fp32|bf16"},
        {unknown_optimizer, "unknown optimizer of a table 'adamw'"},
        {no_optimizer, "no optimizer"},
        {many_boundaries, "too many boundaries"},
        {decays_weights, "settings of a table"},
        {same_name, "settings of a table"},
        {no_name, "settings of a table"},
        {many_tables, "too many tables"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[MESSAGE_WHY_BYTES] = "";
        enum status st = CAPTURE(read_changed(cases[i].change, why));
        assert_int_equal(st, ST_INVALID);
        if (!strstr(why, cases[i].why))
            fail_msg("case %zu: '%s' does not contain '%s'", i, why, cases[i].why);
    }
}

/* A reader checks the settings that tables cannot have. */
static void settings_are_checked(void **state)
{
    struct net_join got = {.model = NULL}, join = good_join();
    struct chunks *made = NULL;
    struct wire w = {.why = ""};
    join.job.optim.clip_norm = 1;
    assert_int_equal(message_join_pack(&join, &w.data, &w.bytes), ST_OK);
    enum status st = wire_end(&w, message_join_unpack(w.data, w.bytes, &got, &made, w.why));
    message_join_free(&got);
    assert_null(made);
    assert_int_equal(st, ST_INVALID);
    assert_string_equal(w.why, job_check_tables(&join.job, chunks->n_tables));
}

int main(void)
{
    return RUN_GROUP(set_up, tear_down, tables_cross_the_wire_unchanged,
                     tables_out_of_bounds_are_refused, settings_are_checked);
}
