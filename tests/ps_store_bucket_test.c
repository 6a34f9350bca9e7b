/* tests/ps_store_bucket_test.c - the store with buckets of tables: contributions in every order of
 * arrival lead to the same bits (I2), a repeated push counts once (I3), the last two versions can
 * be read (I4), and an answer has the rows that the member's last request names. */
#include "net/shm/segment.h"
#include "ps/store/chunk_state.h"
#include "ps/store/handover.h"
#include "tests/bucket_rig.h"
#include "tests/check.h"
#include <pthread.h>
#include <string.h>

enum { STEPS = 4, ALL = RIG_MEMBERS };

static struct rig r;
static struct rig_push pushes[RIG_MEMBERS], reads[RIG_MEMBERS], other;

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

/* Makes a version from the contributions of all members, in the order of `order`. */
static void make_step(int chunk, int64_t step, const int order[RIG_MEMBERS])
{
    fill(chunk, step);
    bucket_rig_expect(&r, chunk, of_all, weights, ALL);
    for (int k = 0; k < RIG_MEMBERS; k++)
        assert_int_equal(
            bucket_rig_push(&r, chunk, order[k], step, &pushes[order[k]], &reads[order[k]]),
            PIECE_NONE);
    for (int m = 0; m < RIG_MEMBERS; m++) {
        assert_int_equal(r.got[m][chunk].kind, PIECE_APPLIED);
        bucket_rig_check(&r, chunk, m, step + 1, &reads[m]);
    }
}

static const int in_order[RIG_MEMBERS] = {0, 1, 2};

static void test_all_orders_of_arrival_lead_to_the_same_bits(void **state)
{
    static const int orders[6][RIG_MEMBERS] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                               {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const enum dtype dtypes[3] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int kind = 0; kind < OPTIM_ROWS_N_KINDS; kind++)
        for (int o = 0; o < 6; o++) {
            struct rig_config c = {
                .kind = (enum optim_rows_kind)kind,
                .job = {.push_dtype = dtypes[o % 3], .version_dtype = dtypes[(o + kind) % 3]}};
            bucket_rig_open(&r, &c);
            for (int64_t step = 0; step < STEPS; step++)
                for (int chunk = RIG_DENSE; chunk < RIG_DENSE + RIG_BUCKETS; chunk++)
                    make_step(chunk, step, orders[(o + (int)step) % 6]);
            for (int chunk = RIG_DENSE; chunk < RIG_DENSE + RIG_BUCKETS; chunk++)
                bucket_rig_check_all(&r, chunk, STEPS);
            assert_int_equal(store_step(r.store), -1); /* the dense chunk has no value */
            assert_int_equal(store_highest(r.store), STEPS);
            bucket_rig_close(&r);
        }
}

static void test_first_request_needs_no_init(void **state)
{
    bucket_rig_open(&r, &plain);
    assert_int_equal(bucket_rig_pull(&r, 1, 2, -1, NULL), PIECE_VERSION);
    assert_int_equal(r.got[2][1].step, 0);
    assert_int_equal(r.got[2][1].rows, 0);
    bucket_rig_check_all(&r, 1, 0); /* initial values: reads create nothing */
    bucket_rig_close(&r);
}

