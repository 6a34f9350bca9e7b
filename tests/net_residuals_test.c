/* tests/net_residuals_test.c - the residual is the part that rounding removes from a contribution.
 * It is added to the next contribution exactly once, even if steps are repeated or skipped, or a
 * contribution does not count. */
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

/* Checks that all residuals for the chunk's contribution to `step` equal `in`, and sets them to
 * `out`. */
static void round_step(int chunk, int64_t step, float in, float out)
{
    float *r = residuals_of(residuals, chunk, step);
    for (int64_t i = 0; i < chunks->chunks[chunk].n_elems; i++) {
        assert_true(r[i] == in);
        r[i] = out;
    }
}

static void residual_is_added_to_next_contribution(void **state)
{
    for (int c = 0; c < chunks->n_chunks; c++)
        round_step(c, 0, 0, (float)c + 1);
    for (int c = chunks->n_chunks; c-- > 0;)
        round_step(c, 1, (float)c + 1, (float)c + 10);
    for (int c = 0; c < chunks->n_chunks; c++)
        round_step(c, 2, (float)c + 10, 0);
}

/* A repeated step adds the same residual as its first attempt. */
static void repeated_step_adds_same_residual(void **state)
{
    round_step(1, 7, 0, 5);
    round_step(1, 8, 5, 6);
    round_step(1, 8, 5, 7);
    round_step(1, 8, 5, 8);
    round_step(1, 9, 8, 0);
    round_step(0, 9, 0, 0); /* chunks are independent of each other */
}

static void skipped_step_keeps_residual(void **state)
{
    round_step(0, 3, 0, 2);
    residuals_of(residuals, 0, 4); /* the step is skipped: no new residual is written */
    round_step(0, 5, 2, 1);
    round_step(0, 9, 1, 0); /* steps need not be consecutive */
}

static void older_step_resets_residual(void **state)
{
    round_step(0, 20, 0, 2);
    round_step(0, 21, 2, 3);
    round_step(0, 10, 0, 4);
    round_step(0, 11, 4, 0);
    round_step(0, 10, 0, 0);
}

/* A contribution that did not count is sent again as a part of the next contribution. The residual
 * that was added to the first one is added again, and the residual of its rounding is dropped. */
static void uncounted_contribution_is_added_once(void **state)
{
    round_step(0, 5, 0, 2);
    round_step(0, 6, 2, 9);
    residuals_restore(residuals, 0, 6);
    residuals_restore(residuals, 1, 6); /* chunk 1 had no contribution to step 6 */
    round_step(0, 8, 2, 3);
    residuals_restore(residuals, 0, 6); /* an older step: ignored */
    round_step(0, 9, 3, 0);
    round_step(1, 9, 0, 0);
}

/* The residual of one process is added to the next contribution of another. */
static void residual_moves_to_another_process(void **state)
{
    struct residuals *next = NULL;
    assert_int_equal(residuals_create(chunks, &next), ST_OK);
    for (int c = 0; c < chunks->n_chunks; c++) {
        round_step(c, 5, 0, (float)c + 1);
        residuals_of(residuals, c, 6); /* the chunk had no turn */
        residuals_set(next, c, 6, residuals_last(residuals, c));
    }
    residuals_destroy(residuals);
    residuals = next;
    for (int c = 0; c < chunks->n_chunks; c++)
        round_step(c, 7, (float)c + 1, 0);
}

int main(void)
{
    return RUN_EACH(setup, teardown, residual_is_added_to_next_contribution,
                    repeated_step_adds_same_residual, skipped_step_keeps_residual,
                    older_step_resets_residual, uncounted_contribution_is_added_once,
                    residual_moves_to_another_process);
}
