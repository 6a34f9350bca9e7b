/* tests/ps_store_refuse_bucket_test.c - pieces that a bucket of a table refuses. A refused piece
 * changes nothing (I9): its member, or another process of it, can then contribute to the same step,
 * and the bits are those of a step without refusals. */
#include "base/log.h"
#include "tests/bucket_rig.h"
#include "tests/capture.h"
#include "tests/check.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static struct rig r;
static struct rig_push pushes[RIG_MEMBERS], reads[RIG_MEMBERS];
static const struct rig_push *const of_all[RIG_MEMBERS] = {&pushes[0], &pushes[1], &pushes[2]};
static const float weights[RIG_MEMBERS] = {0.25f, 0.375f, 0.5f};
static const struct rig_config plain = {.kind = OPTIM_ROWS_ADAGRAD};

static void fill(int chunk, int64_t step)
{
    for (int m = 0; m < RIG_MEMBERS; m++) {
        bucket_rig_fill(&r, chunk, m, step, 40, &pushes[m]);
        bucket_rig_fill_reads(&r, chunk, (size_t)m * 7, 20 + (size_t)m, &reads[m]);
    }
}

/* Finishes step 0 of chunk 1 with all members, and checks the rows. */
static void finish_step(void)
{
    fill(1, 0);
    bucket_rig_expect(&r, 1, of_all, weights, RIG_MEMBERS);
    for (int m = 0; m < RIG_MEMBERS; m++)
        assert_int_equal(bucket_rig_push(&r, 1, m, 0, &pushes[m], &reads[m]), PIECE_NONE);
    for (int m = 0; m < RIG_MEMBERS; m++)
        bucket_rig_check(&r, 1, m, 1, &reads[m]);
    bucket_rig_check_all(&r, 1, 1);
}

/* Sends a push with a fault at each place in the order of arrival, and checks the refusal. */
static void check_refused(void (*spoil)(struct rig_push *push, struct rig_push *reads),
                          const char *text)
{
    for (int before = 0; before < RIG_MEMBERS; before++) {
        static struct rig_push bad, bad_reads;
        bucket_rig_open(&r, &plain);
        fill(1, 0);
        for (int m = 0; m < before; m++)
            assert_int_equal(bucket_rig_push(&r, 1, m, 0, &pushes[m], &reads[m]), PIECE_NONE);
        bad = pushes[2];
        bad_reads = reads[2];
        spoil(&bad, &bad_reads);
        assert_int_equal(bucket_rig_push(&r, 1, 2, 0, &bad, &bad_reads), PIECE_REFUSED);
        if (!strstr(r.got[2][1].text, text))
            fail_msg("'%s' lacks '%s'", r.got[2][1].text, text);
        assert_non_null(strstr(r.got[2][1].text, "table 'ads', bucket 0"));
        bucket_rig_check_all_as(&r, 1, 2, 0);
        finish_step();
        bucket_rig_close(&r);
    }
}

static void swap_keys(struct rig_push *push, struct rig_push *read)
{
    uint64_t key = push->keys[3];
    push->keys[3] = push->keys[4];
    push->keys[4] = key;
}

static void repeat_key(struct rig_push *push, struct rig_push *read)
{
    push->keys[5] = push->keys[4];
}

static void use_other_bucket(struct rig_push *push, struct rig_push *read)
{
    for (size_t i = 0; i < RIG_KEYS; i++)
        if (r.keys[2][i] > push->keys[0] && r.keys[2][i] < push->keys[2])
            push->keys[1] = r.keys[2][i];
}

static void repeat_read(struct rig_push *push, struct rig_push *read)
{
    read->keys[1] = read->keys[0];
}

static void add_nan(struct rig_push *push, struct rig_push *read)
{
    push->gradients[7] = NAN;
}

static void add_large(struct rig_push *push, struct rig_push *read)
{
    push->gradients[0] = 3e38f;
}

static void test_keys_are_checked(void **state)
{
    check_refused(swap_keys, "the keys are not ascending");
    check_refused(repeat_key, "the keys are not ascending");
    check_refused(use_other_bucket, "a key belongs to another bucket");
    check_refused(repeat_read, "the keys are not ascending");
}