static void test_repeated_push_counts_once(void **state)
{
    bucket_rig_open(&r, &plain);
    fill(1, 0);
    bucket_rig_expect(&r, 1, of_all, weights, ALL);
    assert_int_equal(bucket_rig_push(&r, 1, 1, 0, &pushes[1], &reads[1]), PIECE_NONE);
    /* while it waits: once the same, once with other read keys, whose rows the answer has */
    assert_int_equal(bucket_rig_push(&r, 1, 1, 0, &pushes[1], &reads[1]), PIECE_NONE);
    assert_int_equal(bucket_rig_push(&r, 1, 1, 0, &pushes[1], &reads[2]), PIECE_NONE);
    assert_int_equal(bucket_rig_push(&r, 1, 0, 0, &pushes[0], &reads[0]), PIECE_NONE);
    assert_int_equal(bucket_rig_push(&r, 1, 2, 0, &pushes[2], NULL), PIECE_NONE);
    assert_int_equal(r.got[1][1].n, 1);
    bucket_rig_check(&r, 1, 1, 1, &reads[2]);
    assert_int_equal(r.got[2][1].rows, 0);
    /* after the version was made, also with another gradient */
    bucket_rig_fill(&r, 1, 0, 5, 90, &other);
    assert_int_equal(bucket_rig_push(&r, 1, 0, 0, &other, &reads[1]), PIECE_DUPLICATE);
    bucket_rig_check(&r, 1, 0, 1, &reads[1]);
    bucket_rig_check_all(&r, 1, 1);
    make_step(1, 1, in_order);
    assert_int_equal(bucket_rig_push(&r, 1, 0, 0, &other, &reads[1]), PIECE_STALE);
    bucket_rig_check(&r, 1, 0, 2, &reads[1]);
    bucket_rig_close(&r);
}

static void test_later_process_of_a_member_receives_the_answer(void **state)
{
    bucket_rig_open(&r, &plain);
    fill(1, 0);
    bucket_rig_expect(&r, 1, of_all, weights, ALL);
    assert_int_equal(bucket_rig_push(&r, 1, 1, 0, &pushes[1], &reads[1]), PIECE_NONE);
    store_admit(r.store, 1, RIG_INCARNATION + 101);
    r.shifted = true;
    bucket_rig_fill(&r, 1, 1, 9, 90, &other); /* its contribution has counted already */
    assert_int_equal(bucket_rig_push(&r, 1, 1, 0, &other, &reads[2]), PIECE_NONE);
    r.shifted = false;
    assert_int_equal(bucket_rig_push(&r, 1, 0, 0, &pushes[0], &reads[0]), PIECE_NONE);
    assert_int_equal(bucket_rig_push(&r, 1, 2, 0, &pushes[2], &reads[2]), PIECE_NONE);
    assert_int_equal(r.got[1][1].incarnation, RIG_INCARNATION + 101);
    bucket_rig_check(&r, 1, 1, 1, &reads[2]);
    bucket_rig_check_all(&r, 1, 1);
    bucket_rig_close(&r);
}

/* A push of an earlier step arrives late, from a stream that has broken. The answer that the member
 * waits for has the rows of its later push. */
static void test_late_push_of_an_earlier_step_names_no_rows(void **state)
{
    static struct rig_push late;
    bucket_rig_open(&r, &plain);
    make_step(1, 0, in_order);
    late = pushes[0];
    bucket_rig_fill_reads(&r, 1, 40, 3, &other);
    fill(1, 1);
    bucket_rig_expect(&r, 1, of_all, weights, ALL);
    assert_int_equal(bucket_rig_push(&r, 1, 0, 1, &pushes[0], &reads[0]), PIECE_NONE);
    assert_int_not_equal(bucket_rig_push(&r, 1, 0, 0, &late, &other), PIECE_REFUSED);
    for (int m = 1; m < RIG_MEMBERS; m++)
        assert_int_equal(bucket_rig_push(&r, 1, m, 1, &pushes[m], &reads[m]), PIECE_NONE);
    for (int m = 0; m < RIG_MEMBERS; m++) {
        assert_int_equal(r.got[m][1].kind, PIECE_APPLIED);
        bucket_rig_check(&r, 1, m, 2, &reads[m]);
    }
    bucket_rig_close(&r);
}

