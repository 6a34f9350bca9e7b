/* tests/net_residuals_test.c - what rounding takes off a contribution comes with the next one:
 * once, whatever is done again, skipped, or taken back. */
#include "net/exchange/residuals.h"
#include "tests/check.h"
#include <stdlib.h>

static const struct net_param model[] = {{.name = "a", .shape = {1, {3000}}},
                                         {.name = "b", .shape = {1, {1500}}}};
static struct chunks *chunks;
static struct residuals *residuals;

static int setup(void **state)
{
    return chunks_create(model, 2, 8192, &chunks) != ST_OK ||
           residuals_create(chunks, &residuals) != ST_OK;
}

static int teardown(void **state)
{
    residuals_destroy(residuals);
    chunks_destroy(chunks);
    return 0;
}

/* Rounds the chunk's contribution to `step`, to which all of `in` has to be added, with `out` left
 * over. */
static void round_step(int chunk, int64_t step, float in, float out)
{
    float *r = residuals_of(residuals, chunk, step);
    for (int64_t i = 0; i < chunks->chunks[chunk].n_elems; i++) {
        assert_true(r[i] == in);
        r[i] = out;
    }
}

static void test_goes_into_the_next(void **state)
{
    for (int c = 0; c < chunks->n_chunks; c++)
        round_step(c, 0, 0, (float)c + 1);
    for (int c = chunks->n_chunks; c-- > 0;)
        round_step(c, 1, (float)c + 1, (float)c + 10);
    for (int c = 0; c < chunks->n_chunks; c++)
        round_step(c, 2, (float)c + 10, 0);
}

/* From what it was the first time, however often. */
static void test_a_step_is_done_again(void **state)
{
    round_step(1, 7, 0, 5);
    round_step(1, 8, 5, 6);
    round_step(1, 8, 5, 7);
    round_step(1, 8, 5, 8);
    round_step(1, 9, 8, 0);
    round_step(0, 9, 0, 0); /* chunks know nothing of each other */
}

static void test_a_skipped_step_keeps_it(void **state)
{
    round_step(0, 3, 0, 2);
    residuals_of(residuals, 0, 4); /* nothing is rounded, nothing written */
    round_step(0, 5, 2, 1);
    round_step(0, 9, 1, 0); /* where steps are not one after the other */
}

static void test_way_back(void **state)
{
    round_step(0, 20, 0, 2);
    round_step(0, 21, 2, 3);
    round_step(0, 10, 0, 4);
    round_step(0, 11, 4, 0);
    round_step(0, 10, 0, 0);
}

/* What was contributed is contributed once more, with what is new: what had been left over before
 * is added once, and what this one left over not at all. */
static void test_taken_back(void **state)
{
    round_step(0, 5, 0, 2);
    round_step(0, 6, 2, 9);
    residuals_take_back(residuals, 0, 6);
    residuals_take_back(residuals, 1, 6); /* which had no part in it */
    round_step(0, 8, 2, 3);
    residuals_take_back(residuals, 0, 6); /* that is long ago */
    round_step(0, 9, 3, 0);
    round_step(1, 9, 0, 0);
}

/* What one process has kept goes into the next contribution of another. */
static void test_of_another_process(void **state)
{
    struct residuals *next = NULL;
    assert_int_equal(residuals_create(chunks, &next), ST_OK);
    for (int c = 0; c < chunks->n_chunks; c++) {
        round_step(c, 5, 0, (float)c + 1);
        residuals_of(residuals, c, 6); /* it had no turn */
        residuals_set(next, c, 6, residuals_last(residuals, c));
    }
    residuals_destroy(residuals);
    residuals = next;
    for (int c = 0; c < chunks->n_chunks; c++)
        round_step(c, 7, (float)c + 1, 0);
}

int main(void)
{
    return RUN_EACH(setup, teardown, test_goes_into_the_next, test_a_step_is_done_again,
                    test_a_skipped_step_keeps_it, test_way_back, test_taken_back,
                    test_of_another_process);
}