static void test_gradients_are_checked(void **state)
{
    char text[120];
    check_refused(add_nan, "at step 0 is not finite");
    check_refused(add_large, "is too large for the sum");
    /* the refusal names the worker and the key */
    bucket_rig_open(&r, &plain);
    fill(1, 0);
    snprintf(text, sizeof text, "worker 2: table 'ads', bucket 0: the gradient of key %d ",
             (int)pushes[2].keys[2]);
    add_nan(&pushes[2], NULL);
    assert_int_equal(bucket_rig_push(&r, 1, 2, 0, &pushes[2], NULL), PIECE_REFUSED);
    assert_non_null(strstr(r.got[2][1].text, text));
    bucket_rig_close(&r);
}

/* Squares of these gradients are infinite: the update makes the state of the row not finite. */
static void test_row_that_is_not_finite_is_logged(void **state)
{
    char text[120];
    bucket_rig_open(&r, &plain);
    fill(1, 0);
    for (int m = 0; m < RIG_MEMBERS; m++) {
        pushes[m].keys[0] = r.keys[1][0];
        pushes[m].gradients[1] = 1e30f;
    }
    capture_begin();
    for (int m = 0; m < RIG_MEMBERS; m++)
        assert_int_equal(bucket_rig_push(&r, 1, m, 0, &pushes[m], &reads[m]), PIECE_NONE);
    capture_end();
    snprintf(text, sizeof text, "step 0: the update makes the row of key %llu of table 'ads'",
             (unsigned long long)r.keys[1][0]);
    assert_non_null(strstr(capture_text, text));
    assert_int_equal(capture_lines(), 1);
    bucket_rig_close(&r);
    bucket_rig_open(&r, &plain); /* without such a gradient there is no line */
    capture_begin();
    finish_step();
    capture_end();
    assert_int_equal(capture_lines(), 0);
    bucket_rig_close(&r);
}

/* Sends a piece, and checks its refusal. */
static void check_piece(struct net_piece piece, const char *text)
{
    static const uint8_t zeros[8192];
    piece.chunk = piece.chunk ? piece.chunk : 1;
    assert_int_equal(bucket_rig_send(&r, 0, piece, zeros), PIECE_REFUSED);
    if (!strstr(r.got[0][piece.chunk].text, text))
        fail_msg("'%s' lacks '%s'", r.got[0][piece.chunk].text, text);
}

static void test_counts_and_fields_are_checked(void **state)
{
    const struct net_piece push = {.kind = PIECE_PUSH, .weight = 1};
    struct net_piece p;
    bucket_rig_open(&r, &plain);
    p = push;
    p.rows = 110; /* the share of step_rows=100 in two buckets is 109 */
    p.payload.bytes = 110 * 20;
    check_piece(p, "table 'ads', bucket 0: 110 keys, at most 109 (step_rows=100)");
    p = push;
    p.reads = 110;
    p.payload.bytes = 110 * 8;
    check_piece(p, "110 keys, at most 109");
    p = push;
    p.rows = 2;
    p.reads = 1;
    p.payload.bytes = 2 * 20 + 7;
    check_piece(p, "payload of 47 bytes, not 48");
    p = push;
    p.weight = 0;
    p.rows = 1;
    p.payload.bytes = 20;
    check_piece(p, "only a PUSH with a weight has keys with gradients");
    p.weight = NAN;
    check_piece(p, "table 'ads', bucket 0: weight nan must be 0, or finite");
    p = (struct net_piece){.kind = PIECE_PULL, .rows = 1, .payload.bytes = 20};
    check_piece(p, "only a PUSH");
    check_piece((struct net_piece){.kind = PIECE_INIT}, "a bucket has no first values");
    check_piece((struct net_piece){.kind = PIECE_PULL_AVERAGE}, "a bucket has no averages");
    check_piece((struct net_piece){.kind = PIECE_PUSH, .weight = 1, .dtype = DTYPE_BF16},
                "table 'ads', bucket 0: dtype 1, not fp32");
    check_piece((struct net_piece){.kind = PIECE_PUSH, .weight = 1, .step = UINT64_MAX},
                "is too large");
    check_piece((struct net_piece){.kind = PIECE_PUSH, .weight = 1, .step = 1},
                "ahead of the server's 0");
    finish_step();
    bucket_rig_close(&r);
}