/* The same is true of a late PULL, and of late pieces while the member waits for a PULL. */
static void test_late_pull_names_no_rows(void **state)
{
    struct rig_config c = plain;
    c.job.train_steps = 2;
    c.hold_last = true;
    bucket_rig_open(&r, &c);
    make_step(1, 0, in_order);
    bucket_rig_fill_reads(&r, 1, 40, 3, &other);
    fill(1, 1);
    bucket_rig_expect(&r, 1, of_all, weights, ALL);
    assert_int_equal(bucket_rig_push(&r, 1, 0, 1, &pushes[0], &reads[0]), PIECE_NONE);
    assert_int_equal(bucket_rig_pull(&r, 1, 0, 1, &other), PIECE_VERSION);
    for (int m = 1; m < RIG_MEMBERS; m++)
        assert_int_equal(bucket_rig_push(&r, 1, m, 1, &pushes[m], &reads[m]), PIECE_NONE);
    bucket_rig_fill_reads(&r, 1, 20, 9, &reads[1]);
    assert_int_equal(bucket_rig_pull(&r, 1, 1, 2, &reads[1]), PIECE_NONE);
    handover_hold_last(r.store, 0);
    assert_int_equal(r.got[0][1].kind, PIECE_APPLIED);
    bucket_rig_check(&r, 1, 0, 2, &reads[0]);
    bucket_rig_close(&r);
}

static void test_late_pieces_beside_a_pull_name_no_rows(void **state)
{
    struct rig_config c = plain;
    c.job.train_steps = 1;
    c.job.sync_mode = JOB_ASYNC;
    c.hold_last = true;
    bucket_rig_open(&r, &c);
    fill(1, 0);
    bucket_rig_fill_reads(&r, 1, 40, 3, &other);
    bucket_rig_expect(&r, 1, of_all, weights, 1);
    assert_int_equal(bucket_rig_push(&r, 1, 0, 0, &pushes[0], &reads[0]), PIECE_APPLIED);
    assert_int_equal(bucket_rig_pull(&r, 1, 0, 1, &reads[0]), PIECE_NONE);
    assert_int_not_equal(bucket_rig_push(&r, 1, 0, 0, &pushes[0], &other), PIECE_REFUSED);
    assert_int_not_equal(bucket_rig_pull(&r, 1, 0, 0, &other), PIECE_REFUSED);
    handover_hold_last(r.store, 0);
    assert_int_equal(r.got[0][1].kind, PIECE_VERSION);
    bucket_rig_check(&r, 1, 0, 1, &reads[0]);
    bucket_rig_close(&r);
}

static void test_last_two_versions_are_readable(void **state)
{
    bucket_rig_open(&r, &plain);
    make_step(1, 0, in_order);
    make_step(1, 1, in_order);
    bucket_rig_check_all(&r, 1, 2);
    bucket_rig_check_all(&r, 1, 1);
    /* an older version is not kept: the answer has the present one */
    assert_int_equal(bucket_rig_pull(&r, 1, 0, 0, &reads[0]), PIECE_VERSION);
    bucket_rig_check(&r, 1, 0, 2, &reads[0]);
    /* a pull of the next version waits for it */
    assert_int_equal(bucket_rig_pull(&r, 1, 0, 3, &reads[0]), PIECE_NONE);
    fill(1, 2);
    bucket_rig_expect(&r, 1, of_all, weights, ALL);
    bucket_rig_fill_reads(&r, 1, 30, 5, &other);
    assert_int_equal(bucket_rig_push(&r, 1, 0, 2, &pushes[0], &other), PIECE_NONE);
    assert_int_equal(bucket_rig_push(&r, 1, 2, 2, &pushes[2], &reads[2]), PIECE_NONE);
    assert_int_equal(bucket_rig_push(&r, 1, 1, 2, &pushes[1], &reads[1]), PIECE_NONE);
    bucket_rig_check(&r, 1, 0, 3, &other);
    bucket_rig_close(&r);
}

