/* tests/worker_read_ahead_test.c - a batch that is read before its step equals the batch that would
 * be read in the step; batches that no step needs are dropped. */
#include "tests/check.h"
#include "tests/trainer_rig.h"
#include "worker/train/trainer_impl.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 6, ELEMS = SIDE * SIDE };

static struct {
    float first[BATCH], last[BATCH]; /* first and last number of each sample */
    int32_t labels[BATCH];
    uint64_t position[BATCH];
} seen;

static enum status see_floats(struct plan *p, const float *const *samples, const int32_t *labels,
                              const uint64_t *position, int n)
{
    assert_int_equal(n, BATCH);
    for (int i = 0; i < n; i++) {
        seen.first[i] = samples[i][0];
        seen.last[i] = samples[i][ELEMS - 1];
        seen.labels[i] = labels[i];
        seen.position[i] = position[i];
    }
    return ST_OK;
}

static void save_npy(const char *path, const char *type, const char *shape, const void *data,
                     size_t bytes)
{
    char dict[128];
    int n =
        snprintf(dict, sizeof dict, "{'descr':'%s','fortran_order':False,'shape':%s}", type, shape);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite("\x93NUMPY\1\0", 1, 8, f), 8);
    assert_int_equal(fputc(n & 255, f), n & 255);
    assert_int_equal(fputc(n >> 8, f), n >> 8);
    assert_int_equal(fwrite(dict, 1, (size_t)n, f), n);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

/* Makes N_ITEMS samples of floats: item i has i, i + 0.25, i + 0.5, i + 0.75 and label i. Item
 * `bad` has a NaN; -1: no item has. */
static struct dataset *floats_make(int bad)
{
    char dir[] = "/tmp/weir_ahead_XXXXXX", images[64], labels[64], shape[64];
    float values[N_ITEMS * ELEMS];
    int32_t label[N_ITEMS];
    struct dataset *d;
    assert_non_null(mkdtemp(dir));
    snprintf(images, sizeof images, "%s/x.npy", dir);
    snprintf(labels, sizeof labels, "%s/y.npy", dir);
    for (int i = 0; i < N_ITEMS * ELEMS; i++)
        values[i] = (float)i / ELEMS;
    if (bad >= 0)
        values[bad * ELEMS + 1] = NAN;
    for (int i = 0; i < N_ITEMS; i++)
        label[i] = i;
    snprintf(shape, sizeof shape, "(%d,1,%d,%d)", N_ITEMS, SIDE, SIDE);
    save_npy(images, "<f4", shape, values, sizeof values);
    snprintf(shape, sizeof shape, "(%d,)", N_ITEMS);
    save_npy(labels, "<i4", shape, label, sizeof label);
    struct dataset_request r = {.part = "train", .data = images, .labels = labels};
    assert_int_equal(dataset_open(&r, &d), ST_OK);
    unlink(images);
    unlink(labels);
    rmdir(dir);
    return d;
}

static void check_seen(uint64_t at)
{
    struct dataset_order *order;
    assert_int_equal(dataset_order_create(N_ITEMS, 7, &order), ST_OK);
    for (int i = 0; i < BATCH; i++) {
        int64_t item = dataset_order_item(order, at + (uint64_t)i);
        assert_int_equal(seen.position[i], at + (uint64_t)i);
        assert_int_equal(seen.labels[i], item);
        assert_true(seen.first[i] == (float)item);
        assert_true(seen.last[i] == (float)item + (float)(ELEMS - 1) / ELEMS);
    }
    dataset_order_destroy(order);
}

static struct tower *floats_tower(struct rig *r, struct backend *backend, struct dataset *d)
{
    struct tower *t;
    *backend = fake_backend;
    backend->set_floats = see_floats;
    rig_make(r, 0, 1, 1, BATCH);
    r->cfg.train = d;
    r->towers[0].own.backend = backend;
    assert_int_equal(tower_create(&r->cfg, &r->towers[0], 0, NULL, &t), ST_OK);
    assert_int_equal(tower_make_reader(t), ST_OK);
    assert_non_null(t->reader);
    return t;
}

static void test_samples_are_those_of_the_position(void **state)
{
    struct dataset *d = floats_make(-1);
    struct rig r;
    struct backend backend;
    struct tower *t = floats_tower(&r, &backend, d);
    assert_int_equal(tower_load_batch(t, 0), ST_OK); /* no batch was read before */
    check_seen(0);
    for (uint64_t at = BATCH; at < 5 * N_ITEMS; at += BATCH) { /* also over ends of passes */
        tower_read_ahead(t, at, 0);
        assert_int_equal(tower_load_batch(t, at), ST_OK);
        check_seen(at);
        assert_int_equal(t->n_ahead, at / BATCH);
    }
    int64_t before = t->n_ahead;
    tower_read_ahead(t, 30, 0); /* training rolled back and needs other samples */
    assert_int_equal(tower_load_batch(t, 12), ST_OK);
    check_seen(12);
    assert_int_equal(tower_load_batch(t, 30), ST_OK); /* the batch read ahead was dropped */
    check_seen(30);
    tower_read_ahead(t, 36, 0); /* the second call counts */
    tower_read_ahead(t, 42, 0);
    assert_int_equal(tower_load_batch(t, 36), ST_OK);
    check_seen(36);
    assert_int_equal(t->n_ahead, before);
    tower_read_ahead(t, 48, 0); /* no step uses this batch */
    tower_destroy(t);
    rig_free(&r);
    dataset_destroy(d);
}