static void test_members_agree_on_the_rate(void **state)
{
    static const uint8_t none[1];
    struct net_piece p = {
        .kind = PIECE_PUSH, .chunk = 1, .weight = 1, .has_rate = true, .rate = 0.5f};
    bucket_rig_open(&r, &plain);
    fill(1, 0);
    assert_int_equal(bucket_rig_push(&r, 1, 1, 0, &pushes[1], &reads[1]), PIECE_NONE);
    assert_int_equal(bucket_rig_send(&r, 0, p, none), PIECE_REFUSED);
    assert_non_null(strstr(r.got[0][1].text, "factor 0.5 of the learning rate"));
    bucket_rig_close(&r);
    bucket_rig_open(&r, &(struct rig_config){.kind = OPTIM_ROWS_FTRL});
    assert_int_equal(bucket_rig_send(&r, 0, p, none), PIECE_REFUSED);
    assert_non_null(strstr(r.got[0][1].text, "factor 0.5 of the learning rate must be 1"));
    p.rate = 1;
    assert_int_equal(bucket_rig_send(&r, 0, p, none), PIECE_NONE);
    bucket_rig_close(&r);
}

/* Table 'words' has at most 1 + 6 + 16 = 23 rows. */
static void check_full_bucket(bool has_threads)
{
    bucket_rig_open(&r, &(struct rig_config){
                            .kind = OPTIM_ROWS_ADAGRAD, .max_rows = 1, .has_threads = has_threads});
    for (int64_t step = 0; step < 2; step++) { /* 15 keys, the same in both steps */
        for (int m = 0; m < RIG_MEMBERS; m++) {
            bucket_rig_fill(&r, RIG_WORDS, m, step, 100, &pushes[m]);
            pushes[m].n = 15;
            bucket_rig_fill_reads(&r, RIG_WORDS, 5, 30, &reads[m]);
        }
        bucket_rig_expect(&r, RIG_WORDS, of_all, weights, RIG_MEMBERS);
        for (int m = 0; m < RIG_MEMBERS; m++)
            assert_int_equal(bucket_rig_push(&r, RIG_WORDS, m, step, &pushes[m], &reads[m]),
                             PIECE_NONE);
        bucket_rig_settle(&r);
    }
    for (int m = 0; m < RIG_MEMBERS; m++)
        pushes[m].n = m == 0 ? 24 : 10;
    assert_int_equal(bucket_rig_push(&r, RIG_WORDS, 1, 2, &pushes[1], &reads[1]), PIECE_NONE);
    assert_int_equal(bucket_rig_push(&r, RIG_WORDS, 0, 2, &pushes[0], &reads[0]), PIECE_NONE);
    assert_int_equal(bucket_rig_push(&r, RIG_WORDS, 2, 2, &pushes[2], &reads[2]),
                     has_threads ? PIECE_NONE : PIECE_REFUSED);
    bucket_rig_settle(&r);
    for (int m = 0; m < RIG_MEMBERS; m++) {
        assert_int_equal(r.got[m][RIG_WORDS].kind, PIECE_REFUSED);
        assert_string_equal(r.got[m][RIG_WORDS].text,
                            "table 'words', bucket 0: 24 rows, at most 23 (max_rows=1); "
                            "set evict_after or when_full=evict, or raise max_rows");
    }
    bucket_rig_check_all(&r, RIG_WORDS, 2); /* no row has changed */
    int n = r.got[0][RIG_WORDS].n;
    /* later processes of two members, and the same one of the third, make the step with less keys
     */
    pushes[0].n = 23;
    bucket_rig_expect(&r, RIG_WORDS, of_all, weights, RIG_MEMBERS);
    assert_int_equal(bucket_rig_push(&r, RIG_WORDS, 2, 2, &pushes[2], &reads[2]), PIECE_NONE);
    store_admit(r.store, 0, RIG_INCARNATION + 100);
    store_admit(r.store, 1, RIG_INCARNATION + 101);
    r.shifted = true;
    assert_int_equal(bucket_rig_push(&r, RIG_WORDS, 0, 2, &pushes[0], &reads[0]), PIECE_NONE);
    assert_int_equal(bucket_rig_push(&r, RIG_WORDS, 1, 2, &pushes[1], &reads[1]), PIECE_NONE);
    bucket_rig_settle(&r);
    assert_int_equal(r.got[0][RIG_WORDS].n, n + 1);
    for (int m = 0; m < RIG_MEMBERS; m++)
        bucket_rig_check(&r, RIG_WORDS, m, 3, &reads[m]);
    bucket_rig_check_all(&r, RIG_WORDS, 3);
    bucket_rig_close(&r);
}