static void test_contribution_of_weight_0_only_reads(void **state)
{
    static const float some[RIG_MEMBERS] = {0, 0.375f, 0.5f}, none[RIG_MEMBERS];
    const struct rig_push *const two[RIG_MEMBERS] = {NULL, &pushes[1], &pushes[2]};
    const struct rig_push *const no[RIG_MEMBERS] = {NULL, NULL, NULL};
    bucket_rig_open(&r, &plain);
    fill(1, 0);
    bucket_rig_expect(&r, 1, two, some, ALL);
    assert_int_equal(bucket_rig_push(&r, 1, 1, 0, &pushes[1], &reads[1]), PIECE_NONE);
    assert_int_equal(bucket_rig_push(&r, 1, 2, 0, &pushes[2], &reads[2]), PIECE_NONE);
    assert_int_equal(bucket_rig_push(&r, 1, 0, 0, NULL, &reads[0]), PIECE_NONE);
    bucket_rig_check(&r, 1, 0, 1, &reads[0]);
    bucket_rig_check_all(&r, 1, 1);
    bucket_rig_expect(&r, 1, no, none, ALL); /* all skip the step: no row changes */
    for (int m = 0; m < RIG_MEMBERS; m++)
        assert_int_equal(bucket_rig_push(&r, 1, m, 1, NULL, &reads[m]), PIECE_NONE);
    bucket_rig_check(&r, 1, 0, 2, &reads[0]);
    bucket_rig_check_all(&r, 1, 2);
    bucket_rig_close(&r);
}

/* A member without keys still counts in the divisor of the mean. */
static void test_empty_contribution_counts_in_the_mean(void **state)
{
    bucket_rig_open(&r, &plain);
    fill(1, 0);
    pushes[1].n = 0;
    bucket_rig_expect(&r, 1, of_all, weights, ALL);
    for (int m = 0; m < RIG_MEMBERS; m++)
        assert_int_equal(bucket_rig_push(&r, 1, m, 0, &pushes[m], &reads[m]), PIECE_NONE);
    bucket_rig_check_all(&r, 1, 1);
    bucket_rig_close(&r);
}

static void test_async_makes_a_version_of_each_contribution(void **state)
{
    static const float alone = 1;
    const struct rig_config c = {.kind = OPTIM_ROWS_ADAM, .job = {.sync_mode = JOB_ASYNC}};
    bucket_rig_open(&r, &c);
    fill(1, 0);
    for (int m = 0; m < RIG_MEMBERS; m++) { /* all computed on version 0 */
        bucket_rig_expect(&r, 1, &of_all[m], &alone, 1);
        assert_int_equal(bucket_rig_push(&r, 1, m, 0, &pushes[m], &reads[m]), PIECE_APPLIED);
        bucket_rig_check(&r, 1, m, m + 1, &reads[m]);
    }
    assert_int_equal(bucket_rig_push(&r, 1, 2, 0, &pushes[2], &reads[1]), PIECE_DUPLICATE);
    bucket_rig_check(&r, 1, 2, 3, &reads[1]);
    /* only the present version is kept */
    assert_int_equal(bucket_rig_pull(&r, 1, 0, 2, &reads[0]), PIECE_VERSION);
    bucket_rig_check(&r, 1, 0, 3, &reads[0]);
    bucket_rig_check_all(&r, 1, 3);
    bucket_rig_close(&r);
}

static void test_ssp_answers_when_slower_members_are_near(void **state)
{
    static const float alone = 1;
    const struct rig_config c = {.kind = OPTIM_ROWS_SGD,
                                 .job = {.sync_mode = JOB_SSP, .staleness = 1}};
    bucket_rig_open(&r, &c);
    for (int64_t step = 0; step < 2; step++) {
        fill(1, step);
        bucket_rig_expect(&r, 1, of_all, &alone, 1);
        assert_int_equal(bucket_rig_push(&r, 1, 0, step, &pushes[0], &reads[0]), PIECE_NONE);
        assert_int_equal(r.got[0][1].n, 1); /* two steps ahead of both other members, it waits */
    }
    for (int m = 1; m < RIG_MEMBERS; m++) {
        fill(1, 2);
        bucket_rig_expect(&r, 1, &of_all[m], &alone, 1);
        assert_int_equal(bucket_rig_push(&r, 1, m, 0, &pushes[m], &reads[m]), PIECE_NONE);
        bucket_rig_check(&r, 1, m, 2 + m, &reads[m]);
    }
    assert_int_equal(r.got[0][1].n, 2);
    bucket_rig_check(&r, 1, 0, 4, &reads[0]);
    bucket_rig_close(&r);
}