/* A sample that cannot be read ends training when a step needs it, and not before. */
static void test_bad_sample(void **state)
{
    struct dataset_order *order;
    assert_int_equal(dataset_order_create(N_ITEMS, 7, &order), ST_OK);
    struct dataset *d = floats_make((int)dataset_order_item(order, BATCH));
    dataset_order_destroy(order);
    struct rig r;
    struct backend backend;
    struct tower *t = floats_tower(&r, &backend, d);
    tower_read_ahead(t, BATCH, 1);
    assert_int_equal(tower_load_batch(t, 0), ST_OK);
    check_seen(0);
    tower_read_ahead(t, BATCH, 1);
    assert_int_equal(tower_load_batch(t, BATCH), ST_CORRUPT);
    assert_int_equal(tower_load_batch(t, BATCH), ST_CORRUPT);
    assert_int_equal(tower_load_batch(t, 0), ST_OK);
    check_seen(0);
    tower_destroy(t);
    rig_free(&r);
    dataset_destroy(d);
}

/* All batches of a run except the first are read ahead, and this does not change the run. Bytes in
 * memory are not read ahead, because they need no work. */
static void test_a_run(void **state)
{
    float end[2][N_ELEMS];
    int reads[2][MAX_READS], n_reads[2];
    for (int n_towers = 1; n_towers <= 3; n_towers++) {
        for (int in_file = 0; in_file < 2; in_file++) {
            struct rig r;
            struct trainer_result result;
            rig_make(&r, 0, 1, n_towers, BATCH);
            trainer_destroy(r.trainer);
            r.data.in_file = in_file;
            assert_int_equal(trainer_create(&r.cfg, &r.trainer), ST_OK);
            assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
            assert_int_equal(result.local_steps, 15);
            for (int i = 0; i < n_towers; i++) {
                assert_int_equal(r.trainer->towers[i]->reader != NULL, in_file);
                assert_int_equal(r.trainer->towers[i]->n_ahead, in_file ? 14 : 0);
            }
            memcpy(end[in_file], r.params, sizeof r.params);
            memcpy(reads[in_file], fake.reads, sizeof fake.reads);
            n_reads[in_file] = fake.n_reads;
            rig_free(&r);
        }
        assert_memory_equal(end[0], end[1], sizeof end[0]);
        assert_int_equal(n_reads[0], 15 * BATCH);
        assert_int_equal(n_reads[1], n_reads[0]);
        if (n_towers == 1)
            assert_memory_equal(reads[0], reads[1], (size_t)n_reads[0] * sizeof reads[0][0]);
    }
}

static _Atomic int n_given;

static uint64_t given_out(void *ctx)
{
    return 1 + 2 * BATCH * (uint64_t)n_given++;
}

static int64_t local_steps(void *ctx, int chunk)
{
    return n_given;
}

static enum status accept(void *ctx, int chunk, int64_t step, const float *data, float weight)
{
    return ST_OK;
}

static enum status there(void *ctx, int first, int n, int64_t step, int64_t deadline_ns)
{
    return ST_OK;
}

static enum status pull(void *ctx, int chunk, int64_t step)
{
    return ST_OK;
}

static void nothing(void *ctx)
{
}

/* Samples that servers distribute are not read ahead, because another worker may get them. */
static void test_given_out(void **state)
{
    static const struct updates_ops ops = {.push = accept,
                                           .pull = pull,
                                           .wait = there,
                                           .version = local_steps,
                                           .samples = given_out,
                                           .flush = nothing,
                                           .cancel = nothing};
    struct updates exchange = {&ops, NULL};
    struct trainer_result result;
    struct rig r;
    rig_make(&r, 0, 1, 1, BATCH);
    trainer_destroy(r.trainer);
    r.cfg.updates = &exchange;
    r.cfg.own_pace = true;
    r.data.in_file = true;
    assert_int_equal(trainer_create(&r.cfg, &r.trainer), ST_OK);
    n_given = 0;
    assert_int_equal(trainer_run(r.trainer, &r.start, &result), ST_OK);
    assert_int_equal(r.trainer->towers[0]->n_ahead, 0);
    assert_null(r.trainer->towers[0]->reader); /* a reader would have no work */
    assert_int_equal(n_given, 15);
    assert_int_equal(fake.n_reads, 15 * BATCH);
    struct dataset_order *order;
    assert_int_equal(dataset_order_create(N_ITEMS, 7, &order), ST_OK);
    for (int i = 0; i < fake.n_reads; i++) {
        uint64_t at = (uint64_t)(i / BATCH) * 2 * BATCH + (uint64_t)(i % BATCH);
        assert_int_equal(fake.reads[i], dataset_order_item(order, at));
    }
    dataset_order_destroy(order);
    rig_free(&r);
}

int main(void)
{
    return RUN_TESTS(test_samples_are_those_of_the_position, test_bad_sample, test_a_run,
                     test_given_out);
}