static void test_full_bucket_refuses_the_step(void **state)
{
    check_full_bucket(false);
    check_full_bucket(true);
}

static void test_full_bucket_in_async_refuses_one_contribution(void **state)
{
    static const float alone = 1;
    bucket_rig_open(&r, &(struct rig_config){.kind = OPTIM_ROWS_SGD,
                                             .max_rows = 1,
                                             .job = {.sync_mode = JOB_ASYNC}});
    for (int m = 0; m < RIG_MEMBERS; m++) {
        bucket_rig_fill(&r, RIG_WORDS, m, 0, 100, &pushes[m]);
        pushes[m].n = m == 1 ? 24 : 20;
        bucket_rig_fill_reads(&r, RIG_WORDS, 5, 30, &reads[m]);
    }
    bucket_rig_expect(&r, RIG_WORDS, &of_all[0], &alone, 1);
    bucket_rig_expect(&r, RIG_WORDS, &of_all[2], &alone, 1);
    assert_int_equal(bucket_rig_push(&r, RIG_WORDS, 0, 0, &pushes[0], &reads[0]), PIECE_APPLIED);
    assert_int_equal(bucket_rig_push(&r, RIG_WORDS, 1, 0, &pushes[1], &reads[1]), PIECE_REFUSED);
    assert_non_null(strstr(r.got[1][RIG_WORDS].text, "24 rows, at most 23 (max_rows=1)"));
    assert_int_equal(r.got[0][RIG_WORDS].n, 1);
    assert_int_equal(bucket_rig_push(&r, RIG_WORDS, 2, 0, &pushes[2], &reads[2]), PIECE_APPLIED);
    bucket_rig_check(&r, RIG_WORDS, 2, 2, &reads[2]);
    bucket_rig_check_all(&r, RIG_WORDS, 2);
    bucket_rig_close(&r);
}

/* The rows that tables may have are counted before memory is allocated for them. */
static void test_memory_of_rows_is_bounded(void **state)
{
    struct store *s = NULL;
    static const int server[RIG_DENSE + RIG_BUCKETS], other[RIG_DENSE + RIG_BUCKETS] = {0, 1, 1, 1};
    bucket_rig_open(&r, &(struct rig_config){.kind = OPTIM_ROWS_ADAM, .max_rows = 1000000});
    struct store_config cfg = {.chunks = r.chunks, .job = &r.job, .server = server};
    /* a row of 'words' has 16 bytes, 3 * 5 floats, 4 bytes up to a multiple of 8, and up to 32/3
     * bytes of the index */
    double row = 16 + 3 * RIG_MAX_DIM * 4 + 4 + 32 / 3.0;
    cfg.max_bytes = (int64_t)(1006016 * row);
    assert_int_equal(CAPTURE(store_create(&cfg, &s)), ST_RANGE);
    assert_non_null(strstr(capture_text, "the largest bucket, of table 'words', 91212117"));
    assert_non_null(strstr(capture_text, "--max_model_bytes"));
    cfg.max_bytes += 100000;
    assert_int_equal(store_create(&cfg, &s), ST_OK);
    store_destroy(s);
    cfg.server = other; /* another server has the buckets */
    cfg.max_bytes = 1000;
    assert_int_equal(store_create(&cfg, &s), ST_OK);
    store_destroy(s);
    bucket_rig_close(&r);
}

int main(void)
{
    return RUN_TESTS(test_keys_are_checked, test_gradients_are_checked,
                     test_row_that_is_not_finite_is_logged, test_counts_and_fields_are_checked,
                     test_members_agree_on_the_rate, test_full_bucket_refuses_the_step,
                     test_full_bucket_in_async_refuses_one_contribution,
                     test_memory_of_rows_is_bounded);
}