static void test_factor_of_the_learning_rate(void **state)
{
    static struct rig_push half[RIG_MEMBERS];
    const struct rig_push *const halves[RIG_MEMBERS] = {&half[0], &half[1], &half[2]};
    const struct rig_config c = {.kind = OPTIM_ROWS_SGD};
    static uint8_t payload[RIG_PAYLOAD_BYTES];
    bucket_rig_open(&r, &c);
    fill(1, 0);
    for (int m = 0; m < RIG_MEMBERS; m++) { /* sgd: half the rate is half the gradient */
        half[m] = pushes[m];
        for (size_t i = 0; i < half[m].n * 3; i++)
            half[m].gradients[i] /= 2;
    }
    bucket_rig_expect(&r, 1, halves, weights, ALL);
    for (int m = 0; m < RIG_MEMBERS; m++) {
        const struct net_piece piece = {.kind = PIECE_PUSH,
                                        .chunk = 1,
                                        .weight = bucket_rig_weight(m),
                                        .has_rate = true,
                                        .rate = 0.5f,
                                        .rows = (uint32_t)pushes[m].n,
                                        .payload.bytes =
                                            bucket_rig_encode(&r, 1, &pushes[m], NULL, payload)};
        assert_int_equal(bucket_rig_send(&r, m, piece, payload), PIECE_NONE);
    }
    bucket_rig_check_all(&r, 1, 1);
    bucket_rig_close(&r);
}

static void test_stop_ends_waits(void **state)
{
    bucket_rig_open(&r, &plain);
    fill(1, 0);
    assert_int_equal(bucket_rig_push(&r, 1, 1, 0, &pushes[1], &reads[1]), PIECE_NONE);
    handover_stop(r.store);
    assert_int_equal(r.got[1][1].kind, PIECE_REBASE);
    assert_int_equal(bucket_rig_push(&r, 1, 0, 0, &pushes[0], &reads[0]), PIECE_REBASE);
    assert_int_equal(bucket_rig_pull(&r, 1, 0, -1, &reads[0]), PIECE_REBASE);
    handover_empty(r.store);
    assert_int_equal(bucket_rig_pull(&r, 1, 0, -1, &reads[0]), PIECE_REBASE);
    assert_int_equal(store_highest(r.store), 0);
    bucket_rig_close(&r);
}

static void test_last_version_is_held_back(void **state)
{
    struct rig_config c = plain;
    c.hold_last = true;
    bucket_rig_open(&r, &c);
    for (int64_t step = 0; step + 1 < r.job.train_steps; step++)
        make_step(1, step, in_order);
    fill(1, 19);
    bucket_rig_expect(&r, 1, of_all, weights, ALL);
    int before = r.got[1][1].n;
    for (int m = 0; m < RIG_MEMBERS; m++)
        assert_int_equal(bucket_rig_push(&r, 1, m, 19, &pushes[m], &reads[m]), PIECE_NONE);
    assert_int_equal(r.got[1][1].n, before);
    /* a repeated push waits, too, and its read keys count */
    assert_int_equal(bucket_rig_push(&r, 1, 1, 19, &pushes[1], &reads[2]), PIECE_NONE);
    handover_hold_last(r.store, 0);
    assert_int_equal(r.got[1][1].n, before + 1);
    bucket_rig_check(&r, 1, 1, 20, &reads[2]);
    bucket_rig_check(&r, 1, 0, 20, &reads[0]);
    assert_int_equal(bucket_rig_push(&r, 1, 0, 20, &pushes[0], &reads[0]), PIECE_STALE);
    bucket_rig_close(&r);
}

