/* tests/worker_batch_keys_test.c - the keys of a batch are those of its samples: cells with one,
 * no or several keys, subsets of a set, lists that grow; the next keys of a tower. */
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/trainer_rig.h"
#include "worker/train/trainer_impl.h"
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 3, CELLS = N_ITEMS * COLUMNS, BATCH = 6, MOST_IN_CELL = 5 };

/* Input 0 has one key in each cell. Input 1 has (row + column) % 4 keys in a cell, but 5 in each
 * cell of row 7. */
static struct {
    uint64_t single[CELLS], several[CELLS * MOST_IN_CELL];
    uint32_t first[CELLS + 1];
    struct dataset_keys keys;
} data;

static uint32_t n_in_cell(int64_t row, int column)
{
    return row == 7 ? MOST_IN_CELL : (uint32_t)(row + column) % 4;
}

static uint64_t key_of(int64_t row, int column, uint32_t i)
{
    return ~(uint64_t)0 - (uint64_t)(row * 100 + column * 10 + i);
}

static void data_make(void)
{
    uint32_t n = 0;
    for (int i = 0; i < CELLS; i++) {
        int row = i / COLUMNS, column = i % COLUMNS;
        data.single[i] = key_of(row, column, 9);
        data.first[i] = n;
        for (uint32_t k = 0; k < n_in_cell(row, column); k++)
            data.several[n++] = key_of(row, column, k);
    }
    data.first[CELLS] = n;
    data.keys = (struct dataset_keys){
        .n = 2, .input = {{COLUMNS, data.single, NULL}, {COLUMNS, data.several, data.first}}};
}

static void check_bags(const struct bags *b, const struct dataset *d, const uint32_t *item, int n)
{
    uint32_t at = 0;
    assert_int_equal(b[0].n_cells, n * COLUMNS);
    assert_int_equal(b[0].n_keys, n * COLUMNS);
    assert_null(b[0].first);
    assert_int_equal(b[1].n_cells, n * COLUMNS);
    for (int i = 0; i < n * COLUMNS; i++) {
        int64_t row = dataset_row(d, item[i / COLUMNS]);
        int column = i % COLUMNS;
        assert_true(b[0].keys[i] == key_of(row, column, 9));
        assert_int_equal(b[1].first[i], at);
        for (uint32_t k = 0; k < n_in_cell(row, column); k++)
            assert_true(b[1].keys[at++] == key_of(row, column, k));
    }
    assert_int_equal(b[1].first[n * COLUMNS], at);
    assert_int_equal(b[1].n_keys, at);
}

static void test_keys_are_those_of_the_samples(void **state)
{
    static const uint32_t batches[][BATCH] = {
        {3, 59, 0, 3, 12, 58}, {7, 7, 7, 7, 7, 7}, {4, 8, 4, 8, 4, 8}, {7, 0, 7, 1, 7, 2}};
    struct dataset d = {.n = N_ITEMS, .keys = &data.keys};
    struct batch_keys b = {0};
    assert_int_equal(batch_keys_create(&d, BATCH, &b), ST_OK);
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        for (int n = BATCH; n >= 1; n -= 5) { /* also a batch that is not full */
            assert_int_equal(batch_keys_read(&b, &d, batches[i], n), ST_OK);
            check_bags(b.bags, &d, batches[i], n);
        }
    }
    batch_keys_free(&b);
}

/* The validation data are a subset, which lists rows of the whole set. */
static void test_subset(void **state)
{
    static const uint32_t rows[] = {59, 7, 20, 1}, items[] = {2, 0, 1, 3, 1};
    struct dataset d = {.n = 4, .rows = rows, .keys = &data.keys};
    struct batch_keys b = {0};
    assert_int_equal(batch_keys_create(&d, BATCH, &b), ST_OK);
    assert_int_equal(batch_keys_read(&b, &d, items, 5), ST_OK);
    check_bags(b.bags, &d, items, 5);
    batch_keys_free(&b);
}

/* An index of 32 bits cannot count the keys of these two samples. */
static void test_too_many_keys(void **state)
{
    static const uint32_t first[] = {0, UINT32_MAX}, items[] = {0, 0};
    struct dataset_keys keys = {.n = 1, .input = {{1, data.several, first}}};
    struct dataset d = {.n = 1, .keys = &keys};
    struct batch_keys b = {0};
    assert_int_equal(batch_keys_create(&d, 2, &b), ST_OK);
    capture_begin();
    enum status st = batch_keys_read(&b, &d, items, 2);
    capture_end();
    assert_int_equal(st, ST_INVALID);
    assert_non_null(strstr(capture_text,
                           "8589934590 keys of one input in a batch of 2 samples, at most "
                           "4294967295; lower --batch_size"));
    batch_keys_free(&b);
}