static void test_admission_and_eviction(void **state)
{
    const struct rig_config c = {.kind = OPTIM_ROWS_ADAGRAD, .admit_after = 2, .evict_after = 3};
    bucket_rig_open(&r, &c);
    for (int64_t step = 0; step < 12; step++) {
        make_step(RIG_WORDS, step, in_order);
        bucket_rig_check_all(&r, RIG_WORDS, step + 1);
        if (step > 0)
            bucket_rig_check_all(&r, RIG_WORDS, step);
    }
    bucket_rig_close(&r);
}

/* An answer does not change while a member on this host reads it, and the memory is used again. */
static void test_answers_in_shared_memory(void **state)
{
    struct segment_name name;
    uint64_t places[RIG_MEMBERS][6] = {{0}}, stamps[RIG_MEMBERS][6];
    for (int k = 0; k < 2; k++) {
        const struct rig_config c = {.kind = OPTIM_ROWS_ADAGRAD,
                                     .shared_memory = true,
                                     .job.version_dtype = k ? DTYPE_BF16 : DTYPE_F32};
        bucket_rig_open(&r, &c);
        store_segment(r.store, &name);
        assert_true(name.bytes > 0);
        r.is_local = true;
        for (int step = 0; step < 6; step++) {
            make_step(1, step, in_order);
            for (int m = 0; m < RIG_MEMBERS; m++) {
                places[m][step] = r.got[m][1].lent->shared;
                stamps[m][step] = segment_stamp(r.got[m][1].lent->data);
                assert_in_range(places[m][step], 1, name.bytes);
                if (step >= 2) {
                    assert_int_equal(places[m][step], places[m][step - 2]);
                    assert_int_not_equal(stamps[m][step], stamps[m][step - 2]);
                }
                for (int other = 0; other < m; other++)
                    assert_int_not_equal(places[m][step], places[other][step]);
            }
        }
        r.is_local = false; /* the next answers are not in the segment */
        assert_int_equal(bucket_rig_pull(&r, 1, 1, -1, &reads[1]), PIECE_VERSION);
        bucket_rig_check(&r, 1, 1, 6, &reads[1]);
        bucket_rig_close(&r);
    }
}

/* Threads merge the contributions to several buckets in parallel. */
static void test_threads_make_the_same_versions(void **state)
{
    static const int orders[3][RIG_MEMBERS] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
    static struct rig_push all[RIG_DENSE + RIG_BUCKETS][RIG_MEMBERS];
    bucket_rig_open(&r, &(struct rig_config){.kind = OPTIM_ROWS_ADAM, .has_threads = true});
    for (int64_t step = 0; step < 12; step++) {
        for (int chunk = RIG_DENSE; chunk < RIG_DENSE + RIG_BUCKETS; chunk++) {
            fill(chunk, step);
            bucket_rig_expect(&r, chunk, of_all, weights, ALL);
            memcpy(all[chunk], pushes, sizeof pushes);
        }
        for (int k = 0; k < RIG_MEMBERS; k++)
            for (int chunk = RIG_DENSE; chunk < RIG_DENSE + RIG_BUCKETS; chunk++) {
                int m = orders[step % 3][k];
                bucket_rig_fill_reads(&r, chunk, (size_t)m * 7, 20 + (size_t)m, &reads[m]);
                assert_int_equal(bucket_rig_push(&r, chunk, m, step, &all[chunk][m], &reads[m]),
                                 PIECE_NONE);
            }
        bucket_rig_settle(&r);
        for (int chunk = RIG_DENSE; chunk < RIG_DENSE + RIG_BUCKETS; chunk++)
            for (int m = 0; m < RIG_MEMBERS; m++) {
                bucket_rig_fill_reads(&r, chunk, (size_t)m * 7, 20 + (size_t)m, &reads[m]);
                assert_int_equal(r.got[m][chunk].kind, PIECE_APPLIED);
                assert_int_equal(r.got[m][chunk].n, step + 1);
                bucket_rig_check(&r, chunk, m, step + 1, &reads[m]);
            }
    }
    for (int chunk = RIG_DENSE; chunk < RIG_DENSE + RIG_BUCKETS; chunk++)
        bucket_rig_check_all(&r, chunk, 12);
    bucket_rig_close(&r);
}