static void test_no_keys(void **state)
{
    struct dataset d = {.n = 1};
    struct batch_keys b = {0};
    uint32_t item = 0;
    assert_int_equal(batch_keys_create(&d, BATCH, &b), ST_OK);
    assert_int_equal(batch_keys_read(&b, &d, &item, 1), ST_OK);
    assert_int_equal(b.n, 0);
    batch_keys_free(&b);
}

static void check_ahead(struct tower *t, const struct dataset *d, uint64_t at)
{
    uint32_t items[BATCH];
    const struct bags *ahead = tower_ahead_bags(t); /* until now the reader has used t->order */
    assert_non_null(ahead);
    for (int i = 0; i < BATCH; i++)
        items[i] = (uint32_t)dataset_order_item(t->order, at + (uint64_t)i);
    check_bags(ahead, d, items, BATCH);
    assert_int_equal(tower_load_batch(t, at), ST_OK);
    assert_ptr_equal(t->now.keys.bags, ahead); /* moved, not read again */
    check_bags(ahead, d, items, BATCH);
}

/* Bytes in memory are not read ahead, unless they have keys. */
static void test_next_keys_of_a_tower(void **state)
{
    struct rig r;
    struct tower *t;
    rig_make(&r, 0, 1, 1, BATCH);
    r.data.keys = &data.keys;
    assert_int_equal(tower_create(&r.cfg, &r.towers[0], 0, NULL, &t), ST_OK);
    assert_int_equal(tower_make_reader(t), ST_OK);
    assert_null(tower_ahead_bags(t)); /* nothing is read ahead yet */
    assert_int_equal(tower_load_batch(t, 0), ST_OK);
    check_bags(t->now.keys.bags, &r.data, t->now.item, BATCH);
    for (uint64_t at = BATCH; at < 3 * N_ITEMS; at += BATCH) {
        tower_read_ahead(t, at, 1);
        check_ahead(t, &r.data, at);
        assert_null(tower_ahead_bags(t)); /* the step has the batch now */
    }
    tower_read_ahead(t, 30, 1);
    assert_int_equal(tower_load_batch(t, 12), ST_OK); /* training begins again at another place */
    check_bags(t->now.keys.bags, &r.data, t->now.item, BATCH);
    assert_null(tower_ahead_bags(t));
    tower_destroy(t);
    rig_free(&r);
}

static void test_failed_read_has_no_keys(void **state)
{
    static const uint32_t first[] = {0, UINT32_MAX}, rows[N_ITEMS]; /* all samples are row 0 */
    struct dataset_keys keys = {.n = 1, .input = {{1, data.several, first}}};
    struct rig r;
    struct tower *t;
    rig_make(&r, 0, 1, 1, BATCH);
    r.data.keys = &keys;
    r.data.rows = rows;
    assert_int_equal(tower_create(&r.cfg, &r.towers[0], 0, NULL, &t), ST_OK);
    assert_int_equal(tower_make_reader(t), ST_OK);
    tower_read_ahead(t, 0, 1);
    assert_null(tower_ahead_bags(t));
    assert_int_equal(tower_load_batch(t, 0), ST_INVALID);
    tower_destroy(t);
    rig_free(&r);
}

/* The test set's tower reads keys, too. */
static void test_keys_of_the_test_set(void **state)
{
    struct rig r;
    struct tower *t;
    rig_make(&r, 0, 1, 1, BATCH);
    r.data.keys = &data.keys;
    r.cfg.test = &r.data;
    assert_int_equal(tower_create_inference(&r.cfg, &r.towers[0], &t), ST_OK);
    for (int64_t first = 0; first < N_ITEMS; first += 4) {
        assert_int_equal(tower_load_test(t, first, 4), ST_OK);
        check_bags(t->now.keys.bags, &r.data, t->now.item, 4);
        assert_int_equal(t->now.item[0], first);
    }
    tower_destroy(t);
    rig_free(&r);
}

int main(void)
{
    data_make();
    return RUN_TESTS(test_keys_are_those_of_the_samples, test_subset, test_too_many_keys,
                     test_no_keys, test_next_keys_of_a_tower, test_failed_read_has_no_keys,
                     test_keys_of_the_test_set);
}