/* A stop waits for versions that threads are making. */
static void test_stop_waits_for_threads(void **state)
{
    bucket_rig_open(&r, &(struct rig_config){.kind = OPTIM_ROWS_SGD, .has_threads = true});
    for (int chunk = RIG_DENSE; chunk < RIG_DENSE + RIG_BUCKETS; chunk++) {
        fill(chunk, 0);
        for (int m = 0; m < RIG_MEMBERS; m++)
            assert_int_equal(bucket_rig_push(&r, chunk, m, 0, &pushes[m], &reads[m]), PIECE_NONE);
    }
    handover_stop(r.store);
    for (int chunk = RIG_DENSE; chunk < RIG_DENSE + RIG_BUCKETS; chunk++)
        for (int m = 0; m < RIG_MEMBERS; m++) {
            assert_int_equal(r.got[m][chunk].kind, PIECE_APPLIED);
            assert_int_equal(r.got[m][chunk].step, 1);
        }
    bucket_rig_close(&r);
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void pass_gate(void *ctx, int k)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

static void end_loop(void *ctx)
{
}

/* A later process of a member pushes again while a stop waits for the version. */
static void test_push_during_a_stop_names_the_rows(void **state)
{
    static struct thread_loop busy = {.part = pass_gate, .ended = end_loop, .n = 2, .order = -1};
    bucket_rig_open(&r, &(struct rig_config){.kind = OPTIM_ROWS_ADAGRAD, .has_threads = true});
    struct chunk_state *c = &r.store->owned[r.store->shelf_of[1]];
    pthread_mutex_lock(&gate);
    thread_pool_start(r.threads, &busy); /* both threads of the pool wait */
    fill(1, 0);
    bucket_rig_expect(&r, 1, of_all, weights, ALL);
    for (int m = 0; m < RIG_MEMBERS; m++)
        assert_int_equal(bucket_rig_push(&r, 1, m, 0, &pushes[m], &reads[m]), PIECE_NONE);
    pthread_mutex_lock(&c->lock);
    c->is_stopped = true; /* handover_stop sets it before it waits */
    pthread_mutex_unlock(&c->lock);
    store_admit(r.store, 0, RIG_INCARNATION + 100);
    r.shifted = true;
    bucket_rig_fill_reads(&r, 1, 40, 3, &other);
    assert_int_equal(bucket_rig_push(&r, 1, 0, 0, &pushes[0], &other), PIECE_NONE);
    pthread_mutex_unlock(&gate);
    handover_stop(r.store);
    assert_int_equal(r.got[0][1].kind, PIECE_APPLIED);
    assert_int_equal(r.got[0][1].incarnation, RIG_INCARNATION + 100);
    bucket_rig_check(&r, 1, 0, 1, &other);
    bucket_rig_check(&r, 1, 1, 1, &reads[1]);
    bucket_rig_close(&r);
}

int main(void)
{
    return RUN_TESTS(
        test_all_orders_of_arrival_lead_to_the_same_bits, test_first_request_needs_no_init,
        test_repeated_push_counts_once, test_later_process_of_a_member_receives_the_answer,
        test_late_push_of_an_earlier_step_names_no_rows, test_late_pull_names_no_rows,
        test_late_pieces_beside_a_pull_name_no_rows, test_last_two_versions_are_readable,
        test_contribution_of_weight_0_only_reads, test_empty_contribution_counts_in_the_mean,
        test_async_makes_a_version_of_each_contribution,
        test_ssp_answers_when_slower_members_are_near, test_factor_of_the_learning_rate,
        test_stop_ends_waits, test_last_version_is_held_back, test_admission_and_eviction,
        test_answers_in_shared_memory, test_threads_make_the_same_versions,
        test_stop_waits_for_threads, test_push_during_a_stop_names_the_rows);
}
